"""Contracts: what a component relies on, checked in every simulation and left out of what is built.

Spec: none. A contract in words ("never both", "always taken") is one that nobody notices broken.
"""

from amaranth.hdl import Assert, Module, ValueLike

__all__ = ["CHECKED", "require"]

#: The platform for which models are generated. Amaranth's own simulator has none.
CHECKED = "model"


def require(m: Module, platform: object, condition: ValueLike, text: str) -> None:
    """Require that ``condition`` holds at each clock edge, in its ``If`` or state.

    It is checked where ``platform`` is None (Amaranth's simulator) or ``CHECKED`` (models for
    Verilator); for any other nothing is generated. ``text`` says what must hold. Errors: a
    simulation in which it does not hold stops and names the text.
    """
    if platform is None or platform == CHECKED:
        m.d.sync += Assert(condition, text)
