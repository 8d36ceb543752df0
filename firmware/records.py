"""What a guest function has, as plain values for a journal, and back.

A record says what has changed: for each kind of object its number and what it is like now, or None
when it has gone. What the card's own tables hold is not in it. How often an object is used follows
from the others.
"""

from __future__ import annotations

from typing import Any, TypeVar

from firmware.commands import Commands
from firmware.dc.streams import Streams
from firmware.objects import (
    Cq,
    Destination,
    Group,
    Handles,
    Mr,
    Objects,
    Pd,
    Pieces,
    Qp,
    Slice,
    Srq,
    Xrcd,
)
from firmware.qp import initiator_row
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import EventType, MwType, QpType
from hdl.abi.layout import Values

__all__ = ["Record", "changes", "everything", "restore"]

Record = dict[str, Any]
T = TypeVar("T", Pd, Cq, Srq, Xrcd)


def _plain(made: Pd | Cq | Mr | Srq | Qp | Group | Xrcd | Destination) -> Record:
    """An object without its number."""
    if isinstance(made, Cq):
        return {"told": made.told}
    if isinstance(made, Mr):
        window = None if made.window is None else int(made.window)
        shape = {"pages": made.pages, "zero_based": made.zero_based, "window": window}
        shape["entries"] = made.entries
        return {"pd": made.pd.number, "kept": made.kept, **shape}
    if isinstance(made, Destination | Group):
        return _addressed(made)
    if isinstance(made, Srq):
        sizes = {"max_wr": made.max_wr, "max_sge": made.max_sge, "limit": made.limit}
        shared = {"xrcd": _number(made.xrcd), "cq": _number(made.cq), "srq_num": made.srq_num}
        of = {"pd": made.pd.number, "told": made.told, "pieces": _pieces(made)}
        return {**of, **sizes, **shared}
    if isinstance(made, Qp):
        return {
            "pd": _number(made.pd),
            "send_cq": _number(made.send_cq),
            "recv_cq": _number(made.recv_cq),
            "srq": _number(made.srq),
            "xrcd": _number(made.xrcd),
            "init": {name: int(value) for name, value in made.init.items()},
            "attrs": abi.QP_ATTR.pack(made.attrs).hex(),
            "qpn": made.qpn,
            "slice": None if made.slice is None else [made.slice.base, made.slice.size],
            "start": made.start,
            "told": sorted(int(event) for event in made.told),
            "notify_drained": made.notify_drained,
            "binds": made.binds,
            "placement": made.placement,
            "copies": made.copies,
            "layouts": made.layouts,
            "pieces": _pieces(made),
            "streams": _streams(made),
        }
    return {}


def _addressed(made: Destination | Group) -> Record:
    """What is an address, mostly."""
    if isinstance(made, Group):
        return {"gid": made.gid.hex(), "members": list(made.members)}
    ah = abi.AH_ATTR.pack(made.ah).hex()
    return {"pd": made.pd.number, "dctn": made.dctn, "key": made.key, "ah": ah}


def _pieces(made: Srq | Qp) -> list[int] | None:
    return None if made.pieces is None else [made.pieces.buffer, made.pieces.align_log2]


def _made_pieces(plain: Record) -> Pieces | None:
    return None if plain["pieces"] is None else Pieces(*plain["pieces"])


def _streams(made: Qp) -> list[Any] | None:
    """Of an initiator of DC: how many may fail, those that have, and the one that it was at."""
    if made.streams is None:
        return None
    return [made.streams.most, sorted(made.streams.errored), made.stream]


def _number(made: Pd | Cq | Srq | Xrcd | None) -> int | None:
    return None if made is None else made.number


def _handles(objects: Objects) -> dict[str, Any]:
    """Kind -> the objects, in the order in which they can be made."""
    return {
        "pds": objects.pds,
        "cqs": objects.cqs,
        "destinations": objects.destinations,
        "xrcds": objects.xrcds,
        "srqs": objects.srqs,
        "mrs": objects.mrs,
        "qps": objects.qps,
        "groups": objects.groups,
    }


def changes(commands: Commands, *, under_way: bool = False) -> Record:
    """What has changed since the last call; nothing if nothing has.

    under_way: a command is, so its objects are looked at again in the next call.
    """
    objects, record = commands.objects, Record()
    for kind, handles in _handles(objects).items():
        if handles.touched:
            found = {str(number): handles.find(number) for number in sorted(handles.touched)}
            record[kind] = {
                number: None if made is None else _plain(made) for number, made in found.items()
            }
            if not under_way:
                handles.touched.clear()
    for kind, counts in (("mrs", objects.tags), ("qps", objects.generations)):
        touched = [number for number in record.get(kind, ()) if int(number) in counts]
        if touched:
            name = "tags" if kind == "mrs" else "generations"
            record[name] = {number: counts[int(number)] for number in touched}
    gids = {str(index): gid.hex() for index, gid in objects.gids.items()}
    if gids != objects.gids_told:
        record["gids"] = objects.gids_told = gids
    pkeys = list(commands.pkeys.all)
    if not commands.pkeys.changed and pkeys != commands.pkeys.told:
        record["pkeys"] = commands.pkeys.told = pkeys
    if commands.events.changed:
        record["events"] = commands.events.state()
        commands.events.changed = False
    if commands.dc is not None:
        record |= commands.dc.changes()
    return record


def everything(commands: Commands) -> Record:
    """All that the function has, as if all of it had changed."""
    objects = commands.objects
    for handles in _handles(objects).values():
        handles.touched.update(made.number for made in handles.all())
    objects.mrs.touched.update(objects.tags)
    objects.qps.touched.update(objects.generations)
    objects.gids_told = commands.pkeys.told = None
    commands.events.changed = True
    if commands.dc is not None:
        commands.dc.tell_all()
    return changes(commands)


def merge(whole: Record, record: Record) -> None:
    """Bring ``whole``, what there was, up to date with what has changed."""
    for kind, values in record.items():
        if kind in ("gids", "pkeys", "events"):
            whole[kind] = values
        else:
            found = whole.setdefault(kind, {})
            found.update(values)
            for number in [number for number, made in found.items() if made is None]:
                del found[number]


def restore(commands: Commands, whole: Record) -> None:
    """Gives a function without objects all that ``whole`` has. Raises ValueError, KeyError or
    Refused for what cannot be."""
    objects = commands.objects
    for index, gid in whole.get("gids", {}).items():
        objects.gids[int(index)] = bytes.fromhex(gid)
    for kind, counts in (("tags", objects.tags), ("generations", objects.generations)):
        counts.update((int(number), count) for number, count in whole.get(kind, {}).items())
    make = _Maker(objects)
    for kind, handles in _handles(objects).items():
        for number, plain in sorted((int(n), p) for n, p in whole.get(kind, {}).items()):
            if kind == "srqs":
                objects.qps.lend(number)
            handles.add(lambda kind=kind, plain=plain: getattr(make, kind)(plain), number)
    if "pkeys" in whole:
        commands.pkeys.restore(whole["pkeys"])
    if "events" in whole:
        commands.events.restore(whole["events"])


class _Maker:
    """Makes the objects of a record; those that they name must be there."""

    def __init__(self, objects: Objects):
        self._objects = objects

    def _pd(self, number: int) -> Pd:
        pd = self._objects.pds.get(number)
        pd.users += 1
        return pd

    def _used(self, handles: Handles[T], number: int | None) -> T | None:
        """An object that another one uses, if it does."""
        if number is None:
            return None
        found = handles.get(number)
        found.users += 1
        return found

    def xrcds(self, plain: Record) -> Xrcd:
        return Xrcd()

    def destinations(self, plain: Record) -> Destination:
        ah = abi.AH_ATTR.unpack(bytes.fromhex(plain["ah"]))
        return Destination(self._pd(plain["pd"]), plain["dctn"], plain["key"], ah)

    def pds(self, plain: Record) -> Pd:
        return Pd()

    def cqs(self, plain: Record) -> Cq:
        return Cq(told=plain["told"])

    def srqs(self, plain: Record) -> Srq:
        sizes = {name: plain[name] for name in ("max_wr", "max_sge", "limit")}
        objects = self._objects
        srq = Srq(self._pd(plain["pd"]), told=plain["told"], **sizes)
        srq.srq_num, srq.pieces = plain["srq_num"], _made_pieces(plain)
        srq.xrcd = self._used(objects.xrcds, plain["xrcd"])
        srq.cq = self._used(objects.cqs, plain["cq"])
        return srq

    def mrs(self, plain: Record) -> Mr:
        window = None if plain["window"] is None else MwType(plain["window"])
        shape = {name: plain[name] for name in ("pages", "zero_based", "entries", "kept")}
        return Mr(self._pd(plain["pd"]), window=window, **shape)

    def groups(self, plain: Record) -> Group:
        return Group(bytes.fromhex(plain["gid"]), list(plain["members"]))

    def qps(self, plain: Record) -> Qp:
        objects = self._objects
        srq = self._used(objects.srqs, plain["srq"])
        part = None if plain["slice"] is None else Slice(*plain["slice"])
        if part is not None:
            objects.slices.take_again(part)
        attrs = Values(abi.QP_ATTR.unpack(bytes.fromhex(plain["attrs"])))
        pd = self._used(objects.pds, plain["pd"])
        send_cq = self._used(objects.cqs, plain["send_cq"])
        recv_cq = self._used(objects.cqs, plain["recv_cq"])
        qp = Qp(pd, send_cq, recv_cq, plain["init"], attrs, srq, slice=part)
        qp.xrcd = self._used(objects.xrcds, plain["xrcd"])
        qp.qpn, qp.start, qp.binds = plain["qpn"], plain["start"], plain["binds"]
        qp.placement, qp.copies = plain["placement"], plain["copies"]
        qp.pieces, qp.layouts = _made_pieces(plain), plain["layouts"]
        qp.told = {EventType(event) for event in plain["told"]}
        qp.notify_drained = plain["notify_drained"]
        if plain["streams"] is not None:
            most, errored, qp.stream = plain["streams"]
            qp.streams = Streams(most, set(errored))
        if qp.type == QpType.DCI:
            qp.connected = initiator_row(qp)
        return qp
