"""Completion queues, channels of their events, completions."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable
from typing import Any

from hdl.abi.enums import WcOpcode, WcStatus
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import CQ as GuestCQ
from sim.guest.verbs import WC as GuestWC
from sim.programs.errand import PATIENCE
from sim.programs.pyverbs import enums
from sim.programs.pyverbs.base import PyverbsCM, PyverbsObject, ask, show
from sim.programs.pyverbs.mp_wr import IBV_WC_EX_WITH_MP_WR
from sim.programs.pyverbs.pyverbs_error import PyverbsRDMAError, PyverbsUserError
from sim.programs.pyverbs.utils import name_of, names_of

__all__ = ["CQ", "CQEX", "WC", "CompChannel", "CqInitAttrEx", "PollCqAttr", "cqe_status_to_str"]

#: What an extended queue can tell of a completion.
_TOLD = enums.IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_MP_WR
#: No completion is there; the number is libibverbs'.
EMPTY = errno.ENOENT
#: libibverbs' IBV_WC_DRIVER1, which pyverbs does not name.
_LAYOUT_SET = 135
#: Opcodes of the card that libraries know by another number.
_RENUMBERED: dict[int, int] = {
    WcOpcode.MEMCPY: int(enums.IBV_WC_DRIVER3),
    WcOpcode.MKEY: _LAYOUT_SET,
}


class CompChannel(PyverbsCM):
    """Events of completion queues."""

    rank = 6

    def __init__(self, context: Any):
        super().__init__()
        self.context, self.card = context, context.card
        self.queues: list[Any] = []
        self._opened(context)

    def get_cq_event(self, expected_cq: Any) -> None:
        """Waits for the next event, which must be one of ``expected_cq``, and takes it."""

        async def wait() -> Any:
            def due() -> list[Any]:
                return [one for one in self.queues if one.guest.events]

            await self.card.errands.until(lambda: bool(due()))
            queue = due()[0]
            queue.guest.events -= 1
            return queue

        queue = ask(self.card, wait(), "Failed to get CQ event")
        if queue is not expected_cq:
            raise PyverbsUserError("Received event on an unexpected CQ")


class WC(PyverbsObject):
    """A completion. ``imm_data`` is in network order, as it stands in memory."""

    def __init__(
        self,
        wr_id: int = 0,
        status: int = 0,
        opcode: int = 0,
        vendor_err: int = 0,
        byte_len: int = 0,
        qp_num: int = 0,
        src_qp: int = 0,
    ):
        super().__init__()
        self.wr_id, self.status, self.opcode = wr_id, status, opcode
        self.vendor_err, self.byte_len = vendor_err, byte_len
        self.qp_num, self.src_qp = qp_num, src_qp
        self.imm_data = self.wc_flags = self.pkey_index = 0
        self.slid = self.sl = self.dlid_path_bits = 0
        #: Where the packet lies, of a request that takes several.
        self.mp_wr_offset = 0

    @classmethod
    def of(cls, wc: GuestWC) -> WC:
        """The driver's completion."""
        ours = cls(
            wc.wr_id,
            int(wc.status),
            int(wc.opcode),
            0 if wc.status == WcStatus.SUCCESS else wc.vendor_err,
            wc.byte_len,
            wc.qp_num,
            wc.src_qp,
        )
        ours.mp_wr_offset = wc.mp_wr_offset
        ours.wc_flags, ours.pkey_index, ours.sl = int(wc.wc_flags), wc.pkey_index, wc.sl
        inverted = ours.wc_flags & enums.IBV_WC_WITH_INV
        ours.imm_data = wc.invalidated_rkey if inverted else socket.htonl(wc.imm_data)
        return ours

    def __str__(self) -> str:
        return show(
            wr_id=self.wr_id,
            status=cqe_status_to_str(self.status),
            opcode=cqe_opcode_to_str(self.opcode),
            vendor_error=self.vendor_err,
            byte_length=self.byte_len,
            qp_num=self.qp_num,
            flags=cqe_flags_to_str(self.wc_flags),
        )


class _Queue(PyverbsCM):
    """What both kinds of completion queue do."""

    rank = 5
    #: Whether it tells where packets lie.
    with_mp_wr = False

    def _create(self, context: Any, cqe: float, channel: Any, vector: int, parents: Any) -> None:
        self.context, self.card = context, context.card
        self.comp_channel = channel
        #: Completions that were looked through already.
        self._kept: list[GuestWC] = []
        #: Of send queues, by the number of the queue pair: what says the opcode of a completion.
        self.opcodes: dict[int, Callable[[int], int]] = {}

        async def create() -> GuestCQ:
            limits = self.card.context.query_device()
            if not 1 <= cqe <= limits.max_cqe or not 0 <= vector < context.num_comp_vectors:
                raise RdmaError(errno.EINVAL, f"{cqe} entries, vector {vector}")
            room = limits.max_cqe
            shape = {"comp_vector": vector, "room": room, "with_mp_wr": self.with_mp_wr}
            return await GuestCQ.create(self.card.context, int(cqe), **shape)

        self.guest: GuestCQ = ask(self.card, create(), "Failed to create a CQ")
        if channel is not None:
            channel.queues.append(self)
        self.card.inboxes.made("cq", self.guest.cqn, context)
        self._opened(context, channel, *parents)

    @property
    def cqe(self) -> int:
        """Its entries."""
        return self.guest.cqe

    @property
    def handle(self) -> int:
        """Its number."""
        return self.guest.cqn

    def req_notify(self, solicited_only: bool = False) -> None:
        """Asks for an event with the next completion, or with the next solicited one."""
        work = self.guest.req_notify(bool(solicited_only))
        ask(self.card, work, "Request notify CQ returned")

    def ack_events(self, num_events: int) -> None:
        """Nothing: an event is taken when it is read."""

    def _take(self, most: int) -> list[GuestWC]:
        """Completions that are there, or come while the card works for a moment."""

        async def poll() -> list[GuestWC]:
            found, self._kept = self._kept[:most], self._kept[most:]
            found += await self.guest.poll(most - len(found)) if len(found) < most else []
            if not found and await self.card.errands.until(self.guest.queue.has_used, PATIENCE):
                found = await self.guest.poll(most)
            return found

        found: list[GuestWC] = ask(self.card, poll(), "Failed to poll CQ")
        return found

    def _tell(self, wc: GuestWC) -> WC:
        """A completion as the program gets it, which it does once."""
        ours = WC.of(wc)
        ours.opcode = _RENUMBERED.get(ours.opcode, ours.opcode)
        teller = self.opcodes.get(wc.qp_num)
        if teller is not None and wc.status == WcStatus.SUCCESS and wc.opcode < WcOpcode.RECV:
            ours.opcode = teller(ours.opcode)
        return ours

    async def forget(self, qp_num: int) -> None:
        """For errands: drops the completions of a queue pair that nobody has polled."""
        found = self._kept + await self.guest.poll(self.guest.cqe)
        self._kept = [wc for wc in found if wc.qp_num != qp_num]

    def _destroy(self) -> None:
        ask(self.card, self.guest.close(), "Failed to close CQ")
        self.card.inboxes.gone("cq", self.guest.cqn)
        if self.comp_channel is not None:
            self.comp_channel.queues.remove(self)


class CQ(_Queue):
    """A completion queue."""

    def __init__(
        self,
        creator: Any,
        cqe: float = 10,
        cq_context: Any = None,
        channel: CompChannel | None = None,
        comp_vector: int = 0,
    ):
        super().__init__()
        self.cq_context = cq_context
        self._create(creator, cqe, channel, comp_vector, ())

    def poll(self, num_entries: int = 1) -> tuple[int, list[WC]]:
        """How many completions there are, at most ``num_entries``, and these."""
        found = [self._tell(wc) for wc in self._take(num_entries)]
        return len(found), found

    def resize(self, cqe: int) -> None:
        """Gives it another size; completions that nobody has polled stay."""

        async def resize() -> None:
            await self.card.errands.moment()
            await self.guest.resize(int(cqe))

        ask(self.card, resize(), "Failed to resize CQ")

    def __str__(self) -> str:
        return show(CQ=self.handle, cqe=self.cqe)


class CqInitAttrEx(PyverbsObject):
    """What an extended completion queue is made from."""

    def __init__(
        self,
        cqe: int = 100,
        cq_context: Any = None,
        channel: CompChannel | None = None,
        comp_vector: int = 0,
        wc_flags: int = 0,
        **more: Any,
    ):
        super().__init__()
        self.cqe, self.cq_context, self.comp_channel = cqe, cq_context, channel
        self.comp_vector, self.wc_flags = comp_vector, wc_flags
        self.comp_mask, self.flags = more.pop("comp_mask", 0), more.pop("flags", 0)
        self.parent_domain = more.pop("parent_domain", None)
        if more:
            raise TypeError(f"CqInitAttrEx takes no {', '.join(more)}")


class PollCqAttr(PyverbsObject):
    """Attributes of ``start_poll``."""

    def __init__(self) -> None:
        super().__init__()
        self.comp_mask = 0


class CQEX(_Queue):
    """An extended completion queue: its completions are read one after the other."""

    def __init__(self, creator: Any, init_attr: CqInitAttrEx | None = None):
        super().__init__()
        attr = init_attr or CqInitAttrEx()
        if attr.wc_flags & ~_TOLD or attr.flags & ~1:
            raise PyverbsRDMAError("Failed to create extended CQ", errno.EOPNOTSUPP)
        parents = () if attr.parent_domain is None else (attr.parent_domain,)
        self._current = WC()
        self.with_mp_wr = bool(attr.wc_flags & IBV_WC_EX_WITH_MP_WR)
        self._create(creator, attr.cqe, attr.comp_channel, attr.comp_vector, parents)

    def start_poll(self, poll_attr: PollCqAttr | None = None) -> int:
        """Makes the first completion the current one: 0, or 2 (ENOENT) when there is none."""
        found = self._take(1)
        if not found:
            return EMPTY
        self._current = self._tell(found[0])
        return 0

    def poll_next(self) -> int:
        """Makes the next completion the current one: 0, or 2 (ENOENT) when there is none."""
        return self.start_poll()

    def end_poll(self) -> None:
        """Ends what ``start_poll`` began."""

    @property
    def status(self) -> int:
        """Status of the current completion."""
        return self._current.status

    @property
    def wr_id(self) -> int:
        """Its request."""
        return self._current.wr_id

    def __getattr__(self, name: str) -> Any:
        """``read_opcode``, ``read_byte_len`` and the like read a field of the completion."""
        field = name.removeprefix("read_")
        if field == name or field.startswith("_") or not hasattr(self._current, field):
            raise AttributeError(name)
        return lambda: getattr(self._current, field)


def cqe_status_to_str(status: int) -> str:
    """SUCCESS and the like."""
    return name_of("ibv_wc_status", "IBV_WC_", status)


def cqe_opcode_to_str(opcode: int) -> str:
    """SEND and the like."""
    return name_of("ibv_wc_opcode", "IBV_WC_", opcode)


def cqe_flags_to_str(flags: int) -> str:
    """The names of flags of completions."""
    return names_of("ibv_wc_flags", "IBV_WC_", flags)


def create_wc_flags_to_str(flags: int) -> str:
    """The names of what an extended queue tells."""
    return names_of("ibv_create_cq_wc_flags", "IBV_WC_EX_WITH_", flags)
