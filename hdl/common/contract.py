"""Contracts: what a component relies on, checked in every simulation and left out of what is built.

Spec: none. A contract in words ("never both", "always taken") is one that nobody notices broken.
"""

from collections.abc import Collection, Iterator

from amaranth.hdl import Assert, Const, Module, Signal, Value, ValueLike
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import Out

__all__ = ["CHECKED", "checked", "keeps_offers", "require", "running", "steady", "taken_at_once"]

#: Bits of a payload that models compare.
WIDEST = 64
#: The platform for which models are generated. Amaranth's own simulator has none.
CHECKED = "model"


def checked(platform: object) -> bool:
    """Whether contracts are checked: in Amaranth's simulator, whose ``platform`` is None, and in
    models for Verilator (``CHECKED``). What only a contract needs is made only then."""
    return platform is None or platform == CHECKED


def require(m: Module, platform: object, condition: ValueLike, text: str) -> None:
    """Require that ``condition`` holds at each clock edge, in its ``If`` or state.

    For any ``platform`` for which contracts are not ``checked`` nothing is generated. ``text`` says
    what must hold. Errors: a simulation in which it does not hold stops and names the text.
    """
    if checked(platform):
        m.d.sync += Assert(condition, text)


def running(m: Module, platform: object) -> Value:
    """Whether ``m`` is not in reset, nor in the first cycle behind it: for a contract about inputs
    from what is not reset together with it. Returns 1 where contracts are not ``checked``."""
    if not checked(platform):
        return Const(1)
    runs = Signal(name="contract_runs")
    m.d.sync += runs.eq(1)
    return runs


def taken_at_once(m: Module, platform: object, offer, text: str) -> None:
    """Require that the stream ``offer`` is ready whenever something is offered: nobody waits, and
    what is not taken is lost. Errors: as of ``require``."""
    require(m, platform, offer.ready | ~offer.valid, text)


def steady(m: Module, platform: object, offer, text: str) -> None:
    """Require that what the stream ``offer`` offers stays as it is until it is taken.

    This is the rule of ``amaranth.lib.stream``. To be called outside of each ``If`` and state.
    ``m`` is reset with who offers: a reset may withdraw the offer. Of a payload wider than
    ``WIDEST`` bits models compare the last ones only: simulations of cards would take a fifth
    longer.
    Errors: as of ``require``.
    """
    if not checked(platform):
        return
    payload = Value.cast(offer.payload)
    if platform == CHECKED:
        payload = payload[-WIDEST:]
    # Names that no signal of the component has.
    waited = Signal(name="contract_waited")
    offered = Signal(len(payload), name="contract_offered", reset_less=True)
    waits = offer.valid & ~offer.ready
    m.d.sync += waited.eq(waits)
    with m.If(waits):
        m.d.sync += offered.eq(payload)
    with m.If(waited):  # so a simulation compares only then
        require(m, platform, offer.valid & (payload == offered), text)


def keeps_offers(m: Module, platform: object, component, *, but: Collection[str] = ()) -> None:
    """Require of each stream that ``component`` offers that it is ``steady``.

    A stream is named by its path in the signature ("tx.job"). ``but``: those that are not steady,
    of which the caller says why. Raises ValueError for a name in ``but`` that no stream has.
    Errors: as of ``require``; the text has the name.
    """
    offers = dict(_offers(component.signature, component, ""))
    if unknown := {*but} - {*offers}:
        raise ValueError(f"Not a stream that is offered: {sorted(unknown)!r}")
    for name, offer in offers.items():
        if name not in but:
            steady(m, platform, offer, f"{name}: what is offered stays until it is taken")


def _offers(signature: wiring.Signature, interface, path: str) -> Iterator[tuple[str, object]]:
    """The streams of an interface that flow out of it and may be kept waiting, by their names."""
    for name, member in signature.members.items():
        if member.is_port or member.dimensions:
            continue
        offers, one = member.flow == Out, getattr(interface, name)
        described = member.signature if offers else member.signature.flip()
        if not isinstance(described, stream.Signature):
            yield from _offers(member.signature, one, f"{path}{name}.")
        elif offers and not described.always_ready:
            yield path + name, one
