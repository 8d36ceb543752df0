"""A virtio-rdma device in plain Python: control commands in memory, QPs that talk to each other.

Requests reach the QP whose number is the sender's destination; nothing is ever lost. Only what
tests of the driver and the verbs need; the rules of the specification are the firmware's business.
"""

from dataclasses import dataclass, field

from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import (
    Access,
    ControlCommand,
    ExtensionCommand,
    QpAttrMask,
    QpState,
    RdmaFeature,
    Response,
    SendFlags,
    SrqAttrMask,
    WcFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from tests.sim.fake_pci import FakePci, FakePlatform

MAX_CQ, MAX_QP = 6, 8
CONFIG = dict(
    phys_port_cnt=1,
    sys_image_guid=b"\x02\0\0\xff\xfe\0\0\1",
    max_mr_size=1 << 32,
    page_size_cap=4096,
    max_qp=MAX_QP,
    max_qp_wr=256,
    max_send_sge=32,
    max_recv_sge=32,
    max_sge_rd=32,
    max_cq=MAX_CQ,
    max_cqe=1024,
    max_mr=64,
    max_pd=16,
    max_pkeys=1,
    max_srq=2,
    max_srq_wr=256,
    max_srq_sge=32,
)

_WC = {
    WrOpcode.SEND: WcOpcode.SEND,
    WrOpcode.SEND_WITH_IMM: WcOpcode.SEND,
    WrOpcode.RDMA_WRITE: WcOpcode.RDMA_WRITE,
    WrOpcode.RDMA_WRITE_WITH_IMM: WcOpcode.RDMA_WRITE,
    WrOpcode.RDMA_READ: WcOpcode.RDMA_READ,
    WrOpcode.ATOMIC_FETCH_AND_ADD: WcOpcode.FETCH_ADD,
}


class Refused(Exception):
    """A control command that cannot be served."""


class BadAccess(Exception):
    """A key, range or permission that does not fit."""


@dataclass
class Region:
    pdn: int
    access: int
    va: int
    length: int
    pages: list
    offset: int


@dataclass
class Pair:
    qpn: int
    index: int
    init: dict
    attr: dict = field(default_factory=dict)
    sends: list = field(default_factory=list)

    @property
    def state(self):
        return self.attr.get("qp_state", QpState.RESET)


class FakeRdma(FakePci):
    """The device. ``answer`` can be replaced to answer control requests differently."""

    def __init__(self, platform=None, **options):
        config = abi.CONFIG.pack(CONFIG)
        queues = options.pop("queues", abi.queue_count(MAX_CQ, MAX_QP))
        self.late_used = False
        self.counters, self.qp_counters = [], {}
        super().__init__(platform or FakePlatform(), queues=queues, config=config, **options)

    def reset(self):
        super().reset()
        self.pds, self.cqs, self.mrs, self.qps, self.gids = set(), {}, {}, {}, {}
        self.srqs = {}
        self.generation = 0
        self.later = []
        self.requests = []

    def counter_word(self, addr):
        """Only if ``counters``, a list of words, has been set; ``qp_counters``: by QP number."""
        if not self.counters:
            return super().counter_word(addr)
        if addr >= abi.QP_COUNTER_OFFSET:
            window = [self.counted_qpn, *self.qp_counters.get(self.counted_qpn, [])]
            return window[(addr - abi.QP_COUNTER_OFFSET) // 4]
        counted = max(map(len, self.qp_counters.values()), default=0)
        header = [abi.COUNTER_MAGIC, abi.COUNTER_VERSION, len(self.counters), counted]
        return (header + self.counters)[(addr - abi.COUNTER_OFFSET) // 4]

    def step(self):
        super().step()
        later, self.later = self.later, []
        for action in later:
            action()
        for pair in list(self.qps.values()):
            self.run(pair)

    def serve(self, index):
        if index == abi.CONTROL_QUEUE:
            while (chain := self.take(index)) is not None:
                answer = self.answer(self.gather(chain), sum(size for _, size in chain.writable))
                written = self.scatter(chain, answer)
                if self.give_back(index, chain.head, written):
                    self.interrupt(self.queues[index].values["queue_msix_vector"])
            return
        for pair in list(self.qps.values()):
            if index in (self.sq(pair), self.rq(pair)):
                while (chain := self.take(self.sq(pair))) is not None:
                    pair.sends.append(chain)
                for other in list(self.qps.values()):
                    self.run(other)

    def _doorbell(self, index, size, value):
        cqn = index - abi.cq_queue(0)
        if not self.has(RdmaFeature.ARM_CQ) or cqn not in range(MAX_CQ):
            super()._doorbell(index, size, value)
            return
        queue = self.queues[index]
        queue.doorbells.append(value)
        if size == 2:  # buffers
            assert value == index
            return
        bell = abi.CQ_DOORBELL.unpack(value.to_bytes(size, "little"))
        assert bell.queue == index
        known = (1 << abi.ARM_SEEN_BITS) - 1
        if (queue.used ^ bell.seen) & known:
            self.interrupt(queue.values["queue_msix_vector"])
        else:
            self.cqs[cqn]["armed"] |= 1 if bell.seen > known else 2

    def sq(self, pair):
        return abi.sq_queue(pair.index, MAX_CQ)

    def rq(self, pair):
        return abi.rq_queue(pair.init["srqn"] or pair.index, MAX_CQ)

    # Control commands ---------------------------------------------------------------------------

    def answer(self, request, room):
        self.requests.append(request)
        try:
            known = ControlCommand if request[0] < 32 else ExtensionCommand
            command = known(request[0])
            structs = abi.structures(command)
            if len(request) - 1 < structs[0].size or room - 1 < structs[1].size:
                raise Refused
            values = structs[0].unpack(request[1:])
            handler = getattr(self, command.name.lower(), None)
            if handler is None:  # of an extension that this device does not have
                raise Refused
            result = handler(values)
        except (IndexError, ValueError, KeyError, Refused):
            return bytes([Response.ERR])
        return bytes([Response.OK]) + structs[1].pack(result or {})

    def query_port(self, v):
        if v.port != 1:
            raise Refused
        return dict(state=4, max_mtu=5, active_mtu=5, gid_tbl_len=8, pkey_tbl_len=1, phys_state=5)

    def query_pkey(self, v):
        if v.index or v.port != 1:
            raise Refused
        return dict(pkey=0xFFFF)

    def add_gid(self, v):
        self.gids[v.index] = v.gid

    def del_gid(self, v):
        del self.gids[v.index]

    def _unused(self, taken, first, end):
        for number in range(first, end):
            if number not in taken:
                return number
        raise Refused

    def create_pd(self, v):
        pdn = self._unused(self.pds, 0, CONFIG["max_pd"])
        self.pds.add(pdn)
        return dict(pdn=pdn)

    def destroy_pd(self, v):
        users = [r.pdn for r in self.mrs.values()] + [p.init["pdn"] for p in self.qps.values()]
        if v.pdn in users:
            raise Refused
        self.pds.remove(v.pdn)

    def create_cq(self, v):
        if not 1 <= v.cqe <= CONFIG["max_cqe"]:
            raise Refused
        cqn = self._unused(self.cqs, 0, MAX_CQ)
        self.cqs[cqn] = {"armed": 0, "cqe": v.cqe}
        return dict(cqn=cqn)

    def destroy_cq(self, v):
        if any(v.cqn in (p.init["send_cqn"], p.init["recv_cqn"]) for p in self.qps.values()):
            raise Refused
        del self.cqs[v.cqn]
        self._drop(abi.cq_queue(v.cqn))

    def req_notify_cq(self, v):
        if not v.flags:
            raise Refused
        self.cqs[v.cqn]["armed"] = v.flags

    def reg_user_mr(self, v):
        offset = v.start % 4096
        remote = v.access_flags & (Access.REMOTE_WRITE | Access.REMOTE_ATOMIC)
        if v.pdn not in self.pds or not v.length or v.npages != -(-(offset + v.length) // 4096):
            raise Refused
        if remote and not v.access_flags & Access.LOCAL_WRITE:
            raise Refused
        table = self.load(v.pages, 8 * v.npages)
        pages = [int.from_bytes(table[i : i + 8], "little") for i in range(0, len(table), 8)]
        region = Region(v.pdn, v.access_flags, v.virt_addr, v.length, pages, offset)
        return self._add_region(region)

    def get_dma_mr(self, v):
        if v.pdn not in self.pds:
            raise Refused
        return self._add_region(Region(v.pdn, v.access_flags, 0, 1 << 64, [], 0))

    def _add_region(self, region):
        mrn = self._unused({key >> 8 for key in self.mrs}, 1, CONFIG["max_mr"])
        key = mrn << 8 | 0x5A
        self.mrs[key] = region
        return dict(mrn=mrn, lkey=key, rkey=key if region.access & 0xE else 0)

    def dereg_mr(self, v):
        del self.mrs[v.mrn << 8 | 0x5A]

    def create_qp(self, v):
        if v.pdn not in self.pds or not {v.send_cqn, v.recv_cqn} <= self.cqs.keys():
            raise Refused
        if v.max_send_wr > CONFIG["max_qp_wr"] or v.max_send_sge > CONFIG["max_send_sge"]:
            raise Refused
        if v.srqn and (v.srqn not in self.srqs or v.max_recv_wr):
            raise Refused
        taken = {p.index for p in self.qps.values()} | set(self.srqs)
        index = self._unused(taken, abi.FIRST_USER_QP_INDEX, MAX_QP)
        self.generation += 1
        qpn = self.generation << 8 | index
        self.qps[qpn] = Pair(qpn, index, dict(v))
        return dict(qpn=qpn)

    def modify_qp(self, v):
        pair = self.qps[v.qpn]
        if v.attr_mask & QpAttrMask.STATE:
            pair.attr["qp_state"] = QpState(v.attrs.qp_state)
        if v.attr_mask & QpAttrMask.DEST_QPN:
            pair.attr["dest_qp_num"] = v.attrs.dest_qp_num
        if pair.state == QpState.RESET:
            pair.sends.clear()
            self._drop_queues(pair)

    def query_qp(self, v):
        return dict(attr=self.qps[v.qpn].attr)

    def destroy_qp(self, v):
        self._drop_queues(self.qps.pop(v.qpn))

    def create_srq(self, v):
        if v.pdn not in self.pds or v.srq_limit or not 1 <= v.max_wr <= CONFIG["max_srq_wr"]:
            raise Refused
        taken = {p.index for p in self.qps.values()} | set(self.srqs)
        srqn = next(n for n in reversed(range(MAX_QP)) if n not in taken)
        self.srqs[srqn] = dict(v)
        return dict(srqn=srqn)

    def modify_srq(self, v):
        if v.srqn not in self.srqs or v.attr_mask & SrqAttrMask.MAX_WR or v.srq_limit:
            raise Refused

    def query_srq(self, v):
        return {name: self.srqs[v.srqn][name] for name in ("max_wr", "max_sge", "srq_limit")}

    def destroy_srq(self, v):
        if any(p.init["srqn"] == v.srqn for p in self.qps.values()):
            raise Refused
        del self.srqs[v.srqn]
        self._drop(abi.rq_queue(v.srqn, MAX_CQ))

    def _drop_queues(self, pair):
        self._drop(self.sq(pair))
        if not pair.init["srqn"]:
            self._drop(self.rq(pair))

    def _drop(self, index):
        """Forgets what a queue holds: it goes on at its used index (E-18)."""
        self.queues[index].seen = self.queues[index].used

    # Data ---------------------------------------------------------------------------------------

    def run(self, pair):
        """Executes the send requests of a QP until one has to wait for a receive."""
        while pair.sends and pair.state in (QpState.RTS, QpState.ERR):
            chain = pair.sends[0]
            data = self.gather(chain)
            wqe, tail = abi.POST_SEND.unpack(data), data[abi.POST_SEND.size :]
            status = WcStatus.WR_FLUSH_ERR
            if pair.state == QpState.RTS:
                try:
                    status = self.execute(pair, wqe, tail)
                except BadAccess:
                    status = WcStatus.LOC_PROT_ERR
            if status is None:
                return
            pair.sends.pop(0)
            self._finish(self.sq(pair), chain.head)
            if status or not pair.init["sq_sig_type"] or wqe.send_flags & SendFlags.SIGNALED:
                opcode = _WC.get(wqe.opcode, 0)
                self.complete(pair, "send_cqn", wqe.wr_id, status, opcode=opcode)
            if status:
                pair.attr["qp_state"] = QpState.ERR
        if pair.state == QpState.ERR and not pair.init["srqn"]:
            while (chain := self.take(self.rq(pair))) is not None:
                wr_id = abi.POST_RECV.unpack(self.gather(chain)).wr_id
                self._finish(self.rq(pair), chain.head)
                self.complete(pair, "recv_cqn", wr_id, WcStatus.WR_FLUSH_ERR)

    def _finish(self, index, head):
        if self.late_used:
            self.later.append(lambda: self.give_back(index, head, 0))
        else:
            self.give_back(index, head, 0)

    def execute(self, pair, wqe, tail):
        """The status of a request, None when the peer has no receive posted."""
        if wqe.opcode not in _WC:
            return WcStatus.LOC_QP_OP_ERR
        peer = self.qps.get(pair.attr["dest_qp_num"])
        if peer is None or peer.state not in (QpState.RTR, QpState.RTS):
            return WcStatus.RETRY_EXC_ERR
        pdn = pair.init["pdn"]
        sges = [abi.SGE.unpack(tail[i : i + 16]) for i in range(0, 16 * wqe.num_sge, 16)]
        remote = wqe.wr.rdma
        if wqe.opcode == WrOpcode.RDMA_READ:
            size = sum(sge.length for sge in sges)
            data = self._remote(peer, remote.rkey, remote.remote_addr, size, Access.REMOTE_READ)
            if data is None:
                return WcStatus.REM_ACCESS_ERR
            self.spread(pdn, sges, self.fetch(data))
            return WcStatus.SUCCESS
        if wqe.opcode == WrOpcode.ATOMIC_FETCH_AND_ADD:
            where = wqe.wr.atomic
            place = self._remote(peer, where.rkey, where.remote_addr, 8, Access.REMOTE_ATOMIC)
            if place is None:
                return WcStatus.REM_ACCESS_ERR
            old = int.from_bytes(self.fetch(place), "little")
            self.put(place, (old + where.compare_add & (1 << 64) - 1).to_bytes(8, "little"))
            self.spread(pdn, sges, old.to_bytes(8, "little"))
            return WcStatus.SUCCESS
        inline = wqe.send_flags & SendFlags.INLINE
        payload = (
            tail
            if inline
            else b"".join(
                self.fetch(self.resolve(pdn, sge.lkey, sge.addr, sge.length, 0)) for sge in sges
            )
        )
        write = wqe.opcode in (WrOpcode.RDMA_WRITE, WrOpcode.RDMA_WRITE_WITH_IMM)
        place = None
        if write:
            where = (remote.rkey, remote.remote_addr, len(payload))
            place = self._remote(peer, *where, Access.REMOTE_WRITE)
            if place is None:
                return WcStatus.REM_ACCESS_ERR
        placed = None if write else payload
        consumes = wqe.opcode != WrOpcode.RDMA_WRITE
        if consumes and not self._receive(pair, peer, wqe, placed, len(payload)):
            return None
        if write:
            self.put(place, payload)
        return WcStatus.SUCCESS

    def _receive(self, pair, peer, wqe, payload, size):
        chain = self.take(self.rq(peer))
        if chain is None:
            return False
        data = self.gather(chain)
        element, tail = abi.POST_RECV.unpack(data), data[abi.POST_RECV.size :]
        if payload is not None:
            sges = [abi.SGE.unpack(tail[i : i + 16]) for i in range(0, 16 * element.num_sge, 16)]
            self.spread(peer.init["pdn"], sges, payload)
        imm = wqe.opcode in (WrOpcode.SEND_WITH_IMM, WrOpcode.RDMA_WRITE_WITH_IMM)
        self._finish(self.rq(peer), chain.head)
        self.complete(
            peer,
            "recv_cqn",
            element.wr_id,
            0,
            opcode=WcOpcode.RECV if payload is not None else WcOpcode.RECV_RDMA_WITH_IMM,
            byte_len=size,
            ex={"imm_data": wqe.ex.imm_data} if imm else {},
            wc_flags=WcFlags.WITH_IMM if imm else 0,
            src_qp=pair.qpn,
            solicited=wqe.send_flags & SendFlags.SOLICITED,
        )
        return True

    def complete(self, pair, which, wr_id, status, solicited=0, **fields):
        cqn = pair.init[which]
        index = abi.cq_queue(cqn)
        chain = self.take(index)
        assert chain is not None, f"CQ {cqn} overflows"
        cqe = abi.CQE.pack(wr_id=wr_id, status=status, qp_num=pair.qpn, **fields)
        self.give_back(index, chain.head, self.scatter(chain, cqe))
        cq = self.cqs[cqn]
        if cq["armed"] & 2 or (cq["armed"] & 1 and (solicited or status)):
            cq["armed"] = 0
            self.interrupt(self.queues[index].values["queue_msix_vector"])

    def resolve(self, pdn, key, addr, size, needed):
        """The physical pieces of a range; BadAccess."""
        region = self.mrs.get(key)
        if region is None or region.pdn != pdn or region.access & needed != needed:
            raise BadAccess
        start = addr - region.va
        if start < 0 or start + size > region.length:
            raise BadAccess
        if not region.pages:
            return [(addr, size)]
        pieces, at = [], start + region.offset
        while size:
            page, skip = divmod(at, 4096)
            part = min(size, 4096 - skip)
            pieces.append((region.pages[page] + skip, part))
            at, size = at + part, size - part
        return pieces

    def _remote(self, peer, key, addr, size, needed):
        try:
            return self.resolve(peer.init["pdn"], key, addr, size, needed)
        except BadAccess:
            return None

    def fetch(self, pieces):
        return b"".join(self.load(addr, size) for addr, size in pieces)

    def put(self, pieces, data):
        for addr, size in pieces:
            self.store(addr, data[:size])
            data = data[size:]

    def spread(self, pdn, sges, data):
        pieces = []
        for sge in sges:
            pieces += self.resolve(pdn, sge.lkey, sge.addr, sge.length, Access.LOCAL_WRITE)
        assert len(data) <= sum(size for _, size in pieces)
        self.put(pieces, data)
