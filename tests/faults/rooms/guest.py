"""Deliberate faults of what a guest runs (sim/guest)."""

from tests.faults.fault import Fault

__all__ = ["FAULTS"]


FAULTS = (
    # What the connection manager does.
    Fault(
        name="cm-lost-rtu-not-repeated",
        what="a REP that comes again gets no RTU, so the listener waits for ever",
        because="it is in the driver, which has no signals",
        file="sim/guest/cm/manager.py",
        old='elif message["local_comm_id"] == self.remote_id:\n            self._repeat()',
        new='elif message["local_comm_id"] == self.remote_id:\n            pass',
        tests=("tests/sim/test_cm.py::test_each_message_lost_once[RTU]",),
    ),
    Fault(
        name="cm-psns-exchanged",
        what="each side begins with the PSN that it has named, not with the peer's",
        because="it is in the driver, which has no signals",
        file="sim/guest/cm/params.py",
        old='sq_psn=answer["starting_psn"],\n        rq_psn=psn,',
        new='sq_psn=psn,\n        rq_psn=answer["starting_psn"],',
        tests=("tests/sim/test_cm.py::test_requests_begin_where_the_peer_says",),
    ),
    Fault(
        name="cm-unlimited",
        what="peers open as many connections as they like",
        because="it is in the driver, which has no signals",
        file="sim/guest/cm/manager.py",
        old="if len(incoming) < self.limit:",
        new="if len(incoming) >= 0:",
        tests=("tests/sim/test_cm.py::test_refused_requests_leave_nothing_behind",),
    ),
    Fault(
        name="cm-stranger-answers",
        what="a SIDR_REP of somebody who was not asked is taken",
        because="it is in the driver, which has no signals",
        file="sim/guest/cm/sidr.py",
        old="if query is None or query.peer != peer:",
        new="if query is None:",
        tests=("tests/sim/test_cm.py::test_stranger_answers_for_no_service",),
    ),
)
