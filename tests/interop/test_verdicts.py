"""Each scenario has a verdict, whatever becomes of it: with stand-ins for guest and card."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from sim.endpoint.client import EndpointClient, EndpointGone
from sim.interop import command, runs
from sim.interop.client import GuestClient, ProtocolError
from sim.interop.frames import is_roce
from sim.interop.guest import GuestError
from sim.interop.scenarios import Scenario
from sim.wire.pcap import read_pcap
from tests.replay.golden import GOLDEN


@pytest.fixture(autouse=True)
def no_tshark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The frames of these tests lie in no file that tshark, where there is one, could read."""
    monkeypatch.setattr("sim.interop.frames.tshark_faults", lambda path: None)


MAC = "02:00:00:00:00:01"
#: A good frame of RoCE v2.
FRAME = next(
    frame for _, frame in read_pcap(GOLDEN / "rc_pingpong_s64_m1024.pcap") if is_roce(frame)
)


class FakeLab:
    """A lab whose wire has seen a good frame in each scenario, so that a scenario can pass."""

    made = 0
    boot_seconds = 1.0

    def __init__(self, *how: Any) -> None:
        type(self).made += 1
        self.functions = how[-1] if how else 1
        self.parties = (SimpleNamespace(mac=MAC), SimpleNamespace(mac=MAC))
        self.relay = self
        self.until = 0.0
        self.closed = False

    def nic_counters(self) -> dict[str, int]:
        return {}

    @contextlib.contextmanager
    def network(self, what: str) -> Iterator[None]:
        yield

    @contextlib.contextmanager
    def capture(self, path: Path) -> Iterator[list[tuple[int, bytes]]]:
        yield [(0, FRAME)]

    def report(self) -> str:
        return "the report"

    def close(self) -> None:
        self.closed = True
        raise OSError("it has died already")


def good(parties: Any, tally: Any) -> None:
    tally.messages += 1


def wrong(parties: Any, tally: Any) -> None:
    raise AssertionError("byte 7 differs\nand more")


def mistaken(parties: Any, tally: Any) -> None:
    raise KeyError("a mistake in the scenario")


def dies(parties: Any, tally: Any) -> None:
    raise ProtocolError("poll: the guest has closed the connection")


def stuck(parties: Any, tally: Any) -> None:
    """As a call of a client does when nothing answers: it waits until it may wait no longer."""
    time.sleep(1.1)
    raise EndpointGone("The endpoint does not answer")


def interrupted(parties: Any, tally: Any) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def interop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs the command on these scenarios; exit status, facts, standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "_prepare", lambda *_: SimpleNamespace(packages=()))
    monkeypatch.setattr(command, "_lab", FakeLab)
    monkeypatch.setattr(FakeLab, "made", 0)

    def run(*plays: Any, arguments: tuple[str, ...] = ("--limit", "1")) -> Any:
        scenarios = [Scenario(f"{n}-{one.__name__}", "", one) for n, one in enumerate(plays)]
        monkeypatch.setattr(command, "_choose", lambda names: scenarios)
        done = CliRunner().invoke(command.interop, [*arguments, "--json", "facts.json"])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        facts = json.loads((tmp_path / "facts.json").read_text())
        assert len(facts["scenarios"]) == len(plays)
        for row in facts["scenarios"]:
            (shown,) = [line for line in done.stdout.splitlines() if f" {row['name']} " in line]
            assert row["verdict"][:12] in shown, "a line of the table has the verdict"
        return done.exit_code, facts, done.stderr

    return run


def verdicts(facts: Any) -> list[str]:
    return [row["verdict"] for row in facts["scenarios"]]


def test_all_pass(interop: Any) -> None:
    status, facts, _ = interop(good, good)
    assert status == 0 and verdicts(facts) == ["passed", "passed"] and FakeLab.made == 1
    assert (facts["passed"], facts["failed"], facts["stopped"], facts["not_run"]) == (2, 0, 0, 0)


def test_what_fails_leaves_nothing_to_the_next(interop: Any) -> None:
    status, facts, text = interop(wrong, good, dies, mistaken, good)
    assert status == 1 and FakeLab.made == 4
    assert verdicts(facts) == [
        "failed: byte 7 differs",
        "passed",
        "failed: poll: the guest has closed the connection",
        "failed: KeyError: 'a mistake in the scenario'",
        "passed",
    ]
    assert "and more\nthe report" in text and text.splitlines()[-1].endswith("3 failed")


def test_a_scenario_that_takes_too_long(interop: Any) -> None:
    status, facts, text = interop(stuck, good)
    assert status == 1 and verdicts(facts) == ["stopped after 1 s", "passed"]
    assert facts["stopped"] == 1 and text.splitlines()[-1].endswith("1 stopped")


def test_a_long_scenario_has_longer(tmp_path: Path) -> None:
    made = FakeLab()
    playing = runs.Runs(lambda _: made, tmp_path, 64, limit=1)
    playing.play([Scenario("x", "", stuck, long=True)], lambda text: None)
    assert playing.rows[0].verdict == "failed: The endpoint does not answer"


def test_a_scenario_of_two_functions_has_a_card_of_its_own(tmp_path: Path) -> None:
    made: list[FakeLab] = []

    def make(functions: int) -> FakeLab:
        made.append(FakeLab(functions))
        return made[-1]

    playing = runs.Runs(make, tmp_path, 64, limit=1)
    chosen = [Scenario(f"{n}", "", good, functions=n) for n in (1, 1, 2, 2, 1)]
    playing.play(chosen, lambda text: None)
    assert [one.verdict for one in playing.rows] == ["passed"] * 5
    assert [one.functions for one in made] == [1, 2, 1] and all(one.closed for one in made)


def test_ctrl_c(interop: Any) -> None:
    status, facts, _ = interop(good, interrupted, good)
    assert status == 130 and FakeLab.made == 1
    assert verdicts(facts) == ["passed", "stopped after 0 s", "not run: Ctrl-C"]


def test_a_guest_that_does_not_come_up_again(interop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def once(*_: Any) -> FakeLab:
        if FakeLab.made:
            raise GuestError("The guest has not come up\n  | panic")
        return FakeLab()

    monkeypatch.setattr(command, "_lab", once)
    status, facts, text = interop(wrong, good, good)
    assert status == 1
    assert verdicts(facts) == ["failed: byte 7 differs"] + 2 * [
        "not run: The guest has not come up"
    ]
    assert text.rstrip().endswith("Error: The guest has not come up\n  | panic")


def test_a_guest_that_never_comes_up(interop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: Any) -> FakeLab:
        raise GuestError("The guest has not come up")

    monkeypatch.setattr(command, "_lab", never)
    status, facts, _ = interop(good)
    assert status == 2 and facts["not_run"] == 1


def test_the_time_of_all_is_over(interop: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "TIME_LIMIT", 0.5)
    status, facts, _ = interop(stuck, good)
    assert status == 1 and verdicts(facts) == ["stopped after 1 s", "not run: 0 s have passed"]


def test_clients_wait_no_longer_than_until() -> None:
    """The endpoint's and the guest's: whatever a request allows itself."""
    with EndpointClient(
        command="import time; time.sleep(60)", program=("python3", "-c")
    ) as endpoint:
        endpoint.until = began = time.monotonic() + 0.3
        with pytest.raises(EndpointGone, match="does not answer"):
            endpoint.call("poll", timeout_ms=60_000)
        assert time.monotonic() - began < 3
        endpoint.process.kill()
    here, there = socket.socketpair()
    with here, there:
        guest = GuestClient(here)
        guest.until = began = time.monotonic() + 0.3
        with pytest.raises(ProtocolError, match=re.escape("poll: no answer of the guest in time")):
            guest.call("poll", timeout_ms=60_000)
        assert time.monotonic() - began < 3
