"""A card without rooms: router, RDMA function and register blocks, wired as in the NIC."""

from amaranth.hdl import Cat, Module
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.tables import TableProgram, TableRead
from hdl.config import NicConfig
from hdl.csr.management import Management
from hdl.host.guest_functions import FLR_ANSWERS
from hdl.host.mmio import MmioRouter
from hdl.host.virtio import VirtioFunction
from hdl.ports.counter_names import COUNTER_INDEX, QP_COUNTER_INDEX
from hdl.ports.host import MmioPort, WriteClient
from hdl.ports.jobs import Doorbell, Interrupt, QueueError
from hdl.ports.rows import QueueRow

SMALL = NicConfig(width=64, qps=4, cqs=2, mrs=2, gids=2, vectors=5, queue_size=256)
LARGE = NicConfig(width=64, qps=1024, cqs=256, mrs=2, gids=2, vectors=100, queue_size=32768)
#: PCI function of the registers of both.
MANAGEMENT = SMALL.management_function
READS = 2
COUNTERS = 5


class Card(wiring.Component):
    """The gateware under test; its members are those of its parts."""

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "mmio": Out(MmioPort()),
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
                "driver_ok": Out(1),
                "features": Out(3),
                "counters": Out(TableProgram(COUNTER_INDEX, 32)),
                "qp_counters": Out(TableProgram(QP_COUNTER_INDEX, 32)),
                "control_read": In(TableRead(16, QueueRow)),
            }
            | {f"queue_read{i}": In(TableRead(16, QueueRow)) for i in range(READS)}
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.router = router = MmioRouter(config=self._config)
        m.submodules.function = function = VirtioFunction(
            config=self._config, reads=READS, counters=COUNTERS
        )
        m.submodules.management = management = Management(config=self._config)
        wiring.connect(m, router.guest0, function.bus)
        wiring.connect(m, router.csr, management.bus)
        wiring.connect(m, management.queue.program, function.program)
        wiring.connect(m, wiring.flipped(self.mmio), router.mmio)
        for name in ("doorbell", "interrupt", "write", "queue_error", "queue_reset"):
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(function, name))
        for i in range(READS):
            name = f"queue_read{i}"
            wiring.connect(m, wiring.flipped(getattr(self, name)), getattr(function, name))
        wiring.connect(m, wiring.flipped(self.qp_counters), function.qp_counters)
        wiring.connect(m, wiring.flipped(self.counters), function.counters)
        wiring.connect(m, wiring.flipped(self.control_read), function.control_read)
        core, rings = management.core, function.queue_read0.row.rules
        m.d.comb += [
            self.intx.eq(function.intx),
            self.reset_request.eq(function.reset_request),
            self.driver_ok.eq(function.driver_ok),
            self.features.eq(
                Cat(
                    rings.event_idx,
                    rings.in_order,
                    rings.indirect,
                )
            ),
            function.queue_reset_done.eq(self.queue_reset_done),
            function.reset_done.eq(self.reset_done),
            function.flr.eq(self.flr),
            *(getattr(self, name).eq(getattr(function, name)) for name in FLR_ANSWERS),
            function.mac.eq(Cat(management.port.mac_low, management.port.mac_high)),
            core.function0_resets.eq(function.reset_count),
            core.function0_status_device.eq(function.status),
            core.function0_status_resetting.eq(function.resetting),
            core.function0_status_waits.eq(function.reset_request),
            core.function0_status_features.eq(function.features),
            core.function0_needs_reset_active.eq(function.needs_reset),
            core.function0_needs_reset_cause.eq(function.needs_reset_cause),
            core.function0_needs_reset_queue.eq(function.needs_reset_queue),
        ]
        return m
