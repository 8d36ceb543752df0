"""Choice of the next client to serve."""

from amaranth.hdl import Module, Signal

__all__ = ["round_robin"]


def round_robin(m: Module, requests: Signal, last: Signal, chosen: Signal) -> None:
    """Drive ``chosen`` with the first set bit of ``requests`` after bit ``last``, wrapping round.

    ``last`` itself comes last. Without any request ``chosen`` is ``last``.
    """
    count = len(requests)
    m.d.comb += chosen.eq(last)
    with m.Switch(last):
        for previous in range(count):
            with m.Case(previous):
                for step in reversed(range(1, count + 1)):
                    candidate = (previous + step) % count
                    with m.If(requests[candidate]):
                        m.d.comb += chosen.eq(candidate)
