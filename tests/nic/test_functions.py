"""Cards with more than one guest function, and with all that watches a running card.

tests/nic/test_nic.py lints one with four functions."""

import pytest

from sim.bench import testbench
from sim.rtl.build import run
from tests.nic.card import FUNCTIONS


def play(bench: str) -> None:
    run(testbench.build(config=FUNCTIONS), test_module=f"tests.nic.{bench}", timeout_s=600)


def test_two_functions():
    play("bench_functions")


def test_broken_queues():
    play("bench_functions_broken")


def test_isolation():
    """What an untrusted guest, work request or peer can do."""
    play("bench_isolation")


def test_features_inside_a_card():
    play("bench_features_inside")


def test_diagnostics():
    play("bench_diagnostics")


@pytest.mark.slow
def test_packed_rings():
    """The first function's driver uses them; the engines alone are tests/queues' matter."""
    play("bench_packed")


@pytest.mark.slow
def test_receive_queues():
    """XRC between two functions of each card, and receive requests for several packets of a driver
    with packed rings."""
    play("bench_receive_functions")


@pytest.mark.slow
def test_dynamic_connections():
    """DC of two functions of each card."""
    play("bench_dc_functions")


@pytest.mark.slow
def test_copies():
    """MEMCPY of two functions of a card."""
    play("bench_memcpy_functions")


@pytest.mark.slow
def test_layouts():
    """Indirect keys of two functions of a card."""
    play("bench_mkeys_functions")
