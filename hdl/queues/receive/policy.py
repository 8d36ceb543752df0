"""The policy by which receive WQEs are fetched ahead: its numbers, and what each is for.

What follows from them, and what has been measured: docs/queues.md.
"""

from hdl.config import NicConfig

from .lines import refetch_lines

__all__ = ["PrefetchPolicy"]


class PrefetchPolicy:
    """Numbers of lines that a card's sources may have. A *run* is a row of answers to one source,
    a source's *pace* how many answers all sources get for one of its own."""

    #: WQEs of a source that are asked for in one turn: others get theirs in between.
    BURST = 4
    #: Answers to a source with fewer answers to others between them are one run.
    NEAR = 8
    #: Bits of the number of all answers that are 0 when the longest run fades: not the lowest ones,
    #: as runs are often as long as a power of two.
    FADE = slice(9, 12)

    def __init__(self, config: NicConfig):
        total = config.recv_lines
        lines = total - refetch_lines(total)
        #: Lines that stay free for sources whose WQEs were late.
        self.spared = max(1, lines // 8)
        #: And of these, lines that stay free for requests.
        self.kept = max(1, lines // 32)
        #: A source that was only notified gets a line while more than these are free.
        self.idle = lines // 2
        #: Eighths of the pace of a source that has not been asked before: a share of 32 lines.
        self.first_pace = max(8, total // 8)
