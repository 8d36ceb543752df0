"""The host port on AMD's PCIE4 and PCIE4C blocks: one of several adapters that may serve it."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.count import increment
from hdl.config import NicConfig
from hdl.ports.host import HostPort

from .answers import Answers
from .bus import WORDS, block_pins, from_pins, to_pins
from .completer import Completer
from .completions import COUNTERS, Completions
from .descriptors import WIDTH, cc_user
from .posted import READ, PostedWrites
from .progress import Progress, misplaced
from .read_credits import ReadCredits
from .requester import HEAD, Requester
from .requests import Requests
from .settings import BlockSettings, mgmt_pins
from .straddle import Unstraddle
from .tag_pool import QUARANTINE
from .tags import ReadTags

__all__ = ["DMA_COUNTERS", "PcieHost", "join_reads"]

#: Counters of an adapter's DMA: those of ``Completions``, and those of ``ReadTags``.
DMA_COUNTERS = (*COUNTERS, "denials", "tags_quarantined", "tags_returned")


#: Cycles after which a read without completion fails: 16 ms at 250 MHz, at the latest 33 ms. The
#: specification allows 50 us to 50 ms and advises 10 ms or more ("Completion Timeout Mechanism").
TIMEOUT = 1 << 22


def join_reads(m: Module, host, tags: ReadTags, completions: Completions, *, count: int) -> None:
    """Join what asks for reads with what takes their completions, and with what knows of both what
    is left of each of the ``count`` tags; and with ``host``."""
    m.submodules.progress = progress = Progress(tags=count)
    connect(m, completions.moved, progress.moved)
    m.d.comb += [
        progress.begins.payload.eq(tags.piece.payload),
        progress.begins.valid.eq(tags.piece.valid & tags.piece.ready),
        progress.tag.eq(completions.tag),
        completions.at.eq(progress.at),
    ]
    connect(m, flipped(host.rd_req), tags.rd_req)
    connect(m, completions.rd_rsp, flipped(host.rd_rsp))
    for name in ("again", "verdict", "fate"):
        connect(m, getattr(completions, name), getattr(tags, name))
    for name in ("overdue", "denied"):
        connect(m, getattr(tags, name), getattr(completions, name))
    for name in ("tag", "end", "busy", "busy_tag"):
        m.d.comb += getattr(tags, name).eq(getattr(completions, name))
    m.d.comb += completions.state.eq(tags.state)


class PcieHost(wiring.Component):
    """Serves a card's host port: DMA by RQ and RC, registers by CQ and CC.

    Parameters: ``timeout``, ``quarantine``: see ``ReadTags``. A quarter of ``timeout`` is the
    patience of ``PostedWrites``, so that a register read is answered before the host gives it up.

    Members: ``host``: the card's; ``cq``, ``cc``, ``rq``, ``rc``: pins of the block's streams,
    aligned to words of 32 bits, ``rq`` with straddle, ``rc`` with or without, the others without;
    ``rq_seq_num``, ``max_payload``, ``max_read``, ``tfc_nph_av`` In: the block's
    ``pcie_rq_seq_num``, ``cfg_max_payload``, ``cfg_max_read_req`` and ``pcie_tfc_nph_av``;
    ``cq_np_req`` Out: its ``pcie_cq_np_req``; ``mgmt_*``: see ``BlockSettings``; a counter of each
    of ``DMA_COUNTERS`` Out, see ``Completions`` and ``ReadTags``; ``refused_requests`` Out:
    requests of the host that ``Completer`` refuses;
    ``lost_writes`` Out: see ``PostedWrites``.
    The block has client tags, 8 bits of them if ``read_tags`` is more than 32.
    Waits, latency, throughput, errors: see the parts. Reset: the block's ``user_reset``, with the
    card's.
    """

    def __init__(self, *, config: NicConfig, timeout: int = TIMEOUT, quarantine: int = QUARANTINE):
        if config.width != WIDTH:
            raise ValueError(f"Width must be {WIDTH} bits, not {config.width!r}")
        self._config, self._timeout, self._quarantine = config, timeout, quarantine
        super().__init__(
            {
                "host": In(HostPort(WIDTH, push=config.push)),
                **block_pins(),
                "refused_requests": Out(16),
                "lost_writes": Out(16),
                **{name: Out(16) for name in DMA_COUNTERS},
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.settings = settings = BlockSettings(config=self._config)
        m.submodules.tags = tags = ReadTags(
            config=self._config, timeout=self._timeout, quarantine=self._quarantine
        )
        m.submodules.requests = requests = Requests(head=HEAD, straddle=True)
        m.submodules.requester = requester = Requester()
        connect(m, requests.o, requester.i)
        m.submodules.completions = completions = Completions(
            config=self._config, misplaced=misplaced, block_tracks=True
        )
        join_reads(m, self.host, tags, completions, count=self._config.read_tags)
        connect(m, flipped(self.host.wr), requests.wr)
        to_pins(m, requester.rq, self.rq)
        m.submodules.straddle = straddle = Unstraddle()
        from_pins(m, self.rc, straddle.i)
        connect(m, straddle.o, completions.i)
        for name, member in mgmt_pins().items():
            ours, its = getattr(self, name), getattr(settings, name)
            m.d.comb += ours.eq(its) if member.flow == Out else its.eq(ours)
        m.d.comb += [
            settings.pf0_payload.eq(self.max_payload),
            settings.pf0_read.eq(self.max_read),
            tags.max_read.eq(settings.max_read),
            tags.may_ask.eq(~0),  # the block knows who is bus master
            tags.extended_tags.eq(settings.extended_tags),
            tags.expires.eq(settings.expires),
            requests.max_payload.eq(settings.max_payload),
            *(getattr(self, name).eq(getattr(completions, name)) for name in COUNTERS),
            *(getattr(self, n).eq(getattr(tags, n)) for n in DMA_COUNTERS[len(COUNTERS) :]),
        ]
        self._ask(m, tags, requests, requester)
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

    def _ask(self, m: Module, tags: ReadTags, requests: Requests, requester: Requester) -> None:
        """Reads on their way to the block, as many as the link partner takes."""
        m.submodules.credits = credits = ReadCredits()
        piece, rq = requests.piece, requester.rq
        m.d.comb += [
            credits.nph_av.eq(self.tfc_nph_av),
            piece.payload.eq(tags.piece.payload),
            piece.valid.eq(tags.piece.valid & credits.may_read),
            tags.piece.ready.eq(piece.ready & credits.may_read),
            credits.taken.eq(piece.valid & piece.ready),
            credits.sent.eq(rq.valid & rq.ready & rq.p.user.sop[0] & (rq.p.user.seq_num0 == READ)),
        ]

    def _registers(self, m: Module, posted: PostedWrites) -> None:
        """Accesses of the host."""
        m.submodules.completer = completer = Completer(push=self._config.push)
        if self._config.push:
            connect(m, completer.push, flipped(self.host.push))
        m.submodules.answers = answers = Answers()
        connect(m, completer.cc, answers.i)
        m.d.comb += [
            answers.in_flight.eq(posted.in_flight),
            answers.done.eq(posted.done),
            self.cq_np_req.eq(answers.wants),
        ]
        connect(m, completer.mmio, flipped(self.host.mmio))
        packet = completer.cq.payload
        m.d.comb += [
            packet.data.eq(self.cq.tdata),
            packet.user.eq(self.cq.tuser),
            packet.last.eq(self.cq.tlast),
            completer.cq.valid.eq(self.cq.tvalid),
            self.cq.tready.eq(completer.cq.ready),
        ]
        self._answer(m, answers.o)
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
