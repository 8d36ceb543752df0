"""What is asked of the outstanding table."""

from amaranth.lib import data

from hdl.ports.numbers import QpNumber
from hdl.ports.rows import Outstanding

__all__ = ["FORESEEN", "Append", "Fail", "Finish", "Foreseen", "Look", "Pop"]


class Append(data.Struct):
    """Append ``entry`` to the list of ``qp``; ``number``: the free place in the pool that the
    requester has taken for it.

    ``unsent``: no packet of it is sent, so no answer ends it.
    """

    qp: QpNumber
    number: 16
    entry: Outstanding
    unsent: 1


class Finish(data.Struct):
    """Every packet of pool entry ``number`` of ``qp`` has been sent: its ``complete`` becomes 1.

    ``ends``: nothing will answer, so the WQE can be finished now."""

    qp: QpNumber
    number: 16
    ends: 1


class Fail(data.Struct):
    """The entry of ``qp`` at send-queue ``position`` has failed: complete, with ``status``.

    Nothing happens if there is none any more, or it has failed already."""

    qp: QpNumber
    position: 16
    status: 8


#: What of an entry is foreseen.
FORESEEN = ("completion", "first_psn", "last_psn")


class Foreseen(data.Struct):
    """What the completer compares a packet with, of the entry that is shown: out of registers, if
    it is ``valid``, as the entry itself comes out of RAM."""

    valid: 1
    completion: 7
    first_psn: 24
    last_psn: 24


class Look(data.Struct):
    """Show the oldest entry of ``qp``. ``stopped``: the asker would finish every entry that is
    complete, whatever it was sent for; who changes the list from now on must wake it."""

    qp: QpNumber
    stopped: 1


class Pop(data.Struct):
    """Take the oldest entry of ``qp`` away; ``look``: and show the next one, as for a ``Look``.

    ``timeout``: code of the QP's timer, which starts anew, or stops with the last entry; 0: it is
    left alone. ``idle``: see ``TimerSet``.
    """

    qp: QpNumber
    look: 1
    timeout: 5
    idle: 1
