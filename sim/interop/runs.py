"""Scenarios one after the other, each with a verdict, whatever happens to it or before it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from sim.interop.scenarios import Scenario

__all__ = ["Outcome", "Row", "Runs", "attempt"]

#: No scenario is begun after so many seconds of wall time.
TIME_LIMIT = 480.0
#: A long scenario may take so many times as long as another.
_LONG = 6


class Outcome(StrEnum):
    """How a scenario has ended."""

    PASSED = "passed"
    FAILED = "failed"
    STOPPED = "stopped"
    NOT_RUN = "not run"


@dataclass
class Row:
    """One scenario's result. ``error``: why it has not passed, perhaps of many lines."""

    name: str
    outcome: Outcome
    messages: int = 0
    bytes_verified: int = 0
    packets: int = 0
    seconds: float = 0.0
    error: str = ""
    pcap: str = ""
    #: Frames that the network has lost or doubled, and request packets that each side has sent
    #: again; None where the network was good.
    network: dict[str, int] | None = None

    @property
    def verdict(self) -> str:
        """One line."""
        match self.outcome:
            case Outcome.STOPPED:
                return f"stopped after {self.seconds:.0f} s"
            case Outcome.PASSED:
                return "passed"
        why = self.error.partition("\n")[0]
        return f"{self.outcome}: {why}" if why else str(self.outcome)


class Runs:
    """Runs scenarios on labs that ``make_lab`` brings up, with so many functions of the card; one
    that does not pass ends its lab.

    ``limit``: seconds that a scenario may take, a long one six times as many. ``rows`` has a row
    for each scenario when ``play`` has returned, and ``boot_seconds`` what the first guest took.
    ``trouble``: what kept a lab from coming up. ``interrupted``: by Ctrl-C.
    """

    def __init__(
        self, make_lab: Callable[[int], Any], folder: Path, width: int, limit: float
    ) -> None:
        self._make_lab, self._folder, self._width, self._limit = make_lab, folder, width, limit
        self._lab: Any = None
        self.rows: list[Row] = []
        self.boot_seconds = 0.0
        self.trouble: Exception | None = None
        self.interrupted = False

    def play(self, chosen: Sequence[Scenario], say: Callable[[str], None]) -> None:
        """Run them, in this order. What is no verdict of a scenario is not raised."""
        began = time.monotonic()
        try:
            for scenario in chosen:
                if time.monotonic() - began > TIME_LIMIT:
                    self._leave_out(scenario, f"{TIME_LIMIT:.0f} s have passed")
                elif self._bring_up(scenario.functions, say):
                    say(scenario.name)
                    self._one(scenario)
                else:
                    break
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            self._end_lab()
        why = "Ctrl-C" if self.interrupted else str(self.trouble or "").partition("\n")[0]
        for scenario in chosen[len(self.rows) :]:
            self._leave_out(scenario, why)

    def _leave_out(self, scenario: Scenario, why: str) -> None:
        self.rows.append(Row(scenario.name, Outcome.NOT_RUN, error=why))

    def _bring_up(self, functions: int, say: Callable[[str], None]) -> bool:
        """Whether a lab is up whose card has so many functions."""
        if self._lab is not None and self._lab.functions == functions:
            return True
        self._end_lab()
        say("starting guest and NIC")
        try:
            self._lab = self._make_lab(functions)
        except (RuntimeError, OSError) as error:
            self.trouble = error
            return False
        self.boot_seconds = self.boot_seconds or self._lab.boot_seconds
        return True

    def _one(self, scenario: Scenario) -> None:
        """One scenario; its row is there in any case."""
        pcap = self._folder / f"{scenario.name}-{self._width}.pcap"
        began = time.monotonic()
        try:
            row = attempt(self._lab, scenario, pcap, self._limit * (_LONG if scenario.long else 1))
        except KeyboardInterrupt:
            seconds = round(time.monotonic() - began, 1)
            self.rows.append(Row(scenario.name, Outcome.STOPPED, seconds=seconds, error="Ctrl-C"))
            raise
        except Exception as error:  # of what looks at the capture
            seconds, what = round(time.monotonic() - began, 1), f"{type(error).__name__}: {error}"
            row = Row(scenario.name, Outcome.FAILED, seconds=seconds, error=what, pcap=str(pcap))
        self.rows.append(row)
        if row.outcome is not Outcome.PASSED:
            self._end_lab()

    def _end_lab(self) -> None:
        lab, self._lab = self._lab, None
        if lab is not None:
            with contextlib.suppress(OSError, RuntimeError):  # what has died is closed
                lab.close()


def attempt(lab: Any, scenario: Scenario, pcap: Path, limit: float) -> Row:
    """One scenario, then its capture. It is stopped after ``limit`` seconds."""
    from sim.interop.frames import icrc_faults, is_roce, msn_faults, tshark_faults
    from sim.interop.traffic import Tally

    tally, outcome, error = Tally(), Outcome.PASSED, ""
    before: dict[str, int] = {}
    after: dict[str, int] = {}
    frames: list[tuple[int, bytes]] = []
    began = time.monotonic()
    lab.until = began + limit
    try:
        before = lab.nic_counters()
        with lab.network(scenario.network), lab.relay.capture(pcap) as frames:
            scenario.run(lab.parties, tally)
            if scenario.network:
                after = lab.nic_counters()
    except Exception as found:  # also a mistake of the scenario's: the others have their verdicts
        late = time.monotonic() >= lab.until
        outcome = Outcome.STOPPED if late else Outcome.FAILED
        known = isinstance(found, (AssertionError, OSError, RuntimeError))
        what = f"{found}" if known else f"{type(found).__name__}: {found}"
        error = f"{what}\n{lab.report()}"
    seconds = round(time.monotonic() - began, 1)
    seen = [frame for _, frame in frames]
    card = bytes.fromhex(lab.parties[0].mac.replace(":", ""))
    faults = icrc_faults(seen) + ((tshark_faults(pcap) or []) if seen else [])
    # The MSN is counted from requests that have all come, once each.
    if not (scenario.network or scenario.resends):
        faults += msn_faults(seen, card)
    packets = sum(map(is_roce, seen))
    if outcome is Outcome.PASSED and (faults or not packets):
        outcome = Outcome.FAILED
        error = f"{len(faults)} faulty frames in {pcap}: {'; '.join(faults[:3])}"
        error = error if faults else "no RoCE packet has passed"
    return Row(
        scenario.name,
        outcome,
        tally.messages,
        tally.bytes_verified,
        packets,
        seconds,
        error,
        str(pcap),
        _network(before, after, tally, seen, lab.parties[1].mac) if after else None,
    )


def _network(
    before: dict[str, int], after: dict[str, int], tally: Any, frames: list[bytes], guest: str
) -> dict[str, int]:
    """What the network has done, and how many request packets each side has sent again for it.

    The NIC counts its own. Of the guest all are in the capture, since they are lost behind it.
    """
    from sim.interop.frames import requests

    found = {
        f"{name}_{way}": after[f"wire_{counter}_{way}"]
        for name, counter in (("lost", "gone"), ("doubled", "duplicated"), ("late", "overtaken"))
        for way in ("out", "in")
    }
    sent = after["requests_sent"] - before["requests_sent"]
    found["resent_by_nic"] = sent - tally.requests[0]
    own = bytes.fromhex(guest.replace(":", ""))
    found["resent_by_guest"] = requests(frames, own) - tally.requests[1]
    for counter in ("local_ack_timeout_err", "packet_seq_err", "implied_nak_seq_err"):
        found[counter] = after[counter] - before[counter]
    return found
