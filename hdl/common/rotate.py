"""Rotating a beat by a number of bytes, in logarithmic steps over pipeline stages."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value

__all__ = ["pipelined_rotate"]


def pipelined_rotate(
    m: Module, data: Value, amount: Value, *, left: bool, stages: int, name: str
) -> Signal:
    """``data`` rotated by ``amount`` bytes, ``stages`` cycles later.

    To the right byte n moves to n - amount, to the left to n + amount, modulo the beat. ``amount``
    has as many bits as a byte number; the steps are shared out evenly over the stages.
    """
    steps = len(amount)
    if len(data) != 8 << steps:
        raise ValueError(f"Amount must number the bytes of {len(data)} bits, not {steps} bits")
    done = 0
    for stage in range(stages):
        until = steps * (stage + 1) // stages
        for step in range(done, until):
            bits = 8 << step
            turned = data.rotate_left(bits) if left else data.rotate_right(bits)
            data = Mux(amount[step], turned, data)
        done = until
        register = Signal(len(data), name=f"{name}_rotated{stage}", reset_less=True)
        rest = Signal(steps, name=f"{name}_amount{stage}", reset_less=True)
        m.d.sync += [register.eq(data), rest.eq(amount)]
        data, amount = register, rest
    return data
