"""The receive queue that a packet of XRC names, as the intake knows it."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.sums import unequal
from hdl.config import NicConfig
from hdl.ports.numbers import CqNumber, QpNumber, card_number, ordinal_of
from hdl.ports.rows import QpCfg, SourceKind
from hdl.ports.shared import SRQ_BITS
from hdl.wire.opcodes import XRC_QUEUE

from .types import ResponderWork

__all__ = ["NamedQueue", "NamedSource"]


class NamedQueue(data.Struct):
    """What a number of a receive queue has been found to be."""

    number: SRQ_BITS
    index: QpNumber  # of the pair that it names
    # The pair is no receive queue of a domain, or that of another number, or another function's.
    differs: 12  # in pieces
    domain: 16
    pd: 16
    cq: CqNumber
    pieces: 32  # ``qkey`` of its row: ``pieces_of``


class NamedSource(wiring.Component):
    """Keeps the row of the receive queue that a packet names, read ahead of its turn or in it.

    Spec: docs/extensions.md, extension XRC. Members: ``number`` of ``function`` is looked up in the
    row ``index``, which is ``row`` when that has been read. ``seek``: it is asked for ahead, and
    ``found`` in the cycle of ``valid``, unless ``holds`` ends before. ``sought``: that is waited
    for; ``here``: it has been kept, for as long as ``holds`` lasts. ``keep``: the row is kept at
    once. ``load``: work begins, of a QP of ``domain``, which ``uses`` what is kept. ``queue``: what
    is kept. ``lost``: the work at hand names no receive queue of its domain; from the cycle behind
    ``load`` on.
    Latency: a cycle. Errors: ``lost``. Reset: nothing is sought, kept or used.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "number": In(SRQ_BITS),
                "function": In(8),
                "row": In(QpCfg),
                "domain": In(16),
                "index": Out(QpNumber),
                "queue": Out(NamedQueue),
            }
            | {name: In(1) for name in ("seek", "valid", "holds", "keep", "load", "uses")}
            | {name: Out(1) for name in ("sought", "found", "here", "lost")}
        )

    def elaborate(self, platform):
        m = Module()
        row, queue = self.row, self.queue
        used, domain, differs = Signal(), Signal(16, reset_less=True), Signal(13)
        ordinal = ordinal_of(self._config, self.function)
        m.d.comb += [
            self.index.eq(card_number(self._config, "qps", ordinal, self.number)),
            self.found.eq(self.sought & self.valid),
            differs.eq(Cat(queue.differs, queue.domain != domain)),
            self.lost.eq(used & differs.any()),
        ]
        m.d.sync += [
            self.sought.eq(self.holds & (self.seek | (self.sought & ~self.valid))),
            self.here.eq(self.holds & (self.here | self.found)),
        ]
        with m.If(self.found | self.keep):
            m.d.sync += [
                queue.number.eq(self.number),
                queue.index.eq(self.index),
                queue.differs.eq(
                    Cat(
                        row.type != XRC_QUEUE,
                        unequal(row.qpn, self.number),
                        unequal(row.function, self.function),
                    )
                ),
                queue.domain.eq(row.pd),
                queue.pd.eq(row.recv_pd),
                queue.cq.eq(row.recv_cq),
                queue.pieces.eq(row.qkey if self._config.mp_wr else 0),
            ]
        with m.If(self.load):
            m.d.sync += [used.eq(self.uses), domain.eq(self.domain)]
        return m

    def give(self, work: ResponderWork) -> list:
        """Statements: the work has what a QP with one receive queue has in its own row."""
        cfg, queue = work.cfg, self.queue
        return [
            work.srq.eq(queue.number),
            cfg.pd.eq(queue.pd),
            cfg.recv_pd.eq(queue.pd),
            cfg.recv_cq.eq(queue.cq),
            *([cfg.qkey.eq(queue.pieces)] if self._config.mp_wr else ()),
            cfg.source.kind.eq(SourceKind.SHARED),
            cfg.source.number.eq(queue.index),
        ]
