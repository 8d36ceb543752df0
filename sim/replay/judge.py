"""Keeps the verdicts on the packets of one end: what was found of each, and what is free."""

from __future__ import annotations

from collections import defaultdict

from sim.replay.capture import Packet
from sim.replay.compare import Difference, Report, Verdict
from sim.replay.plan import Place
from sim.wire.packets import dissect

__all__ = ["Judge"]


class Judge:
    """Verdicts on the packets that the card's machine has sent on one connection."""

    def __init__(self, place: Place, report: Report):
        self.report = report
        connection = place.connection
        self._where = str(connection)
        self._latest = -1  # number of the latest packet of this connection that was seen
        #: (destination, its QP, flow label) -> UDP source ports.
        self._ports: dict[tuple[bytes, int, int], set[int]] = defaultdict(set)
        #: The recorded packets that the card must send.
        self.own = connection.sent(place.side)
        self._verdicts = {
            p.number: Verdict(p.number, p.time, connection.number, p.name, p.psn) for p in self.own
        }
        report.verdicts += self._verdicts.values()
        report.packets += len(self.own)

    def packet(self, packet: Packet, found: list[Difference], free: list[str]) -> None:
        """What was found of a recorded packet."""
        verdict = self._verdicts[packet.number]
        verdict.result = "different" if found else "free" if free else "equal"
        verdict.free = free
        verdict.differences = [f"{o.what}: {str(o).split(': ')[-1]}" for o in found]
        self.report.differences += found
        self.report.agreed += not found
        for what in free:
            self.report.note(what)

    def unrecorded(self, what: str, found: list[Difference]) -> None:
        """A packet of the card without a recorded one of its own: the name of why that is free."""
        self.report.note(what)
        self.report.differences += found

    def differs(self, number: int, what: str, recorded: object, sent: object) -> None:
        """Something that is not as recorded; number 0 when it is no recorded packet."""
        where = "" if number else f"{self._where}: "
        self.report.differences.append(Difference(number, where + what, recorded, sent))

    def order(self, packet: Packet, latest: int) -> list[str]:
        """How a packet is out of the recorded order; ``latest``: as for ``Lane.take``."""
        free = []
        if packet.number < latest:
            own = packet.number < self._latest
            free.append("order of requests and responses" if own else "order of QPs")
        return free

    def seen(self, number: int) -> None:
        """The card has sent the packet that is recorded with a number."""
        self._latest = max(self._latest, number)

    def port(self, number: int, frame: bytes) -> list[Difference]:
        """The UDP source port is constant on the way to a QP."""
        parts = dissect(frame)
        way = parts.path["dst_gid"], parts.fields["dest_qp"], parts.path["flow_label"]
        self._ports[way].add(parts.path["udp_source"])
        if len(self._ports[way]) > 1:
            return [Difference(number, "udp source port", "constant", sorted(self._ports[way]))]
        return []
