"""What the outstanding table tells of an entry before it shows it.

An ACK often ends several WQEs of a QP, one behind the other. While the completer is at one of them
the table reads the next one, and keeps in registers what a packet is compared with. Nothing of that
changes while an entry waits.
"""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data

from hdl.common.contract import require

from .pool import OutstandingPool, link_row
from .types import FORESEEN

__all__ = ["foresee", "forget", "read_ahead", "shown_row"]


def shown_row(qp_bits: int, entry_bits: int) -> data.StructLayout:
    """What the last look has shown, so that a pop of the same list need not look again: the entry
    behind the oldest one of ``qp``."""
    return data.StructLayout(
        {
            "valid": 1,
            "qp": qp_bits,
            "behind": link_row(entry_bits),
            "asks": 1,  # that entry is to be read in advance,
            "comes": 1,  # or comes out of the RAM,
            "known": 1,  # or has come
        }
    )


def foresee(m: Module, platform, shown: Signal, table, pool: OutstandingPool) -> None:
    """Keep what the completer will compare, when the entry behind the oldest one comes."""
    entry, foreseen = pool.entry, table.foreseen
    m.d.sync += shown.comes.eq(0)
    with m.If(shown.comes):
        m.d.sync += [foreseen[name].eq(entry[name]) for name in FORESEEN]
        m.d.sync += shown.known.eq(1)
    same = Cat(foreseen[name] == entry[name] for name in FORESEEN).all()
    stands = table.head_rsp.valid & foreseen.valid
    require(m, platform, ~stands | same, "what was foreseen is shown")


def read_ahead(m: Module, shown: Signal, pool: OutstandingPool) -> None:
    """Read the entry behind the oldest one, unless an operation reads another one."""
    m.d.comb += [pool.number.eq(shown.behind.number), pool.enable.eq(1)]
    m.d.sync += [shown.asks.eq(0), shown.comes.eq(1)]


def forget(m: Module, shown: Signal, foreseen: Signal) -> None:
    """The list that was shown changes; an entry that is shown now has not been foreseen."""
    m.d.sync += [shown[name].eq(0) for name in ("valid", "asks", "comes", "known")]
    m.d.sync += foreseen.valid.eq(0)
