"""Work requests and completions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import (
    Access,
    FlushLevel,
    FlushType,
    SendFlags,
    WcFlags,
    WcOpcode,
    WcStatus,
    WrOpcode,
)
from hdl.abi.mkeys import LayoutFlags
from sim.guest.driver.errors import DeviceError
from sim.guest.verbs.address import AH

_POST_SEND = abi.POST_SEND.codec()
_POST_RECV = abi.POST_RECV.codec()
_SGE = abi.SGE.codec()
_CQE = abi.CQE.codec()
_RDMA = abi.WR_RDMA.codec()
_ATOMIC = abi.WR_ATOMIC.codec()
_REG = abi.WR_REG.codec()
_BIND = abi.WR_BIND.codec()
_FLUSH = abi.WR_FLUSH.codec()
_ATOMIC_WRITE = abi.WR_ATOMIC_WRITE.codec()
_MKEY = abi.WR_MKEY.codec()
_XRC = abi.WR_XRC.codec()
_DC = abi.WR_DC.codec()

_ATOMICS = (WrOpcode.ATOMIC_CMP_AND_SWP, WrOpcode.ATOMIC_FETCH_AND_ADD)
#: Requests that give an indirect key a layout.
LAYOUTS = (WrOpcode.MKEY_LIST, WrOpcode.MKEY_INTERLEAVED)
#: Requests that name an address of the peer, atomics aside.
_ADDRESSED = (
    WrOpcode.RDMA_WRITE,
    WrOpcode.RDMA_WRITE_WITH_IMM,
    WrOpcode.RDMA_READ,
    WrOpcode.RDMA_READ_WITH_INV,
)
_NO_FLAGS = WcFlags(0)
#: The flags of libibverbs end here; a device may set no others.
_KNOWN_WC_FLAGS = sum(flag.value for flag in WcFlags)


@dataclass
class SGE:
    """``length`` bytes at ``addr`` in the region with ``lkey``."""

    addr: int
    length: int
    lkey: int


def pack_sges(sges: Sequence[SGE]) -> bytes:
    """The list of SGEs of a work request."""
    return b"".join(_SGE.pack(sge.addr, sge.length, sge.lkey) for sge in sges)


@dataclass
class SendWR:
    """A send work request.

    ``imm_data`` is the number a packet dissector shows: it travels in network order (E-8).
    ``inline_data``: payload of a request with INLINE; without it the SGEs are read at posting.
    ``sg`` of a layout are its slots of 16 bytes.
    """

    wr_id: int = 0
    opcode: WrOpcode | int = WrOpcode.SEND
    sg: Sequence[SGE] = ()
    send_flags: SendFlags = SendFlags.SIGNALED
    imm_data: int = 0
    invalidate_rkey: int | None = None
    inline_data: bytes | None = None
    #: The ``wr`` union as bytes; the ``set_wr_*`` methods fill it.
    wr: bytes = field(default=b"", repr=False)

    def set_wr_rdma(self, rkey: int, addr: int) -> None:
        """Remote region and address of a READ or WRITE."""
        self.wr = _RDMA.pack(addr, rkey)

    def set_wr_atomic(self, rkey: int, addr: int, compare_add: int, swap: int = 0) -> None:
        """Remote region, address and operands of an atomic."""
        self.wr = _ATOMIC.pack(addr, compare_add, swap, rkey)

    def set_wr_flush(
        self,
        rkey: int,
        addr: int,
        length: int,
        flush_type: FlushType | int = FlushType.GLOBAL,
        level: FlushLevel | int = FlushLevel.RANGE,
    ) -> None:
        """Remote region and range of a FLUSH, and what it brings about."""
        self.wr = _FLUSH.pack(addr, rkey, length, int(flush_type), int(level))

    def set_wr_atomic_write(self, rkey: int, addr: int, octets: bytes) -> None:
        """Remote region and address of an ATOMIC WRITE, and the 8 bytes that it writes."""
        self.wr = _ATOMIC_WRITE.pack(addr, rkey, octets)

    def set_wr_memcpy(self, to: SGE, source: SGE) -> None:
        """Where a MEMCPY copies to, and from; both have the same length."""
        self.sg = [to, source]

    def set_wr_mkey(
        self,
        mrn: int,
        key: int,
        access: Access | int,
        repeat: int,
        entries: int,
        flags: LayoutFlags | int,
    ) -> None:
        """Indirect key that gets a layout, its access, and how many entries ``sg`` holds."""
        self.wr = _MKEY.pack(mrn, key, int(access), repeat, entries, int(flags))

    def set_remote(self, rkey: int, addr: int, compare_add: int = 0, swap: int = 0) -> None:
        """Remote region and address as the opcode has them, and the operands of an atomic; a
        request that names no address of the peer gets none."""
        if self.opcode in _ATOMICS:
            self.set_wr_atomic(rkey, addr, compare_add, swap)
        elif self.opcode in _ADDRESSED:
            self.set_wr_rdma(rkey, addr)

    def set_wr_reg(self, mrn: int, key: int, access: Access | int) -> None:
        """Region of CREATE_MR, and the key and the access that it gets."""
        self.wr = _REG.pack(mrn, key, int(access))

    def set_wr_bind(
        self, lkey: int, addr: int, length: int, access: Access | int, rkey: int
    ) -> None:
        """Part of a region that a window is bound to, and the access and the key that it gets."""
        self.wr = _BIND.pack(addr, int(access), lkey, length, rkey)

    def set_wr_ud(self, ah: AH, rqpn: int, rqkey: int) -> None:
        """Destination of a datagram."""
        self.wr = abi.WR_UD.pack(remote_qpn=rqpn, remote_qkey=rqkey, av=ah.to_av())

    def set_wr_xrc_srqn(self, srq_num: int) -> None:
        """The receive queue that a request of an XRC initiator names; after the other setters, as
        it stands beside what they have set."""
        self.wr = _XRC.pack(self.wr, srq_num)

    def set_wr_dc(self, destination: int, stream: int = 0) -> None:
        """Where a request of an initiator of DC goes, and its stream; after the other setters,
        likewise."""
        self.wr = _DC.pack(self.wr, destination, stream)

    def pack(self, inline: bytes | None) -> bytes:
        """The send queue element; ``inline`` is the payload of a request with INLINE."""
        if self.invalidate_rkey is None:
            ex = self.imm_data.to_bytes(4, "big")
        else:
            ex = self.invalidate_rkey.to_bytes(4, "little")
        count = len(self.sg) if inline is None and self.opcode not in LAYOUTS else 0
        fixed = _POST_SEND.pack(
            count, int(self.send_flags), int(self.opcode), self.wr_id, ex, self.wr
        )
        return fixed + (pack_sges(self.sg) if inline is None else inline)


@dataclass
class RecvWR:
    """A receive work request."""

    wr_id: int = 0
    sg: Sequence[SGE] = ()

    def pack(self) -> bytes:
        """The receive queue element."""
        return _POST_RECV.pack(len(self.sg), self.wr_id) + pack_sges(self.sg)


@dataclass(frozen=True)
class WC:
    """A completion. Unless ``status`` is SUCCESS only wr_id, vendor_err and qp_num count, and
    MP_WR_CONSUMED of its flags.

    ``imm_data`` is a number in network order and holds the invalidated key with WITH_INV.
    """

    wr_id: int
    status: WcStatus
    opcode: WcOpcode | int
    vendor_err: int = 0
    byte_len: int = 0
    imm_data: int = 0
    qp_num: int = 0
    src_qp: int = 0
    wc_flags: WcFlags = _NO_FLAGS
    pkey_index: int = 0
    sl: int = 0
    port_num: int = 0

    @property
    def mp_wr_offset(self) -> int:
        """Where in its request the packet lies, if that takes several."""
        return self.vendor_err if self.status == WcStatus.SUCCESS else 0

    @property
    def invalidated_rkey(self) -> int:
        """The key that a SEND_WITH_INV of the peer has invalidated."""
        return int.from_bytes(self.imm_data.to_bytes(4, "big"), "little")

    @classmethod
    def unpack(cls, data: bytes) -> WC:
        """The completion in a completion queue element; DeviceError for impossible values."""
        wr_id, status, opcode, vendor, size, ex, qpn, src, flags, pkey, sl, port = _CQE.unpack(data)
        try:
            status = WcStatus(status)
            if status == WcStatus.SUCCESS:
                opcode = WcOpcode(opcode)
                if flags & ~_KNOWN_WC_FLAGS:
                    raise ValueError(f"wc_flags {flags:#x}")
        except ValueError as error:
            raise DeviceError(f"Impossible completion {data.hex()}: {error}") from None
        return cls(
            wr_id,
            status,
            opcode,
            vendor,
            size,
            int.from_bytes(ex, "big"),
            qpn,
            src,
            WcFlags(flags & _KNOWN_WC_FLAGS),
            pkey,
            sl,
            port,
        )
