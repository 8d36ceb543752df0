"""Attributes of queue pairs, as plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from hdl.abi.dc import DcFlags
from hdl.abi.enums import Access, MigState, Mtu, QpState, QpType
from hdl.abi.layout import Values
from sim.guest.verbs.address import AHAttr
from sim.guest.verbs.cq import CQ
from sim.guest.verbs.mp_wr import MpWr
from sim.guest.verbs.srq import SRQ, XRCD


@dataclass
class QPCap:
    """Capacities of a queue pair: requests, SGEs in one, inline bytes in one."""

    max_send_wr: int = 1
    max_recv_wr: int = 10
    max_send_sge: int = 1
    max_recv_sge: int = 1
    max_inline_data: int = 0


@dataclass(frozen=True)
class DcStreams:
    """Streams of an initiator of DC, and how many of them may fail before it does, as log2."""

    log_streams: int = 0
    log_errored: int = 0

    def fields(self) -> dict[str, int]:
        """Those of CREATE_QP."""
        sizes = {"log_streams": self.log_streams, "log_errored": self.log_errored}
        return {**sizes, "create_flags": int(DcFlags.STREAMS)}


@dataclass
class QPInitAttr:
    """What a queue pair is created with. ``sq_sig_all``: every send request completes. ``srq``:
    takes the place of its receive queue, whose capacities then mean nothing. ``room``: requests
    that its virtqueues have room for, if these are more than the capacities. ``xrcd``: the domain
    of an XRC target, which has nothing else of these; an XRC initiator has no ``rcq``, nor has one
    of DC. A target of DC has ``dc_key``, an ``srq`` and no ``scq``, and an initiator may have
    ``streams``. ``mp_wr``: each of its receive requests takes several packets."""

    qp_type: QpType = QpType.RC
    scq: CQ | None = None
    rcq: CQ | None = None
    cap: QPCap = field(default_factory=QPCap)
    sq_sig_all: int = 1
    srq: SRQ | None = None
    room: int = 0
    xrcd: XRCD | None = None
    dc_key: int = 0
    streams: DcStreams | None = None
    mp_wr: MpWr | None = None


@dataclass
class QPAttr:
    """Attributes that modify and query handle; the defaults suit a short, lossless path.

    Units and codes are the ABI's: ``path_mtu`` an Mtu code, ``timeout`` an exponent.
    """

    qp_state: QpState = QpState.RESET
    cur_qp_state: QpState = QpState.RESET
    path_mtu: Mtu = Mtu.MTU_1024
    path_mig_state: MigState = MigState.MIGRATED
    qkey: int = 0
    rq_psn: int = 0
    sq_psn: int = 0
    dest_qp_num: int = 0
    qp_access_flags: Access = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.REMOTE_READ
    pkey_index: int = 0
    alt_pkey_index: int = 0
    en_sqd_async_notify: int = 0
    sq_draining: int = 0
    max_rd_atomic: int = 1
    max_dest_rd_atomic: int = 1
    min_rnr_timer: int = 12
    port_num: int = 1
    timeout: int = 14
    retry_cnt: int = 7
    rnr_retry: int = 7
    alt_port_num: int = 0
    alt_timeout: int = 0
    rate_limit: int = 0
    cap: QPCap = field(default_factory=QPCap)
    ah_attr: AHAttr = field(default_factory=AHAttr)
    alt_ah_attr: AHAttr = field(default_factory=AHAttr)

    def to_abi(self) -> dict[str, Any]:
        """The fields of ``virtio_rdma_qp_attr``."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["cap"] = asdict(self.cap)
        values["ah_attr"] = self.ah_attr.to_abi()
        values["alt_ah_attr"] = self.alt_ah_attr.to_abi()
        return values

    @classmethod
    def from_abi(cls, values: Values) -> QPAttr:
        """The attributes in an unpacked ``virtio_rdma_qp_attr``; ValueError for a bad code."""
        plain: dict[str, Any] = dict(values)
        plain["qp_state"] = QpState(values.qp_state)
        plain["cur_qp_state"] = QpState(values.cur_qp_state)
        plain["path_mig_state"] = MigState(values.path_mig_state)
        plain["path_mtu"] = Mtu(values.path_mtu) if values.path_mtu else 0
        plain["qp_access_flags"] = Access(values.qp_access_flags)
        plain["cap"] = QPCap(**values.cap)
        plain["ah_attr"] = AHAttr.from_abi(values.ah_attr)
        plain["alt_ah_attr"] = AHAttr.from_abi(values.alt_ah_attr)
        return cls(**plain)
