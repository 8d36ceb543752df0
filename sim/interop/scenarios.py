"""What is tried between NIC and guest. Each scenario opens its own queue pairs and memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from sim.interop.connecting import PROGRAMS, connected
from sim.interop.invalidation import invalidated
from sim.interop.operations import OPERATIONS, Message, of_type
from sim.interop.parties import Connection, ConnectionOptions, Party
from sim.interop.refusals import REFUSALS, Refusal, refused
from sim.interop.shared import shared_receives
from sim.interop.traffic import Tally, exchange

__all__ = ["SCENARIOS", "Parties", "Scenario"]

Parties = tuple[Party, Party]
MTUS = (256, 512, 1024, 2048, 4096)
KIB_64, MIB = 1 << 16, 1 << 20
#: Bytes of the longest messages over IPv4 and over IPv6, and the path MTU at which they go.
_LONG = {False: (4 * KIB_64, 4096), True: (MIB, 256)}
_QPS = 8
#: Messages of each of several queue pairs, and their bytes at most.
_MESSAGES, _LONGEST = 10, 20_000
#: Bytes of a message at most where packets are lost, and rounds of the long scenarios.
_LONG_ON_BAD, _ROUNDS = 9000, 12
#: What a network does, by the name of the scenario.
NETWORKS = {
    "loss": "loss=2%,seed=1",
    "duplicates": "duplicate=10%,seed=2",
    "reorder": "reorder=6,overtaken=4%,seed=3",
    "bad-network": "loss=1%,duplicate=2%,reorder=4,overtaken=2%,jitter_us=3,seed=4",
}
#: The same where two functions of the card have a live peer each.
_FIVE = "loss=5%,seed=5"

#: Atomics of one exchange from each side.
_ATOMICS = 20
#: Path MTUs of the types without answers; a datagram may have the port's whole MTU.
_SERVICE_MTUS = {"UC": (256, 1024), "UD": (4096,)}
#: Messages of one exchange at most, of the types without answers.
_AT_ONCE = 24


@dataclass(frozen=True)
class Scenario:
    """``name`` for the command line, ``what`` for its list.

    network: what becomes of frames, both ways, as ``--impair`` has it. long: it is run only when it
    is asked for. resends: Linux may send a request again although nothing is lost. functions: of
    the card.
    """

    name: str
    what: str
    run: Callable[[Parties, Tally], None]
    network: str = ""
    long: bool = False
    resends: bool = False
    functions: int = 1


def sizes(mtu: int, ipv6: bool) -> tuple[int, ...]:
    """Message sizes in bytes around what matters: padding, packets, and long ones."""
    longest, at = _LONG[ipv6]
    long = (longest,) if mtu == at else ()
    return (0, 1, 2, 3, 4, 5, mtu - 1, mtu, mtu + 1, 3 * mtu + 5, KIB_64, *long)


def _operation(parties: Parties, tally: Tally, *, opcode: str, ipv6: bool) -> None:
    """One operation, all sizes at every MTU, first from the NIC, then from the guest."""
    for mtu in MTUS:
        connection = Connection.open(parties, ConnectionOptions(mtu=mtu, ipv6=ipv6))
        for source in (0, 1):
            messages = [Message(opcode, size, source) for size in sizes(mtu, ipv6)]
            exchange([connection], messages, seed=mtu + source, tally=tally)
        connection.close()


def _atomic(parties: Parties, tally: Tally, *, opcode: str, ipv6: bool) -> None:
    """Atomics on words of their own, first from the NIC, then from the guest, then both at once."""
    connection = Connection.open(parties, ConnectionOptions(ipv6=ipv6))
    for sources in ((0,), (1,), (0, 1)):
        messages = [Message(opcode, 8, source) for _ in range(_ATOMICS) for source in sources]
        exchange([connection], messages, seed=len(messages), tally=tally)
    connection.close()


def _service(parties: Parties, tally: Tally, *, kind: str, ipv6: bool) -> None:
    """All operations of a type of queue pair, from either side and from both at once."""
    for mtu in _SERVICE_MTUS[kind]:
        options = ConnectionOptions(kind=kind, mtu=mtu, ipv6=ipv6)
        connection = Connection.open(parties, options)
        long = () if kind == "UD" else (mtu + 1, 3 * mtu + 5, _LONGEST)
        for sources in ((0,), (1,), (0, 1)):
            messages = [
                Message(opcode, size, source)
                for size in (0, 1, 2, 3, mtu - 1, mtu, *long)
                for opcode in of_type(kind)
                for source in sources
            ]
            # UC and UD lose what finds no receive request: no more at once than the queues hold.
            for first in range(0, len(messages), _AT_ONCE):
                some = messages[first : first + _AT_ONCE]
                exchange([connection], some, seed=mtu + first, tally=tally)
        connection.close()


def _eight_qps(parties: Parties, tally: Tally, *, ipv6: bool) -> None:
    """Everything at once on several connections, both ways."""
    rng = random.Random(8)
    connections = []
    for i in range(_QPS):
        # PSNs of different connections differ: a capture tells by them whose an answer is.
        psns = (i << 20, i << 20 | 1 << 19)
        options = ConnectionOptions(mtu=rng.choice(MTUS), ipv6=ipv6, psns=psns)
        connections.append(Connection.open(parties, options))
    messages = [
        Message(rng.choice(of_type("RC")), rng.randrange(_LONGEST), source, qp)
        for _ in range(_MESSAGES)
        for qp in range(_QPS)
        for source in (0, 1)
    ]
    rng.shuffle(messages)
    exchange(connections, messages, seed=8, tally=tally)
    for connection in connections:
        connection.close()


def _psn_wrap(parties: Parties, tally: Tally) -> None:
    """PSNs that pass from FFFFFFh to 0 inside messages, between them, and in their answers."""
    for opcode in of_type("RC"):
        for source in (0, 1):
            options = ConnectionOptions(mtu=256, psns=(0xFFFFFD, 0xFFFFFA))
            connection = Connection.open(parties, options)
            messages = [Message(opcode, size, source) for size in (1, 5 * 256 + 1, 0, KIB_64)]
            exchange([connection], messages, seed=source, tally=tally)
            connection.close()


def _refusals(parties: Parties, tally: Tally, *, refusal: Refusal) -> None:
    """A request that must be refused, both ways; afterwards a new connection must do.

    Each case begins with good messages on one, so only the last is left to try.
    """
    for source in (0, 1):
        for opcode in refusal.opcodes:
            refused(parties, source, opcode, refusal, tally)
    connection = Connection.open(parties, ConnectionOptions())
    exchange([connection], [Message("SEND", 100, one) for one in (0, 1)], seed=0, tally=tally)
    connection.close()


def _bad_network(parties: Parties, tally: Tally, *, rounds: int) -> None:
    """All operations mixed, both ways at once on two connections, on a network that misbehaves.

    The functions of the card, if it has several, have the connections in turn.
    """
    rng = random.Random(rounds)
    nic, guest = parties
    functions = [nic, *nic.beside]
    for number in range(rounds):
        connections = [
            # One PSN space passes its end inside the messages.
            Connection.open(
                (functions[i % len(functions)], guest), ConnectionOptions(mtu=mtu, psns=psns)
            )
            for i, (mtu, psns) in enumerate(
                ((1024, (0x123456, 0x654321)), (256, (0xFFFFF0, 0xFFFFE0)))
            )
        ]
        messages = [
            Message(opcode, size, source, qp)
            for opcode in of_type("RC")
            for size in (rng.randrange(300), rng.randrange(_LONG_ON_BAD))
            for source in (0, 1)
            for qp in (0, 1)
        ]
        rng.shuffle(messages)
        exchange(connections, messages, seed=number, tally=tally)
        for connection in connections:
            connection.close()


def _all() -> Iterator[Scenario]:
    for ipv6, family in ((False, "ipv4"), (True, "ipv6")):
        for opcode, operation in OPERATIONS.items():
            name = opcode.lower().replace("rdma_", "").replace("_", "-")
            most = f"{_LONG[ipv6][0] >> 10} KiB"
            what = f"{opcode} both ways over {family}, 0 B to {most}, MTU 256 to 4096"
            run = _operation
            if operation.size is not None:
                what, run = f"{opcode} both ways over {family}, on {_ATOMICS} words", _atomic
            yield Scenario(f"{name}-{family}", what, partial(run, opcode=opcode, ipv6=ipv6))
        for kind in _SERVICE_MTUS:
            what = f"{' and '.join(of_type(kind))} on {kind} both ways over {family}"
            run = partial(_service, kind=kind, ipv6=ipv6)
            yield Scenario(f"{kind.lower()}-{family}", what, run)
        what = f"eight queue pairs over {family}, all operations mixed, both ways at once"
        yield Scenario(f"eight-qps-{family}", what, partial(_eight_qps, ipv6=ipv6))
    yield Scenario("srq", "SENDs of four queue pairs into one SRQ, both ways", shared_receives)
    yield Scenario(
        "invalidate", "SEND_WITH_INV and LOCAL_INV of keys that WRITEs have used", invalidated
    )
    for program in PROGRAMS:
        run = partial(connected, program=program)
        yield Scenario(program.name, program.what, run, resends=program.resends)
    yield Scenario("psn-wrap", "all operations both ways across PSN FFFFFFh to 0", _psn_wrap)
    for name, network in NETWORKS.items():
        what = f"all operations mixed, both ways, on two queue pairs, with {network}"
        run = partial(_bad_network, rounds=1)
        yield Scenario(name, what, run, network)
        run = partial(_bad_network, rounds=_ROUNDS)
        yield Scenario(f"{name}-long", f"{what}, {_ROUNDS} times", run, network, long=True)
    what = f"the same on a queue pair of each of two functions of the card, with {_FIVE}"
    for name, rounds in (("two-functions", 2), ("two-functions-long", _ROUNDS)):
        run = partial(_bad_network, rounds=rounds)
        yield Scenario(name, f"{what}, {rounds} times", run, _FIVE, long=rounds > 2, functions=2)
    for refusal in REFUSALS:
        yield Scenario(refusal.name, refusal.what, partial(_refusals, refusal=refusal))


SCENARIOS = {one.name: one for one in _all()}
