"""Cards with hosts, firmware and drivers, up and connected: what benches and commands start from.

Used inside a simulation that ``sim.bench.testbench.build`` has made.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import cocotb
from cocotb.triggers import Event, Timer

from firmware.machine import Machine
from firmware.registers import Registers
from firmware.service import Firmware
from hdl.abi.enums import Access, Mtu, QpType
from hdl.config import NicConfig
from sim.bench.coverage import COVERAGE
from sim.bench.stall import node_report, stall_report
from sim.bench.testbench import Testbench
from sim.guest.driver.device import DriverOptions
from sim.guest.verbs import (
    CQ,
    PD,
    QP,
    SRQ,
    AHAttr,
    Context,
    DcDestination,
    GlobalRoute,
    MpWr,
    QPAttr,
    QPCap,
    QPInitAttr,
)

__all__ = ["VISIBLE_NS", "Node", "QpOptions", "System", "connect", "join", "together"]

#: How often the firmware looks at its mailbox, ns of simulated time. One that looks seldom lets an
#: idle simulation skip more.
FIRMWARE_POLL_NS = 2000
#: Default of a test that never gets its completion, ns of simulated time.
TIMEOUT_NS = 2_000_000
#: Time after which a WRITE that was acknowledged must be visible in memory, ns.
VISIBLE_NS = 2_000


class Node:
    """One guest function: its card with host and firmware task, its driver context and address.

    ``name`` is a or b; ``address`` the IP address of GID 0, ``vlan`` the tag of its packets (None:
    no tag); ``mac`` 6 bytes. ``beside`` is a node on the same card, which has been started: this
    one is the card's next function then, whose ordinal is ``ordinal``. ``firmware_poll_ns``: how
    often the firmware looks at its mailbox; it may be changed at any time.
    """

    def __init__(
        self,
        testbench: Testbench,
        index: int,
        *,
        address: str | None = None,
        mac: bytes | None = None,
        vlan: int | None = None,
        beside: Node | None = None,
    ):
        self.testbench, self.index = testbench, index
        self.name = "ab"[index] if index < 2 else str(index)
        self.host = testbench.hosts[index]
        self.beside = beside
        self.ordinal: int = 0 if beside is None else beside.ordinal + 1
        if beside is None:
            self.registers = Registers(testbench.management[index], testbench.config)
            machine = Machine(self.host.now, Random(index).getrandbits)  # each run is the same
            self.firmware = Firmware(self.registers, testbench.config, machine=machine)
        else:
            self.registers, self.firmware = beside.registers, beside.firmware
        self.function = self.firmware.functions[self.ordinal]
        self.address = address or f"10.0.{self.ordinal}.{index + 1}"
        self.mac = mac or bytes((2, 0, 0, 0, 0, index + 1))
        self.vlan = vlan
        self.firmware_poll_ns = FIRMWARE_POLL_NS
        self.context: Context
        #: How many times their nominal duration the card's timers last; set before ``start``.
        self.timer_scale = 1.0
        #: Whether frames to the card's own address stay on it; set before ``start``.
        self.loopback = True
        self._rows = 0  # memory of the QPs' rows that are not on the card
        self._task: Any = None
        self._awake = Event()
        self._awake.set()
        self._looks = 0  # that the firmware takes yet before it rests

    async def start(self, options: DriverOptions | None = None) -> None:
        """Set the port up and start the firmware, unless it runs; bring the driver up, set GID 0.

        Register accesses take no time meanwhile: bringing up is not what is simulated.
        """
        self.host.set(mmio_latency_ns=0)
        if self.beside is None and not self.firmware_runs:
            await self.bring_up()
        self.context = await Context.open(self.host, self.function.number, options=options)
        self.context.device.observer = COVERAGE
        await self.add_address(0, self.address, self.vlan)
        self.host.set()

    async def bring_up(self) -> None:
        """Set the port up and start the firmware."""
        await self.prepare()
        self.start_firmware()

    async def prepare(self) -> None:
        """Set the port up; the firmware has not begun then."""
        await self.registers.check()
        if (size := self.registers.context_bytes) and not self._rows:
            self._rows = self.host.memory.alloc(size, size)
            await self.registers.set_context_memory(self._rows)
        await self.registers.set_port(self.mac, lossless=True, loopback=self.loopback)
        if self.timer_scale != 1:
            await self.registers.set_timer_scale(self.timer_scale)

    async def add_address(self, index: int, address: str | bytes, vlan: int | None = None) -> None:
        """Set GID ``index`` to an IP address or 16 bytes; its packets get the tag of ``vlan``."""
        self.function.set_vlan(index, vlan)
        await self.context.add_gid(index, address)

    @property
    def firmware_runs(self) -> bool:
        """Whether the firmware's task goes on."""
        return self._task is not None

    def start_firmware(self) -> None:
        """Run the firmware from now on."""

        async def idle() -> None:
            await Timer(self.firmware_poll_ns, "ns")
            if not self._awake.is_set() and self._looks:
                self._looks -= 1
            if not self.firmware_busy:
                await self._awake.wait()

        self._task = cocotb.start_soon(self.firmware.run(idle))

    def rest_firmware(self, rests: bool) -> None:
        """Let the firmware look for work no more, once it has done what there is; or look again."""
        if rests:
            self._awake.clear()
        else:
            self._awake.set()
            self._looks = 2  # the one that is under way may have begun before there was something

    def poke_firmware(self) -> None:
        """A frame comes, and may be of DC: a firmware that rests looks whether it is."""
        if self.firmware.connects and not self._awake.is_set():
            self.rest_firmware(False)
            self.rest_firmware(True)

    @property
    def firmware_busy(self) -> bool:
        """Whether the firmware goes on though it may rest: it makes connections of DC, which work
        for hosts and wires does not tell of, or has not looked yet whether it is to."""
        return self.firmware.connects and (self._looks > 0 or self.firmware.connecting)

    def stop_firmware(self) -> None:
        """Stop the firmware: the hardware goes on alone."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def counters(self) -> dict[str, int]:
        """All counters of the card, port and rooms."""
        found = await self.registers.counters()
        COVERAGE.counted(found)
        return found


@dataclass
class QpOptions:
    """How ``connect`` creates and joins two QPs. ``qkey``: of both, if they are datagram QPs.
    ``mp_wr``: their receives take several packets."""

    type: QpType = QpType.RC
    qkey: int = 0
    cap: QPCap = field(
        default_factory=lambda: QPCap(
            max_send_wr=64, max_recv_wr=64, max_send_sge=32, max_recv_sge=32, max_inline_data=256
        )
    )
    mtu: Mtu = Mtu.MTU_4096
    psns: tuple[int, int] = (0x123456, 0x654321)
    sq_sig_all: int = 0
    max_rd_atomic: int = 4
    access: Access = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
    traffic_class: int = 0
    flow_label: int = 0
    timeout: int = 14  # 4.096 us x 2^timeout
    retry_cnt: int = 7
    rnr_retry: int = 7
    min_rnr_timer: int = 12  # code of the ABI
    gid: int = 0  # index of the address that both ends use
    priority: int = 0
    pkey_index: int = 0
    mp_wr: MpWr | None = None


async def together(*work: Coroutine[Any, Any, Any]) -> list[Any]:
    """Do things of different nodes at the same simulated time; results in order."""
    tasks = [cocotb.start_soon(one) for one in work]
    return [await task for task in tasks]


async def connect(
    nodes: Sequence[Node],
    pds: Sequence[PD],
    cqs: Sequence[CQ],
    options: QpOptions | None = None,
    srqs: Sequence[SRQ | None] = (None, None),
) -> tuple[QP, QP]:
    """A QP on each of two nodes, connected if their type is, both in RTS; ``srqs``: that an end
    takes from."""
    o = options or QpOptions()
    init = QPInitAttr(o.type, sq_sig_all=o.sq_sig_all, mp_wr=o.mp_wr)
    qps: list[QP] = await together(
        *(
            QP.create(pd, replace(init, scq=cq, rcq=cq, cap=replace(o.cap), srq=srq))
            for pd, cq, srq in zip(pds, cqs, srqs, strict=True)
        )
    )
    await join(nodes, (qps[0], qps[1]), o)
    return qps[0], qps[1]


async def join(
    nodes: Sequence[Node], qps: tuple[QP, QP], options: QpOptions, *, receives: int | None = None
) -> None:
    """Bring two QPs that are in RESET to RTS, each as the other's peer; the end ``receives``, if
    one is named, to RTR alone."""
    o = options

    def attr(i: int) -> QPAttr:
        return QPAttr(
            pkey_index=o.pkey_index,
            path_mtu=o.mtu,
            qkey=o.qkey,
            dest_qp_num=qps[1 - i].qp_num,
            sq_psn=o.psns[i],
            rq_psn=o.psns[1 - i],
            max_rd_atomic=o.max_rd_atomic,
            max_dest_rd_atomic=o.max_rd_atomic,
            qp_access_flags=o.access,
            timeout=o.timeout,
            retry_cnt=o.retry_cnt,
            rnr_retry=o.rnr_retry,
            min_rnr_timer=o.min_rnr_timer,
            ah_attr=address_of(nodes[1 - i], o),
        )

    await together(
        *((qp.to_rtr if i == receives else qp.to_rts)(attr(i)) for i, qp in enumerate(qps))
    )


def address_of(node: Node, options: QpOptions) -> AHAttr:
    """The address of a node's port, as the other end of a QP needs it."""
    o = options
    route = GlobalRoute(
        dgid=node.context.query_gid(1, o.gid),
        sgid_index=o.gid,
        traffic_class=o.traffic_class,
        flow_label=o.flow_label,
    )
    return AHAttr(gr=route, sl=o.priority, roce_dmac=node.mac)


async def connect_dynamic(
    there: Node, pds: Sequence[PD], cqs: Sequence[CQ], srq: SRQ, options: QpOptions, targets: int
) -> tuple[QP, list[QP], list[DcDestination]]:
    """An initiator of DC of the first PD and CQ; so many targets at the node ``there``, of the
    second ones, which take from ``srq`` and whose keys are their places; and the ways to them."""
    o, address = options, address_of(there, options)
    attr = QPAttr(
        path_mtu=o.mtu,
        max_rd_atomic=o.max_rd_atomic,
        qp_access_flags=o.access,
        timeout=o.timeout,
        retry_cnt=o.retry_cnt,
        rnr_retry=o.rnr_retry,
        min_rnr_timer=o.min_rnr_timer,
        ah_attr=address,
    )
    init = QPInitAttr(QpType.DCI, cqs[0], cap=replace(o.cap), sq_sig_all=o.sq_sig_all)
    initiator = await QP.create(pds[0], init, replace(attr))
    made, ways = list[QP](), list[DcDestination]()
    for key in range(targets):
        init = QPInitAttr(QpType.DCT, rcq=cqs[1], srq=srq, dc_key=key)
        made.append(await QP.create(pds[1], init))
        await made[-1].to_rtr(replace(attr))
        ways.append(await DcDestination.create(pds[0], address, made[-1].qp_num, key))
    return initiator, made, ways


class System:
    """Two connected cards (or one whose wire Python holds), every driver up.

    system = await System.start(dut, config)
    a, b = system.nodes
    """

    def __init__(self, testbench: Testbench):
        self.testbench = testbench
        self.nodes = [Node(testbench, i) for i in range(len(testbench.hosts))]

    @classmethod
    async def start(
        cls,
        dut: Any,
        config: NicConfig,
        *,
        options: DriverOptions | None = None,
        deadline_cycles: int = 2_000_000,
        timer_scale: float = 1.0,
        loopback: bool = True,
        poll_ns: int = FIRMWARE_POLL_NS,
        **bench: Any,
    ) -> System:
        """Reset the cards and bring every node up; ``bench`` goes to ``Testbench``.

        poll_ns: how often each firmware looks at its mailbox.
        """
        testbench = Testbench(dut, config=config, **{"jump": True, **bench})
        return await cls.on(
            testbench,
            options=options,
            deadline_cycles=deadline_cycles,
            timer_scale=timer_scale,
            loopback=loopback,
            poll_ns=poll_ns,
        )

    @classmethod
    async def on(
        cls,
        testbench: Testbench,
        *,
        options: DriverOptions | None = None,
        deadline_cycles: int = 2_000_000,
        timer_scale: float = 1.0,
        loopback: bool = True,
        poll_ns: int = FIRMWARE_POLL_NS,
    ) -> System:
        """``start`` on a testbench that has been made, but not started."""
        await testbench.start()
        system = cls(testbench)
        for node in system.nodes:
            node.timer_scale, node.loopback = timer_scale, loopback
            node.firmware_poll_ns = poll_ns
        testbench.deadline(deadline_cycles, system.report)
        await together(*(node.start(options) for node in system.nodes))
        return system

    def stop_firmware(self) -> None:
        """Stop the firmware of all cards."""
        for node in self.nodes:
            node.stop_firmware()

    async def report(self) -> str:
        """Where everything stands, for a simulation that has come to no end.

        Stops the firmware: the register bus has one user at a time.
        """
        parts = [stall_report(self.testbench)]  # first: it shows this very cycle
        self.stop_firmware()
        parts += [await node_report(node) for node in self.nodes]
        return "\n".join(parts)
