"""Guest functions: the hardware as one of them sees it.

A function numbers its objects from 0, as if it had a card of its own; the card's number has the
function's ordinal above that number (``hdl/ports/numbers.py``). The commands of a function use its
own numbers alone, so they cannot reach another's rows.
"""

from __future__ import annotations

from firmware.device import ConnectionHardware, Hardware, Posted, Row
from firmware.qp import SOURCE_NAMED
from hdl.abi.enums import QpType
from hdl.config import FUNCTION_RDMA, NicConfig
from hdl.wire.opcodes import QP_CODE

__all__ = ["FunctionConnections", "FunctionHardware"]

#: Table -> the kind of object that its rows are of.
_TABLES = {
    "qp_cfg": "qps",
    "qp_fetch": "qps",
    "qp_tx": "qps",
    "qp_ack": "qps",
    "qp_sent": "qps",
    "qp_rx": "qps",
    "qp_reply": "qps",
    "cq": "cqs",
    "mr": "mrs",
    "gid": "gids",
    "group": "groups",
    "pkey": "functions",
    "used": "queues",
    "queue": "queues",
}
#: Field of a row -> the kind of object that it names.
_FIELDS = {
    "send_cq": "cqs",
    "recv_cq": "cqs",
    "source.number": "qps",
    "av.sgid_index": "gids",
    "read_base": "read_resources",
}
#: Tables whose rows name the function they belong to.
_OWNED = frozenset({"qp_cfg", "mr", "gid"})


#: Fields in which an initiator of DC has parts of its number and of its stream (``dc_initiator``,
#: ``dc_stream``).
_LENT = ("read_base", "recv_cq")


def _is_initiator(row: Row) -> bool:
    """Whether a row of ``qp_cfg`` is that of an initiator of DC."""
    return (row.get("type"), row.get("source.kind")) == (QP_CODE[QpType.DCI], SOURCE_NAMED)


class FunctionHardware:
    """The ``Hardware`` of one function: its own numbers of objects become the card's."""

    def __init__(self, hardware: Hardware, config: NicConfig, ordinal: int):
        self._hardware, self._function = hardware, FUNCTION_RDMA + ordinal
        guest = config.guest
        sizes = {name: 1 << bits for name, bits in config.number_bits.items()}
        sizes |= {"gids": guest.gids, "read_resources": guest.read_resources, "functions": 1}
        sizes["groups"] = guest.groups
        #: Kind of object -> the card's number of the function's object 0.
        self._first = {kind: ordinal * size for kind, size in sizes.items()}

    def _index(self, table: str, index: int) -> int:
        return self._first[_TABLES[table]] + index

    async def read_row(self, table: str, index: int) -> dict[str, int]:
        """A copy of one row; numbers in it are the card's."""
        return await self._hardware.read_row(table, self._index(table, index))

    async def read_fields(self, table: str, index: int, *names: str) -> dict[str, int]:
        """Some fields of one row; numbers in it are the card's."""
        return await self._hardware.read_fields(table, self._index(table, index), *names)

    async def write_row(self, table: str, index: int, row: Row) -> None:
        """Replaces one row; an empty one belongs to nobody."""
        card = dict(row)
        if row:
            card |= {
                name: self._first[kind] + row[name]
                for name, kind in _FIELDS.items()
                if name in row and not (name in _LENT and _is_initiator(row))
            }
            if table in _OWNED:
                card["function"] = self._function
        await self._hardware.write_row(table, self._index(table, index), card)

    async def arm_cq(self, cqn: int, flags: int) -> None:
        """See ``Hardware``."""
        await self._hardware.arm_cq(self._first["cqs"] + cqn, flags)

    async def wake(self, pair: int) -> None:
        """See ``Hardware``."""
        await self._hardware.wake(self._first["qps"] + pair)

    async def flush(self, pair: int) -> None:
        """See ``Hardware``."""
        await self._hardware.flush(self._first["qps"] + pair)

    async def drop(self, pair: int) -> None:
        """See ``Hardware``."""
        await self._hardware.drop(self._first["qps"] + pair)

    async def drop_queue(self, queue: int, *, restart: bool = False) -> None:
        """See ``Hardware``."""
        await self._hardware.drop_queue(self._first["queues"] + queue, restart=restart)

    async def clear_counters(self, pair: int) -> None:
        """See ``Hardware``."""
        await self._hardware.clear_counters(self._first["qps"] + pair)

    async def invalidate(self, mrn: int) -> None:
        """See ``Hardware``."""
        await self._hardware.invalidate(self._first["mrs"] + mrn)

    async def drain(self) -> None:
        """See ``Hardware``."""
        await self._hardware.drain()

    async def begin_post(
        self, queue: int, *, record: bytes | None = None, position: int = 0
    ) -> bool:
        """See ``Hardware``."""
        card = self._first["queues"] + queue
        return await self._hardware.begin_post(card, record=record, position=position)

    async def post_result(self) -> Posted | None:
        """See ``Hardware``."""
        return await self._hardware.post_result()

    async def link_up(self) -> bool:
        """See ``Hardware``."""
        return await self._hardware.link_up()

    async def counter(self, name: str) -> int:
        """See ``Hardware``: functions share a port."""
        return await self._hardware.counter(name)


class FunctionConnections:
    """The ``ConnectionHardware`` of one function: its own numbers of QPs and addresses become the
    card's. Packets that have come are the card's to share out (``Firmware``)."""

    def __init__(self, connections: ConnectionHardware, config: NicConfig, ordinal: int):
        self._connections = connections
        self._pairs = ordinal << config.number_bits["qps"]
        self._gids = ordinal * config.guest.gids

    async def asks(self) -> int:
        """See ``ConnectionHardware``: of all functions."""
        return await self._connections.asks()

    async def received(self) -> dict[str, int] | None:
        """See ``ConnectionHardware``: of all functions."""
        return await self._connections.received()

    async def send(self, packet: Row) -> None:
        """See ``ConnectionHardware``."""
        at = self._gids + packet["av.sgid_index"]
        await self._connections.send({**packet, "av.sgid_index": at})

    async def asked(self, pair: int) -> tuple[int, int] | None:
        """See ``ConnectionHardware``."""
        return await self._connections.asked(self._pairs + pair)

    async def forget(self, pair: int) -> None:
        """See ``ConnectionHardware``."""
        await self._connections.forget(self._pairs + pair)
