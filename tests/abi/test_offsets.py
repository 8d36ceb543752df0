"""Every offset, size and number against tables taken from the specification, not from the code."""

import json
from pathlib import Path

import pytest

from hdl.abi import docs, enums, virtio_pci, virtio_rdma
from hdl.abi.enums import ControlCommand

ROOT = Path(__file__).parents[2]
TABLE = json.loads((ROOT / "tests" / "data" / "abi_offsets.json").read_text())
STRUCTS = {struct.name: struct for struct in virtio_rdma.STRUCTS}

#: Raw bytes where the specification's table has a scalar "in network byte order" (E-8, E-9).
OPAQUE = {"sys_image_guid": "u8[8]", "ex": "ex_u"}
#: Fields that extensions have in the specification's reserved bytes, which are called ``reserved``.
EXTENSION_FIELDS = {
    "virtio_rdma_config": [
        *("max_srq", "max_srq_wr", "max_srq_sge", "max_xrcd"),
        *("max_mp_wr_buffer", "max_mp_wr_align", "max_dct", "max_dc_contexts", "max_dc_rd_atom"),
        *("max_dc_init_rd_atom", "max_dci_log_streams", "max_dci_log_errored"),
        *("max_dc_destinations", "max_mkey_entries", "max_memcpy_length"),
    ],
    "cmd_create_qp": [
        *("srqn", "xrcdn", "dc_key", "log_streams", "log_errored", "create_flags"),
        *("mp_wr_buffer", "mp_wr_align_log2"),
    ],
}


def test_every_structure_of_the_table_exists():
    assert set(TABLE) == set(STRUCTS)


@pytest.mark.parametrize("name", TABLE)
def test_offsets_and_sizes(name):
    struct = STRUCTS[name]
    assert struct.size == TABLE[name]["size"]
    found = [
        [place.path, place.kind.type_name, place.offset, place.size]
        for place in struct.places()
        if not place.path.startswith(
            ("ex.", "wr.bind", "wr.flush", "wr.atomic_write", "wr.mkey", "wr.xrc", "wr.dc")
        )  # of an extension
    ]
    expected = [
        [path, OPAQUE.get(path, kind), offset, size]
        for path, kind, offset, size in TABLE[name]["fields"]
    ]
    fields = EXTENSION_FIELDS.get(name, [])
    if fields:
        *expected, (_, _, first, size) = expected
        own, found = found[len(expected) :], found[: len(expected)]
        assert [path for path, *_ in own if "reserved" not in path] == fields
        for _, _, offset, each in own:  # one behind the other
            assert offset == first
            first += each
        assert sum(each for *_, each in own) == size
    assert found == expected


@pytest.mark.parametrize(
    ("struct", "size", "offsets"),
    [
        (virtio_pci.PCI_HEADER, 64, {"status": 6, "bar": 16, "capabilities": 52}),
        (
            virtio_pci.VIRTIO_PCI_CAP,
            16,
            {"cfg_type": 3, "bar": 4, "offset": 8, "length": 12},
        ),
        (virtio_pci.VIRTIO_PCI_NOTIFY_CAP, 20, {"notify_off_multiplier": 16}),
        (virtio_pci.VIRTIO_PCI_CFG_CAP, 20, {"pci_cfg_data": 16}),
        (virtio_pci.MSIX_CAP, 12, {"message_control": 2, "table": 4, "pba": 8}),
        (virtio_pci.MSIX_ENTRY, 16, {"message_data": 8, "vector_control": 12}),
        (
            virtio_pci.COMMON_CFG,
            0x3C,
            {
                "device_feature_select": 0x00,
                "device_feature": 0x04,
                "driver_feature_select": 0x08,
                "driver_feature": 0x0C,
                "config_msix_vector": 0x10,
                "num_queues": 0x12,
                "device_status": 0x14,
                "config_generation": 0x15,
                "queue_select": 0x16,
                "queue_size": 0x18,
                "queue_msix_vector": 0x1A,
                "queue_enable": 0x1C,
                "queue_notify_off": 0x1E,
                "queue_desc": 0x20,
                "queue_driver": 0x28,
                "queue_device": 0x30,
                "queue_notify_data": 0x38,
                "queue_reset": 0x3A,
            },
        ),
        (virtio_pci.DESC, 16, {"addr": 0, "len": 8, "flags": 12, "next": 14}),
        (virtio_pci.USED_ELEMENT, 8, {"id": 0, "len": 4}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_virtio_pci(struct, size, offsets):
    assert struct.size == size
    assert {path: struct.offset(path) for path in offsets} == offsets


@pytest.mark.parametrize("size", [1, 2, 256, 32768])
def test_ring_sizes(size):
    assert virtio_pci.desc_table_size(size) == 16 * size
    assert virtio_pci.avail_ring_size(size) == 6 + 2 * size
    assert virtio_pci.used_ring_size(size) == 6 + 8 * size
    assert virtio_pci.used_event_offset(size) == 4 + 2 * size
    assert virtio_pci.avail_event_offset(size) == 4 + 8 * size


def numbers(cls):
    return {item.name: item.value for item in cls}


def test_commands_are_complete():
    assert list(virtio_rdma.COMMANDS) == list(ControlCommand)
    assert [c.value for c in ControlCommand] == list(range(1, 19))
    for command, (request, response) in virtio_rdma.COMMANDS.items():
        base = {"REQ_NOTIFY_CQ": "req_notify"}.get(command.name, command.name.lower())
        assert request.name in (f"cmd_{base}", "nothing")
        assert response.name in (f"rsp_{base}", "nothing")


def test_extension_commands():
    """Above those of the specification, and each in one extension."""
    commands = [one for each in virtio_rdma.EXTENSIONS.values() for one in each]
    assert sorted(commands) == sorted(enums.ExtensionCommand) and min(commands) >= 32
    for command in commands:
        request, response = virtio_rdma.structures(command)
        assert request.name == f"cmd_{command.name.lower()}"
        assert response.name in (f"rsp_{command.name.lower()}", "nothing")
    assert all(feature < virtio_rdma.DEVICE_FEATURES for feature in enums.RdmaFeature)


def sequence(text, first=0):
    return {name: value for value, name in enumerate(text.split(), first)}


def test_sequences():
    assert numbers(enums.WcStatus) == sequence(
        "SUCCESS LOC_LEN_ERR LOC_QP_OP_ERR LOC_EEC_OP_ERR LOC_PROT_ERR WR_FLUSH_ERR MW_BIND_ERR "
        "BAD_RESP_ERR LOC_ACCESS_ERR REM_INV_REQ_ERR REM_ACCESS_ERR REM_OP_ERR RETRY_EXC_ERR "
        "RNR_RETRY_EXC_ERR LOC_RDD_VIOL_ERR REM_INV_RD_REQ_ERR REM_ABORT_ERR INV_EECN_ERR "
        "INV_EEC_STATE_ERR FATAL_ERR RESP_TIMEOUT_ERR GENERAL_ERR"
    )
    assert numbers(enums.QpState) == sequence("RESET INIT RTR RTS SQD SQE ERR")
    types = sequence("SMI GSI RC UC UD") | {"XRC_INI": 9, "XRC_TGT": 10}  # libibverbs' numbers
    types |= {"DCI": 0xF0, "DCT": 0xF1}
    assert numbers(enums.QpType) == types
    assert numbers(enums.PortState) == sequence("NOP DOWN INIT ARMED ACTIVE ACTIVE_DEFER")
    assert numbers(enums.GidType) == sequence("IB ROCE_V1 ROCE_V2")
    assert [mtu.octets for mtu in enums.Mtu] == [256, 512, 1024, 2048, 4096]
    masks = (
        "STATE CUR_STATE EN_SQD_ASYNC_NOTIFY ACCESS_FLAGS PKEY_INDEX PORT QKEY AV PATH_MTU TIMEOUT "
        "RETRY_CNT RNR_RETRY RQ_PSN MAX_QP_RD_ATOMIC ALT_PATH MIN_RNR_TIMER SQ_PSN "
        "MAX_DEST_RD_ATOMIC PATH_MIG_STATE CAP DEST_QPN RESERVED1 RESERVED2 RESERVED3 RESERVED4 "
        "RATE_LIMIT"
    )
    assert numbers(enums.QpAttrMask) == {n: 1 << v for n, v in sequence(masks).items()}


def test_other_numbers():
    assert numbers(enums.WrOpcode) == {
        **sequence(
            "RDMA_WRITE RDMA_WRITE_WITH_IMM SEND SEND_WITH_IMM RDMA_READ ATOMIC_CMP_AND_SWP "
            "ATOMIC_FETCH_AND_ADD LOCAL_INV BIND_MW"
        ),
        "SEND_WITH_INV": 9,
        "RDMA_READ_WITH_INV": 11,
        "FLUSH": 14,
        "ATOMIC_WRITE": 15,
        "REG_MR": 32,
        "MKEY_LIST": 0x21,
        "MKEY_INTERLEAVED": 0x22,
        "MEMCPY": 0x23,
    }
    assert numbers(enums.WcOpcode) == {
        **sequence("SEND RDMA_WRITE RDMA_READ COMP_SWAP FETCH_ADD BIND_MW LOCAL_INV"),
        "FLUSH": 8,
        "ATOMIC_WRITE": 9,
        "REG_MR": 10,
        "MKEY": 11,
        "MEMCPY": 12,
        "RECV": 128,
        "RECV_RDMA_WITH_IMM": 129,
        "RECV_NOP": 138,
    }
    assert numbers(enums.SendFlags) == {
        "FENCE": 1,
        "SIGNALED": 2,
        "SOLICITED": 4,
        "INLINE": 8,
        "IP_CSUM": 16,
    }
    # The invalidate flag is where libibverbs has it, not where the kernel has it (E-6).
    assert numbers(enums.WcFlags) == {
        "GRH": 1,
        "WITH_IMM": 2,
        "IP_CSUM_OK": 4,
        "WITH_INV": 8,
        "MP_WR_MORE_IN_MSG": 1 << 7,
        "MP_WR_CONSUMED": 1 << 8,
        "MP_WR_BROKEN": 1 << 9,
    }
    assert enums.Access.RELAXED_ORDERING == 1 << 20
    assert enums.Access.REMOTE_ATOMIC == 8
    assert enums.DeviceCap.SG_GAPS_REG == 1 << 32
    assert enums.DeviceCap.MEM_MGT_EXTENSIONS == 1 << 21
    assert virtio_pci.DEVICE_ID_RDMA == 0x106A
    assert virtio_pci.DEVICE_ID_NET == 0x1041


def test_layouts_lie_in_the_union():
    """As the extension says, and where the gateware finds the fields of BIND_MW."""
    struct, names = STRUCTS["cmd_post_send"], ("mrn", "key", "access", "repeat", "num_entries")
    places = [struct.offset(f"wr.mkey.{name}") for name in (*names, "flags")]
    assert places == [24, 28, 32, 36, 40, 42]
    assert struct.offset("wr.mkey.repeat") == struct.offset("wr.bind.lkey")
    assert struct.offset("wr.mkey.num_entries") == struct.offset("wr.bind.length")
    assert STRUCTS["virtio_rdma_config"].offset("max_mkey_entries") == 172


def test_bind_lies_in_the_union():
    """Where the gateware finds the fields of other requests, and within the union (VR-6.1)."""
    struct = STRUCTS["cmd_post_send"]
    start = struct.offset("wr.rdma.remote_addr")
    names = ("addr", "access", "lkey", "length", "rkey")
    assert [struct.offset(f"wr.bind.{name}") - start for name in names] == [0, 8, 12, 16, 24]
    assert struct.offset("wr.bind.lkey") == struct.offset("wr.ud.av.pdn")
    assert struct.offset("wr.bind.length") == struct.offset("wr.ud.av.sl_tclass_flowlabel")
    assert struct.offset("wr.bind.length") + 4 == struct.offset("wr.ud.av.dgid")
    assert struct.offset("wr.bind.rkey") == struct.offset("wr.ud.av.dgid") + 4


def test_queue_numbers():
    assert virtio_rdma.queue_count(16384, 16384) == 49153
    assert virtio_rdma.cq_queue(0) == 1
    assert virtio_rdma.sq_queue(0, max_cq=4) == 5
    assert virtio_rdma.rq_queue(63, max_cq=64) == 64 + 2 * 64
    assert virtio_rdma.qp_index(0xABCD15, max_qp=16) == 5
    assert virtio_rdma.qp_index(0xABCD15, max_qp=17) == 0x15


def test_tables_have_each_structure_and_number():
    text = docs.tables()
    for struct in (*virtio_rdma.STRUCTS, *virtio_rdma.ADDITIONS, *virtio_pci.STRUCTS):
        assert f"### `{struct.name}`, {struct.size} bytes" in text
    for command in (*enums.ControlCommand, *enums.ExtensionCommand):
        assert f"| {command.value} | {command.name} |" in text


def test_dynamic_connections():
    """Where the extension DC has its fields (docs/extensions.md)."""
    config, create = STRUCTS["virtio_rdma_config"], STRUCTS["cmd_create_qp"]
    names = ("max_dct", "max_dc_contexts", "max_dc_rd_atom", "max_dc_init_rd_atom")
    assert [config.offset(name) for name in names] == [152, 156, 160, 164]
    names = ("max_dci_log_streams", "max_dci_log_errored", "max_dc_destinations")
    assert [config.offset(name) for name in names] == [168, 169, 170]
    names = ("dc_key", "log_streams", "log_errored", "create_flags")
    assert [create.offset(name) for name in names] == [42, 50, 51, 52]
    struct = STRUCTS["cmd_post_send"]
    assert struct.offset("wr.dc.destination") == struct.offset("wr.xrc.remote_srqn") == 52
    asked, answered = virtio_rdma.EXTENSIONS[enums.RdmaFeature.DC][52]
    assert (asked.size, answered.size, answered.offset("connects")) == (4, 32, 8)
