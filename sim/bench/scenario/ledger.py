"""What was posted at one end of a connection, what has come back, and whether that may be.

The rules (docs/campaign.md): each signalled request completes once and in order; what is not
signalled completes with the next; a failure needs a reason; behind it everything is flushed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

import numpy as np

from hdl.abi.enums import SendFlags, WcFlags, WcStatus, WrOpcode
from hdl.abi.operations import WORK_REQUESTS
from sim.bench.scenario.keys import Key, KeyState
from sim.bench.scenario.plan import Attributes, Message, Wrong
from sim.bench.scenario.words import Atomic
from sim.guest.driver.platform import Octets
from sim.guest.verbs import MR, SGE, WC

__all__ = ["FAULTY", "Book", "Place", "Receive", "Sent", "State", "immediate"]


@dataclass(frozen=True)
class Faulty:
    """What becomes of a request that is wrong, unless something else ends it before.

    ``ends``: its status. ``local``: its own card refuses it, else the peer. ``receive``: status of
    the receive that it takes. ``lands``: its data may arrive all the same.
    """

    ends: tuple[WcStatus, ...]
    local: bool = False
    receive: WcStatus | None = None
    lands: bool = False


#: For each way in which a request can be wrong.
FAULTY = {
    Wrong.LKEY: Faulty((WcStatus.LOC_PROT_ERR,), local=True),
    Wrong.OPCODE: Faulty((WcStatus.LOC_QP_OP_ERR,), local=True),
    Wrong.RKEY: Faulty((WcStatus.REM_ACCESS_ERR,)),
    Wrong.RANGE: Faulty((WcStatus.REM_ACCESS_ERR,)),
    Wrong.SHORT: Faulty(
        (WcStatus.REM_OP_ERR, WcStatus.REM_INV_REQ_ERR), receive=WcStatus.LOC_LEN_ERR, lands=True
    ),
    Wrong.ALIGN: Faulty((WcStatus.REM_INV_REQ_ERR,)),
    Wrong.LENGTH: Faulty((WcStatus.LOC_LEN_ERR,), local=True),
    Wrong.KEY: Faulty((WcStatus.LOC_PROT_ERR,), local=True, lands=True),
    Wrong.PEER_KEY: Faulty(
        (WcStatus.REM_ACCESS_ERR,), receive=WcStatus.REM_INV_REQ_ERR, lands=True
    ),
    Wrong.TAKEN: Faulty((WcStatus.MW_BIND_ERR,), local=True),
    Wrong.BOUNDS: Faulty((WcStatus.MW_BIND_ERR,), local=True),
    Wrong.STALE: Faulty((WcStatus.LOC_PROT_ERR,), local=True),
    Wrong.PEER_STALE: Faulty((WcStatus.REM_ACCESS_ERR,)),
    Wrong.QKEY: Faulty(()),
    Wrong.QUEUE: Faulty((WcStatus.REM_ACCESS_ERR,)),
}


class State(Enum):
    """What may be at a message's place."""

    EMPTY = "what was there before: nobody may write"
    OPEN = "that, or the message, or a part of it"
    WHOLE = "that, or the message, and never a part of it"
    RESULT = "the result of an atomic, whatever that is"
    ANYTHING = "whatever strangers wrote"


@dataclass(eq=False)
class Place:
    """Bytes of a region: the SGEs, and what they hold before (``empty``) and behind a message."""

    region: MR
    pieces: tuple[tuple[int, int], ...]  # offset, length
    empty: Octets
    full: Octets
    state: State = State.EMPTY

    def sges(self) -> list[SGE]:
        """The SGEs of it."""
        return [self.region.sge(at, length) for at, length in self.pieces]

    def read(self) -> Octets:
        """What is there now."""
        parts = [self.region.read(length, at) for at, length in self.pieces]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint8)

    def arrived(self, what: object) -> None:
        """The message is here whole; from now on these bytes are the application's."""
        assert np.array_equal(self.read(), self.full), f"wrong data: {what}"
        at = 0
        for offset, length in self.pieces:
            self.region.write(self.empty[at : at + length], offset)
            at += length
        self.state = State.EMPTY

    def freeze(self) -> None:
        """Whoever may write here has gone: what is here now stays."""
        if self.state in (State.OPEN, State.WHOLE, State.RESULT):
            self.settled("a connection that has gone")
            self.empty = self.read()
            self.state = State.EMPTY

    def settled(self, what: object) -> None:
        """Fail if here is what cannot be here."""
        if self.state in (State.ANYTHING, State.RESULT):
            return
        found = self.read()
        good = found == self.empty
        if self.state == State.OPEN:
            good |= found == self.full
        elif self.state == State.WHOLE and not good.all():
            good = found == self.full
        assert good.all(), f"{what}: {int((~good).sum())} bytes are neither old nor new data"


@dataclass(eq=False)
class Sent:
    """A posted request. ``sink``: where its data goes, on either side; ``at``: when it was posted,
    ns. ``status``: how it has ended. ``atomic``: what it does to a word. ``key``: the key that it
    changes, ``makes`` what it makes of that, ``number`` its number."""

    wr_id: int
    message: Message
    sink: Place
    at: int = 0
    status: WcStatus | None = None
    receive: Receive | None = None
    seen: bool = False  # its data, or somebody waits to see it
    atomic: Atomic | None = None
    key: Key | None = None
    makes: KeyState = KeyState.UNKNOWN
    number: int = 0

    def posted(self, now: int) -> None:
        """It is about to be posted: from now on it may do what it is to do."""
        self.at, wrong = now, self.message.wrong
        lands = wrong == Wrong.NOTHING or FAULTY[wrong].lands
        if lands and self.sink.state == State.EMPTY:
            whole = self.message.opcode == WrOpcode.ATOMIC_WRITE
            self.sink.state = State.WHOLE if whole else State.OPEN
            self.sink.state = State.RESULT if self.atomic else self.sink.state
        if wrong == Wrong.NOTHING and self.atomic:
            self.atomic.posted = now
        if wrong == Wrong.NOTHING and self.key:
            self.key.posted(self)

    def succeeded(self) -> None:
        """It has ended well."""
        self.status = WcStatus.SUCCESS
        if self.key:
            self.key.changed(self, self.makes)

    def arrived(self, now: int) -> None:
        """What comes back to it is here."""
        if self.atomic:
            self.sink.full = self.sink.read()
            found = int.from_bytes(self.sink.full.tobytes(), "little")
            self.atomic.found, self.atomic.answered = found, now
        self.sink.arrived(self)

    def __str__(self) -> str:
        return f"request {self.wr_id} ({self.message})"


@dataclass(eq=False)
class Receive:
    """A receive for a request of the peer. ``at``: when it was posted, ns; None: not yet."""

    wr_id: int
    sent: Sent
    at: int | None = None
    status: WcStatus | None = None

    def __str__(self) -> str:
        return f"receive {self.wr_id} for {self.sent}"


@dataclass(eq=False)
class Book:
    """One end of a connection. ``where`` names it in failures.

    ``reasons``: why it may fail -> the status that its first failing request then has.
    ``doubt``: asks the peer's shared queues, if it has any, whether one can have been empty.
    ``loose``: nothing answers its requests, so what the peer drops has succeeded.
    ``quiet``: on this network no answer is missed. ``dubious``: strangers play with it, so
    anything may fail and nothing need arrive.
    """

    where: str
    attributes: Attributes
    dubious: bool = False
    quiet: bool = False
    reasons: dict[str, WcStatus] = field(default_factory=dict)
    sends: list[Sent] = field(default_factory=list)
    receives: list[Receive] = field(default_factory=list)
    failed: WcStatus | None = None
    closed: bool = False
    loose: bool = False
    doubt: Callable[[int, int, str], None] | None = None
    _sent: int = 0  # requests that have ended
    _received: int = 0

    @property
    def outstanding(self) -> list[Sent]:
        """Requests that have not ended."""
        return [one for one in self.sends if one.status is None]

    def completed(self, sent: Sent, wc: WC, now: int) -> None:
        """A request of this end has completed."""
        what = f"{self.where}: {sent}"
        assert not self.closed, f"{what} completes after its QP was dropped: {wc.status.name}"
        assert sent.status is None, f"{what} completes twice: {wc.status.name}"
        index = self.sends.index(sent)
        passed = self.sends[self._sent : index]
        for one in passed:
            signalled = one.message.flags & SendFlags.SIGNALED
            assert not signalled and self.failed is None, f"{self.where}: {one} has no completion"
            self._succeeded(one)
        if wc.status == WcStatus.SUCCESS:
            assert self.failed is None, f"{what} succeeds behind a failure ({self.failed!r})"
            assert sent.message.flags & SendFlags.SIGNALED, f"{what} was not signalled"
            done = WORK_REQUESTS[sent.message.opcode].completion
            assert wc.opcode == done, f"{what} completes as {wc.opcode!r}"
            self._succeeded(sent)
        elif self.failed is None:
            self._explained(sent, wc.status, now)
            self.failed = sent.status = wc.status
        else:
            fault = FAULTY.get(sent.message.wrong)
            own = fault is not None and fault.local and wc.status in fault.ends
            flushed = wc.status == WcStatus.WR_FLUSH_ERR
            assert flushed or own, f"{what} behind a failure: {wc.status.name}"
            sent.status = wc.status
        self._sent = index + 1

    def flushed(self, flush: Sent) -> None:
        """A FLUSH has succeeded: what went to the peer before it is in memory at this moment."""
        for one in self.sends[: self.sends.index(flush)]:
            if one.sink.state in (State.OPEN, State.WHOLE) and one.sink.region is flush.sink.region:
                shown = np.array_equal(one.sink.read(), one.sink.full)
                assert shown, f"{self.where}: {flush} has ended, {one} is not to be seen"

    def _succeeded(self, sent: Sent) -> None:
        wrong = sent.message.wrong
        dropped = self.loose and wrong != Wrong.NOTHING and not FAULTY[wrong].local
        assert wrong == Wrong.NOTHING or dropped, f"{self.where}: {sent} succeeds"
        sent.succeeded()

    def _explained(self, sent: Sent, status: WcStatus, now: int) -> None:
        """Fail unless there is a reason for the first request that does not succeed."""
        if self.dubious:
            return
        said = f"{self.where}: {sent} fails with {status.name}"
        if status == WcStatus.RNR_RETRY_EXC_ERR:
            self._not_ready(sent, said, now)
            return
        wrong = sent.message.wrong
        allowed = [] if self.loose else list(self.reasons.values())
        if "ERR" in self.reasons:
            allowed.append(self.reasons["ERR"])
        if wrong != Wrong.NOTHING:
            allowed += FAULTY[wrong].ends
        assert status in allowed, f"{said}; there are reasons for {[one.name for one in allowed]}"
        if status == WcStatus.RETRY_EXC_ERR and not {"network", "peer"} & self.reasons.keys():
            raise AssertionError(f"{said} on a good network")

    def _not_ready(self, sent: Sent, said: str, now: int) -> None:
        """Each RNR NAK but the last was followed by a pause, and all came before the receive."""
        a, receive = self.attributes, sent.receive
        assert receive is not None, f"{said}, but it takes no receive"
        assert a.rnr_retry < 7, f"{said}, though it waits as often as the peer asks"
        until = now if receive.at is None else receive.at
        if self.doubt is not None:
            self.doubt(sent.message.queue, sent.at, f"{said}: no shared request")
        least = a.rnr_retry * a.rnr_ns
        waited = until - sent.at
        assert waited >= least, (
            f"{said}: its receive came after {waited} ns, {a.rnr_retry} pauses take {least} ns"
        )

    def next_receive(self) -> Receive:
        """The receive that completes next, whatever request it takes."""
        assert self._received < len(self.receives), f"{self.where}: takes what nobody sends"
        return self.receives[self._received]

    def received(self, receive: Receive, wc: WC, length: int | None = None) -> None:
        """A receive of this end has completed. ``length``: what it has got, if not ``wc`` says that
        of all of it."""
        what = f"{self.where}: {receive}"
        assert not self.closed, f"{what} completes after its QP was dropped: {wc.status.name}"
        assert receive.status is None, f"{what} completes twice"
        assert self.receives.index(receive) == self._received, f"{what} is out of order"
        self._received += 1
        receive.status = wc.status
        message = receive.sent.message
        if wc.status != WcStatus.SUCCESS:
            fault = FAULTY.get(message.wrong)
            refused = fault is not None and wc.status == fault.receive
            flushed = wc.status == WcStatus.WR_FLUSH_ERR and (
                self.reasons.keys() - {"network", "peer"} or self.failed is not None
            )
            assert refused or flushed or self.dubious, f"{what} fails with {wc.status.name}"
            return
        if self.dubious:
            return
        assert message.wrong == Wrong.NOTHING, f"{what} succeeds"
        length = wc.byte_len if length is None else length
        assert length == message.length, f"{what} has {length} bytes"
        marked = bool(wc.wc_flags & WcFlags.WITH_IMM)
        assert marked == message.marked, f"{what}: immediate {marked}"
        if marked:
            assert wc.imm_data == immediate(receive.sent.wr_id), f"{what}: {wc.imm_data:#x}"
        invalidates = message.opcode == WrOpcode.SEND_WITH_INV
        assert invalidates == bool(wc.wc_flags & WcFlags.WITH_INV), f"{what}: {wc.wc_flags!r}"
        if invalidates:
            assert wc.invalidated_rkey == receive.sent.number, f"{what}: {wc.invalidated_rkey:#x}"
        receive.sent.sink.arrived(what)

    def settled(self) -> None:
        """Nothing moves any more, and nothing was dropped: everything has ended."""
        for one in self.sends:
            assert one.status is not None, f"{self.where}: {one} has no completion"
            if one.status == WcStatus.SUCCESS and one.receive and not self.dubious:
                got = one.receive.status
                assert got == WcStatus.SUCCESS, (
                    f"{self.where}: {one} succeeded, its receive {got!r}"
                )

    def counted(self, counters: dict[str, int], lasted_ns: int) -> None:
        """Nothing moves any more: what the card has counted for this end in that time."""
        if self.dubious:
            return
        a, failed = self.attributes, self.failed
        for name, status in (
            ("req_transport_retries_exceeded", WcStatus.RETRY_EXC_ERR),
            ("req_rnr_retries_exceeded", WcStatus.RNR_RETRY_EXC_ERR),
        ):
            assert counters[name] == (failed == status), f"{self.where}: {name} {counters[name]}"
        times, naks = counters["local_ack_timeout_err"], counters["rnr_nak"]
        said = f"{self.where}: {times} time-outs of {a.timeout_ns} ns in {lasted_ns} ns"
        assert times * a.timeout_ns <= lasted_ns, said
        if self.quiet and not self.reasons and failed is None:
            assert times == 0, f"{said} on a good network"
        if failed == WcStatus.RETRY_EXC_ERR and not (
            counters["packet_seq_err"] or counters["implied_nak_seq_err"]
        ):
            assert times > a.retry_cnt, f"{said}, retries {a.retry_cnt}"
        if failed == WcStatus.RNR_RETRY_EXC_ERR:
            assert naks > a.rnr_retry, f"{self.where}: {naks} RNR NAKs, retries {a.rnr_retry}"


def immediate(wr_id: int) -> int:
    """Return the immediate of a request."""
    return (wr_id * 0x9E3779B1) & 0xFFFFFFFF
