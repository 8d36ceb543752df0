"""Deliberate faults of what serves a card to guests (sim/host)."""

from tests.faults.fault import Fault

__all__ = ["FAULTS"]

WHY = "it serves sockets, which has no signals"

FAULTS = (
    Fault(
        name="card-function-not-reset",
        what="the next guest of a function finds what the one before has left",
        because=WHY,
        file="sim/host/door.py",
        old="done = await self.function.reset()",
        new="done = True",
        tests=("tests/host/test_card_faults.py::test_a_client_comes_at_once_when_another_goes",),
    ),
    Fault(
        name="card-doorbell-answered-at-once",
        what="a guest's clock goes on while its doorbell's work is done",
        because=WHY,
        file="sim/host/pace.py",
        old="return not session.asked and (quiet or hurries)",
        new="return not session.asked",
        tests=("tests/host/test_card.py::test_a_doorbell_is_answered_when_its_work_is_done",),
    ),
    Fault(
        name="card-table-is-the-guests",
        what="a guest writes the MSI-X table, in which the server's messages are",
        because=WHY,
        file="sim/host/function.py",
        old="if not self._in_table(region, at):",
        new="if size:",
        tests=("tests/host/test_card.py::test_vectors_outlive_a_reset",),
    ),
)
