"""The context of the queue pairs: the tables of their rows, and how a machine looks at them.

A machine asks by the number of a QP, and the answer has a row of each table that ``QP_MACHINES``
names for it. What stands behind that port is not its matter: RAM (``RamContext``), or anything else
that keeps the rules of ``ContextRead``.
"""

from dataclasses import dataclass
from typing import Any

from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Out, Signature

from hdl.common.tables import TableProgram, TableWrite

from .numbers import QpNumber
from .rows import QpAck, QpCfg, QpFetch, QpReply, QpRx, QpSent, QpTx

__all__ = [
    "LOOKING_BACK",
    "QP_MACHINES",
    "QP_PINS",
    "QP_TABLES",
    "BackingPort",
    "BackingRequest",
    "ContextBackEnd",
    "ContextPin",
    "ContextRead",
    "QpTable",
    "machine_rows",
    "readers",
]


@dataclass(frozen=True)
class QpTable:
    """One table of the QPs: its row, and the machine that writes it; None: only the firmware."""

    row: Any
    owner: str | None = None


#: The tables of the QPs, one row in each of them for a QP. ``qp_rx_ahead`` has the speculative rows
#: of those in ``qp_rx``; the firmware writes both.
QP_TABLES: dict[str, QpTable] = {
    "qp_cfg": QpTable(QpCfg),
    "qp_fetch": QpTable(QpFetch, "scheduler"),
    "qp_tx": QpTable(QpTx, "requester"),
    "qp_ack": QpTable(QpAck, "receive"),
    "qp_sent": QpTable(QpSent, "departures"),
    "qp_rx": QpTable(QpRx, "commit"),
    "qp_rx_ahead": QpTable(QpRx, "receive"),
    "qp_reply": QpTable(QpReply, "replier"),
}

#: The machines that look QPs up, and the tables of which each gets a row. A new reader of a table
#: is a new name here.
QP_MACHINES: dict[str, tuple[str, ...]] = {
    "scheduler": ("qp_cfg", "qp_fetch", "qp_tx", "qp_ack"),
    "requester": ("qp_cfg", "qp_tx", "qp_ack", "qp_rx"),
    "departures": ("qp_sent",),
    "replier": ("qp_cfg", "qp_rx", "qp_reply"),
    "receive": ("qp_cfg", "qp_ack", "qp_sent", "qp_rx_ahead", "qp_reply"),
    "commit": ("qp_rx",),
}

#: Machines that may write rows of the QP that they were answered for before the last one, too.
#: Every machine may write rows of the last one.
LOOKING_BACK = ("requester", "replier", "receive")
#: Who writes rows of a QP beside a machine that has gone on to others, and names it meanwhile.
QP_PINS = ("completer",)


def readers(table: str) -> list[str]:
    """Return the machines that read a table, in the order of its reading ports."""
    return [machine for machine, tables in QP_MACHINES.items() if table in tables]


def machine_rows(machine: str) -> data.StructLayout:
    """Return what a machine is answered: a field for each table's row, named without ``qp_``."""
    return data.StructLayout(
        {table.removeprefix("qp_"): QP_TABLES[table].row for table in QP_MACHINES[machine]}
    )


class ContextRead(Signature):
    """A machine's look at the context of a QP, seen from the machine.

    A request is ``number`` with ``enable``, for a cycle; one that is not answered yet is replaced
    by the next. ``valid``: ``rows`` are those of the last request before this cycle. They stay
    until there is another one, and in its cycle too. While ``valid`` is 0 they say nothing. The
    earliest answer comes in the cycle behind the request; a machine that can use it then loses
    nothing.
    All rows of an answer are of one moment, that of the cycle before ``valid`` rises: each is as it
    was before what its owner, or the firmware, writes in that cycle.
    Bits of ``number`` beyond the QPs that the card has are ignored.
    """

    def __init__(self, machine: str):
        super().__init__(
            {
                "number": Out(QpNumber),
                "enable": Out(1),
                "valid": In(1),
                "rows": In(machine_rows(machine)),
            }
        )


class ContextPin(Signature):
    """A QP whose rows must stay at hand, seen from who names it: as long as it is ``held``, from
    the cycle behind the one in which a machine had them at hand."""

    def __init__(self):
        super().__init__({"number": Out(QpNumber), "held": Out(1)})


class BackingRequest(data.Struct):
    """What a cache asks of its backing store: the record of a QP, which has all of its rows."""

    qp: QpNumber
    write: 1  # the record comes by ``record``; else it is read, and comes by ``answer``


class BackingPort(Signature):
    """Between a cache of the QPs' context and the store of all records, seen from the cache.

    Requests are served in order, so a read returns the record as the last write before it has left
    it. ``record``: beats of the writes' records, in the order of the requests; ``answer``: beats of
    those that are read, likewise; with ``error``, final on ``last``, the record is lost. A record
    has the same number of beats, bit 0 first, in all of them.
    """

    def __init__(self, width: int):
        beat = {"data": width, "last": 1}
        super().__init__(
            {
                "request": Out(stream.Signature(BackingRequest)),
                "record": Out(stream.Signature(data.StructLayout(beat))),
                "answer": In(stream.Signature(data.StructLayout(beat | {"error": 1}))),
            }
        )


class ContextBackEnd(Signature):
    """What stands behind the looks of all machines, seen from the transport and the firmware.

    A port of each machine, by its name; ``<table>_write``: of the table's owner; ``<table>``: the
    firmware's window. ``ready``: all rows are cleared after a reset. With ``parity``, ``bad``:
    tables of which a row with a wrong bit has been read; ``spoil``: the firmware's writes store a
    wrong bit. With ``pins``, ``<name>_pin``: of each of ``QP_PINS``.
    """

    def __init__(self, *, parity: bool = False, pins: bool = False):
        members = {machine: Out(ContextRead(machine)) for machine in QP_MACHINES}
        for name, table in QP_TABLES.items():
            if table.owner:
                members[f"{name}_write"] = Out(TableWrite(QpNumber, table.row))
            members[name] = Out(TableProgram(QpNumber, table.row))
        members["ready"] = In(1)
        if parity:
            members |= {"bad": In(data.StructLayout(dict.fromkeys(QP_TABLES, 1))), "spoil": Out(1)}
        if pins:
            members |= {f"{name}_pin": Out(ContextPin()) for name in QP_PINS}
        super().__init__(members)
