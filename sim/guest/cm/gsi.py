"""QP1: carries MADs between the connection managers of two ports.

Spec: IBTA vol 1, 13.5.1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hdl.abi import grh
from hdl.abi.enums import QpAttrMask, QpState, QpType, WcStatus
from hdl.abi.mad import MAD_SIZE
from hdl.abi.virtio_rdma import GRH_SIZE, GSI_QKEY
from sim.guest.cm.timing import Peer
from sim.guest.driver.errors import RdmaError
from sim.guest.verbs import (
    AH,
    CQ,
    MR,
    PD,
    QP,
    AHAttr,
    Context,
    GlobalRoute,
    QPAttr,
    QPCap,
    QPInitAttr,
    RecvWR,
    SendWR,
)

__all__ = ["GsiQP"]

#: Number of the general services QP of every port.
GSI_QPN = 1
#: Bytes of the region for one MAD; a longer datagram finds no room and is dropped by the card.
_SLOT = GRH_SIZE + MAD_SIZE


class GsiQP:
    """QP1 with buffers for ``depth`` MADs each way.

    ``neighbour(gid)`` is the MAC address of a peer, None if it is not known: what a kernel has from
    ARP. ``counters``: ``unreachable`` (no such neighbour), ``full`` (no buffer to send from),
    ``send_error``; each of these MADs is lost, as on the wire. ``stray``: came to no own GID.
    """

    def __init__(self, neighbour: Callable[[bytes], bytes | None], depth: int):
        self.neighbour, self.depth = neighbour, depth
        self.counters: Counter[str] = Counter()
        self.pd: PD
        self.cq: CQ
        self.mr: MR
        self.qp: QP
        #: Numbers of the buffers to send from; those to receive into are below ``depth``.
        self._free = list(range(depth, 2 * depth))

    @classmethod
    async def create(
        cls, ctx: Context, neighbour: Callable[[bytes], bytes | None], depth: int = 16
    ) -> GsiQP:
        """Creates QP1 in RTS with its receives posted; RdmaError when the device refuses it."""
        self = cls(neighbour, depth)
        self.pd = await ctx.alloc_pd()
        self.cq = await CQ.create(ctx, 2 * depth)
        self.mr = await MR.create(self.pd, 2 * depth * _SLOT)
        cap = QPCap(max_send_wr=depth, max_recv_wr=depth)
        init = QPInitAttr(QpType.GSI, self.cq, self.cq, cap)
        self.qp = await QP.create(self.pd, init, QPAttr(qkey=GSI_QKEY))
        await self.qp.post_recv([self._receive_wr(slot) for slot in range(depth)])
        return self

    async def close(self) -> None:
        """Destroys QP1 and what it used."""
        for one in (self.qp, self.mr, self.cq, self.pd):
            await one.close()

    def _receive_wr(self, slot: int) -> RecvWR:
        return RecvWR(slot, [self.mr.sge(slot * _SLOT, _SLOT)])

    async def send(self, data: bytes, peer: Peer) -> None:
        """Sends a MAD to QP1 of ``peer``; one that cannot be sent is counted and lost."""
        mac = self.neighbour(peer.gid)
        if mac is None:
            self.counters["unreachable"] += 1
            return
        if not self._free:
            self.counters["full"] += 1
            return
        slot = self._free.pop()
        self.mr.write(data, slot * _SLOT)
        route = GlobalRoute(dgid=peer.gid, sgid_index=peer.sgid_index)
        request = SendWR(slot, sg=[self.mr.sge(slot * _SLOT, len(data))])
        request.set_wr_ud(AH(self.pd, AHAttr(gr=route, roce_dmac=mac)), GSI_QPN, GSI_QKEY)
        await self.qp.post_send(request)

    async def poll(self) -> list[tuple[bytes, Peer]]:
        """The MADs that have come since the last call, and from whom; never waits for one.

        A send that failed has stopped the send queue, which goes on here.
        """
        found, posted, stopped = [], [], False
        for wc in await self.cq.poll(2 * self.depth):
            if wc.wr_id >= self.depth:
                self._free.append(wc.wr_id)
                if wc.status != WcStatus.SUCCESS:
                    self.counters["send_error"] += 1
                    stopped = True
                continue
            if wc.status == WcStatus.SUCCESS:
                area = self.mr.read(wc.byte_len, wc.wr_id * _SLOT).tobytes()
                found += self._arrived(area)
            posted.append(self._receive_wr(wc.wr_id))
        if posted:
            await self.qp.post_recv(posted)
        if stopped and (await self.qp.query()).qp_state == QpState.SQE:
            attr = QPAttr(qp_state=QpState.RTS, cur_qp_state=QpState.SQE)
            await self.qp.modify(attr, QpAttrMask.STATE | QpAttrMask.CUR_STATE)
        return found

    def _arrived(self, area: bytes) -> list[tuple[bytes, Peer]]:
        """The MAD in a receive buffer; none if it came to no address of this port."""
        try:
            source, destination = grh.ends(area[:GRH_SIZE])
            peer = Peer(source, self.pd.ctx.gid_index(1, destination))
        except (ValueError, RdmaError):
            self.counters["stray"] += 1
            return []
        return [(area[GRH_SIZE:], peer)]
