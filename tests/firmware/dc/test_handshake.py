"""T-D22: all that a network can do to the handshake of DC, with the firmware's own machines."""

import pytest

from tests.firmware.dc.handshake import Search

#: Requests go to targets A (0) and B (1).
CASES = {
    "A A": Search((0, 0), attempts=2, rows=2, generations=2, window=2),
    "A B": Search((0, 1), attempts=2, rows=1, generations=3),
}
LARGE = {
    "A A A": Search((0, 0, 0), attempts=3, rows=1, generations=3, window=2),
    "A B A": Search((0, 1, 0), attempts=3, rows=1, generations=2),
    "A A B": Search((0, 0, 1), attempts=3, rows=2, generations=1, window=2),
}


@pytest.mark.parametrize(
    "name", [*CASES, *(pytest.param(name, marks=pytest.mark.slow) for name in LARGE)]
)
def test_nothing_is_executed_twice(name):
    """Whatever is lost, doubled, delayed or expires: no request is executed twice, one that is
    reported good was executed once, and all can be good."""
    search = (CASES | LARGE)[name]
    result = search.run()
    assert result.broken == []
    everything = {"good", "failed, executed 0", "failed, executed 1"}
    assert {end for ends in result.ends for end in ends} == everything
    assert ("good",) * len(search.requests) in result.ends
    assert result.states > 10_000


def test_what_a_failure_takes_with_it():
    """If requests behind a failed one were sent again, one would be executed twice: the target may
    have executed them already. So all of them end."""
    search = Search((0, 0), attempts=2, rows=2, generations=2, window=2, resend=True)
    assert search.run().broken == ["request 1 is executed twice"]


def test_what_the_nonce_is_for():
    """An initiator that takes an old reply for its own sends to a context whose PSNs have been
    used: a request is taken for a repeated one, and would be good without having been executed."""
    search = Search((0, 0), attempts=2, rows=1, generations=2, forgets=True)
    assert "good and was executed 0 times" in search.run().broken[0]
