"""Thousands of objects as the command path leaves them, without it (``sim.bench.bulk``)."""

from types import SimpleNamespace

import pytest

from hdl.config import NicConfig
from sim.bench.bulk.loader import bulk
from sim.rtl.build import run
from tests.nic.test_nic import model


def test_bulk_loader():
    run(model(64), test_module="tests.nic.bench_bulk")


def test_several_functions_are_refused():
    node = SimpleNamespace(testbench=SimpleNamespace(config=NicConfig(functions=2)))
    with pytest.raises(ValueError, match="more than one function"), bulk(node):
        pass
