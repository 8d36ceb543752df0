"""A run of ``commands``, inside the simulation: ``sim.measure.commands.command`` starts it.

Its job: ``width``, ``qps``, ``depth`` (commands that the driver has outstanding), ``mmio_ns`` and
``poll_ns``. It keeps ``rows``, one for each kind of command.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import cocotb
from cocotb.utils import get_sim_time

from hdl.abi.enums import AhFlags, ControlCommand, Mtu, QpAttrMask, QpState, QpType
from hdl.config import NicConfig
from hdl.csr.map import CsrMap
from sim.bench.job import Job
from sim.bench.system import Node, QpOptions, System, join
from sim.guest.verbs import CQ, QP, QPCap, QPInitAttr

#: A limit for the whole run, in cycles.
DEADLINE_CYCLES = 10**9

_M = QpAttrMask
#: The life of a QP: name of a step, state it leads to, attributes besides STATE.
_STEPS = (
    ("RESET to INIT", QpState.INIT, _M.PKEY_INDEX | _M.PORT | _M.ACCESS_FLAGS),
    (
        "INIT to RTR",
        QpState.RTR,
        _M.AV | _M.PATH_MTU | _M.DEST_QPN | _M.RQ_PSN | _M.MAX_DEST_RD_ATOMIC | _M.MIN_RNR_TIMER,
    ),
    (
        "RTR to RTS",
        QpState.RTS,
        _M.SQ_PSN | _M.TIMEOUT | _M.RETRY_CNT | _M.RNR_RETRY | _M.MAX_QP_RD_ATOMIC,
    ),
    ("RTS to RTS", QpState.RTS, _M.MIN_RNR_TIMER),
    ("RTS to ERR", QpState.ERR, _M(0)),
    ("ERR to RESET", QpState.RESET, _M(0)),
)


class CountingBus:
    """The firmware's register bus, with counts of the accesses for control requests.

    Those of a look at the mailbox that finds nothing do not count.
    """

    def __init__(self, bus: Any, config: NicConfig):
        self._bus = bus
        csr = CsrMap(config)
        self._status, self._done = csr.address("mailbox.status"), csr.address("mailbox.control")
        self._pending = csr.encode("mailbox.status", pending=1)
        self.reads = self.writes = 0
        self._open = [0, 0]  # of the request at hand

    async def read(self, addr: int) -> int:
        """Reads a register."""
        self._open[0] += 1
        value = int(await self._bus.read(addr))
        if addr == self._status and not value & self._pending:
            self._open = [0, 0]
        return value

    async def write(self, addr: int, value: int) -> None:
        """Writes a register."""
        self._open[1] += 1
        await self._bus.write(addr, value)
        if addr == self._done:
            self.reads += self._open[0]
            self.writes += self._open[1]
            self._open = [0, 0]


class Meter:
    """Runs work on all QPs, ``depth`` at a time, and notes what it took."""

    def __init__(self, bus: CountingBus, depth: int):
        self.rows: list[dict[str, Any]] = []
        self._bus, self._depth = bus, depth

    async def measure(
        self, name: str, items: Sequence[Any], work: Callable[[Any], Awaitable[Any]]
    ) -> list[Any]:
        """``work`` on each of ``items``; its results in order."""
        waiting, results = list(enumerate(items)), [None] * len(items)
        waiting.reverse()

        async def client() -> None:
            while waiting:
                place, item = waiting.pop()
                results[place] = await work(item)

        begun, reads, writes = get_sim_time("ns"), self._bus.reads, self._bus.writes
        for task in [cocotb.start_soon(client()) for _ in range(self._depth)]:
            await task
        count = len(items)
        self.rows.append(
            {
                "what": name,
                "count": count,
                "us": (get_sim_time("ns") - begun) / 1000 / count,
                "reads": (self._bus.reads - reads) / count,
                "writes": (self._bus.writes - writes) / count,
            }
        )
        return results


async def _commands(meter: Meter, node: Node, peer: Node, qps: int) -> None:
    """Each command on ``qps`` QPs: without what a driver does for itself."""
    context = node.context
    pd, cq = await context.alloc_pd(), await CQ.create(context, 64)
    grh = {"dgid": peer.context.query_gid(1, 0), "hop_limit": 64}
    attrs: dict[str, Any] = {
        "port_num": 1,
        "qp_access_flags": 7,
        "path_mtu": Mtu.MTU_4096,
        "dest_qp_num": 2,
        "max_rd_atomic": 4,
        "max_dest_rd_atomic": 4,
        "timeout": 14,
        "retry_cnt": 7,
        "rnr_retry": 7,
        "min_rnr_timer": 12,
        "ah_attr": {"grh": grh, "port_num": 1, "ah_flags": AhFlags.GRH, "roce_dmac": peer.mac},
    }

    async def create(n: int) -> int:
        made = await context.command(
            ControlCommand.CREATE_QP,
            pdn=pd.pdn,
            qp_type=QpType.RC,
            max_send_wr=16,
            max_send_sge=1,
            send_cqn=cq.cqn,
            max_recv_wr=16,
            max_recv_sge=1,
            recv_cqn=cq.cqn,
        )
        return int(made.qpn)

    async def query(qpn: int) -> None:
        await context.command(ControlCommand.QUERY_QP, qpn=qpn)

    qpns = await meter.measure("CREATE_QP", range(qps), create)
    for name, state, mask in _STEPS:

        async def modify(qpn: int, state: QpState = state, mask: QpAttrMask = mask) -> None:
            await context.command(
                ControlCommand.MODIFY_QP,
                qpn=qpn,
                attr_mask=mask | QpAttrMask.STATE,
                attrs=attrs | {"qp_state": state, "rq_psn": qpn, "sq_psn": qpn + 1},
            )

        await meter.measure(f"MODIFY_QP, {name}", qpns, modify)
        if name == "RTS to RTS":
            await meter.measure("QUERY_QP", qpns, query)

    async def destroy(qpn: int) -> None:
        await context.command(ControlCommand.DESTROY_QP, qpn=qpn)

    await meter.measure("DESTROY_QP", qpns, destroy)


@cocotb.test()
async def measure(dut: Any) -> None:
    """Every command by itself, then connections as an application makes them."""
    job = Job()
    config = NicConfig(width=job.spec["width"])
    system = await System.start(dut, config, deadline_cycles=DEADLINE_CYCLES, memory=1 << 28)
    node = system.nodes[0]
    for one in system.nodes:
        one.host.set(mmio_latency_ns=job.spec["mmio_ns"])
        one.firmware_poll_ns = job.spec["poll_ns"]
    node.registers.bus = bus = CountingBus(node.registers.bus, config)
    meter, qps = Meter(bus, job.spec["depth"]), job.spec["qps"]
    job.say("Commands")
    await _commands(meter, node, system.nodes[1], qps)

    job.say("Connections")
    pds = [await one.context.alloc_pd() for one in system.nodes]
    cqs = [await CQ.create(one.context, 64) for one in system.nodes]

    async def connect(_: int) -> None:
        cap = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=1, max_recv_sge=1)
        made = [
            cocotb.start_soon(QP.create(pd, QPInitAttr(QpType.RC, cq, cq, cap)))
            for pd, cq in zip(pds, cqs, strict=True)
        ]
        first, second = [await task for task in made]
        await join(system.nodes, (first, second), QpOptions())

    await meter.measure("connection", range(qps), connect)
    job.keep(rows=meter.rows)
