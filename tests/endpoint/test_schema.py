"""The JSON Schema of the endpoint's requests: what is published, and that it is what is parsed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sim.endpoint.fields import REQUESTS, BadRequest, parse, schema
from sim.rtl.env import REPO
from sim.tools import cli

#: What JSON has and the schema's words name.
TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
#: The words that the schema may use: a validator that knows no more is whole.
WORDS = {
    *("type", "properties", "required", "additionalProperties", "enum", "const", "default"),
    *("minimum", "maximum", "pattern", "items", "prefixItems", "minItems", "maxItems"),
    "description",
}


def is_a(value: Any, kind: str) -> bool:
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def allows(shape: dict[str, Any], value: Any) -> bool:
    """Whether the schema allows ``value``: JSON Schema 2020-12, as far as it is used."""
    assert set(shape) <= WORDS, set(shape) - WORDS
    if "const" in shape:
        return bool(value == shape["const"])
    kinds = shape["type"] if isinstance(shape["type"], list) else [shape["type"]]
    if not any(is_a(value, kind) for kind in kinds):
        return False
    if "enum" in shape and value not in shape["enum"]:
        return False
    if isinstance(value, str):
        return re.search(shape.get("pattern", "").replace("$", r"\Z"), value) is not None
    if isinstance(value, list):
        inner = shape.get("prefixItems") or [shape["items"]] * len(value)
        fits = shape.get("minItems", 0) <= len(value) <= shape.get("maxItems", len(value))
        return fits and all(map(allows, inner, value))
    if isinstance(value, dict):
        known = shape["properties"]
        return set(shape["required"]) <= set(value) <= set(known) and all(
            allows(known[name], one) for name, one in value.items()
        )
    if value is None or isinstance(value, bool):
        return True
    return bool(shape.get("minimum", value) <= value <= shape.get("maximum", value))


def test_published_schema_is_the_protocol() -> None:
    """``./rocinante endpoint --schema >docs/endpoint.schema.json`` makes it."""
    published = (REPO / "docs" / "endpoint.schema.json").read_text()
    result = CliRunner().invoke(cli.rocinante, ["endpoint", "--schema"])
    assert result.exit_code == 0
    assert json.loads(published) == json.loads(result.output) == schema()


#: One good value for each field that a request must have.
GOOD = {
    "dest_gid": "::ffff:10.0.0.1",
    "gid": "fd00::1",
    "dest_mac": "02:00:00:00:00:01",
    "mac": "02:00:00:00:00:01",
    "data": "00ff",
    "state": "ERR",
    "opcode": "SEND",
}


def least(op: str) -> dict[str, Any]:
    """A good request with what it must have and nothing more."""
    required = schema()["$defs"][op]["required"]
    return {name: GOOD.get(name, 1) for name in required} | {"op": op}


@pytest.mark.parametrize("op", REQUESTS)
def test_defaults_are_what_is_taken(op: str) -> None:
    """A request that names all of them, or null, is one that names none; the schema allows it."""
    shape = schema()["$defs"][op]
    defaults = {
        name: one["default"] for name, one in shape["properties"].items() if "default" in one
    }
    taken = parse(json.dumps(least(op)).encode())
    for more in (defaults, dict.fromkeys(defaults)):
        request = least(op) | more
        assert allows(shape, request)
        assert parse(json.dumps(request).encode()) == taken


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.sampled_from([-1, 0, 1, 255, 256, 1024, 1 << 32, (1 << 64) - 1, 1 << 64, "RC", "SEND"])
    | st.sampled_from(["00", "0", "00 ff", "02:00:00:00:00:01", "fd00::1", "SIGNALED", "loss=1%"]),
    lambda inner: st.lists(inner, max_size=4) | st.just([["LOCAL_WRITE"], [0, -1, 9]]),
    max_leaves=5,
)  # fmt: skip


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """A good request with up to two fields that may be anything."""
    op = draw(st.sampled_from(sorted(REQUESTS)))
    shape = schema()["$defs"][op]
    names = [*(set(shape["properties"]) - {"op"}), "x"]
    return {**least(op), **draw(st.dictionaries(st.sampled_from(names), values, max_size=2))}


@settings(max_examples=600, suppress_health_check=[HealthCheck.too_slow])
@given(requests())
def test_schema_allows_what_is_parsed(request: dict[str, Any]) -> None:
    """It allows whatever ``parse`` takes, and of what it refuses only what no schema can say."""
    shape = schema()["$defs"][request["op"]]
    try:
        parse(json.dumps(request).encode())
    except BadRequest as error:
        said = error.strerror or ""
        unsaid = "must be a GID", "must be the address of one card"
        assert (
            not allows(shape, request)
            or request["op"] == "impair"
            or any(one in said for one in unsaid)
        ), said
    else:
        assert allows(shape, request)
