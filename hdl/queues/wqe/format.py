"""Fields of a WQE's fixed part, wherever the format of its queue has them."""

from collections.abc import Callable, Iterator

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from hdl.abi.wqe_formats import (
    ADDRESS_VECTOR,
    FIELDS,
    NAMED,
    OPERANDS,
    Layout,
    Place,
    WqeFormat,
    card_formats,
)
from hdl.config import NicConfig
from hdl.ports.jobs import Destination, Sge
from hdl.ports.operations import (
    RequestOperation,
    decode_request,
    is_copy,
    is_layout,
    is_placement,
)
from hdl.ports.shared import BIND_FIELDS
from hdl.wire.gateware import swap as swap_bytes
from hdl.wire.opcodes import ATOMIC_BYTES, Kind

__all__ = [
    "ElementFields",
    "atomic_operands",
    "element_limit",
    "first_format",
    "format_of",
    "most_behind",
]


def format_of(config: NicConfig, rules) -> Value:
    """The format of the elements of a queue with these ``RingRules``. On a card with one format
    nothing is built for another: this is the place that knows."""
    return rules.wqe_format if len(card_formats(config)) > 1 else Const(0)


def first_format(config: NicConfig) -> WqeFormat:
    """The format that the fast path reads."""
    return next(iter(card_formats(config).values()))


def element_limit(config: NicConfig) -> int:
    """Bytes of the longest valid WQE."""
    fixed = max(one.fixed for form in card_formats(config).values() for one in form.send)
    return fixed + most_behind(config)


def most_behind(config: NicConfig, *, receive: bool = False) -> int:
    """Bytes that an element has behind its fixed part, at most: as many SGEs as the card takes or,
    in a send WQE, bytes inline."""
    return max(Sge.as_shape().size // 8 * config.max_sge, 0 if receive else config.max_inline)


def atomic_operands(operation: RequestOperation, compare_add: Value, swap: Value) -> Value:
    """The operands of an atomic as the end of AtomicETH, from their fields in the WQE; 16 bytes."""
    compares, swap_add = operation.compares, Mux(operation.compares, swap, compare_add)
    return Cat(swap_bytes(swap_add), swap_bytes(compare_add) & compares.replicate(64))


def _read(place: Place, part: Value) -> Value:
    number = part[8 * place.offset : 8 * place.end]
    number = (swap_bytes(number) if place.big else number)[place.low :][: place.width]
    if place.doubled:
        return Cat(Const(0, 1), number)
    return (number - place.less)[: place.width] if place.less else number


class ElementFields:
    """The fixed part of an element, read by the names of ``hdl.abi.wqe_formats``.

    Parameters: ``part``: its first bytes; ``formats``: those that it may have, by number;
    ``number``: the one that it has; ``receive``: whether it is a receive WQE, which may be known
    when the component is built. A field that its layout does not have is 0, and of a receive WQE
    anything.
    """

    def __init__(
        self,
        config: NicConfig,
        part: Value,
        *,
        formats: dict[int, WqeFormat],
        number: Value,
        receive: Value | bool,
    ):
        self._config, self._part, self._formats = config, part, formats
        self._number, self._receive = number, receive

    @staticmethod
    def names(config: NicConfig) -> tuple[str, ...]:
        """The fields that a card reads."""
        vector = ADDRESS_VECTOR if config.ud else BIND_FIELDS if config.keeps_destinations else ()
        named = (NAMED,) if config.placement else ()
        return (*FIELDS, *(OPERANDS if config.atomics else ()), *named, *vector)

    @classmethod
    def kept(cls, config: NicConfig) -> int:
        """Bytes of an element up to the last field that a card reads."""
        names = {*cls.names(config)}
        places = [
            place
            for form in card_formats(config).values()
            for layout in (form.receive, *cls._send_layouts(config, form))
            for name, place in layout.fields.items()
            if name in names
        ]
        return max(place.end for place in places)

    @staticmethod
    def _built(config: NicConfig, form: WqeFormat, layout: Layout) -> list[int]:
        """Opcodes that have a layout and that the card executes."""
        codes = form.opcodes(layout)
        return [code for code in codes if form.operations[code].feature in config.features]

    @classmethod
    def _send_layouts(cls, config: NicConfig, form: WqeFormat) -> list[Layout]:
        *others, last = form.send
        return [*(one for one in others if cls._built(config, form, one)), last]

    def _by_format(self, value: Callable[[WqeFormat], Value]) -> Value:
        """What ``value`` gives for the format of the element."""
        (_, first), *others = self._formats.items()
        found = value(first)
        for number, form in others:
            found = Mux(self._number == number, value(form), found)
        return found

    def _choices(self) -> Iterator[tuple[Value | None, Layout, bool]]:
        """Layouts with the condition of each, and whether it is of a receive WQE. The first whose
        condition is met is the element's; the last has none."""
        for left, (number, form) in zip(
            reversed(range(len(self._formats))), self._formats.items(), strict=True
        ):
            mine = self._number == number if left else Const(1)
            if self._receive is not False:
                alone = self._receive is True and not left
                yield (None if alone else mine & self._receive), form.receive, True
            if self._receive is True:
                continue
            opcode = _read(form.opcode, self._part)[:8]
            *others, last = self._send_layouts(self._config, form)
            for layout in others:
                codes = self._built(self._config, form, layout)
                yield mine & opcode.matches(*codes), layout, False
            yield (mine if left else None), last, False

    def choose(self, value: Callable[[Layout], object | None], make: Callable) -> Value:
        """``make`` of what ``value`` gives for the element's layout; None: it is of no concern."""
        choices = [(value(layout), condition) for condition, layout, _ in self._choices()]
        wanted = [(one, condition) for one, condition in choices if one is not None]
        chosen, _ = wanted.pop()
        found, all_same = make(chosen), True
        for one, condition in reversed(wanted):
            all_same &= one == chosen
            if not all_same:
                found = Mux(condition, make(one), found)
        return found

    def __getitem__(self, name: str) -> Value:
        """The field of that name."""
        receive = {id(layout) for _, layout, of_receive in self._choices() if of_receive}
        nowhere = Place(0, 1)

        def place(layout: Layout) -> Place | None:
            return layout.fields.get(name, None if id(layout) in receive else nowhere)

        return self.choose(
            place, lambda one: Const(0, 1) if one is nowhere else _read(one, self._part)
        )

    @property
    def fixed(self) -> Value:
        """Bytes of the fixed part."""
        return self.choose(lambda layout: layout.fixed, Const)

    @property
    def opcode(self) -> Value:
        """The opcode of a send WQE."""
        return self._by_format(lambda form: _read(form.opcode, self._part))

    @property
    def inline(self) -> Value:
        """Whether a send WQE has its data in itself."""
        return self._by_format(
            lambda form: _read(form.inline, self._part) if form.inline else Const(0)
        )

    def operation(self, m: Module) -> data.View:
        """The operation of a send WQE; all zeros if the card does not know it."""
        found = {
            form.name: decode_request(
                m,
                self._config,
                _read(form.opcode, self._part)[:8],
                requests=form.operations,
                name=f"operation{number or ''}",
            ).as_value()
            for number, form in self._formats.items()
        }
        return data.View(RequestOperation, self._by_format(lambda form: found[form.name]))

    def length(self, operation: RequestOperation, data_bytes: Value, uneven: Value) -> Value:
        """Bytes of the message of a WQE whose SGEs, or inline bytes, are ``data_bytes``. A FLUSH
        says how many it is about, an ATOMIC WRITE is one of a word. Both SGEs of a MEMCPY are as
        long as what it copies, else (``uneven``) it is one of no bytes, which admission refuses. A
        layout is none."""
        if self._config.mkeys:
            layout = is_layout(self._config, operation.completion)
            data_bytes = Mux(layout, 0, data_bytes)
        copies = is_copy(self._config, operation.completion)
        if self._config.memcpy:
            data_bytes = Mux(copies, Mux(uneven, 0, data_bytes[1:]), data_bytes)
        if not self._config.placement:
            return data_bytes
        places = is_placement(self._config, operation.completion)
        named = Mux(operation.kind == Kind.ATOMIC, ATOMIC_BYTES, self[NAMED])
        return Mux(places, named, data_bytes)

    def sge(self, slot: Value) -> Value:
        """The 16 bytes of an SGE as an ``Sge``."""

        def native(form: WqeFormat) -> Value:
            return Cat(_read(form.sge[name], slot) for name in ("addr", "length", "lkey"))

        return self._by_format(native)

    def destination(self, m: Module) -> Signal:
        """The address vector of a WQE. Of BIND_MW it holds the operands that lie there
        (``hdl.ports.shared.operands``)."""
        found = Signal(Destination, name="destination_now")
        names = {*self.names(self._config)}
        m.d.comb += [found[one].eq(self[one]) for one in ADDRESS_VECTOR if one in names]
        return found
