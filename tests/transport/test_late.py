"""The scenarios of the machines' own tests, with a context whose answers come late.

Whoever counts cycles instead of waiting for its rows works with random bits here. Only scenarios
that measure cycles are left out.
"""

import inspect
import itertools
from collections.abc import Iterator
from types import ModuleType

import pytest

from sim.rtl.build import Rtl, bench
from tests.context.late import CACHED, late_answers
from tests.transport import (
    test_departures,
    test_drained_qp,
    test_replier,
    test_request_keys,
    test_resend,
    test_send,
    test_unanswered,
)

MODULES = (
    test_departures,
    test_drained_qp,
    test_replier,
    test_request_keys,
    test_resend,
    test_send,
    test_unanswered,
)
#: Scenarios that say how many cycles something takes, or do something at a certain one, or would
#: take a minute.
TIMED = {
    "test_a_burst_is_noted_to_the_last",
    "test_a_message_on_its_way_goes_back_at_its_next_packet",
    "test_cycles",
    "test_short_wqes_of_a_qp_are_asked_for_together",
    "test_wqes_behind_each_other",
}
#: And those of the receive side, in which packets come while a check is awaited.
TIMED_CASES = (
    "acks_that_wait_are_merged",
    "acks_under_load",
    "cycles",
    "many_checks_are_awaited",
    "reset_in_mid_packet",
    "uc_refused_in_a_burst",
)


def scenarios(module: ModuleType) -> Iterator:
    """Each test of a module with each set of its parameters."""
    for name, test in vars(module).items():
        if not name.startswith("test_") or not callable(test) or name in TIMED:
            continue
        marks = [mark for mark in getattr(test, "pytestmark", ())]
        if any(mark.name == "slow" for mark in marks):
            continue
        sets = []
        for mark in marks:
            if mark.name == "parametrize":
                names = [one.strip() for one in mark.args[0].split(",")]
                # Those with marks of their own are slow.
                values = [one for one in mark.args[1] if not hasattr(one, "marks")]
                values = [one if len(names) > 1 else (one,) for one in values]
                sets.append([dict(zip(names, value, strict=True)) for value in values])
        for chosen in itertools.product(*sets):
            arguments = {name: value for one in chosen for name, value in one.items()}
            assert set(arguments) == set(inspect.signature(test).parameters), name
            of = module.__name__.rpartition(".")[2].removeprefix("test_")
            told = [getattr(value, "__name__", value) for value in arguments.values()]
            label = "-".join(map(str, (of, name.removeprefix("test_"), *told)))
            yield pytest.param(test, arguments, id=label)


CASES = [case for module in MODULES for case in scenarios(module)]
#: Scenarios that would take minutes with a cache.
ENDLESS = {"test_everything_is_sent_whatever_is_lost"}
#: These take half a minute and more.
LONG = ENDLESS | {
    "test_every_wqe_goes_out_once_whatever_the_doorbells_say",
    "test_what_has_begun_is_sent_again",
}


def each_eighth(cases: list, first: int) -> list:
    """Mark the others slow, and those that take half a minute: all of them take half an hour."""
    slow = {"marks": pytest.mark.slow}
    return [
        pytest.param(
            *case.values,
            id=case.id,
            **({} if n % 8 == first and case.values[0].__name__ not in LONG else slow),
        )
        for n, case in enumerate(cases)
    ]


@pytest.mark.parametrize(("test", "arguments"), each_eighth(CASES, 0))
def test_machines_wait_for_their_rows(test, arguments):
    with late_answers(1):
        test(**arguments)


@pytest.mark.parametrize(
    ("test", "arguments"),
    each_eighth([case for case in CASES if case.values[0].__name__ not in ENDLESS], 2),
)
def test_machines_live_with_a_cache(test, arguments):
    """Of 4 places for the rows of 8 QPs, over a store that takes its time."""
    with late_answers(CACHED):
        test(**arguments)


@pytest.mark.parametrize("cases", [pytest.param("receive", marks=pytest.mark.slow), "unanswered"])
def test_the_receive_side_waits_for_its_rows(cases):
    bench(
        Rtl("tests.transport.receive_side:ReceiveSide", {"late": 1}, name="late_receive_side"),
        test_module=f"tests.transport.bench_{cases}",
        extra_env={"COCOTB_TEST_FILTER": rf"^(?!.*\.({'|'.join(TIMED_CASES)})).*$"},
        timeout_s=300,
    )
