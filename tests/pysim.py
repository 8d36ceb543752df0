"""Amaranth's own simulator, with less to do in the Python that it writes for a design.

Amaranth masks each value at each step, whatever is known of it, and joins the conditions of an
``If`` and its ``Elif`` to a number before it tests the first. Here an expression knows which bits
of it can be set, and a condition is tested where it stands. What a design does stays the same:
tests/test_pysim.py compares it with what Amaranth makes of an expression that a bench reads.
"""

from __future__ import annotations

import re
from typing import Any

from amaranth.hdl import Const, Value
from amaranth.hdl._ast import Concat
from amaranth.sim import _pyrtl

__all__ = ["quicken"]


class _Code(str):
    """An expression in Python.

    bits: those that its value can have set; then it is not negative. None: nothing is known.
    A value of one bit can be False or True, which update() makes 0 or 1.
    """

    bits: int | None


def _code(text: str, bits: int | None = None) -> _Code:
    code = _Code("0" if bits == 0 else text)
    code.bits = bits
    return code


def _known(code: str) -> int | None:
    return getattr(code, "bits", None)


def _ones(width: int) -> int:
    return (1 << width) - 1


def _either(a: str, b: str) -> int | None:
    """The bits that one of them can have set."""
    known = _known(a), _known(b)
    return None if None in known else known[0] | known[1]


def _masked(code: str, width: int) -> str:
    """The lowest ``width`` bits of it."""
    bits, ones = _known(code), _ones(width)
    if bits is None:
        return _code(f"({ones:#x} & {code})", ones)
    return code if not bits & ~ones else _code(f"({ones:#x} & {code})", bits & ones)


class _Rhs(_pyrtl._RHSValueCompiler):
    def sign(self, value: Value) -> str:
        """The value as a number, negative ones too."""
        masked = _masked(self(value), len(value))
        top = 1 << (len(value) - 1) if value.shape().signed else 0
        bits = _known(masked)
        return masked if bits is not None and not bits & top else f"sign({masked}, {-top:#x})"

    def on_Const(self, value: Const) -> str:
        return _code(f"{value.value}", value.value if value.value >= 0 else None)

    def on_Signal(self, value: Value) -> str:
        # A signal without sign is held and updated within its width.
        return _code(super().on_Signal(value), None if value.shape().signed else _ones(len(value)))

    def on_Operator(self, value: Any) -> str:
        operator, operands = value.operator, value.operands
        if operator in ("u", "s"):  # another reading of the same bits
            return self(operands[0])
        if len(operands) == 2:
            return self._of_two(operator, *(self.sign(each) for each in operands), len(value))
        if operator == "-":
            return f"(-{self.sign(operands[0])})"
        width = len(operands[0])
        bits = _masked(self(operands[0]), width)
        if operator == "~":
            return _code(f"({_ones(width):#x} ^ {bits})", _ones(width))
        if width == 1:
            return bits
        if operator in ("b", "r|"):
            return _code(f"({bits} != 0)", 1)
        if operator == "r&":
            return _code(f"({bits} == {_ones(width):#x})", 1)
        assert operator == "r^", operator
        return _code(f"(({bits}).bit_count() & 1)", 1)

    def _of_two(self, operator: str, left: str, right: str, width: int) -> str:
        text = f"({left} {operator} {right})"
        if operator in ("==", "!=", "<", "<=", ">", ">="):
            return _code(text, 1)
        a, b = _known(left), _known(right)
        if operator == "&":
            both = [bits for bits in (a, b) if bits is not None]
            bits = both[0] & both[-1] if both else None
            return _code(text, bits)
        if operator in ("//", "%"):
            name = "zdiv" if operator == "//" else "zmod"
            return _code(f"{name}({left}, {right})")
        if a is None or b is None or operator == "-":
            return _code(text)
        if operator in ("|", "^"):
            return _code(text, _either(left, right))
        return _code(text, _ones(width))

    def on_Slice(self, value: Any) -> str:
        inner = self(value.value)
        if value.start:
            bits = _known(inner)
            inner = _code(f"({inner} >> {value.start})", bits and bits >> value.start)
        return _masked(inner, len(value))

    def on_Part(self, value: Any) -> str:
        offset = _masked(self.rrhs(value.offset), len(value.offset))
        if value.stride != 1:
            offset = f"({value.stride} * {offset})"
        ones = _ones(value.width)
        return _code(f"({ones:#x} & ({self(value.value)} >> {offset}))", ones)

    def on_Concat(self, value: Concat) -> str:
        parts, offset, bits = [], 0, 0
        for part in value.parts:
            code = _masked(self(part), len(part))
            known = _known(code)
            assert known is not None
            if known:
                bits |= known << offset
                parts.append(_code(f"({code} << {offset})", known << offset) if offset else code)
            offset += len(part)
        if len(parts) == 1:
            return parts[0]
        return _code(f"({' | '.join(parts)})", bits)

    def on_SwitchValue(self, value: Any) -> str:
        (first, one), (second, other) = value.cases if len(value.cases) == 2 else [((), None)] * 2
        if first not in (("0",), ("1",)) or second not in (None, ("0",), ("1",)) or first == second:
            return super().on_SwitchValue(value)
        if first == ("0",):
            one, other = other, one
        test = _masked(self.rrhs(value.test), 1)
        a, b = self.sign(one), self.sign(other)
        return _code(f"({a} if {test} else {b})", _either(a, b))


class _Lhs(_pyrtl._LHSValueCompiler):
    def on_Signal(self, value: Value) -> Any:
        if value.shape().signed:
            return super().on_Signal(value)
        if self.outputs is not None:
            self.outputs.add(value)

        def gen(arg: str) -> None:
            code = _masked(arg, len(value))
            self.emitter.append(f"next_{self.state.get_signal(value)} = {code}")

        return gen

    def on_Slice(self, value: Any) -> Any:
        def gen(arg: str) -> None:
            hole = _ones(len(value)) << value.start
            kept, bits = self.lrhs(value.value), _masked(arg, len(value))
            put = f"({bits} << {value.start})" if value.start else bits
            text = f"({kept} & {~hole:#x})" if bits == "0" else f"({kept} & {~hole:#x} | {put})"
            self(value.value)(_code(text, _known(kept)))

        return gen

    def on_Concat(self, value: Concat) -> Any:
        def gen(arg: str) -> None:
            name, offset = self.emitter.def_var("cat", arg), 0
            for part in value.parts:
                ones = _ones(len(part))
                self(part)(_code(f"({ones:#x} & ({name} >> {offset}))", ones))
                offset += len(part)

        return gen


class _Statements(_pyrtl._StatementCompiler):
    def on_Switch(self, stmt: Any) -> None:
        tests = stmt.test.parts if isinstance(stmt.test, Concat) else [stmt.test]
        chain = [_bit(patterns) for patterns, *_ in stmt.cases]
        if any(len(test) != 1 for test in tests) or None in chain:
            super().on_Switch(stmt)
            return
        codes = [_masked(self.rhs(test), 1) for test in tests]
        word = "if"
        for found, (_, body, _) in zip(chain, stmt.cases, strict=True):
            place, wanted = found
            if place is None:
                test = "True"
            else:
                test = codes[place] if wanted else f"not {codes[place]}"
            self.emitter.append(f"{word} {test}:")
            with self.emitter.indent():
                self(body)
            word = "elif"


def _bit(patterns: Any) -> tuple[int | None, bool] | None:
    """Where the one bit stands that such a case looks at, and what it must be. The place is None
    when the case always applies; None at all: it is another sort of case."""
    if patterns is None:
        return None, True
    if len(patterns) != 1:
        return None
    bits = [(i, bit == "1") for i, bit in enumerate(reversed(patterns[0])) if bit != "-"]
    return bits[0] if len(bits) == 1 else None


class _Emitter(_pyrtl._PythonEmitter):
    """Makes of what changes nothing a comparison: of a signal that stays as it is, and of a
    memory's port that does not write, which woke up all who read it. Signals are local names."""

    _UPDATE = re.compile(r"(slots\[\d+\])\.update\((next_\d+), -?\d+\)")
    _WRITE = re.compile(r"slots\[\d+\]\.write\(\w+, \w+, (\w+)\)")
    _SLOT = re.compile(r"slots\[(\d+)\]")
    _HEAD = "def run():"

    def append(self, code: str) -> None:
        if found := self._UPDATE.fullmatch(code):
            code = f"if {found[1]}.next != {found[2]}: {code}"
        elif found := self._WRITE.fullmatch(code):
            code = f"if {found[1]}: {code}"
        super().append(code)

    def flush(self, indent: str = "") -> str:
        code = super().flush(indent)
        if not code.startswith(self._HEAD):
            return code
        names = ", ".join(f"s{slot}=slots[{slot}]" for slot in set(self._SLOT.findall(code)))
        return f"def run({names}):" + self._SLOT.sub(r"s\1", code[len(self._HEAD) :])


def quicken() -> None:
    """Have all simulations of this process use what is above."""
    _pyrtl._PythonEmitter = _Emitter
    _pyrtl._RHSValueCompiler, _pyrtl._LHSValueCompiler = _Rhs, _Lhs
    _pyrtl._StatementCompiler = _Statements
