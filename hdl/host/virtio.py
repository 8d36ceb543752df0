"""A function as a virtio driver sees it over PCI.

Spec: Virtio 1.2, 4.1 (PCI), 2.9 (notification data); VR-1.1, VR-1.2.
"""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi import virtio_pci as abi
from hdl.abi.enums import RdmaFeature
from hdl.abi.virtio_pci import Feature
from hdl.common.fifo import StreamFifo
from hdl.common.tables import TableProgram, TableRead
from hdl.config import FUNCTION_RDMA, NicConfig
from hdl.ports.counter_names import COUNTER_INDEX, QP_COUNTER_INDEX
from hdl.ports.host import WriteClient
from hdl.ports.jobs import Doorbell, Interrupt, QueueError, QueueErrorCause
from hdl.ports.rows import QueueRow

from .config_space import ConfigSpace
from .kind import FunctionKind
from .kinds import rdma_kind
from .local import FunctionBus
from .msix import Msix
from .virtio_accesses import VirtioAccesses
from .virtio_common import CommonConfig
from .virtio_counters import CounterWindow, QpCounterWindow
from .virtio_queues import VirtioQueues

__all__ = ["VirtioFunction"]

#: Doorbells that may wait for the router; fewer than the cycles of any reset, which empties them.
DOORBELLS = 8


#: Fields of ``RingRules``, and the feature that each one tells of. 0: it is not offered.
RULES = {
    "packed": Feature.RING_PACKED,
    "event_idx": Feature.EVENT_IDX,
    "indirect": Feature.INDIRECT_DESC,
    "in_order": Feature.IN_ORDER,
}


class VirtioFunction(wiring.Component):
    """Configuration space, virtio structures and interrupts of a function.

    Parameters: ``config``: what the function has; ``kind``: what it is, an RDMA function unless
    given; ``function``: its PCI number; ``reads``: read ports of the virtqueues' rows;
    ``counters``: words that the driver can read.

    Members: ``bus``: all accesses of the function; ``doorbell`` Out; ``interrupt`` In and ``write``
    Out: MSI-X, or ``intx`` Out (level) with the ISR while MSI-X is off; ``queue_error`` In;
    ``queue_reset`` Out, stream of queue numbers, each answered by ``queue_reset_done`` In (one
    cycle); ``reset_request`` Out held until ``reset_done`` In; ``queue_read0``.. In: rows of the
    virtqueues, ``control_read`` In, if the kind has it: that of the control queue; ``program`` In:
    the firmware's view of them; the ``facts`` of the kind, In: what the device configuration shows;
    ``counters`` and ``qp_counters`` Out, if any: words that the driver can read. Status, Out:
    ``driver_ok``, ``status``, ``resetting``,
    ``reset_count``, ``needs_reset`` with ``needs_reset_cause`` and ``needs_reset_queue``, and
    ``features``: the first of the device type's own (all 0 until FEATURES_OK). Those that tell how
    rings are laid out are in the virtqueues' rows. ``pushes`` Out, if the kind offers PUSH: the
    driver may push WQEs.
    Latency: a read is answered within 24 cycles (a flush of pending interrupts adds 1 per 32
    vectors), one of a counter as much later as its owner answers. Throughput: one access at a time,
    a doorbell in 3 cycles.
    Errors: see the parts. An access to no register reads 0xFFFFFFFF and loses writes. Doorbells of
    queues that do not exist, of less than two bytes, or before DRIVER_OK are lost.
    Reset: power-on state; a device reset (status 0) keeps configuration space and MSI-X table. When
    it begins, doorbells that still wait and a queue reset in progress are withdrawn, and interrupts
    are forgotten until it ends.
    ``flr`` In, held: a function-level reset (PCI Express Base Specification, "Function Level
    Reset"), which is a device reset and keeps nothing. ``flr_clean`` Out: the driver finds nothing
    of before any more, except the status of the device reset; ``flr_over`` Out: that is over too.
    ``fenced`` Out, to its end: work of a previous owner may be left.
    """

    def __init__(
        self,
        *,
        config: NicConfig,
        kind: FunctionKind | None = None,
        function: int = FUNCTION_RDMA,
        reads: int = 1,
        counters: int = 0,
    ):
        self._config, self._function = config, function
        self._kind = kind = kind or rdma_kind(config)
        self._reads, self._counters = reads, counters
        super().__init__(
            {
                "bus": In(FunctionBus()),
                "doorbell": Out(stream.Signature(Doorbell)),
                "interrupt": In(stream.Signature(Interrupt)),
                "write": Out(WriteClient(config.width)),
                "intx": Out(1),
                "queue_error": In(stream.Signature(QueueError)),
                "queue_reset": Out(stream.Signature(16)),
                "queue_reset_done": In(1),
                "reset_request": Out(1),
                "reset_done": In(1),
                "flr": In(1),
                "flr_clean": Out(1),
                "flr_over": Out(1),
                "fenced": Out(1),
                "program": In(TableProgram(16, QueueRow)),
                "driver_ok": Out(1),
                "status": Out(8),
                "features": Out(kind.type_features),
                "resetting": Out(1),
                "reset_count": Out(32),
                "needs_reset": Out(1),
                "needs_reset_cause": Out(QueueErrorCause),
                "needs_reset_queue": Out(16),
            }
            | {name: In(bits) for name, bits in kind.facts.items()}
            | {f"queue_read{i}": In(TableRead(16, QueueRow)) for i in range(reads)}
            | ({"control_read": In(TableRead(16, QueueRow))} if kind.control else {})
            | ({"counters": Out(TableProgram(COUNTER_INDEX, 32))} if counters else {})
            | ({"qp_counters": Out(TableProgram(QP_COUNTER_INDEX, 32))} if counters else {})
            | ({"pushes": Out(1)} if kind.offered & RdmaFeature.PUSH.mask else {})
        )

    def elaborate(self, platform):
        m = Module()
        config, kind = self._config, self._kind
        m.submodules.space = pci = ConfigSpace(image=kind.image)
        m.submodules.common = common = CommonConfig(kind=kind)
        m.submodules.queues = queues = VirtioQueues(config=config, kind=kind, reads=self._reads)
        m.submodules.device = device = kind.device()
        m.submodules.msix = msix = Msix(
            config=config, vectors=kind.vectors, function=self._function
        )
        m.submodules.doorbells = doorbells = StreamFifo(shape=Doorbell, depth=DOORBELLS)

        for i in range(self._reads):
            name = f"queue_read{i}"
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(queues, name))
        if kind.control:
            wiring.connect(m, wiring.flipped(self.control_read), queues.control_read)
        wiring.connect(m, wiring.flipped(self.program), queues.program)
        wiring.connect(m, wiring.flipped(self.queue_reset), queues.queue_reset)
        wiring.connect(m, wiring.flipped(self.queue_error), common.queue_error)
        wiring.connect(m, wiring.flipped(self.write), msix.write)
        was_resetting, begun = Signal(), Signal()
        m.d.sync += was_resetting.eq(common.resetting)
        m.d.comb += [
            self.doorbell.valid.eq(doorbells.o.valid & ~common.resetting),
            self.doorbell.payload.eq(doorbells.o.payload),
            doorbells.o.ready.eq(self.doorbell.ready | common.resetting),
            queues.select.eq(common.queue_select),
            queues.ring_reset.eq(common.features[Feature.RING_RESET]),
            queues.queue_reset_done.eq(self.queue_reset_done),
            queues.hidden.eq(common.resetting),
            queues.clear.eq(common.clear),
            common.cleared.eq(queues.cleared & common.clear),
            common.misaligned.eq(queues.misaligned),
            common.misaligned_queue.eq(queues.misaligned_queue),
            common.contents_changed.eq(device.changed),
            common.reset_done.eq(self.reset_done),
            *(getattr(device, name).eq(getattr(self, name)) for name in kind.facts),
            self.reset_request.eq(common.reset_request),
            self.driver_ok.eq(common.driver_ok),
            self.status.eq(common.status),
            self.features.eq(common.features),
            self.resetting.eq(common.resetting),
            self.reset_count.eq(common.reset_count),
            self.needs_reset.eq(common.needs_reset),
            self.needs_reset_cause.eq(common.needs_reset_cause),
            self.needs_reset_queue.eq(common.needs_reset_queue),
            msix.enable.eq(pci.msix_enable),
            msix.mask.eq(pci.msix_mask | ~pci.bus_master),
            msix.flush.eq(was_resetting & ~common.resetting),
            pci.flr.eq(self.flr),
            common.flr.eq(self.flr),
            self.fenced.eq(common.fenced),
            msix.clear.eq(self.flr),
            self.flr_clean.eq(begun & msix.clean & (common.resetting | common.over)),
            self.flr_over.eq(begun & common.over),
        ]
        m.d.sync += begun.eq(self.flr)
        if kind.offered & RdmaFeature.PUSH.mask:
            m.d.comb += self.pushes.eq(common.driver_ok & common.features[RdmaFeature.PUSH])
        for name, feature in RULES.items():
            if kind.offered & feature.mask:
                m.d.comb += queues.rules[name].eq(common.features[feature])

        isr = Signal(2)
        ports = {
            "space": pci.port,
            "common": common.port,
            "queues": queues.port,
            "device": device.port,
            "msix": msix.table,
            "pending": msix.pending,
        }
        if self._counters:
            m.submodules.window = window = CounterWindow(counters=self._counters)
            wiring.connect(m, window.words, wiring.flipped(self.counters))
            ports["counters"] = window.port
            m.submodules.qp_window = qp_window = QpCounterWindow(config=self._config)
            wiring.connect(m, qp_window.words, wiring.flipped(self.qp_counters))
            m.d.comb += qp_window.clear.eq(common.resetting)
            ports["qp_counters"] = qp_window.port
        m.submodules.accesses = accesses = VirtioAccesses(kind=kind, counters=self._counters)
        wiring.connect(m, wiring.flipped(self.bus), accesses.bus)
        wiring.connect(m, accesses.doorbell, doorbells.i)
        for name, port in ports.items():
            wiring.connect(m, getattr(accesses, name), port)
        m.d.comb += [
            accesses.driver_ok.eq(self.driver_ok),
            # What the next descriptor of a packed ring is says nothing without its size.
            accesses.notification_data.eq(
                common.features[Feature.NOTIFICATION_DATA] & ~queues.rules.packed
            ),
            accesses.arm_cq.eq((common.features & kind.arming) != 0),
            accesses.window_bar.eq(pci.window_bar),
            accesses.window_offset.eq(pci.window_offset),
            accesses.window_length.eq(pci.window_length),
            accesses.isr.eq(isr),
        ]
        self._interrupts(m, pci, common, msix, isr, accesses.isr_read)
        return m

    def _interrupts(self, m, pci, common, msix, isr, isr_read) -> None:
        """Queue interrupts and configuration changes to MSI-X, or to the ISR and INTx. Those of a
        device that is reset go nowhere: the driver of the next one must not get them."""
        change_waits, asks = Signal(), Signal()
        raised = Signal(2)
        vectored = pci.msix_enable & change_waits & (common.config_vector != abi.NO_VECTOR)
        m.d.comb += [
            asks.eq(self.interrupt.valid & ~common.resetting),
            self.interrupt.ready.eq(
                ~pci.msix_enable | common.resetting | (msix.i.ready & ~vectored)
            ),
            msix.i.valid.eq(vectored | (pci.msix_enable & asks)),
            msix.i.payload.function.eq(self.interrupt.payload.function),
            msix.i.payload.vector.eq(
                Mux(vectored, common.config_vector, self.interrupt.payload.vector)
            ),
            raised[0].eq(asks & ~pci.msix_enable),
            raised[1].eq(common.config_changed),
            pci.interrupt.eq((isr != 0) & ~pci.msix_enable),
            self.intx.eq((isr != 0) & ~pci.msix_enable & ~pci.intx_disable),
        ]
        with m.If(common.config_changed):
            m.d.sync += change_waits.eq(1)
        with m.Elif(~vectored | msix.i.ready):
            m.d.sync += change_waits.eq(0)
        with m.If(isr_read):
            m.d.sync += isr.eq(raised)
        with m.Elif(common.resetting):
            m.d.sync += isr.eq(0)
        with m.Else():
            m.d.sync += isr.eq(isr | raised)
