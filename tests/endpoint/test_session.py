"""The protocol on the driver and the verbs, against a device in Python."""

import asyncio
import errno
import json
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hdl.abi.enums import AtomicCap, DeviceCap, QpState
from sim.endpoint.fields import MOST_DATA, REQUESTS
from sim.endpoint.session import Session
from sim.guest.driver.device import DriverOptions
from sim.guest.verbs import Context
from tests.sim import fake_device
from tests.sim.fake_pci import FakePlatform

MAC = bytes.fromhex("020000000001")
ADDRESSES = ["10.0.0.1", "fd00::1", "fe80::1"]
REMOTE = ["LOCAL_WRITE", "REMOTE_READ", "REMOTE_WRITE"]
#: The device delivers by QPN alone, so any address of the right kind will do.
THERE = dict(dest_gid="::ffff:10.0.0.2", dest_mac="02:00:00:00:00:02")


class World:
    """Time passes when somebody waits, and the device acts then."""

    max_inline_data = 256

    def __init__(self, platform):
        self.platform = platform
        self.waits = 0
        self.late = lambda: None  # writes that the peer knows to be done

    async def wait(self, until):
        self.waits += 1
        await self.platform.wait_event(1000)
        if self.waits > 3:
            await asyncio.sleep(min(0.001, max(0, until - time.monotonic())))

    async def shown(self):
        self.late()

    def beside(self, work):
        return asyncio.create_task(work)

    def facts(self):
        return {"width": 64}

    def counters(self):
        return {"wire_drops": 3}

    def impair(self, what):
        self.network = what

    def refusal(self):
        return "the reason"


class Client:
    """A session whose requests are Python calls."""

    @classmethod
    async def open(cls):
        self = cls()
        self.device = fake_device.FakeRdma(FakePlatform(size=32 << 20), queue_size=1024)
        context = await Context.open(self.device.platform, 1, DriverOptions(timeout_ns=50_000))
        for index, address in enumerate(ADDRESSES):
            await context.add_gid(index, address)
        self.world = World(self.device.platform)
        self.session = Session(context, self.world, mac=MAC, addresses=ADDRESSES)
        return self

    async def line(self, line):
        reply = await self.session.handle(line)
        assert reply.endswith(b"\n") and reply.count(b"\n") == 1
        return json.loads(reply)

    async def __call__(self, op, **fields):
        return await self.line(json.dumps({"op": op, **fields}).encode())

    async def fails(self, code, text, op, **fields):
        error = (await self(op, **fields))["error"]
        assert error["errno"] == code and text in error["message"], error

    async def pair(self, **create):
        """Two queue pairs connected with each other, and a region."""
        mr = await self("reg_mr", length=10_000, access=REMOTE)
        qps = [await self("create_qp", **create) for _ in range(2)]
        for qp, other in zip(qps, reversed(qps), strict=True):
            assert await self("connect", qp=qp["qp"], dest_qpn=other["qpn"], **THERE) == {}
        return mr, *qps


def run(coroutine):
    return asyncio.run(coroutine)


def test_info_and_counters():
    async def main():
        c = await Client.open()
        c.device.counters = [7] * 40
        info = await c("info")
        assert info["mac"] == "02:00:00:00:00:01" and info["ip"] == "10.0.0.1"
        assert info["gid"] == "::ffff:10.0.0.1" and info["max_mtu"] == 4096
        assert info["gids"] == ["::ffff:10.0.0.1", "fd00::1", "fe80::1"]
        counters = (await c("counters"))["counters"]
        assert counters["wire_drops"] == 3 and counters["rx_packets"] == 7

    run(main())


def test_every_operation_moves_its_data():
    async def main():
        c = await Client.open()
        mr, a, b = await c.pair()
        m, data = mr["mr"], bytes(range(200))
        await c("write_mem", mr=m, offset=0, data=data.hex())
        remote = dict(rkey=mr["rkey"], remote_addr=mr["addr"] + 1000)

        sge = [[m, 0, 100], [m, 100, 100]]
        await c("post_send", qp=a["qp"], wr_id=1 << 63, opcode="RDMA_WRITE", sge=sge, **remote)
        (wc,) = (await c("poll", n=1, timeout_ms=1000))["wc"]
        assert (wc["wr_id"], wc["status"], wc["opcode"]) == (1 << 63, "SUCCESS", "RDMA_WRITE")
        assert wc["qp_num"] == a["qpn"] and wc["flags"] == []
        assert (await c("read_mem", mr=m, offset=1000, length=200))["data"] == data.hex()

        sge = [[m, 2000, 200]]
        await c("post_send", qp=b["qp"], wr_id=2, opcode="RDMA_READ", sge=sge, **remote)
        assert (await c("poll", n=1, timeout_ms=1000))["wc"][0]["opcode"] == "RDMA_READ"
        assert (await c("read_mem", mr=m, offset=2000, length=200))["data"] == data.hex()

        await c("post_recv", qp=b["qp"], wr_id=3, sge=[[m, 3000, 300]])
        send = dict(opcode="SEND_WITH_IMM", imm=0xFEDCBA98, flags=["INLINE", "SOLICITED"])
        await c("post_send", qp=a["qp"], wr_id=4, sge=[[m, 0, 20]], **send)
        found = (await c("poll", n=2, timeout_ms=1000))["wc"]
        received = next(wc for wc in found if wc["wr_id"] == 3)
        assert received["opcode"] == "RECV" and received["byte_len"] == 20
        assert received["imm"] == 0xFEDCBA98 and received["flags"] == ["WITH_IMM"]
        assert received["src_qp"] == a["qpn"]
        assert next(wc for wc in found if wc["wr_id"] == 4)["imm"] == 0
        assert (await c("read_mem", mr=m, offset=3000, length=20))["data"] == data[:20].hex()

        await c("post_recv", qp=a["qp"], wr_id=5)
        send = dict(opcode="RDMA_WRITE_WITH_IMM", imm=7, **remote)
        await c("post_send", qp=b["qp"], wr_id=6, **send)
        found = (await c("poll", n=2, timeout_ms=1000))["wc"]
        assert {wc["opcode"] for wc in found} == {"RECV_RDMA_WITH_IMM", "RDMA_WRITE"}

    run(main())


def test_region_at_an_address_of_the_clients_choice():
    async def main():
        c = await Client.open()
        mr = await c("reg_mr", length=5000, access=REMOTE, va=0x1234_5678_9ABC)
        assert mr["addr"] == 0x1234_5678_9ABC and mr["rkey"]
        zero = await c("reg_mr", length=5000, access=["LOCAL_WRITE", "ZERO_BASED"])
        assert zero["addr"] == 0
        await c.fails(errno.EINVAL, "va", "reg_mr", length=1, va=1 << 64)

    run(main())


def test_regions_come_zeroed_and_go():
    async def main():
        c = await Client.open()
        pages = c.device.platform.memory._pages.size
        for _ in range(3):
            mr = (await c("reg_mr", length=(pages - 1) * 4096))["mr"]
            assert set((await c("read_mem", mr=mr, length=100_000))["data"]) == {"0"}
            await c("write_mem", mr=mr, data="ff" * 100_000)
            assert await c("dereg_mr", mr=mr) == {}
            await c.fails(errno.EINVAL, f"There is no mr {mr}", "read_mem", mr=mr, length=1)

    run(main())


def test_unsignalled_requests_and_a_destroyed_queue_pair():
    async def main():
        c = await Client.open()
        mr, a, _b = await c.pair(sq_sig_all=False)
        write = dict(opcode="RDMA_WRITE", rkey=mr["rkey"], remote_addr=mr["addr"])
        await c("post_send", qp=a["qp"], wr_id=1, **write)
        await c("post_send", qp=a["qp"], wr_id=2, flags=["SIGNALED"], **write)
        assert [wc["wr_id"] for wc in (await c("poll", n=2, timeout_ms=20))["wc"]] == [2]
        assert await c("destroy_qp", qp=a["qp"]) == {}
        await c.fails(errno.EINVAL, "There is no qp 0", "post_send", qp=a["qp"], **write)
        assert (await c("create_qp"))["qp"] == 2  # numbers do not come back

    run(main())


def test_memory_is_read_when_it_shows_what_was_acknowledged():
    """The peer may tell of a WRITE that is still on its way from the card to memory."""

    async def main():
        c = await Client.open()
        mr, _a, _b = await c.pair()
        region = c.session._regions.get(0)
        c.world.late = lambda: region.write(b"late", 7)
        assert (await c("read_mem", mr=mr["mr"], offset=7, length=4))["data"] == b"late".hex()

    run(main())


def test_error_state_flushes_and_reset_starts_again():
    async def main():
        c = await Client.open()
        mr, a, b = await c.pair()
        await c("post_recv", qp=a["qp"], wr_id=8, sge=[[mr["mr"], 0, 10]])
        assert await c("modify", qp=a["qp"], state="ERR") == {}
        (wc,) = (await c("poll", n=1, timeout_ms=1000))["wc"]
        assert (wc["wr_id"], wc["status"]) == (8, "WR_FLUSH_ERR")
        await c.fails(
            errno.EINVAL, "cannot receive in RESET", "post_recv", qp=(await c("create_qp"))["qp"]
        )
        assert await c("modify", qp=a["qp"], state="RESET") == {}
        assert await c("connect", qp=a["qp"], dest_qpn=b["qpn"], **THERE) == {}

    run(main())


def test_requests_come_back_in_the_order_of_completion_however_many():
    """More than the send queue holds, never polled in between: nothing may overflow."""

    async def main():
        c = await Client.open()
        mr, a, _b = await c.pair(max_send_wr=4)
        write = dict(opcode="RDMA_WRITE", rkey=mr["rkey"], remote_addr=mr["addr"])
        for wr_id in range(300):
            assert await c("post_send", qp=a["qp"], wr_id=wr_id, **write) == {}
        found = (await c("poll", n=500, timeout_ms=50))["wc"]
        assert [wc["wr_id"] for wc in found] == list(range(300))

    run(main())


def test_completion_queues_are_shared_until_they_are_full(monkeypatch):
    monkeypatch.setitem(fake_device.CONFIG, "max_cqe", 64)

    async def main():
        c = await Client.open()
        for _ in range(2):
            await c("create_qp", max_send_wr=16, max_recv_wr=16)
        assert len(c.device.cqs) == 1
        qp = (await c("create_qp", max_send_wr=64, max_recv_wr=64))["qp"]
        assert len(c.device.cqs) == 3
        await c("destroy_qp", qp=qp)
        await c("create_qp", max_send_wr=64, max_recv_wr=64)
        assert len(c.device.cqs) == 3
        await c.fails(errno.EINVAL, "65 completions; a CQ has 64", "create_qp", max_send_wr=65)

    run(main())


def test_queue_pairs_and_memory_run_out():
    async def main():
        c = await Client.open()
        for _ in range(fake_device.MAX_QP - 2):
            assert "qpn" in await c("create_qp")
        await c.fails(errno.ENOMEM, "All 6 queue pairs are in use", "create_qp")
        await c.fails(errno.ENOMEM, "more than the guest's memory", "reg_mr", length=1 << 40)
        await c.fails(errno.ENOMEM, "pages left", "reg_mr", length=30 << 20)
        for _ in range(fake_device.CONFIG["max_mr"] - 1):  # the device keeps one for itself
            assert "mr" in await c("reg_mr", length=1)
        await c.fails(errno.EINVAL, "REG_USER_MR refused", "reg_mr", length=1)

    run(main())


def test_a_full_queue_is_an_error():
    async def main():
        c = await Client.open()
        _mr, a, _b = await c.pair(max_recv_wr=2)
        for wr_id in range(2):
            await c("post_recv", qp=a["qp"], wr_id=wr_id)
        await c.fails(errno.ENOMEM, "2 requests are outstanding", "post_recv", qp=a["qp"])

    run(main())


def test_refusals_say_why():
    async def main():
        c = await Client.open()
        c.device.create_qp = lambda values: (_ for _ in ()).throw(fake_device.Refused)
        await c.fails(errno.EINVAL, "refused with response 0x01", "create_qp", type="UD")
        await c.fails(errno.EINVAL, "the reason", "create_qp", type="UD")

    run(main())


def test_queue_pairs_share_a_receive_queue():
    async def main():
        c = await Client.open()
        srq = (await c("create_srq", max_wr=4, max_sge=2))["srq"]
        mr, a, b = await c.pair(srq=srq)
        m = mr["mr"]
        for number in (7, 8):
            place = 1000 * number
            assert await c("post_recv", srq=srq, wr_id=number, sge=[[m, place, 99]]) == {}
        await c("write_mem", mr=m, offset=0, data="0102")
        for qp in (a, b):
            await c("post_send", qp=qp["qp"], wr_id=1, opcode="SEND", sge=[[m, 0, 2]])
        found = (await c("poll", n=4, timeout_ms=1000))["wc"]
        got = [(wc["wr_id"], wc["qp_num"]) for wc in found if wc["opcode"] == "RECV"]
        assert sorted(got) == [(7, b["qpn"]), (8, a["qpn"])]
        for number in (7, 8):
            read = await c("read_mem", mr=m, offset=1000 * number, length=2)
            assert read["data"] == "0102"
        neither_nor_both = "either qp or srq"
        await c.fails(errno.EINVAL, neither_nor_both, "post_recv")
        await c.fails(errno.EINVAL, neither_nor_both, "post_recv", qp=a["qp"], srq=srq)
        await c.fails(errno.EINVAL, "There is no srq 9", "post_recv", srq=9)
        await c.fails(errno.EINVAL, "the reason", "destroy_srq", srq=srq)
        for qp in (a, b):
            await c("destroy_qp", qp=qp["qp"])
        assert await c("destroy_srq", srq=srq) == {}
        await c.fails(errno.EINVAL, "There is no srq", "destroy_srq", srq=srq)

    run(main())


def test_connections_that_are_not_there():
    """What connects is tried with a live Linux (tests/interop)."""

    async def main():
        c = await Client.open()
        _mr, a, _b = await c.pair()
        there = {"dest_gid": "::ffff:10.0.0.2", "port": 7471}
        assert await c("cm_neighbour", gid="::ffff:10.0.0.2", mac="02:00:00:00:00:02") == {}
        await c.fails(errno.EINVAL, "Nobody listens at port 7471", "cm_request", port=7471)
        await c.fails(errno.EINVAL, "There is no conn 0", "cm_accept", conn=0, qp=a["qp"])
        await c.fails(errno.EINVAL, "There is no conn 3", "cm_disconnect", conn=3)
        await c.fails(errno.EINVAL, "There is no qp 9", "cm_serve", port=7471, qp=9)
        await c.fails(errno.EINVAL, "port must be", "cm_listen", port=0)
        assert await c("cm_listen", port=7471) == {}
        await c.fails(errno.EINVAL, "Port 7471 is taken", "cm_listen", port=7471)
        await c.fails(errno.ETIMEDOUT, "nobody has come", "cm_request", port=7471, timeout_ms=1)
        there["dest_gid"] = "::ffff:10.0.0.9"
        for op in ("cm_connect", "cm_resolve"):
            await c.fails(errno.EHOSTUNREACH, "No neighbour", op, qp=a["qp"], **there)
        away = {"dest_gid": "fe80::9", "port": 1}
        await c.fails(errno.EINVAL, "There is no qp 9", "cm_resolve", qp=9, **away)

    run(main())


def test_what_the_device_does_not_have():
    async def main():
        c = await Client.open()
        _mr, a, _b = await c.pair()
        for opcode in ("ATOMIC_CMP_AND_SWP", "ATOMIC_FETCH_AND_ADD", "LOCAL_INV", "SEND_WITH_INV",
                       "RDMA_READ_WITH_INV", "REG_MR", "FLUSH", "ATOMIC_WRITE",
                       "MEMCPY", "MKEY_LIST", "MKEY_INTERLEAVED"):  # fmt: skip
            text = f"This device has no {opcode}"
            await c.fails(errno.EOPNOTSUPP, text, "post_send", qp=a["qp"], opcode=opcode)
        await c.fails(errno.EOPNOTSUPP, "no indirect keys", "create_mkey", max_entries=1)
        ah = dict(THERE, dest_qpn=1, qkey=2)
        await c.fails(errno.EINVAL, "ah is for", "post_send", qp=a["qp"], opcode="SEND", ah=ah)
        await c.fails(errno.EINVAL, "ah qkey is missing", "post_send", qp=a["qp"], opcode="SEND",
                      ah=dict(THERE, dest_qpn=1))  # fmt: skip

    run(main())


def test_atomics_on_a_device_that_has_them(monkeypatch):
    monkeypatch.setitem(fake_device.CONFIG, "atomic_cap", AtomicCap.HCA)

    async def main():
        c = await Client.open()
        await c.pair()
        mr = await c("reg_mr", length=16, access=["LOCAL_WRITE", "REMOTE_ATOMIC"])
        await c("write_mem", mr=mr["mr"], data=(40).to_bytes(8, "little").hex())
        add = dict(opcode="ATOMIC_FETCH_AND_ADD", rkey=mr["rkey"], remote_addr=mr["addr"])
        await c("post_send", qp=0, compare_add=2, sge=[[mr["mr"], 8, 8]], **add)
        assert (await c("poll", n=1, timeout_ms=1000))["wc"][0]["opcode"] == "FETCH_ADD"
        data = bytes.fromhex((await c("read_mem", mr=mr["mr"], length=16))["data"])
        assert [int.from_bytes(part, "little") for part in (data[:8], data[8:])] == [42, 40]

    run(main())


def test_atomic_write_writes_a_word(monkeypatch):
    caps = fake_device.CONFIG.get("device_cap_flags", 0) | DeviceCap.ATOMIC_WRITE
    monkeypatch.setitem(fake_device.CONFIG, "device_cap_flags", int(caps))

    async def main():
        c = await Client.open()
        _mr, a, _b = await c.pair()
        text = "ATOMIC_WRITE needs 8 bytes of data"
        for data in ("", "00" * 7, "00" * 9):
            fields = {"opcode": "ATOMIC_WRITE", "data": data}
            await c.fails(errno.EINVAL, text, "post_send", qp=a["qp"], **fields)

    run(main())


@pytest.mark.parametrize(
    "dest, index", [("10.0.0.9", 0), ("::ffff:10.0.0.9", 0), ("fd00::9", 1), ("fe80::9", 2)]
)
def test_the_source_address_is_of_the_destinations_kind(dest, index):
    async def main():
        c = await Client.open()
        seen = []
        c.device.modify_qp = lambda values: seen.append(values.attrs.ah_attr.grh.sgid_index)
        await c("create_qp")
        there = dict(THERE, dest_gid=dest)
        assert await c("connect", qp=0, dest_qpn=5, **there) == {}
        assert seen == [index] * 3
        await c("create_qp")
        await c("connect", qp=1, dest_qpn=5, sgid_index=2, **there)
        assert seen[3:] == [2] * 3

    run(main())


def test_a_connect_that_is_refused_leaves_nothing():
    """The next one uses its own destination, MTU and MAC, not those of the first."""

    async def main():
        c = await Client.open()
        device_takes = c.device.modify_qp
        await c("create_qp")

        def refuse_reads(values):
            if values.attrs.qp_state == QpState.RTS and values.attrs.max_rd_atomic > 16:
                raise fake_device.Refused
            device_takes(values)

        c.device.modify_qp = refuse_reads
        await c.fails(
            errno.EINVAL, "MODIFY_QP", "connect", qp=0, dest_qpn=5, max_rd_atomic=17, **THERE
        )
        (pair,) = c.device.qps.values()
        assert pair.state == QpState.RESET
        assert await c("connect", qp=0, dest_qpn=6, **THERE) == {}
        assert (pair.state, pair.attr["dest_qp_num"]) == (QpState.RTS, 6)

    run(main())


def test_a_request_names_its_function():
    """Each function has objects of its own; a function that the card does not have is refused."""

    async def main():
        c, other = await Client.open(), await Client.open()
        c.session.functions.append(other.session)
        assert (await c("create_qp"))["qp"] == (await c("create_qp", function=1))["qp"] == 0
        assert len(c.device.qps) == len(other.device.qps) == 1
        await c.fails(errno.EINVAL, "There is no mr 0", "dereg_mr", mr=0)
        assert (await c("reg_mr", length=9, function=1))["mr"] == 0
        await c.fails(errno.EINVAL, "There is no mr 0", "dereg_mr", mr=0)
        assert await c("dereg_mr", mr=0, function=1) == {}
        await c.fails(errno.EINVAL, "There is no function 2", "info", function=2)
        await c.fails(errno.EINVAL, "function must be", "info", function=4)
        assert not c.session.over and await c("quit", function=1) == {} and c.session.over

    run(main())


def test_without_an_address_of_that_kind():
    async def main():
        c = await Client.open()
        c.session = Session(c.session._context, c.world, mac=MAC, addresses=["10.0.0.1"])
        await c("create_qp")
        there = dict(THERE, dest_gid="fd00::1")
        await c.fails(errno.EINVAL, "no IPv6 address", "connect", qp=0, dest_qpn=1, **there)

    run(main())


def test_poll_waits_as_long_as_it_is_told():
    async def main():
        c = await Client.open()
        began = time.monotonic()
        assert await c("poll", n=1, timeout_ms=80) == {"wc": []}
        assert 0.08 <= time.monotonic() - began < 1
        c.world.waits = 0
        assert await c("poll", n=1) == {"wc": []}
        assert c.world.waits == 1  # the device had its chance
        assert await c("poll", n=0, timeout_ms=10_000) == {"wc": []}

    run(main())


def test_quit():
    async def main():
        c = await Client.open()
        assert await c("quit") == {} and c.session.over

    run(main())


BAD = [
    (b"", errno.EBADMSG, "one JSON object"),
    (b"hello", errno.EBADMSG, "one JSON object"),
    (b"[1]", errno.EBADMSG, "not [1]"),
    (b"7", errno.EBADMSG, "not 7"),
    (b'{"op":"info"} {"op":"info"}', errno.EBADMSG, "Extra data"),
    (b'{"op":"info"', errno.EBADMSG, "one JSON object"),
    (b'{"op":"\xff"}', errno.EBADMSG, "utf-8"),
    (b"\x00" * 100, errno.EBADMSG, "one JSON object"),
    ('{"op":"info"}'.encode("utf-16"), errno.EBADMSG, "one JSON object"),
    (b"[" * 200_000, errno.EBADMSG, "one JSON object"),
    (b'{"op":"poll","n":' + b"9" * 10_000 + b"}", errno.EBADMSG, "one JSON object"),
    (b"{}", errno.EINVAL, "op is missing"),
    (b'{"op":5}', errno.EOPNOTSUPP, "op must be one of info,"),
    (b'{"op":"_qp"}', errno.EOPNOTSUPP, 'not "_qp"'),
    (b'{"op":"handle"}', errno.EOPNOTSUPP, "op must be one of"),
    (b'{"op":"info","mtu":1}', errno.EINVAL, 'info: there is no field "mtu"'),
    (b'{"op":"reg_mr"}', errno.EINVAL, "reg_mr: length is missing"),
    (b'{"op":"reg_mr","length":null}', errno.EINVAL, "reg_mr: length is missing"),
    (b'{"op":"reg_mr","length":0}', errno.EINVAL, "length must be a whole number, 1 to"),
    (b'{"op":"reg_mr","length":-1}', errno.EINVAL, "length must be"),
    (b'{"op":"reg_mr","length":true}', errno.EINVAL, "not true"),
    (b'{"op":"reg_mr","length":1.5}', errno.EINVAL, "not 1.5"),
    (b'{"op":"reg_mr","length":"1"}', errno.EINVAL, 'not "1"'),
    (b'{"op":"reg_mr","length":1' + b"0" * 30 + b"}", errno.EINVAL, "length must be"),
    (b'{"op":"reg_mr","length":9,"access":"LOCAL_WRITE"}', errno.EINVAL, "must be a list"),
    (b'{"op":"reg_mr","length":9,"access":["WRITE"]}', errno.EINVAL, 'not "WRITE"'),
    (b'{"op":"reg_mr","length":9,"access":[1]}', errno.EINVAL, "not 1"),
    (b'{"op":"write_mem","mr":0,"data":"abc"}', errno.EINVAL, "pairs of hexadecimal digits"),
    (b'{"op":"write_mem","mr":0,"data":"a b "}', errno.EINVAL, "pairs of hexadecimal digits"),
    (b'{"op":"write_mem","mr":0,"data":"xy"}', errno.EINVAL, "pairs of hexadecimal digits"),
    (b'{"op":"write_mem","mr":0,"data":5}', errno.EINVAL, "pairs of hexadecimal digits"),
    (b'{"op":"write_mem","mr":9,"data":""}', errno.EINVAL, "There is no mr 9"),
    (b'{"op":"write_mem","mr":0,"offset":9,"data":"0000"}', errno.ERANGE, "not within the 10"),
    (b'{"op":"read_mem","mr":0,"offset":0,"length":11}', errno.ERANGE, "not within the 10"),
    (b'{"op":"read_mem","mr":0,"offset":-1,"length":1}', errno.EINVAL, "offset must be"),
    (b'{"op":"read_mem","mr":0,"length":%d}' % (MOST_DATA + 1), errno.EINVAL, "length must be"),
    (b'{"op":"create_qp","type":"XRC"}', errno.EINVAL, "one of SMI, GSI, RC, UC, UD"),
    (b'{"op":"create_qp","sq_sig_all":1}', errno.EINVAL, "true or false"),
    (b'{"op":"connect","qp":0}', errno.EINVAL, "dest_qpn is missing"),
    (b'{"op":"modify","qp":0,"state":"GONE"}', errno.EINVAL, "state must be one of RESET"),
    (b'{"op":"modify","qp":0,"state":["ERR"]}', errno.EINVAL, "state must be one of RESET"),
    (b'{"op":"modify","qp":3,"state":"ERR"}', errno.EINVAL, "There is no qp 3"),
    (b'{"op":"post_send","qp":0,"opcode":"FLY"}', errno.EINVAL, "opcode must be one of"),
    (b'{"op":"post_send","qp":0,"opcode":"SEND","flags":["X"]}', errno.EINVAL, "flags must"),
    (b'{"op":"post_send","qp":0,"opcode":"SEND","imm":4294967296}', errno.EINVAL, "imm must"),
    (b'{"op":"post_send","qp":0,"opcode":"SEND","sge":[[0,0]]}', errno.EINVAL, "[mr, offset, l"),
    (b'{"op":"post_send","qp":0,"opcode":"SEND","sge":[[7,0,1]]}', errno.EINVAL, "no mr 7"),
    (b'{"op":"post_send","qp":0,"opcode":"SEND","sge":[[0,%d,1]]}' % -(1 << 60), errno.EINVAL,
     "is no address"),
    (b'{"op":"post_send","qp":0,"opcode":"SEND","ah":[]}', errno.EINVAL, "ah must be an object"),
    (b'{"op":"post_send","qp":0,"opcode":"SEND"}', errno.EINVAL, "cannot send in RESET"),
    (b'{"op":"post_recv","qp":0,"sge":{}}', errno.EINVAL, "sge must be a list"),
    (b'{"op":"poll","n":1,"timeout_ms":-1}', errno.EINVAL, "timeout_ms must be"),
    (b'{"op":"poll","n":1,"timeout_ms":NaN}', errno.EINVAL, "timeout_ms must be"),
    (b'{"op":"poll","n":1,"timeout_ms":Infinity}', errno.EINVAL, "timeout_ms must be"),
]  # fmt: skip


def test_bad_lines_get_one_error_each_and_change_nothing():
    async def main():
        c = await Client.open()
        await c("reg_mr", length=10)
        await c("create_qp")
        connect = dict(qp=0, dest_qpn=1, **THERE)
        lines = [(line, code, text) for line, code, text in BAD]
        for field, value in (
            ("dest_qpn", 1 << 24), ("rq_psn", 1 << 24), ("path_mtu", 1500), ("path_mtu", 3),
            ("timeout", 32), ("retry_cnt", 8), ("rnr_retry", -1), ("max_rd_atomic", 256),
            ("dest_gid", "10.0.0"), ("dest_gid", "fe80::1%eth0"), ("dest_gid", 5),
            ("dest_mac", "02:00"), ("dest_mac", 5), ("dest_mac", "0200:00000002"),
            ("dest_mac", "00:00:00:00:00:00"), ("dest_mac", "01:00:5e:00:00:01"),
            ("dest_mac", "ff:ff:ff:ff:ff:ff"),
            ("access", ["READ"]), ("qkey", 1 << 32),
        ):  # fmt: skip
            line = json.dumps({"op": "connect", **connect, field: value}).encode()
            lines.append((line, errno.EINVAL, f"connect: {field} must"))
        for line, code, text in lines:
            error = (await c.line(line))["error"]
            assert set(error) == {"errno", "message"}, line
            assert error["errno"] == code and text in error["message"], (line[:80], error)
            assert len(error["message"]) < 500
        assert await c("connect", **connect) == {}

    run(main())


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text()
    | st.sampled_from(["ERR", "RC", "SEND", "RDMA_WRITE", "LOCAL_WRITE", "10.0.0.1", 1024]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.sampled_from(sorted(set(REQUESTS) - {"quit"})).flatmap(
            lambda op: st.tuples(
                st.just(op), st.dictionaries(st.sampled_from([*REQUESTS[op], "x"]), values)
            )
        ),
        max_size=12,
    )
)
def test_any_request_gets_a_reply(requests):
    async def main():
        c = await Client.open()
        c.device.counters = [0] * 40
        await c("reg_mr", length=10)
        await c("create_qp")
        for op, fields in requests:
            assert isinstance(
                await c(op, **{**fields, "timeout_ms": 0} if op == "poll" else fields), dict
            )

    run(main())
