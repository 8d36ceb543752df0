"""The network function as its driver sees it, and its device reset."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.config import FUNCTION_NET, NicConfig
from hdl.ports.host import WriteClient
from hdl.ports.network_boxes import HOST_READS, HOST_ROWS, HOST_WRITES, NetworkHost, NetworkStatus

from .kinds import network_kind
from .local import FunctionBus
from .virtio import VirtioFunction

__all__ = ["NetworkFace"]

#: Members of ``NetworkHost`` that go to the engines, and not here.
CLIENTS = {*HOST_READS, *HOST_WRITES, "frames_read"}


class NetworkFace(wiring.Component):
    """A ``VirtioFunction`` for the network function, and the sequence of its device reset.

    A device reset holds the function's work (``hold``), waits for the firmware, which sets the
    defaults (``status.reset_request``, ``status.reset_done``), then for the function to be idle;
    ``restart`` makes it forget all, and the reset ends behind what had been written for it. The
    card's other functions go on meanwhile.

    Members: ``bus``: all accesses of the function; ``function``: what it does, without its clients
    of the engines; ``write``: MSI-X messages; ``intx`` Out; ``status``; ``accepted``, ``issued``
    In: bursts of the write engine, modulo 256. ``flr`` In, ``flr_clean``, ``flr_over``, ``fenced``
    Out: see ``VirtioFunction``. Latency, errors: see ``VirtioFunction``. Reset: power-on state.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        members = NetworkHost(config).flip().members.items()
        super().__init__(
            {
                "bus": In(FunctionBus()),
                "function": Out(
                    wiring.Signature({n: one for n, one in members if n not in CLIENTS})
                ),
                "write": Out(WriteClient(config.width)),
                "intx": Out(1),
                "status": Out(NetworkStatus()),
                "accepted": In(8),
                "issued": In(8),
                "flr": In(1),
                "flr_clean": Out(1),
                "flr_over": Out(1),
                "fenced": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.face = face = VirtioFunction(
            config=self._config,
            kind=network_kind(self._config),
            function=FUNCTION_NET,
            reads=len(HOST_ROWS),
        )
        own, status = self.function, self.status
        connect(m, flipped(self.bus), face.bus)
        connect(m, face.write, flipped(self.write))
        for number, name in enumerate(HOST_ROWS):
            connect(m, flipped(getattr(own, name)), getattr(face, f"queue_read{number}"))
        connect(m, face.doorbell, flipped(own.doorbell))
        connect(m, flipped(own.interrupt), face.interrupt)
        connect(m, flipped(own.error), face.queue_error)
        reset = face.queue_reset
        m.d.comb += [
            own.queue_reset.valid.eq(reset.valid & ~face.resetting),
            own.queue_reset.payload.eq(reset.payload),
            reset.ready.eq(own.queue_reset.ready),
            face.queue_reset_done.eq(reset.valid & reset.ready),
            own.features.eq(face.features),
            self.intx.eq(face.intx),
            face.flr.eq(self.flr),
            self.flr_clean.eq(face.flr_clean),
            self.flr_over.eq(face.flr_over),
            self.fenced.eq(face.fenced),
        ]
        for name, member in NetworkStatus().members.items():
            if name in ("reset_request", "reset_done"):
                continue
            mine, its = getattr(status, name), getattr(face, name)
            m.d.comb += mine.eq(its) if member.flow == Out else its.eq(mine)
        self._reset(m, face)
        return m

    def _reset(self, m: Module, face) -> None:
        """The sequence of a device reset."""
        own, status = self.function, self.status
        last, left = Signal(8), Signal(8)
        m.d.comb += [left.eq(last - self.issued), own.hold.eq(face.resetting)]
        with m.FSM(name="reset"):
            # RUN: the function works; ends when its driver resets it.
            with m.State("RUN"):
                with m.If(face.reset_request):
                    m.next = "FIRMWARE"
            # FIRMWARE: waits for the firmware to answer a request and to set the defaults; ends
            # when it says so.
            with m.State("FIRMWARE"):
                m.d.comb += status.reset_request.eq(1)
                with m.If(status.reset_done):
                    m.next = "STOP"
            # STOP: waits for all that is under way; ends when nothing is.
            with m.State("STOP"):
                with m.If(own.idle):
                    m.next = "RESTART"
            # RESTART: the function forgets all; one cycle.
            with m.State("RESTART"):
                m.d.comb += own.restart.eq(1)
                m.d.sync += last.eq(self.accepted)
                m.next = "WRITES"
            # WRITES: what was written for it goes to the host; ends with the last burst, of fewer
            # than 128 that are on their way.
            with m.State("WRITES"):
                with m.If((left == 0) | left[-1]):
                    m.d.comb += face.reset_done.eq(1)
                    m.next = "DONE"
            # DONE: the reset is over here; ends when it is not asked for any more.
            with m.State("DONE"):
                with m.If(~face.reset_request):
                    m.next = "RUN"
