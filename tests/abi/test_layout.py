"""The layout mechanism: packing, unpacking, error messages, Amaranth layouts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdl.abi import virtio_pci, virtio_rdma
from hdl.abi.layout import (
    Array,
    Bytes,
    Scalar,
    Struct,
    Union,
    amaranth_layout,
    array,
    byte_array,
    le16,
    le32,
    le64,
    nested,
    u8,
)

INNER = Struct("inner", u8("a"), le32("b"))
CHOICE = Union("choice", nested("inner", INNER), le16("word"))
OUTER = Struct(
    "outer",
    le16("head"),
    nested("inner", INNER),
    array("list", Scalar(2), 3),
    nested("choice", CHOICE),
    byte_array("tail", 3),
    le64("last"),
)
ALL = [OUTER, *virtio_rdma.STRUCTS, *virtio_pci.STRUCTS]


def values_of(kind):
    """Hypothesis strategy for the values of a kind."""
    if isinstance(kind, Scalar):
        return st.integers(0, (1 << 8 * kind.size) - 1)
    if isinstance(kind, Bytes):
        return st.binary(min_size=kind.size, max_size=kind.size)
    if isinstance(kind, Array):
        return st.tuples(*[values_of(kind.element)] * kind.count)
    if isinstance(kind, Union):
        return st.one_of([values_of(f.kind).map(lambda v, n=f.name: {n: v}) for f in kind.fields])
    return st.fixed_dictionaries({f.name: values_of(f.kind) for f in kind.fields})


def check_values(kind, value, data):
    """``data`` is ``value``, computed without the mechanism's own packing."""
    if isinstance(kind, Scalar):
        assert int.from_bytes(data, "little") == value
    elif isinstance(kind, Bytes):
        assert data == value
    elif isinstance(kind, Array):
        step = kind.element.size
        for i, item in enumerate(value):
            assert int.from_bytes(data[i * step : (i + 1) * step], "little") == item
    elif isinstance(kind, Union):
        ((name, item),) = value.items()
        member = next(f.kind for f in kind.fields if f.name == name)
        check_values(member, item, data[: member.size])
        assert not any(data[member.size :])
    else:
        offset = 0
        for field in kind.fields:
            size = field.kind.size
            check_values(field.kind, value[field.name], data[offset : offset + size])
            offset += size
        assert offset == len(data)


@pytest.mark.parametrize("struct", ALL, ids=lambda s: s.name)
@given(data=st.data())
def test_round_trip(struct, data):
    value = data.draw(values_of(struct))
    packed = struct.pack(value)
    assert len(packed) == struct.size
    check_values(struct, value, packed)
    assert struct.pack(struct.unpack(packed)) == packed


@pytest.mark.parametrize("struct", ALL, ids=lambda s: s.name)
@given(data=st.data())
def test_any_bytes_survive(struct, data):
    packed = data.draw(st.binary(min_size=struct.size, max_size=struct.size))
    assert struct.pack(struct.unpack(packed)) == packed


@pytest.mark.parametrize("struct", ALL, ids=lambda s: s.name)
def test_short_input_is_refused(struct):
    with pytest.raises(ValueError, match=f"{struct.name} needs {struct.size} bytes"):
        struct.unpack(bytes(struct.size - 1))


def test_longer_input_is_cut():
    assert INNER.unpack(b"\1\2\0\0\0rest") == {"a": 1, "b": 2}


def test_missing_fields_are_zero_and_attributes_work():
    values = OUTER.unpack(OUTER.pack(head=7))
    assert values.head == 7
    assert values.inner.b == 0
    assert values.list == (0, 0, 0)
    with pytest.raises(AttributeError, match="No field 'lust'"):
        _ = values.lust


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"head": 65536}, "outer.head must fit 16 bits, not 65536"),
        ({"head": -1}, "outer.head must fit 16 bits, not -1"),
        ({"head": "x"}, "outer.head must be an integer, not 'x'"),
        ({"inner": {"b": 1 << 32}}, "outer.inner.b must fit 32 bits, not 4294967296"),
        ({"inner": {"c": 1}}, "outer.inner has no field 'c' \\(value 1\\)"),
        ({"inner": 5}, "outer.inner must be a mapping of fields, not 5"),
        ({"list": [1, 2]}, "outer.list must be 3 integers, not \\[1, 2\\]"),
        ({"list": [1, 2, 65536]}, "outer.list\\[2\\] must fit 16 bits, not 65536"),
        ({"tail": b"ab"}, "outer.tail must be 3 bytes, not b'ab'"),
        ({"tail": 3}, "outer.tail must be 3 bytes, not 3"),
        (
            {"choice": {"word": 1, "inner": {}}},
            "outer.choice takes one member, not inner, word",
        ),
        ({"choice": {"raw": b""}}, "outer.choice.raw must be 5 bytes, not b''"),
        ({"nose": 1}, "outer has no field 'nose' \\(value 1\\)"),
    ],
)
def test_bad_values_are_named(fields, message):
    with pytest.raises(ValueError, match=message):
        OUTER.pack(fields)


@pytest.mark.parametrize("struct", ALL, ids=lambda s: s.name)
@given(data=st.data())
def test_codec_agrees(struct, data):
    packed = data.draw(st.binary(min_size=struct.size, max_size=struct.size))
    codec = struct.codec()
    assert codec.size == struct.size
    parts = codec.unpack(packed)
    for field, part in zip(struct.fields, parts, strict=True):
        place = struct.place(field.name)
        expected = packed[place.offset : place.end]
        if isinstance(field.kind, Scalar):
            expected = int.from_bytes(expected, "little")
        assert part == expected
    assert codec.pack(*parts) == packed


def test_places():
    assert OUTER.offset("inner.b") == 3
    assert OUTER.offset("choice.word") == OUTER.offset("choice.inner.a") == 13
    assert OUTER.place("last").end == OUTER.size
    with pytest.raises(KeyError, match="outer has no field 'inner.z'"):
        OUTER.offset("inner.z")
    with pytest.raises(ValueError, match="two fields named 'a'"):
        Struct("twice", u8("a"), u8("a"))


@pytest.mark.parametrize("struct", ALL, ids=lambda s: s.name)
def test_amaranth_layout_has_the_same_offsets(struct):
    pytest.importorskip("amaranth")
    from amaranth.hdl import Shape

    def find(layout, names):
        offset = 0
        for name in names:
            field = layout[name]
            offset += field.offset
            layout = field.shape
        return offset, Shape.cast(layout).width

    layout = amaranth_layout(struct)
    assert Shape.cast(layout).width == 8 * struct.size
    for place in struct.places():
        expected = (8 * place.offset, 8 * place.size)
        assert find(layout, place.path.split(".")) == expected, place.path
