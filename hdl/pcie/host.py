"""The host port on AMD's PCIE4 and PCIE4C blocks: one of several adapters that may serve it."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.count import increment
from hdl.config import NicConfig
from hdl.ports.host import HostPort

from .bus import WORDS, block_pins, from_pins, to_pins
from .completer import Completer
from .completions import COUNTERS, Completions
from .descriptors import WIDTH, cc_user
from .posted import PostedWrites
from .requester import HEAD, Requester
from .requests import Requests
from .straddle import Unstraddle
from .tags import PAGE_BITS, ReadTags

__all__ = ["PcieHost"]

#: Cycles after which a read without completion fails: 16 ms at 250 MHz, at the latest 33 ms. The
#: specification allows 50 us to 50 ms and advises 10 ms or more ("Completion Timeout Mechanism").
TIMEOUT = 1 << 22


def _misplaced(head, state, _at):
    """See ``Misplaced``. The block has compared each completion with those before it: with what the
    request still lacks, it must end where the request ends."""
    return (head.lower_addr + head.byte_count)[:PAGE_BITS] != state.end


class PcieHost(wiring.Component):
    """Serves a card's host port: DMA by RQ and RC, registers by CQ and CC.

    Parameters: ``timeout``: see ``ReadTags``. A quarter of it is the patience of ``PostedWrites``,
    so that a register read is answered before the host gives it up.

    Members: ``host``: the card's; ``cq``, ``cc``, ``rq``, ``rc``: pins of the block's streams,
    aligned to words of 32 bits, ``rq`` with straddle, ``rc`` with or without, the others without;
    ``rq_seq_num``, ``max_payload``, ``max_read`` In: the block's ``pcie_rq_seq_num``,
    ``cfg_max_payload`` and ``cfg_max_read_req``; a counter of each of ``COUNTERS`` Out, see
    ``Completions``; ``refused_requests`` Out: requests of the host that ``Completer`` refuses;
    ``lost_writes`` Out: see ``PostedWrites``.
    The block has client tags, 8 bits of them if ``read_tags`` is more than 32.
    Waits, latency, throughput, errors: see the parts. Reset: the block's ``user_reset``, with the
    card's.
    """

    def __init__(self, *, config: NicConfig, timeout: int = TIMEOUT):
        if config.width != WIDTH:
            raise ValueError(f"Width must be {WIDTH} bits, not {config.width!r}")
        self._config, self._timeout = config, timeout
        super().__init__(
            {
                "host": In(HostPort(WIDTH)),
                **block_pins(),
                "refused_requests": Out(16),
                "lost_writes": Out(16),
                **{name: Out(16) for name in COUNTERS},
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.tags = tags = ReadTags(config=self._config, timeout=self._timeout)
        m.submodules.requests = requests = Requests(head=HEAD, straddle=True)
        m.submodules.requester = requester = Requester()
        connect(m, requests.o, requester.i)
        m.submodules.completions = completions = Completions(
            config=self._config, misplaced=_misplaced
        )
        connect(m, flipped(self.host.rd_req), tags.rd_req)
        connect(m, tags.piece, requests.piece)
        connect(m, flipped(self.host.wr), requests.wr)
        connect(m, completions.rd_rsp, flipped(self.host.rd_rsp))
        connect(m, completions.again, tags.again)
        connect(m, completions.verdict, tags.verdict)
        connect(m, tags.overdue, completions.overdue)
        to_pins(m, requester.rq, self.rq)
        m.submodules.straddle = straddle = Unstraddle()
        from_pins(m, self.rc, straddle.i)
        connect(m, straddle.o, completions.i)
        m.d.comb += [
            tags.max_read.eq(self.max_read),
            requests.max_payload.eq(self.max_payload),
            tags.tag.eq(completions.tag),
            tags.end.eq(completions.end),
            completions.state.eq(tags.state),
            *(getattr(self, name).eq(getattr(completions, name)) for name in COUNTERS),
        ]
        m.submodules.posted = posted = PostedWrites(patience=self._timeout // 4)
        m.d.comb += [
            posted.taken.eq(requests.taken),
            requests.may_write.eq(posted.may_take),
            self.lost_writes.eq(posted.lost),
        ]
        for n in range(2):
            for name in (f"seq_num{n}", f"seq_num_vld{n}"):
                m.d.comb += getattr(posted, name).eq(getattr(self, f"rq_{name}"))
        self._registers(m, posted)
        return m

    def _registers(self, m: Module, posted: PostedWrites) -> None:
        """Accesses of the host."""
        m.submodules.completer = completer = Completer()
        m.d.comb += [completer.in_flight.eq(posted.in_flight), completer.done.eq(posted.done)]
        connect(m, completer.mmio, flipped(self.host.mmio))
        packet = completer.cq.payload
        m.d.comb += [
            packet.data.eq(self.cq.tdata),
            packet.user.eq(self.cq.tuser),
            packet.last.eq(self.cq.tlast),
            completer.cq.valid.eq(self.cq.tvalid),
            self.cq.tready.eq(completer.cq.ready),
        ]
        self._answer(m, completer.cc)
        with m.If(completer.refused):
            increment(m, self.refused_requests)

    def _answer(self, m: Module, completions) -> None:
        """Put a completion on the pins: one beat, or two if its words go beyond the first."""
        one, later = completions.payload, Signal()  # the second beat's turn
        first = WORDS - one.head.shape().size // 32  # words of data in the first beat
        user, longer, words = Signal(cc_user()), Signal(), Signal(range(WORDS + 1))
        m.d.comb += [
            longer.eq(one.words > first),
            words.eq(Mux(later, one.words - first, Mux(longer, WORDS, one.words + WORDS - first))),
            user.sop.eq(~later),
            user.eop.eq(self.cc.tlast),
            user.eop_ptr.eq(words - 1),
            self.cc.tdata.eq(
                Mux(later, one.data[32 * first :], Cat(one.head.as_value(), one.data[: 32 * first]))
            ),
            self.cc.tkeep.eq((1 << words) - 1),
            self.cc.tuser.eq(user),
            self.cc.tlast.eq(later | ~longer),
            self.cc.tvalid.eq(completions.valid),
            completions.ready.eq(self.cc.tready & self.cc.tlast),
        ]
        with m.If(self.cc.tvalid & self.cc.tready):
            m.d.sync += later.eq(~self.cc.tlast)
