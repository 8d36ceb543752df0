"""Brings each access of a function's bus to the register that it is for."""

from amaranth.hdl import Cat, Module, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.abi import virtio_pci as abi
from hdl.abi.virtio_rdma import COUNTER_OFFSET, QP_COUNTER_OFFSET
from hdl.ports.host import BAR_CONFIG
from hdl.ports.jobs import Doorbell

from . import config_space as space
from .kind import FunctionKind
from .local import NOTHING_THERE, FunctionBus, FunctionRequest, LocalPort
from .virtio_counters import QP_WINDOW_BYTES, window_bytes

__all__ = ["VirtioAccesses"]

FIRST_QUEUE_REGISTER = abi.COMMON_CFG.offset("queue_size")
#: Structures that answer accesses, and the address bits of each one's port.
STRUCTURES = {
    "space": 12,
    "common": 12,
    "queues": 12,
    "device": 12,
    "msix": 15,
    "pending": 12,
}
#: Those of a card that has counters.
COUNTERS = {"counters": 12, "qp_counters": 12}


class VirtioAccesses(wiring.Component):
    """Decodes one access at a time, has its structure answer, and brings the answer back.

    Spec: Virtio 1.2, 4.1.4 (structures), 4.1.4.5 (ISR), 4.1.4.9 (PCI_CFG), 4.1.5.2 (notifications).
    Parameters: ``kind``: what the function is; ``counters``: how many its driver can read.
    Members: ``bus``; a port for each of ``STRUCTURES``, and of ``COUNTERS`` if there are any;
    ``doorbell``: valid for a cycle or longer, until it is taken; ``driver_ok``,
    ``notification_data``, ``arm_cq``; ``window_bar``, ``window_offset``, ``window_length``:
    registers of the PCI_CFG capability, through whose data word an access goes to that place;
    ``isr`` and ``isr_read`` (a cycle): it is read, which clears it.
    Latency: 5 cycles and the structure's; a doorbell 3, and the wait for its taker.
    Throughput: one access at a time. Errors: an access to no register reads 0xFFFFFFFF and loses
    writes; a doorbell before DRIVER_OK, or of less than two bytes, is lost. Reset: idle.
    """

    def __init__(self, *, kind: FunctionKind, counters: int):
        self._kind, self._counters = kind, counters
        self._structures = STRUCTURES | (COUNTERS if counters else {})
        super().__init__(
            {
                "bus": In(FunctionBus()),
                "doorbell": Out(stream.Signature(Doorbell)),
                "driver_ok": In(1),
                "notification_data": In(1),
                "arm_cq": In(1),
                "window_bar": In(8),
                "window_offset": In(32),
                "window_length": In(32),
                "isr": In(2),
                "isr_read": Out(1),
            }
            | {name: Out(LocalPort(bits)) for name, bits in self._structures.items()}
        )

    def elaborate(self, platform):
        m = Module()
        bus, ports = self.bus, {name: getattr(self, name) for name in self._structures}
        request = Signal(FunctionRequest, reset_less=True)
        answer = Signal(32, reset_less=True)
        through = Signal()  # the access came through the PCI_CFG window
        for port in ports.values():
            m.d.comb += [
                port.addr.eq(request.addr),
                port.write.eq(request.write),
                port.strb.eq(request.strb),
                port.data.eq(request.data),
            ]
        found, found_isr = self._find(m, request)
        near = Signal()  # an address of a queue, should the BAR be theirs
        ends = space.NOTIFY_MULTIPLIER * self._kind.queues
        rung = self._ring(m, request)
        is_doorbell, is_window = Signal(), Signal()
        window_data = self._kind.image.window + abi.VIRTIO_PCI_CFG_CAP.offset("pci_cfg_data")
        shift, size_mask, sound = self._through(m)
        byte_mask = Signal(32)
        m.d.comb += [
            is_doorbell.eq((request.bar == space.BAR_NOTIFY) & near),
            is_window.eq((request.bar == BAR_CONFIG) & (request.addr == window_data)),
            byte_mask.eq(Cat(bit.replicate(8) for bit in size_mask)),
            bus.rsp.payload.eq(answer),
        ]
        with m.FSM(name="access"):
            # IDLE: waits for an access; ends with one.
            with m.State("IDLE"):
                m.d.comb += bus.req.ready.eq(1)
                m.d.sync += through.eq(0)
                m.d.sync += near.eq(bus.req.payload.addr < ends)
                with m.If(bus.req.valid):
                    m.d.sync += request.eq(bus.req.payload)
                    m.next = "DECODE"
            # DECODE: an access through the window becomes the one that it means; a doorbell is
            # handed over; ends when that is taken, else after one cycle.
            with m.State("DECODE"):
                m.d.sync += answer.eq(NOTHING_THERE)
                with m.If(is_window):
                    m.d.sync += [
                        through.eq(1),
                        request.bar.eq(self.window_bar),
                        request.addr.eq(self.window_offset & 0xFFFF_FFFC),
                        near.eq(self.window_offset < ends),
                        request.strb.eq(size_mask << shift),
                        request.data.eq(request.data << (shift << 3)),
                    ]
                    with m.If(~sound | (request.strb == 0)):
                        m.next = "LEAVE"
                with m.Elif(is_doorbell):
                    m.d.sync += answer.eq(0)
                    m.d.comb += self.doorbell.valid.eq(rung)
                    with m.If(self.doorbell.ready | ~rung):
                        m.next = "LEAVE"
                with m.Else():
                    m.next = "FIND"
            # FIND: starts the structure that lies there, if one does; one cycle.
            with m.State("FIND"):
                m.next = "LEAVE"
                with m.If(found_isr):
                    m.d.comb += self.isr_read.eq(~request.write & request.strb[0])
                    m.d.sync += answer.eq(self.isr)
                for name, port in ports.items():
                    with m.If(found[name]):
                        m.d.comb += port.start.eq(1)
                        m.next = name.upper()
            # SPACE, COMMON, ...: waits for the structure; ends with its answer.
            for name, port in ports.items():
                with m.State(name.upper()):
                    with m.If(port.done):
                        m.d.sync += answer.eq(port.read_data)
                        m.next = "LEAVE"
            # LEAVE: moves what was read through the window to byte 0; one cycle.
            with m.State("LEAVE"):
                with m.If(request.write):
                    m.next = "IDLE"
                with m.Else():
                    with m.If(through & sound):
                        m.d.sync += answer.eq((answer >> (shift << 3)) & byte_mask)
                    m.next = "RESPOND"
            # RESPOND: answers a read; ends when the answer is taken.
            with m.State("RESPOND"):
                m.d.comb += bus.rsp.valid.eq(1)
                with m.If(bus.rsp.ready):
                    m.next = "IDLE"
        return m

    def _find(self, m: Module, request) -> tuple[dict[str, Signal], Signal]:
        """Which structure the access is to, and whether it is to the ISR; both a cycle later."""
        whole = ceil_log2(space.REGISTERS_BYTES)
        registers = (request.bar == space.BAR_REGISTERS) & (request.addr[whole:] == 0)

        def within(offset: int, length: int) -> Value:
            """The access is to a structure in the register BAR; each is aligned to its size."""
            bits = ceil_log2(max(length, 2))
            place, inside = request.addr[bits:whole], request.addr[:bits]
            return registers & (place == offset >> bits) & (inside < length)

        common = within(space.COMMON_OFFSET, abi.COMMON_CFG.size)
        to = {
            "space": request.bar == BAR_CONFIG,
            "common": common & (request.addr < FIRST_QUEUE_REGISTER),
            "queues": common & (request.addr >= FIRST_QUEUE_REGISTER),
            "device": within(space.DEVICE_OFFSET, self._kind.device_bytes),
            "msix": within(space.MSIX_OFFSET, 16 * self._kind.vectors),
            "pending": within(space.PBA_OFFSET, 8 * -(-self._kind.vectors // 64)),
            "counters": within(COUNTER_OFFSET, window_bytes(self._counters)),
            "qp_counters": within(QP_COUNTER_OFFSET, QP_WINDOW_BYTES),
        }
        found = {name: Signal(name=f"found_{name}") for name in self._structures}
        found_isr, is_isr = Signal(), Signal()
        m.d.comb += is_isr.eq(within(space.ISR_OFFSET, 4))
        m.d.sync += [found_isr.eq(is_isr), *(one.eq(to[name]) for name, one in found.items())]
        return found, found_isr

    def _ring(self, m: Module, request) -> Signal:
        """The doorbell that the access is, should it be one. Returns whether it counts."""
        rung, doorbell = Signal(), self.doorbell.payload
        m.d.comb += [
            rung.eq(request.write & self.driver_ok & request.strb[:2].all()),
            doorbell.queue.eq(request.addr[2:18]),
            doorbell.has_next.eq(self.notification_data & request.strb.all()),
            doorbell.arms.eq(self.arm_cq & request.strb.all()),
            doorbell.next.eq(request.data[16:]),
        ]
        return rung

    def _through(self, m: Module) -> tuple[Signal, Signal, Signal]:
        """The window's data word holds the bytes of the access from its own byte 0 on.

        Returns how many bytes that is off, a bit for each of its bytes, and whether it may be."""
        shift, size_mask, sound = Signal(2), Signal(4), Signal()
        m.d.comb += shift.eq(self.window_offset)
        with m.Switch(self.window_length):
            for size in (1, 2, 4):
                with m.Case(size):
                    m.d.comb += [
                        size_mask.eq((1 << size) - 1),
                        sound.eq((shift & (size - 1) == 0) & (self.window_bar <= abi.MAX_BAR)),
                    ]
        return shift, size_mask, sound
