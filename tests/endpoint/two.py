"""Two endpoints with every feature, joined by a wire."""

import pytest

from sim.bench import testbench
from sim.bench.cards import EVERYTHING, FEATURES
from sim.endpoint.client import EndpointClient, EndpointError
from tests.endpoint.test_endpoint import COMMAND, Side

#: What the first one's region begins with, where ``joined`` has made it.
DATA = bytes(n * 7 & 0xFF for n in range(6000))


def endpoint(path, *arguments):
    testbench.build(config=EVERYTHING)  # so that no time limit includes it
    switches = [word for name in FEATURES for word in ("--with", name)]
    card = ("--wire", f"unix:{path}", "--width", str(EVERYTHING.width), *switches)
    return Side(EndpointClient(*card, *arguments, program=COMMAND, timeout=120))


def joined(tmp_path_factory):
    """Start both; a fixture of a module."""
    path = tmp_path_factory.mktemp("two") / "wire"
    sides = [
        endpoint(path, "--listen", "--ip", "10.0.0.1"),
        endpoint(path, "--mac", "02:00:00:00:00:02", "--ip", "10.0.0.2"),
    ]
    sides[0].write(0, DATA)
    yield sides
    assert [side.client.close() for side in sides] == [0, 0]


def refuses(side, code, text, op, **fields):
    with pytest.raises(EndpointError) as error:
        side.client.call(op, **fields)
    assert error.value.errno == code and text in error.value.strerror, error.value
