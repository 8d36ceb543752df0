"""Loss recovery: who says what, and the contract of a policy.

The completer says what is acknowledged (``Acknowledged``) and why something is to be sent again
(``Loss``). A ``Recovery`` says what is sent again. The rest is mechanism, which any policy has:
``RequestRedirect`` moves the requester to the ``Origin``, a new generation of WQEs and one of
packets (``RequestGenerations``) tell what was fetched and handed over before, and ``QpTimers``
keeps the time.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

from amaranth.hdl import Module, Signal, Value
from amaranth.lib import data, enum

from hdl.ports.rows import QpAck, QpCfg

from .qp_timers import TimerSet

__all__ = ["Acknowledged", "AtHand", "Cause", "Loss", "Origin", "Recovery", "Verdict"]


class Acknowledged(data.Struct):
    """What a packet acknowledges, cumulatively: all before ``psn``, and some of it is ``new``.

    A peer that names single packets behind ``psn`` needs a field for their set here, and one in
    ``QpAck``, which keeps it."""

    new: 1
    psn: 24


class Cause(enum.Enum, shape=3):
    """Why something is to be sent again."""

    NAK = 0  # the peer misses a packet (NAK 60h)
    IMPLIED = 1  # a later response shows that one of a READ is missing
    TIMEOUT = 2  # nothing has answered in time
    RNR = 3  # the peer had no receive WQE, and asks for a pause
    PAUSE_OVER = 4  # that pause is over


class Loss(data.Struct):
    """What the completer has found out; the oldest WQE of the QP is the one that it concerns."""

    found: 1
    cause: Cause


class Verdict(data.Struct):
    """What a policy makes of a loss."""

    heeded: 1  # it is one that the policy did not know of; otherwise nothing happens
    again: 1  # the QP sends again, from its origin on,
    pause: 1  # when the time is over that the peer asks for;
    resume: 1  # that time is over
    retries: 3  # and these are the counts of its row then
    rnr_retries: 3
    gives_up: 1  # the oldest WQE ends instead,
    status: 8  # with this WC status


class Origin(data.Struct):
    """Where a QP sends from: a WQE, the bytes of its message before the packet, the packet."""

    position: 16  # avail-ring position
    offset: 32
    psn: 24


class AtHand(NamedTuple):
    """What the completer has at hand of one QP. The policy changes ``row`` and the timer."""

    cfg: QpCfg
    row: QpAck  # working copy; its last five fields are the policy's
    asked: Value  # RNR timer code of the packet
    timer: TimerSet  # what becomes of the QP's timer,
    timed: Signal  # if anything


class Recovery(ABC):
    """What is sent again, and when: one object for the card, without a state of its own.

    The state is in the QPs' rows. Each method adds logic to ``m`` where it is called. What is
    added to the domain ``sync`` takes effect only where the calling state allows it. Everything
    that ``judge`` reads is in registers, and a decision hangs on it: two levels behind ``loss``.
    """

    @abstractmethod
    def judge(self, m: Module, loss: Value, acknowledged: Value, at: AtHand) -> Value:
        """Return the ``Verdict`` on a loss, in the same cycle. ``acknowledged``: what the same
        packet acknowledges; ``at.row`` is as before that."""

    @abstractmethod
    def send_again(self, m: Module, verdict: Value, at: AtHand) -> None:
        """Change the row and the timer: ``verdict.again`` holds."""

    @abstractmethod
    def progress(self, m: Module, at: AtHand) -> None:
        """Change the row and the timer: a part of the oldest WQE has been acknowledged."""

    @abstractmethod
    def ended(self, m: Module, at: AtHand) -> None:
        """Change the row: the oldest WQE has ended."""

    @abstractmethod
    def time_of_next(self, at: AtHand) -> Value:
        """Return the time-out code, 0 for none, that counts for the WQE behind one that ends. The
        outstanding table starts that timer, or stops it when it has no WQE left."""

    @abstractmethod
    def pauses(self, row: Value) -> Value:
        """Return whether the QP of the ``QpAck`` row sends nothing until its pause is over."""

    @abstractmethod
    def asked_again(self, row: Value) -> Value:
        """Return whether the head READ has been asked for again, so that any of its responses may
        be the first one."""

    @abstractmethod
    def origin(self, m: Module, row: Value, path_mtu: Value, origin: Value) -> None:
        """Set ``origin``, of registers, to the place to send from.

        ``row`` (``QpAck``) and ``path_mtu`` come out of RAM, stay, and count until three cycles
        later. The place is at a packet of a WQE that has not ended, or where the next WQE begins.
        From there on the requester sends all that follows, as when it sent it first."""
