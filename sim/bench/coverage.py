"""Functional coverage: what a simulation has made the card do, against what there is to do.

Inside a simulation ``COVERAGE`` looks on (``sim.guest.driver.observer``), and each process leaves
what it saw in ``coverage.json`` of its folder. ``load`` merges such files, and ``tables`` compares
them with ``bins``. Seen is what was asked of the device or came from it; whether it was right is
the tests' matter.

A bin is a tuple of names. The first one is its kind:

========== =======================================================================
request    service, opcode, size class, alignment, SGEs, pages (see ``request_bin``)
command    control command, ``OK`` or ``ERR``
completion status, or SUCCESS and opcode
packet     service, operation: sent by a card
answer     ACK, RNR NAK or the NAK's code: sent by a card
drop       counter of a cause that was read and not 0
========== =======================================================================
"""

from __future__ import annotations

import atexit
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

from hdl.abi.enums import (
    ControlCommand,
    ExtensionCommand,
    QpType,
    Response,
    SendFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from hdl.abi.operations import WORK_REQUESTS, WorkRequest
from hdl.abi.virtio_rdma import PAGE_SIZE, AnyCommand
from hdl.config import BUILT
from hdl.ports.counter_names import COUNTERS, PORT_COUNTERS
from hdl.wire.constants import (
    NAK_INVALID_REQUEST,
    NAK_REMOTE_ACCESS,
    NAK_REMOTE_OPERATION,
    NAK_SEQUENCE,
    SYNDROME_RNR,
)
from hdl.wire.opcodes import OPCODES, Kind, Opcode, Transport
from sim.models import native

__all__ = ["COVERAGE", "FILE", "Bin", "Coverage", "bins", "keep", "load", "request_bin", "rows"]

Bin = tuple[str, ...]

FILE = "coverage.json"
#: A simulation has at most so many (``sim.bench.testbench``).
CARDS = 4
#: Size classes of a message in bytes, by the most of each; the last one is open.
_SIZES = {"0": 0, "1-256": 256, "257-4096": 4096, "4097-65535": 65535, "65536-": 1 << 31}
_SGES = {"1 SGE": 1, "2-4 SGEs": 4, "5- SGEs": 1 << 16}
_ALIGNED, _ODD, _WITHIN, _ACROSS, _INLINE, _ANY = "64 B", "any byte", "page", "pages", "inline", "-"
#: Bytes of a line of the bus, and the most that is inline.
_LINE, _INLINE_BYTES = 64, 256
_NAKS = {
    NAK_SEQUENCE: "NAK sequence",
    NAK_INVALID_REQUEST: "NAK invalid request",
    NAK_REMOTE_ACCESS: "NAK remote access",
    NAK_REMOTE_OPERATION: "NAK remote operation",
}
_ACK, _RNR = "ACK", "RNR NAK"
#: Counters that say why a packet, a request or a doorbell was not served.
_CAUSES = (
    tuple(name for name in PORT_COUNTERS + COUNTERS if name.startswith("rx_drops_"))
    + COUNTERS[: COUNTERS.index("rx_send_requests")]
    + ("duplicate_read_lost", "unexpected_response", "bad_response", "doorbell_drops", "bad_qkey")
    + ("loopback_drops",)
)
#: Statuses of reliable datagrams, and others that no card here gives.
NEVER = frozenset(
    {
        WcStatus.LOC_EEC_OP_ERR,
        WcStatus.LOC_ACCESS_ERR,
        WcStatus.LOC_RDD_VIOL_ERR,
        WcStatus.REM_INV_RD_REQ_ERR,
        WcStatus.REM_ABORT_ERR,
        WcStatus.INV_EECN_ERR,
        WcStatus.INV_EEC_STATE_ERR,
        WcStatus.FATAL_ERR,
        WcStatus.RESP_TIMEOUT_ERR,
    }
)
#: Requests whose slots are entries, and no data.
_LAYOUTS = tuple(code for code, request in WORK_REQUESTS.items() if request.layout)
#: Which service a QP's type is.
_SERVICES = {
    QpType.RC: Transport.RC,
    QpType.UC: Transport.UC,
    QpType.UD: Transport.UD,
    QpType.GSI: Transport.UD,
    QpType.XRC_INI: Transport.XRC,
}


def _class(value: int, classes: dict[str, int]) -> str:
    return next(name for name, most in classes.items() if value <= most)


def request_bin(service: Transport, request: Any) -> Bin:
    """The bin of a ``SendWR``: where its SGEs lie counts, and not what is in them.

    Alignment: each SGE begins at a line of the bus. Pages: some SGE reaches into a second one. Of
    requests that are inline or have no bytes, neither counts.
    """
    head = ("request", service.name, WrOpcode(request.opcode).name)
    if request.send_flags & SendFlags.INLINE:
        data = request.inline_data
        size = sum(sge.length for sge in request.sg) if data is None else len(data)
        return (*head, _class(size, _SIZES), _ANY, _INLINE, _ANY)
    sges = [sge for sge in request.sg if sge.length and request.opcode not in _LAYOUTS]
    size = sum(sge.length for sge in sges)
    if not size:
        return (*head, "0", _ANY, _ANY, _ANY)
    aligned = not any(sge.addr % _LINE for sge in sges)
    across = any(sge.addr % PAGE_SIZE + sge.length > PAGE_SIZE for sge in sges)
    return (
        *head,
        _class(size, _SIZES),
        _ALIGNED if aligned else _ODD,
        _class(len(sges), _SGES),
        _ACROSS if across else _WITHIN,
    )


def _request_bins(service: Transport, request: WorkRequest) -> Iterator[Bin]:
    head = ("request", service.name, request.name)
    if request.placement:  # it has no SGEs
        yield (*head, "0", _ANY, _ANY, _ANY)
        return
    if request.kind != Kind.ATOMIC:
        yield (*head, "0", _ANY, _ANY, _ANY)
    if request.kind == Kind.LOCAL:
        return
    if not request.data:
        for size, most in _SIZES.items():
            if most <= _INLINE_BYTES:
                yield (*head, size, _ANY, _INLINE, _ANY)
    if request.kind == Kind.ATOMIC:
        limit = _SIZES["1-256"]
    else:
        limit = PAGE_SIZE if service == Transport.UD else max(_SIZES.values())
    least = 1
    for size, most in list(_SIZES.items())[1:]:
        if most <= limit:
            for alignment, sges, pages in product((_ALIGNED, _ODD), _SGES, (_WITHIN, _ACROSS)):
                # Within pages, so many SGEs have to reach that size. Of an atomic's 8 bytes, those
                # that begin at a line do not reach into a second page.
                within = pages == _WITHIN and _SGES[sges] * PAGE_SIZE >= least
                short = request.kind == Kind.ATOMIC and alignment == _ALIGNED
                if within or (pages == _ACROSS and not short):
                    yield (*head, size, alignment, sges, pages)
        least = most + 1


def _copy_bins(service: Transport, request: WorkRequest) -> Iterator[Bin]:
    """Bins of a MEMCPY, which has two SGEs and some bytes."""
    head = ("request", service.name, request.name)
    classes = product(list(_SIZES)[1:], (_ALIGNED, _ODD), (_WITHIN, _ACROSS))
    for size, alignment, pages in classes:
        if pages == _ACROSS or _SIZES[size] < max(_SIZES.values()):  # two pages are shorter
            yield (*head, size, alignment, _class(2, _SGES), pages)


def _services(request: WorkRequest) -> Iterator[Transport]:
    return (service for service in request.services if service in set(_SERVICES.values()))


def _sent(opcode: Opcode) -> bool:
    return opcode.transport in set(_SERVICES.values()) and opcode.feature in BUILT


def bins() -> list[Bin]:
    """Everything that there is to see, of a card that has all that is built."""
    found: list[Bin] = []
    for request in WORK_REQUESTS.values():
        if request.feature in BUILT:
            for service in _services(request):
                found += (_copy_bins if request.copies else _request_bins)(service, request)
    for command in (*ControlCommand, *ExtensionCommand):
        found += [("command", command.name, response.name) for response in Response]
    failures = set(WcStatus) - {WcStatus.SUCCESS} - NEVER
    found += [("completion", status.name) for status in sorted(failures)]
    found += [("completion", WcStatus.SUCCESS.name, opcode.name) for opcode in WcOpcode]
    found += [("packet", *_names(number)) for number, opcode in OPCODES.items() if _sent(opcode)]
    found += [("answer", name) for name in (_ACK, _RNR, *_NAKS.values())]
    found += [("drop", name) for name in _CAUSES]
    return found


def _names(number: int) -> tuple[str, str]:
    opcode = OPCODES[number]
    return opcode.transport.name, opcode.name


class Coverage:
    """What has been seen, with how often; implements ``sim.guest.driver.observer.Observer``."""

    def __init__(self) -> None:
        self.seen: Counter[Bin] = Counter()

    def commanded(self, command: AnyCommand, response: int) -> None:
        """See ``Observer``."""
        self.seen["command", command.name, Response(response != Response.OK).name] += 1

    def posted(self, qp_type: QpType, request: Any) -> None:
        """See ``Observer``; a request that no card knows counts for nothing."""
        if qp_type in _SERVICES and request.opcode in WORK_REQUESTS:
            self.seen[request_bin(_SERVICES[qp_type], request)] += 1

    def completed(self, completion: Any) -> None:
        """See ``Observer``."""
        kind = (completion.opcode.name,) if completion.status == WcStatus.SUCCESS else ()
        self.seen["completion", completion.status.name, *kind] += 1

    def counted(self, counters: dict[str, int]) -> None:
        """See ``Observer``."""
        self.seen.update(("drop", name) for name in _CAUSES if counters.get(name))

    def sent(self, packets: native.LinkPackets) -> None:
        """What a card has sent since the simulation began."""
        for number, count in enumerate(packets.opcodes):
            if count and number in OPCODES:
                self.seen["packet", *_names(number)] += count
        for syndrome, count in enumerate(packets.syndromes):
            if count:
                kind = _ACK if syndrome < SYNDROME_RNR else _RNR
                self.seen["answer", _NAKS.get(syndrome, kind)] += count

    def save(self, path: Path) -> None:
        """Write what was seen, if anything was."""
        if self.seen:
            rows = [[*one, count] for one, count in sorted(self.seen.items())]
            path.write_text(json.dumps(rows) + "\n")


#: Of this simulation.
COVERAGE = Coverage()


@cache
def keep() -> None:
    """At the end of this process: note what its cards have sent, and write ``coverage.json``."""

    def end() -> None:
        for card in range(CARDS):
            COVERAGE.sent(native.LinkPackets.from_address(native.library().link_packets(card)))
        COVERAGE.save(Path(FILE))

    atexit.register(end)


def load(files: Iterable[Path]) -> Counter[Bin]:
    """What several simulations have seen; ValueError names a file that is none of theirs."""
    seen: Counter[Bin] = Counter()
    for path in files:
        try:
            for *names, count in json.loads(path.read_text()):
                seen[tuple(map(str, names))] += int(count)
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path} is no record of a simulation: {error}") from None
    return seen


def rows(seen: Counter[Bin]) -> list[tuple[str, list[Bin], list[Bin]]]:
    """For each line of the table: its name, its bins, and those of them that were not seen.

    Requests have a line for each service and opcode, everything else one for its kind.
    """
    lines: dict[str, list[Bin]] = {}
    for one in bins():
        name = f"{one[1]} {one[2]}" if one[0] == "request" else f"{one[0]}s"
        lines.setdefault(name, []).append(one)
    return [
        (name, members, [one for one in members if not seen[one]])
        for name, members in lines.items()
    ]
