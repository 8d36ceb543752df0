"""How long a card may have to wait on its own: for its time-outs and for the peers' pauses."""

from __future__ import annotations

from hdl.config import NicConfig
from sim.replay.messages import pause
from sim.replay.plan import Place, Run

__all__ = ["Waits"]

#: Simulated time that the card has for each packet, ns.
PATIENCE_NS = 200_000
#: Shortest time-out of a QP that sends again, ns: longer than anything takes without a loss.
_SHORTEST = 131_072
#: Within how many times its value a time-out comes, and a pause ends (docs/retry.md).
_LATE_TIMEOUT, _LATE_PAUSE = 4, 1.3
#: Cycles in which the timers sweep over a QP, twice (docs/retry.md).
_SWEEP = 8


class Waits:
    """The times of a run, ns. QPs whose machine sends nothing again have no time-out.

    ``scale``: how many times their nominal duration the card's timers last. They are faster when
    the peers ask for long pauses: as fast as the sweeps over all QPs can follow.
    """

    def __init__(self, run: Run, config: NicConfig):
        self._run = run
        usual = config.clock_hz * 1024 // 10**9
        syndromes = [one for place in run.places for one in place.pauses()]
        shortest = min((pause(one)[1] for one in syndromes), default=0)
        tick = min(usual, -(-_SWEEP * config.qps >> shortest)) if syndromes else usual
        self.scale, self._faster = tick / usual, usual / tick
        self._pauses = [self.pause_ns(one) for one in syndromes]
        self._code = 0
        # While one QP pauses, no other one may run out of time.
        while self._lasts(self._code) < max([_SHORTEST, *(2 * one for one in self._pauses)]):
            self._code += 1

    def _lasts(self, code: int) -> int:
        """IBTA vol 1, 11.2.5.2: local ACK timeout."""
        return int((4096 << code) / self._faster)

    def pause_ns(self, syndrome: int) -> int:
        """How long an RNR NAK makes the card wait."""
        steps, exponent = pause(syndrome)
        return int((steps * 1000 << exponent) / self._faster)

    def timeout(self, place: Place) -> int:
        """The code of a QP's time-out; 0 for none."""
        return self._code if place.end.goes_back else 0

    def timeout_ns(self, place: Place) -> int:
        """A QP's time-out; 0 for none."""
        return self._lasts(self._code) if place.end.goes_back else 0

    @property
    def longest_ns(self) -> int:
        """For the next packet of the card."""
        late = max((self.timeout_ns(place) for place in self._run.places), default=0)
        pause = max(self._pauses, default=0)
        return PATIENCE_NS + _LATE_TIMEOUT * late + int(_LATE_PAUSE * pause)

    @property
    def all_ns(self) -> int:
        """For the whole run: each packet that is sent again may have waited."""
        again = sum(place.retries() for place in self._run.places)
        return (2 + again) * self.longest_ns + int(_LATE_PAUSE * sum(self._pauses))
