"""What the intake wants to know of a packet: whether it is its QP's, and whether it may wait."""

from amaranth.hdl import Module, Mux, Signal, Value
from amaranth.lib import data

from hdl.abi.enums import QpType
from hdl.common.sums import wide_difference
from hdl.config import NicConfig
from hdl.ports.numbers import number_in
from hdl.ports.operations import is_datagram, packet_serves, unanswered
from hdl.ports.rows import QpState
from hdl.ports.shared import takes_nothing
from hdl.wire.constants import MAPPED_BITS

from ..recovery.segment import PSN_BLOCK
from .types import Events, ResponderWork, is_plain_ack

__all__ = ["drop_cause", "stopped_sides", "supersedes"]


def drop_cause(m: Module, config: NicConfig, work: ResponderWork, stopped: Value) -> data.View:
    """The first reason for which the packet is not this QP's, or none (IBTA vol 1, 9.6.1 and
    9.8.3.1). ``stopped``: the QP's receive side is in error."""
    header, cfg = work.header, work.cfg
    datagram = is_datagram(config, cfg.type)  # from anybody who knows the Q_Key
    cause = Signal(Events, name="drop_now")
    ready_to_send = (
        (cfg.state == QpState.RTS) | (cfg.state == QpState.SQD) | (cfg.state == QpState.SQE)
    )
    ready = ready_to_send | ((cfg.state == QpState.RTR) & ~work.operation.response)
    # Two limited members do not talk. QP1 is a member of all of the function's partitions.
    own = (
        (header.pkey[:15] == cfg.pkey[:15])
        & header.pkey[:15].any()
        & (header.pkey[15] | cfg.pkey[15])
    )
    general = (cfg.type == QpType.GSI) if config.ud else 0
    same = 0 if config.ipv6 else MAPPED_BITS  # bits that all IPv4 addresses have alike in a GID
    with m.If((cfg.qpn != header.dest_qp) | (number_in(config, "qps", work.qp) == 0)):
        m.d.comb += cause.unknown_qp.eq(1)
    with m.Elif(cfg.function != header.function):
        m.d.comb += cause.wrong_function.eq(1)
    with m.Elif(~packet_serves(config, work.operation, cfg.type, asks=takes_nothing(cfg))):
        m.d.comb += cause.wrong_transport.eq(1)
    with m.Elif(~ready | stopped):
        m.d.comb += cause.qp_state.eq(1)
    with m.Elif(
        ~datagram
        & ((header.src_gid[same:] != cfg.av.dgid[same:]) | (header.gid_index != cfg.av.sgid_index))
    ):
        m.d.comb += cause.address_mismatch.eq(1)
    with m.Elif(~Mux(general, header.pkey_hit, own)):
        m.d.comb += cause.bad_pkey.eq(1)
    with m.Elif(datagram & (header.qkey != cfg.qkey)):
        m.d.comb += cause.bad_qkey.eq(1)
    return cause


def stopped_sides(
    m: Module, config: NicConfig, work: ResponderWork, ack: data.View
) -> tuple[Signal, Signal]:
    """Which sides of the QP have stopped, send and receive. An error of the send side leads to
    ERR with a reliable QP, which stops both; to SQE with others, which receive on (IBTA vol 1,
    10.3.1). One of the receive side always leads to ERR."""
    send_stopped, receive_stopped = Signal(), Signal()
    stopped = (work.cfg.state == QpState.ERR) | work.rx.error
    m.d.comb += [
        send_stopped.eq(stopped | ack.error),
        receive_stopped.eq(stopped | (ack.error & ~unanswered(config, work.cfg.type))),
    ]
    return send_stopped, receive_stopped


def supersedes(
    m: Module, waiting, operation: data.View, work: ResponderWork, sent: data.View
) -> Value:
    """Whether the packet of the stream ``waiting`` says all that the one at hand does: a later ACK
    of the same QP from the same peer (IBTA vol 1, 9.7.5.1.2: an ACK covers all before it), for what
    has left the card by ``sent``."""
    then, header = waiting.payload, work.header
    ahead = wide_difference(m, then.psn, sent.psn, block=PSN_BLOCK)
    distance = wide_difference(m, then.psn, header.psn, block=PSN_BLOCK)
    names = ("dest_qp", "function", "src_gid", "gid_index", "pkey")
    same = Signal(data.StructLayout({name: 1 for name in names}), name="same_sender")
    m.d.comb += [same[name].eq(then[name] == header[name]) for name in names]
    return (
        waiting.valid
        & is_plain_ack(header, work.operation)
        & is_plain_ack(then, operation)
        & same.as_value().all()
        & ~distance[23]
        & ahead[23]
    )
