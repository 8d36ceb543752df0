"""Shared receive queues: the commands, every refusal, and the QPs that take from one."""

import dataclasses

import pytest

from firmware.qp_commands import FLUSH_POLLS
from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import ExtensionCommand as X
from hdl.abi.enums import QpState as S
from hdl.abi.enums import RdmaFeature, SrqAttrMask
from hdl.abi.virtio_rdma import EXTENSIONS
from hdl.csr.map import row_map
from tests.firmware.fake_hardware import CONFIG, Bench, finish
from tests.firmware.test_qp import CREATION, QpBench

LAST = CONFIG.qps - 1
SRQ = dict(pdn=0, max_wr=8, max_sge=2)


class SrqBench(QpBench):
    """A PD of its own with a shared queue in it; CREATE_QP names the queue."""

    def __init__(self, **options):
        super().__init__(**options)
        self.hardware.features = RdmaFeature.SRQ.mask
        self.pdn = self.ok(C.CREATE_PD).pdn
        self.srqn = self.ok(X.CREATE_SRQ, **SRQ | {"pdn": self.pdn}).srqn

    def taker(self):
        """A QP that takes from the queue: its pair."""
        self.qpn = self.create(srqn=self.srqn, max_recv_wr=0)
        return self.qpn % self.function.commands.limits.config.qps


@pytest.mark.parametrize("command", EXTENSIONS[RdmaFeature.SRQ])
def test_unknown_without_the_feature(command):
    bench = Bench()
    bench.ok(C.CREATE_PD)
    assert bench.err(command, **{"pdn": 0} if command == X.CREATE_SRQ else {"srqn": LAST}) == (
        f"unknown command {command.value}"
    )
    bench.hardware.features = RdmaFeature.SRQ.mask << 1
    assert "unknown command" in bench.err(command)


def test_without_the_switch():
    """A card that cannot have any says so, should a driver negotiate what it was not offered."""
    bench = Bench(config=dataclasses.replace(CONFIG, srq=False))
    bench.hardware.features = RdmaFeature.SRQ.mask
    bench.ok(C.CREATE_PD)
    assert "max_srq_wr = 0" in bench.err(X.CREATE_SRQ, **SRQ)


def test_create_query_destroy():
    bench = SrqBench()
    assert bench.srqn == LAST
    assert bench.ok(X.QUERY_SRQ, srqn=LAST) == {"max_wr": 8, "max_sge": 2, "srq_limit": 0}
    assert bench.ok(X.CREATE_SRQ, **SRQ).srqn == LAST - 1
    bench.err(C.DESTROY_PD, pdn=bench.pdn)
    bench.ok(X.DESTROY_SRQ, srqn=LAST)
    assert ("drop_queue", CONFIG.rq_queue(LAST)) in bench.hardware.log
    assert "No SRQ" in bench.err(X.QUERY_SRQ, srqn=LAST)
    bench.ok(C.DESTROY_PD, pdn=bench.pdn)
    assert bench.ok(X.CREATE_SRQ, **SRQ).srqn == LAST


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"pdn": 9}, "No PD"),
        ({"max_wr": 0}, "max_srq_wr"),
        ({"max_wr": CONFIG.queue_size + 1}, "max_srq_wr"),
        ({"max_sge": CONFIG.max_sge + 1}, "max_srq_sge"),
        ({"srq_limit": 1}, "there are no events"),
        ({"reserved": bytes(10) + b"\1"}, "reserved"),
    ],
)
def test_create_refused(change, reason):
    assert reason in SrqBench().err(X.CREATE_SRQ, **SRQ | change)


def test_pairs_run_out():
    """QPs and shared queues have the same pairs: neither gets the other's."""
    bench = SrqBench()
    for _ in range(3, LAST):  # one is there already
        bench.create()
    assert "in use" in bench.err(X.CREATE_SRQ, **SRQ)
    bench.function.hints.qpn(0x100 * CONFIG.qps + LAST)
    assert "in use" in bench.err(C.CREATE_QP, **CREATION)
    bench.ok(X.DESTROY_SRQ, srqn=LAST)
    assert bench.create() % CONFIG.qps == LAST


def test_modify():
    bench = SrqBench()
    limit, size = SrqAttrMask.LIMIT, SrqAttrMask.MAX_WR
    bench.ok(X.MODIFY_SRQ, srqn=LAST, attr_mask=0, max_wr=5, srq_limit=5)
    bench.ok(X.MODIFY_SRQ, srqn=LAST, attr_mask=limit)
    for change, reason in (
        ({"attr_mask": limit, "srq_limit": 1}, "there are no events"),
        ({"attr_mask": size, "max_wr": 8}, "resized"),
        ({"attr_mask": 4}, "unknown bits"),
        ({"srqn": 5}, "No SRQ"),
    ):
        assert reason in bench.err(X.MODIFY_SRQ, **{"srqn": LAST} | change)
    assert bench.ok(X.QUERY_SRQ, srqn=LAST).max_wr == 8


def test_rows_of_a_queue_pair():
    """They name source and protection domain of its receive WQEs; another QP's are its own."""
    bench = SrqBench()
    pair = bench.taker()
    row = bench.hardware.row("qp_cfg", pair)
    assert (row["source.kind"], row["source.number"]) == (1, LAST)
    assert (row.get("pd", 0), row["recv_pd"]) == (0, bench.pdn)
    other = bench.create() % CONFIG.qps
    row = bench.hardware.row("qp_cfg", other)
    assert (row.get("source.kind", 0), row["source.number"]) == (0, other)
    assert row.get("recv_pd", 0) == row.get("pd", 0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"srqn": 5}, "No SRQ"), ({"srqn": LAST, "max_recv_wr": 1}, "max_recv_wr must be 0")],
)
def test_queue_pair_refused(change, reason):
    bench = SrqBench()
    assert reason in bench.err(C.CREATE_QP, **CREATION | {"max_recv_wr": 0} | change)


def test_destroy_refused_while_used():
    bench = SrqBench()
    bench.taker()
    assert "used by 1 QPs" in bench.err(X.DESTROY_SRQ, srqn=LAST)
    bench.ok(C.DESTROY_QP, qpn=bench.qpn)
    bench.ok(X.DESTROY_SRQ, srqn=LAST)


@pytest.mark.parametrize("way", ["destroy", "reset"])
@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("holds", [{"message": 1}, {"held": 1}])
def test_what_is_held_ends_flushed(way, gone, holds):
    """Before the rows of the QP are cleared, its WQE is given back; not without end, if that does
    not happen as the ring is not there any more."""
    bench = SrqBench()
    pair = bench.taker()
    bench.go(S.INIT)
    rows = bench.hardware.rows["qp_rx"]
    seen, polls = [], []
    read_row = bench.hardware.read_row

    async def counted(table, index):
        polls.append(table)
        return await read_row(table, index)

    bench.hardware.read_row = counted

    def flush(number):
        seen.append((number, bench.hardware.row("qp_cfg", number)["state"]))
        if not gone:
            rows[number] = [0] * len(rows[number])

    bench.hardware.on_flush.append(flush)
    rows[pair] = row_map("qp_rx").pack(holds | {"head": 3})
    if way == "destroy":
        bench.ok(C.DESTROY_QP, qpn=bench.qpn)
    else:
        bench.go(S.RESET)
    assert seen == [(pair, S.ERR)]
    log = [entry[0] for entry in bench.hardware.log]
    assert log.index("drain") < log.index("flush") < log.index("drop")
    assert bench.hardware.row("qp_rx", pair) == {}
    assert polls.count("qp_rx") == (FLUSH_POLLS if gone else 1)


def test_device_reset_forgets_all():
    bench = SrqBench()
    bench.taker()
    bench.hardware.resets_seen += 1
    assert finish(bench.firmware.step())
    bench.ok(C.CREATE_PD)
    assert bench.ok(X.CREATE_SRQ, **SRQ).srqn == LAST


def test_reset_of_one_of_two_functions():
    """Nothing is flushed, as the driver has taken its memory away; all pairs are free again."""
    bench = SrqBench(config=dataclasses.replace(CONFIG, functions=2))
    bench.taker()
    bench.hardware.log.clear()
    bench.hardware.waiting.add(bench.function.number)
    assert bench.settle()
    assert not [entry for entry in bench.hardware.log if entry[0] == "flush"]
    bench.ok(C.CREATE_PD)
    assert bench.ok(X.CREATE_SRQ, **SRQ).srqn == bench.srqn
