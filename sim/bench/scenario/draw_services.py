"""Draws queue pairs of UC and UD, shared receive queues, and two functions of a card."""

from __future__ import annotations

from dataclasses import replace

from hdl.abi.enums import Mtu, QpType, SendFlags, WrOpcode
from hdl.abi.operations import WORK_REQUESTS
from hdl.wire.opcodes import QP_TRANSPORT
from sim.bench.scenario.draw_basics import WAY_BYTES, Draw
from sim.bench.scenario.plan import (
    SENDS,
    Attributes,
    Ending,
    Life,
    Message,
    Scenario,
    Way,
    Wrong,
    of_initiator,
)
from sim.bench.scenario.plan import Shared as Queue
from sim.models.impairments import Impairments

__all__ = ["Dynamic", "Functions", "Pieces", "Services", "Shared", "Xrc"]


#: Bytes of requests that take several packets.
BUFFERS = (4096, 8192, 12_288)


class Services(Draw):
    """Scenarios of kind ``services``: QPs of UC and UD beside those of RC."""

    _services: tuple[QpType, ...] = (QpType.RC, QpType.UC, QpType.UC, QpType.UD, QpType.UD)
    _service = QpType.RC
    _bad = False

    def _lives(self, networks: tuple[Impairments, Impairments]) -> tuple[Life, ...]:
        self._service = self._rng.choice(self._services)
        self._bad = self._chance(0.3)
        return super()._lives(networks)

    def _endings(self) -> list[Ending]:
        (last,) = super()._endings()
        endings = self._several(last) if not self._bad and self._chance(0.4) else [last]
        if self._service == QpType.RC:
            return endings
        return [Ending.DESTROY if one == Ending.GONE else one for one in endings]

    def _attributes(self, networks: tuple[Impairments, Impairments]) -> Attributes:
        return replace(super()._attributes(networks), service=self._service)

    def _messages(self, attributes: Attributes) -> list[Message]:
        if self._service == QpType.RC:
            return super()._messages(attributes)
        opcodes = [
            WrOpcode(code)
            for code, row in WORK_REQUESTS.items()
            if QP_TRANSPORT[self._service] in row.services and row.packets
        ]
        datagram = self._service == QpType.UD
        longest = Mtu.MTU_4096.octets if datagram else WAY_BYTES
        left, messages = WAY_BYTES, []
        for _ in range(self._rng.choice((0, 1, 2, 3, 5, 8, 12))):
            mtu = self._rng.choice((256, 4095)) if datagram else attributes.mtu.octets
            message = self._message(mtu, min(max(left, 0), longest), self._rng.choice(opcodes))
            left -= message.length
            messages.append(replace(message, flags=message.flags & ~SendFlags.FENCE))
        return messages

    def _spoilt(self, ways: tuple[Way, Way]) -> tuple[Way, Way]:
        return self._spoil(ways) if self._bad else ways

    def _wrongs(self, message: Message) -> list[Wrong]:
        """As everywhere; a receive is not made for a message of UC or UD."""
        wrongs = super()._wrongs(message)
        if self._service != QpType.RC and message.opcode in SENDS:
            wrongs.remove(Wrong.SHORT)
        return wrongs + [Wrong.QKEY] * (self._service == QpType.UD)


class Shared(Services):
    """Scenarios of kind ``shared``: all queue pairs of a side receive from one queue.

    Each is destroyed in the end, so that it gives back what it holds.
    """

    _services: tuple[QpType, ...] = (QpType.RC, QpType.RC, QpType.RC, QpType.UC, QpType.UD)

    def scenario(self, name: str, seed: int) -> Scenario:
        """As everywhere, and a shared queue of each side."""
        drawn = super().scenario(name, seed)
        sides = [self._queue(len(drawn.pairs)) for _ in range(2)]
        return replace(drawn, shared=(sides[0], sides[1]))

    def _queue(self, pairs: int) -> Queue:
        """A queue with requests for more than those that may hold one for ever."""
        rng = self._rng
        pauses = rng.choice(((100,), (100, 2000), (2000, 20_000), (500, 10_000, 80_000)))
        return Queue(pairs + rng.choice((1, 1, 2, 4)), rng.choice((1, 2, 8)), pauses)

    def _endings(self) -> list[Ending]:
        return [*super()._endings()[:-1], Ending.LEAVE]

    def _messages(self, attributes: Attributes) -> list[Message]:
        """As everywhere, and often SENDs alone: what takes requests."""
        if self._service != QpType.RC or self._chance(0.4):
            return super()._messages(attributes)
        rng, mtu = self._rng, attributes.mtu.octets
        return [
            self._message(mtu, 2 * mtu + 1, rng.choice((WrOpcode.SEND, WrOpcode.SEND_WITH_IMM)))
            for _ in range(rng.randrange(1, 9))
        ]

    def _wrongs(self, message: Message) -> list[Wrong]:
        """A shared request is not made for a message, so none is too short for it."""
        return [one for one in super()._wrongs(message) if one != Wrong.SHORT]


class Xrc(Shared):
    """Scenarios of kind ``xrc``: each end of a pair is an initiator or a target, and targets take
    from the queues of a domain that the requests name."""

    _services = (QpType.RC,)  # as with RC but for what is changed here
    #: Receive queues of each domain.
    _domains: tuple[int, ...] = (1, 1)

    def scenario(self, name: str, seed: int) -> Scenario:
        """As with shared queues, in a domain of each side."""
        self._domains = self._drawn_domains()
        drawn = super().scenario(name, seed)
        assert drawn.shared is not None
        sides = [
            replace(queue, depth=queue.depth + domain, domain=domain)
            for queue, domain in zip(drawn.shared, self._domains, strict=True)
        ]
        return replace(drawn, shared=(sides[0], sides[1]))

    def _drawn_domains(self) -> tuple[int, ...]:
        """How many queues the domain of each side has."""
        return tuple(self._rng.choice((1, 2, 3, 3)) for _ in range(2))

    def _lives(self, networks: tuple[Impairments, Impairments]) -> tuple[Life, ...]:
        if not any(self._domains):
            return super()._lives(networks)
        side = self._rng.randrange(2)
        domain = self._domains[1 - side]
        return tuple(
            self._naming(of_initiator(life, side), side, domain)
            for life in super()._lives(networks)
        )

    def _naming(self, life: Life, side: int, domain: int) -> Life:
        """Each request names a queue of the domain."""
        batches = []
        for batch in life.ways[side].batches:
            messages = [replace(one, queue=self._rng.randrange(domain)) for one in batch.messages]
            batches.append(replace(batch, messages=tuple(messages)))
        way = replace(life.ways[side], batches=tuple(batches), late=0)
        ways = (life.ways[0], way) if side else (way, life.ways[1])
        return replace(life, ways=ways)

    def _wrongs(self, message: Message) -> list[Wrong]:
        return [*super()._wrongs(message), Wrong.QUEUE]


class Pieces(Xrc):
    """Scenarios of kind ``pieces``: the requests of shared queues, or of the queues of a domain,
    take several packets, and a message goes on in the next one."""

    def _drawn_domains(self) -> tuple[int, ...]:
        return super()._drawn_domains() if self._chance(0.4) else (0, 0)

    def _wrongs(self, message: Message) -> list[Wrong]:
        """Only a request of XRC names a queue."""
        wrongs = super()._wrongs(message)
        return wrongs if any(self._domains) else [one for one in wrongs if one != Wrong.QUEUE]

    def scenario(self, name: str, seed: int) -> Scenario:
        """As with shared queues; a request holds any packet."""
        drawn, rng = super().scenario(name, seed), self._rng
        assert drawn.shared is not None
        sides = [
            replace(
                queue,
                depth=queue.depth + queue.domain,  # one may be open in each queue for ever
                segment=rng.choice((64, 512, 1024, 4096)),
                buffer=rng.choice(BUFFERS),
            )
            for queue in drawn.shared
        ]
        return replace(drawn, shared=(sides[0], sides[1]))


class Dynamic(Shared):
    """Scenarios of kind ``dynamic``: each end of a pair is an initiator of DC or one to three
    targets, which the requests go to in any order."""

    _services = (QpType.RC,)  # as with RC but for what is changed here

    def _endings(self) -> list[Ending]:
        """In mid-run no end stays that could be used again."""
        return [Ending.DESTROY, Ending.LEAVE] if self._chance(0.3) else [Ending.LEAVE]

    def _lives(self, networks: tuple[Impairments, Impairments]) -> tuple[Life, ...]:
        side, targets = self._rng.randrange(2), self._rng.choice((1, 2, 3, 3))
        return tuple(
            self._aimed(of_initiator(life, side, QpType.DCI), side, targets)
            for life in super()._lives(networks)
        )

    def _aimed(self, life: Life, side: int, targets: int) -> Life:
        """Each request goes to one of the targets."""
        batches = []
        for batch in life.ways[side].batches:
            sent = [replace(one, target=self._rng.randrange(targets)) for one in batch.messages]
            batches.append(replace(batch, messages=tuple(sent)))
        way = replace(life.ways[side], batches=tuple(batches), late=0)
        ways = (life.ways[0], way) if side else (way, life.ways[1])
        return replace(life, ways=ways, attributes=replace(life.attributes, targets=targets))


class Functions(Draw):
    """Scenarios of kind ``functions``: two guest functions of each card, each with live peers.

    A third of the connections end in mid-run, so that one function is set up anew beside the other.
    """

    def scenario(self, name: str, seed: int) -> Scenario:
        """As everywhere, on two functions."""
        return replace(super().scenario(name, seed), functions=2)

    def _count(self) -> int:
        return self._rng.choice((2, 2, 4, 6))

    def _network(self) -> Impairments:
        """Often a loss of 5 % alone, else as everywhere."""
        if self._chance(0.5):
            return Impairments(loss=0.05, seed=self._rng.randrange(1, 1 << 31))
        return super()._network()

    def _endings(self) -> list[Ending]:
        (last,) = super()._endings()
        return self._several(last) if self._chance(0.3) else [last]
