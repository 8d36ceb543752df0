"""The host port on Intel's P-Tile: an adapter like that for AMD's blocks."""

from amaranth.hdl import Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.count import increment
from hdl.config import NicConfig
from hdl.pcie.answers import Answers
from hdl.pcie.completer import Completer
from hdl.pcie.completions import COUNTERS, Completions
from hdl.pcie.control import FUNCTIONS
from hdl.pcie.descriptors import WIDTH
from hdl.pcie.host import DMA_COUNTERS, TIMEOUT, join_reads
from hdl.pcie.posted import IN_FLIGHT
from hdl.pcie.progress import misplaced
from hdl.pcie.requests import Requests
from hdl.pcie.tag_pool import QUARANTINE
from hdl.pcie.tags import ReadTags
from hdl.ports.host import HostPort

from .bus import config_pins, stream_pins
from .reads import ReadsInFlight
from .receive import Receive
from .route import Bars, Route
from .settings import Settings
from .transmit import Transmit

__all__ = ["PTileHost"]


class PTileHost(wiring.Component):
    """Serves a card's host port: DMA and registers by one stream of packets in each direction.

    Parameters: ``timeout``, ``quarantine``: see ``ReadTags``; ``bars``: see ``Route``.
    Members: ``host``: the card's; ``rx_*``, ``tx_*``, ``tl_cfg_*``: the block's pins;
    ``function_status``, ``msix_enable``, ``msix_mask`` Out: for ``FunctionControl``; a counter of
    each of ``DMA_COUNTERS`` Out, see ``Completions`` and ``ReadTags``; ``refused_requests`` Out:
    requests of the host that ``Completer`` refuses; ``lost_writes`` Out: requests to write that
    were dropped since their function is no bus master.
    Waits, latency, throughput, errors: see the parts. Reset: the block's, with the card's.
    """

    def __init__(
        self,
        *,
        config: NicConfig,
        bars: Bars,
        timeout: int = TIMEOUT,
        quarantine: int = QUARANTINE,
    ):
        if config.width != WIDTH:
            raise ValueError(f"Width must be {WIDTH} bits, not {config.width!r}")
        self._config, self._bars = config, bars
        self._timeout, self._quarantine = timeout, quarantine
        super().__init__(
            {
                "host": In(HostPort(WIDTH)),
                **stream_pins(),
                **config_pins(),
                "function_status": Out(4 * FUNCTIONS),
                "msix_enable": Out(FUNCTIONS),
                "msix_mask": Out(FUNCTIONS),
                "refused_requests": Out(16),
                "lost_writes": Out(16),
                **{name: Out(16) for name in DMA_COUNTERS},
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.settings = settings = Settings(config=self._config)
        m.submodules.receive = receive = Receive()
        m.submodules.route = route = Route(bars=self._bars)
        m.submodules.transmit = transmit = Transmit()
        for part, prefix in ((settings, "tl_cfg_"), (receive, "rx_"), (transmit, "tx_")):
            for name, member in part.signature.members.items():
                if name.startswith(prefix):
                    ours, its = getattr(self, name), getattr(part, name)
                    m.d.comb += ours.eq(its) if member.flow == Out else its.eq(ours)
        for name in ("function_status", "msix_enable", "msix_mask"):
            m.d.comb += getattr(self, name).eq(getattr(settings, name))
        connect(m, receive.o, route.i)
        in_flight = self._dma(m, settings, route, transmit)
        self._registers(m, settings, route, transmit, in_flight)
        with m.If(transmit.lost):
            increment(m, self.lost_writes)
        return m

    def _dma(self, m: Module, settings: Settings, route: Route, transmit: Transmit) -> Signal:
        """Reads from the tag to the completion, and writes; returns how many of these are taken and
        not yet in line."""
        m.submodules.tags = tags = ReadTags(
            config=self._config, timeout=self._timeout, quarantine=self._quarantine
        )
        m.submodules.reads = reads = ReadsInFlight(config=self._config)
        m.submodules.requests = requests = Requests(head=0)
        m.submodules.completions = completions = Completions(
            config=self._config, misplaced=misplaced, block_tracks=False
        )
        join_reads(m, self.host, tags, completions, count=self._config.read_tags)
        connect(m, tags.piece, reads.i)
        connect(m, reads.o, requests.piece)
        connect(m, flipped(self.host.wr), requests.wr)
        connect(m, requests.o, transmit.requests)
        connect(m, route.completions, completions.i)
        m.d.comb += [
            tags.max_read.eq(settings.max_read),
            requests.max_payload.eq(settings.max_payload),
            tags.may_ask.eq(settings.may_ask),
            tags.extended_tags.eq(settings.extended_tags),
            reads.tag.eq(completions.tag),
            reads.end.eq(completions.end),
            reads.may_ask.eq(transmit.read_credit),
            transmit.read_spends.eq(reads.asks),
            transmit.who.eq(settings.of(transmit.function)),
            transmit.may_write.eq(settings.may_ask.bit_select(transmit.function[:2], 1)),
            *(getattr(self, name).eq(getattr(completions, name)) for name in COUNTERS),
            *(getattr(self, n).eq(getattr(tags, n)) for n in DMA_COUNTERS[len(COUNTERS) :]),
        ]
        in_flight = Signal(range(IN_FLIGHT + 1))
        m.d.sync += in_flight.eq(in_flight + requests.taken - transmit.done)
        m.d.sync += requests.may_write.eq(in_flight < IN_FLIGHT - 1)
        return in_flight

    def _registers(
        self, m: Module, settings: Settings, route: Route, transmit: Transmit, in_flight: Signal
    ) -> None:
        """Accesses of the host."""
        m.submodules.completer = completer = Completer()
        connect(m, route.requests, completer.cq)
        m.submodules.answers = answers = Answers()
        connect(m, completer.cc, answers.i)
        connect(m, answers.o, transmit.completions)
        connect(m, completer.mmio, flipped(self.host.mmio))
        m.d.comb += [
            answers.in_flight.eq(in_flight),
            answers.done.eq(transmit.done),
            transmit.completer.eq(settings.of(transmit.completer_function)),
        ]
        with m.If(completer.refused):
            increment(m, self.refused_requests)
