"""Control commands: what each does, and every refusal, which changes nothing."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import Access, DeviceCap, NotifyFlags
from hdl.abi.enums import ControlCommand as C
from hdl.abi.limits import MAX_MR_SIZE, device_limits
from hdl.config import NicConfig
from tests.firmware.fake_hardware import CONFIG, Bench

LOCAL, WRITE, READ, ATOMIC = (
    Access.LOCAL_WRITE,
    Access.REMOTE_WRITE,
    Access.REMOTE_READ,
    Access.REMOTE_ATOMIC,
)


def region(pdn=0, **changes):
    values = dict(
        pdn=pdn,
        access_flags=LOCAL,
        start=0x10123,
        length=10000,
        virt_addr=0x7F00_0000_0123,
        pages=0x8000,
        npages=3,
    )
    return values | changes


def test_query_port():
    bench = Bench()
    port = bench.ok(C.QUERY_PORT, port=1)
    assert (port.state, port.phys_state, port.max_mtu, port.phys_mtu) == (4, 5, 5, 4096)
    assert (port.gid_tbl_len, port.pkey_tbl_len, port.port_cap_flags) == (4, 16, 1 << 16)
    assert port.max_msg_sz == 1 << 31
    bench.hardware.link = False
    port = bench.ok(C.QUERY_PORT, port=1)
    assert (port.state, port.phys_state) == (1, 3)


def test_query_port_counts_violations():
    """Packets of another partition, those of none included, and datagrams with another Q_Key."""
    bench = Bench()
    port = bench.ok(C.QUERY_PORT, port=1)
    assert (port.bad_pkey_cntr, port.qkey_viol_cntr) == (0, 0)
    bench.hardware.counted |= {"bad_pkey": 3, "rx_drops_pkey": 40, "bad_qkey": 5}
    port = bench.ok(C.QUERY_PORT, port=1)
    assert (port.bad_pkey_cntr, port.qkey_viol_cntr) == (43, 5)
    bench.hardware.counted |= {"bad_pkey": 0xFFFF_FFFF, "rx_drops_pkey": 3}
    assert bench.ok(C.QUERY_PORT, port=1).bad_pkey_cntr == 2


@pytest.mark.parametrize("ud", [True, False])
def test_what_counts_violations_is_told(ud):
    """A card without datagrams never sees a Q_Key."""
    flags = DeviceCap(device_limits(NicConfig(ud=ud))["device_cap_flags"])
    assert DeviceCap.BAD_PKEY_CNTR in flags
    assert (DeviceCap.BAD_QKEY_CNTR in flags) == ud


@pytest.mark.parametrize("port", [0, 2, 255])
def test_query_port_refused(port):
    assert "phys_port_cnt" in Bench().err(C.QUERY_PORT, port=port)


def test_query_pkey():
    bench = Bench()
    assert bench.ok(C.QUERY_PKEY, port=1, index=0).pkey == 0xFFFF
    assert bench.ok(C.QUERY_PKEY, port=1, index=15).pkey == 0
    bench.function.set_pkey(15, 0x1234)
    assert bench.ok(C.QUERY_PKEY, port=1, index=15).pkey == 0x1234
    assert "no P_Key 16" in bench.err(C.QUERY_PKEY, port=1, index=16)
    assert "phys_port_cnt" in bench.err(C.QUERY_PKEY, port=0, index=0)
    assert "phys_port_cnt" in bench.err(C.QUERY_PKEY, port=2, index=0)


def test_gids():
    bench = Bench()
    gid = bytes(range(16))
    bench.ok(C.ADD_GID, gid=gid, gid_type=2, index=3, port_num=1)
    row = bench.hardware.row("gid", 3)
    assert row == {"valid": 1, "function": 1, "gid": int.from_bytes(gid, "little")}
    bench.ok(C.ADD_GID, gid=b"\1" * 16, gid_type=2, index=3, port_num=1)
    bench.ok(C.DEL_GID, index=3, port=1)
    assert bench.hardware.row("gid", 3) == {}
    bench.ok(C.DEL_GID, index=3, port=1)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"index": 4}, "no GID 4"),
        ({"index": 65535}, "no GID 65535"),
        ({"port_num": 0}, "phys_port_cnt"),
        ({"port_num": 2}, "phys_port_cnt"),
        ({"gid_type": 0}, "not RoCE v2"),
        ({"gid_type": 1}, "not RoCE v2"),
        ({"gid_type": 3}, "not RoCE v2"),
        ({"gid": bytes(16)}, "zero"),
    ],
)
def test_add_gid_refused(change, reason):
    good = dict(gid=b"\1" * 16, gid_type=2, index=1, port_num=1)
    assert reason in Bench().err(C.ADD_GID, **good | change)


def test_a_card_without_ipv6_has_ipv4_addresses_alone():
    bench = Bench(config=replace(CONFIG, ipv6=False))
    add = dict(gid_type=2, index=1, port_num=1)
    ipv4 = bytes(10) + b"\xff\xff" + bytes([10, 0, 0, 1])
    bench.ok(C.ADD_GID, gid=ipv4, **add)
    assert "no IPv6" in bench.err(C.ADD_GID, gid=b"\xfe\x80" + bytes(13) + b"\1", **add)
    assert "no IPv6" in bench.err(C.ADD_GID, gid=bytes(9) + b"\1" + ipv4[10:], **add)


@pytest.mark.parametrize("change", [{"index": 4}, {"port": 0}, {"port": 2}])
def test_del_gid_refused(change):
    Bench().err(C.DEL_GID, **dict(index=1, port=1) | change)


def test_cqs():
    bench = Bench()
    bench.hardware.rows["used"][CONFIG.cq_queue(1)] = [0xABC]
    assert [bench.ok(C.CREATE_CQ, cqe=n).cqn for n in (1, 64)] == [0, 1]
    assert bench.hardware.row("cq", 0) == {}
    assert bench.hardware.row("cq", 1) == {"position": 0xABC, "available": 0xABC}
    bench.ok(C.REQ_NOTIFY_CQ, cqn=1, flags=NotifyFlags.NEXT_COMPLETION)
    assert bench.hardware.log == [("arm_cq", 1, 2)]
    bench.ok(C.REQ_NOTIFY_CQ, cqn=0, flags=0xFFFFFFFD)
    assert bench.hardware.log == [("arm_cq", 0, 1)]
    bench.ok(C.DESTROY_CQ, cqn=0)
    assert bench.hardware.log == [
        ("drain",),
        ("write", "cq", 0),
        ("drop_queue", CONFIG.cq_queue(0)),
    ]
    assert bench.ok(C.CREATE_CQ, cqe=5).cqn == 0
    for _ in range(6):
        bench.ok(C.CREATE_CQ, cqe=5)
    assert "All 8 CQs are in use" in bench.err(C.CREATE_CQ, cqe=5)


def test_cqs_refused():
    bench = Bench()
    assert "max_cqe" in bench.err(C.CREATE_CQ, cqe=0)
    assert "max_cqe" in bench.err(C.CREATE_CQ, cqe=65)
    assert "No CQ 0x0" in bench.err(C.DESTROY_CQ, cqn=0)
    assert "No CQ" in bench.err(C.DESTROY_CQ, cqn=0xFFFFFFFF)
    assert "No CQ 0x5" in bench.err(C.REQ_NOTIFY_CQ, cqn=5, flags=2)
    bench.ok(C.CREATE_CQ, cqe=5)
    assert "ask for nothing" in bench.err(C.REQ_NOTIFY_CQ, cqn=0, flags=0)
    assert "ask for nothing" in bench.err(C.REQ_NOTIFY_CQ, cqn=0, flags=4)


def test_pds():
    bench = Bench()
    count = CONFIG.mrs
    assert [bench.ok(C.CREATE_PD).pdn for _ in range(count)] == list(range(count))
    assert "All 32 PDs are in use" in bench.err(C.CREATE_PD)
    bench.ok(C.DESTROY_PD, pdn=7)
    assert "No PD 0x7" in bench.err(C.DESTROY_PD, pdn=7)
    assert bench.ok(C.CREATE_PD).pdn == 7
    bench.ok(C.REG_USER_MR, **region(7))
    assert "used by 1 objects" in bench.err(C.DESTROY_PD, pdn=7)
    bench.ok(C.DEREG_MR, mrn=0)
    bench.ok(C.DESTROY_PD, pdn=7)


@pytest.mark.parametrize(
    "flags", [LOCAL, 0, LOCAL | WRITE | READ, READ, LOCAL | ATOMIC, 0x3FF00080]
)
def test_regions(flags):
    bench = Bench()
    bench.ok(C.CREATE_PD)
    bench.ok(C.CREATE_PD)
    result = bench.ok(C.REG_USER_MR, **region(1, access_flags=flags))
    assert result.mrn == 0 and result.lkey >> 8 == 0 and result.lkey & 0xFF
    assert result.rkey == (result.lkey if flags & 0xE else 0)
    assert bench.hardware.row("mr", 0) == {
        name: value
        for name, value in dict(
            type=2,
            function=1,
            pd=1,
            tag=result.lkey & 0xFF,
            access=flags & 0xF,
            va=0x7F00_0000_0123,
            length=10000,
            start=0x123,
            block=0x8000 // 64,
        ).items()
        if value
    }
    bench.ok(C.DEREG_MR, mrn=0)
    assert bench.hardware.log == [("write", "mr", 0), ("invalidate", 0)]
    assert bench.hardware.row("mr", 0) == {}
    # The region's number comes again, but never soon with the same key.
    keys = {result.lkey}
    for _ in range(254):
        keys.add(bench.ok(C.REG_USER_MR, **region(1)).lkey)
        bench.ok(C.DEREG_MR, mrn=0)
    assert len(keys) == 255 and not any(key >> 8 or not key & 0xFF for key in keys)


def test_zero_based_and_dma_regions():
    bench = Bench()
    bench.ok(C.CREATE_PD)
    bench.ok(C.REG_USER_MR, **region(access_flags=Access.ZERO_BASED))
    assert "va" not in bench.hardware.row("mr", 0)
    result = bench.ok(C.GET_DMA_MR, pdn=0, access_flags=LOCAL | READ)
    assert result.rkey == result.lkey
    row = bench.hardware.row("mr", 1)
    assert (row["type"], row["length"], row["access"]) == (1, (1 << 47) - 1, LOCAL | READ)
    assert "va" not in row and "block" not in row


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pdn": 1}, "No PD 0x1"),
        ({"length": 0}, "max_mr_size"),
        ({"length": MAX_MR_SIZE + 1, "npages": 0xFFFFFFFF}, "max_mr_size"),
        ({"npages": 2}, "2 pages for 10000 bytes from offset 291"),
        ({"npages": 4}, "4 pages"),
        ({"npages": 0}, "0 pages"),
        ({"start": 0x10FFF, "length": 8194, "npages": 3}, "3 pages"),
        ({"access_flags": WRITE}, "needs local write"),
        ({"access_flags": ATOMIC | READ}, "needs local write"),
        ({"access_flags": LOCAL | Access.ON_DEMAND}, "not supported"),
        ({"access_flags": LOCAL | 1 << 8}, "not supported"),
        ({"access_flags": LOCAL | 1 << 31}, "not supported"),
        ({"pages": 0x8004}, "not aligned to 8"),
        ({"pages": (1 << 64) - 16}, "pages 0xfffffffffffffff0 \\+ 24 wraps"),
        ({"virt_addr": (1 << 64) - 9999}, "virt_addr 0xffffffffffffd8f1 \\+ 10000 wraps"),
    ],
)
def test_regions_refused(change, reason):
    bench = Bench()
    bench.ok(C.CREATE_PD)
    found = bench.err(C.REG_USER_MR, **region(**change))
    assert reason.replace("\\", "") in found


def test_regions_at_the_edge():
    bench = Bench()
    bench.ok(C.CREATE_PD)
    bench.ok(C.REG_USER_MR, **region(virt_addr=(1 << 64) - 10000))
    bench.ok(C.REG_USER_MR, **region(start=0x10FFF, length=8193))
    bench.ok(C.REG_USER_MR, **region(start=0, length=MAX_MR_SIZE, npages=0xFFFFFFFF))


@pytest.mark.parametrize(("field", "size"), [("virt_addr", 10000), ("pages", 24)])
def test_regions_end_where_the_addresses_of_the_card_do(field, size):
    bits = 24
    bench = Bench(config=replace(CONFIG, address_bits=bits))
    bench.ok(C.CREATE_PD)
    low = {"virt_addr": 0x123}
    bench.ok(C.REG_USER_MR, **region(**low | {field: (1 << bits) - size}))
    for beyond in ((1 << bits) - size + 8, 1 << bits, 1 << 40):
        assert "wraps" in bench.err(C.REG_USER_MR, **region(**low | {field: beyond}))
    limits = device_limits(replace(CONFIG, address_bits=bits))
    assert limits["max_mr_size"] == (1 << bits) - 1


def test_more_region_refusals():
    bench = Bench()
    bench.ok(C.CREATE_PD)
    assert "No PD" in bench.err(C.GET_DMA_MR, pdn=3, access_flags=LOCAL)
    assert "needs local" in bench.err(C.GET_DMA_MR, pdn=0, access_flags=WRITE)
    assert "bus's addresses" in bench.err(C.GET_DMA_MR, pdn=0, access_flags=Access.ZERO_BASED)
    assert "No MR" in bench.err(C.DEREG_MR, mrn=0)
    for _ in range(CONFIG.mrs):
        bench.ok(C.REG_USER_MR, **region())
    assert "All 32 MRs are in use" in bench.err(C.REG_USER_MR, **region())
    assert "All 32 MRs are in use" in bench.err(C.GET_DMA_MR, pdn=0, access_flags=LOCAL)


def test_hinted_keys():
    bench = Bench()
    bench.ok(C.CREATE_PD)
    bench.function.hints.mr_key(0x11C5)
    bench.function.hints.mr_key(0x11C5)
    assert bench.ok(C.REG_USER_MR, **region()).lkey == 0x11C5
    assert "MR 17 is in use" in bench.err(C.REG_USER_MR, **region())
    assert bench.ok(C.REG_USER_MR, **region()).mrn == 0
    with pytest.raises(ValueError, match="below 32, not 0x2000"):
        bench.function.hints.mr_key(0x2000)


# Requests that are no commands -------------------------------------------------------------------

ALL = [(command, *abi.COMMANDS[command]) for command in C]


@pytest.mark.parametrize(
    ("command", "asked", "answered"), ALL, ids=lambda v: getattr(v, "name", "")
)
def test_short_requests(command, asked, answered):
    """Every length below the one needed, on either side, is refused before anything happens."""
    bench = Bench()
    bench.ok(C.CREATE_PD)
    bench.ok(C.CREATE_CQ, cqe=8)
    before = bench.snapshot()
    body = bytes([command]) + bytes(asked.size)
    for size in range(1, len(body)):
        assert bench.raw(body[:size]) == b"\1"
        assert f"needs {asked.size} bytes" in bench.firmware.refusal
    for room in range(1, 1 + answered.size):
        assert bench.raw(body, room) == b"\1"
        assert "room for" in bench.firmware.refusal
    assert bench.raw(body, 0) == b""
    assert bench.snapshot() == before


@pytest.mark.parametrize("number", [0, 19, 32, 255])
def test_unknown_commands(number):
    bench = Bench()
    before = bench.snapshot()
    assert bench.raw(bytes([number]) + bytes(200)) == b"\1"
    assert bench.firmware.refusal == f"unknown command {number}"
    assert bench.raw(b"") == b"\1"
    assert bench.snapshot() == before


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_garbage(data):
    """Any bytes get OK or ERR; ERR changes nothing; the firmware goes on."""
    bench = GARBAGE
    command = data.draw(st.integers(0, 20))
    size = abi.COMMANDS[C(command)][0].size if command in list(C) else 40
    small = st.integers(0, 3).map(lambda n: bytes([n]))
    byte = st.one_of(small, small, st.binary(min_size=1, max_size=1), st.just(b"\0"))
    body = b"".join(data.draw(st.lists(byte, min_size=size, max_size=size)))
    cut = data.draw(st.integers(0, size) | st.just(size))
    writable = data.draw(st.integers(0, 170) | st.just(256))
    before = bench.snapshot()
    response = bench.raw(bytes([command]) + body[:cut], writable)
    assert len(response) <= writable
    if response == b"":
        assert writable == 0 and bench.snapshot() == before
    elif response[0]:
        assert response == b"\1" and bench.snapshot() == before
    else:
        assert len(response) == 1 + abi.COMMANDS[C(command)][1].size


GARBAGE = Bench()
