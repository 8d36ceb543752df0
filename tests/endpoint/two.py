"""Two endpoints with every feature, joined by a wire."""

import pytest

from sim.bench import testbench
from sim.bench.cards import EVERYTHING, FEATURES
from sim.endpoint.client import EndpointClient, EndpointError
from tests.endpoint.test_endpoint import COMMAND, Side


def endpoint(path, *arguments):
    testbench.build(config=EVERYTHING)  # so that no time limit includes it
    switches = [word for name in FEATURES for word in ("--with", name)]
    card = ("--wire", f"unix:{path}", "--width", str(EVERYTHING.width), *switches)
    return Side(EndpointClient(*card, *arguments, program=COMMAND, timeout=120))


def refuses(side, code, text, op, **fields):
    with pytest.raises(EndpointError) as error:
        side.client.call(op, **fields)
    assert error.value.errno == code and text in error.value.strerror, error.value
