"""What the responder wants to know of a request packet: combinational, for one register stage."""

from amaranth.hdl import C, Cat, Const, Module, Mux, Signal, Value
from amaranth.lib import data

from hdl.common.count import raised
from hdl.common.sums import is_sum, reaches, unequal, wide_difference, wide_sum
from hdl.config import NicConfig
from hdl.ports.operations import (
    is_atomic_write,
    is_datagram,
    is_flush,
    names_source,
    unanswered,
)
from hdl.ports.rows import RxMessage
from hdl.ports.shared import wire_flush
from hdl.wire.opcodes import ATOMIC_BYTES, Kind

from ..recovery.segment import fit, mtu_bytes, packet_count
from .types import ResponderWork

__all__ = ["RequestFacts", "holds_result", "request_facts", "request_length"]

#: RETH length above this is an invalid request.
LARGEST_MESSAGE = 1 << 31


class RequestFacts(data.Struct):
    """Facts of a request packet, given the rows of its QP."""

    behind: 1  # PSN before the expected one
    ahead: 1  # or, without answers, in no message that goes on
    invalid: 1  # to be answered 61h
    datagram: 1
    silent: 1  # its service has no answers: what is wrong is dropped
    skips: 1  # it begins a message behind packets that are missing, and stay so
    lost: 1  # it names no receive queue of its QP: to be answered 62h
    exceeds: 1  # so is this in the middle of a WRITE: it reaches the end that its RETH gave
    read_full: 1  # no resource is free for a READ
    places: 1  # FLUSH or ATOMIC WRITE: its answer has no data
    crowded: 1  # so is this, and its QP answers as many READs as it may
    packets: 24  # PSNs it takes
    single: 1  # its answer is one packet
    msn: 24  # of the message behind
    resource: 16  # of a READ or an atomic: the next one
    wraps: 1  # the one behind it is the first one again
    after: 33  # bytes of the message up to and with this packet
    va: 64  # where its payload, or its response, begins
    key: 32
    allow: 32  # bytes from there that the key must allow


def request_length(config: NicConfig, work: ResponderWork) -> Value:
    """Bytes of the answer to a request of data: those of its RETH, or the word of an atomic. The
    answer to FLUSH and ATOMIC WRITE has none."""
    length = Mux(work.operation.kind == Kind.ATOMIC, ATOMIC_BYTES, work.header.dma_length)
    return Mux(_places(config, work.operation), 0, length) if config.placement else length


def holds_result(config: NicConfig, operation) -> Value:
    """Whether the answer to a request waits for the ``AtomicUnit``: an atomic, FLUSH."""
    return (operation.kind == Kind.ATOMIC) | is_flush(config, operation)


def _places(config: NicConfig, operation) -> Value:
    return is_flush(config, operation) | is_atomic_write(config, operation)


def request_facts(m: Module, config: NicConfig, work: ResponderWork) -> Signal:
    """Facts of ``work`` as a combinational signal; the rules are those of IBTA vol 1, 9.7.4.1, and
    9.8.2.2 for services without answers."""
    header, cfg, rx, reply = work.header, work.cfg, work.rx, work.reply
    operation = work.operation
    send, write = operation.kind == Kind.SEND, operation.kind == Kind.WRITE
    atomic = operation.kind == Kind.ATOMIC
    flush, atomic_write = is_flush(config, operation), is_atomic_write(config, operation)
    wanted = Mux(atomic, ATOMIC_BYTES, header.dma_length)
    first, last = operation.first, operation.last
    facts = Signal(RequestFacts, name="facts_now")
    distance = Signal(24, name="psn_distance")
    unexpected = unequal(header.psn, rx.psn).any()  # beside the difference
    placed = wide_sum(m, rx.va, rx.offset, block=11)[: len(rx.va)]
    remaining = wide_difference(m, rx.dma_length, rx.offset)[: len(rx.offset)]
    mtu = mtu_bytes(m, cfg.path_mtu)
    silent, datagram = unanswered(config, cfg.type), is_datagram(config, cfg.type)
    after = Signal(33, name="after_now")
    m.d.comb += [
        distance.eq(header.psn - rx.psn),
        # The choice behind the sum: it fits the table that chooses a block by its carry.
        after.eq(Mux(first, header.length, wide_sum(m, rx.offset, header.length))),
    ]

    # Opcode order: in mid-message only the same kind goes on, otherwise only a beginning may come.
    # Without answers a beginning is always good, whatever the message was before it.
    order = Signal(name="order_error")
    with m.Switch(rx.message):
        with m.Case(RxMessage.SEND):
            m.d.comb += order.eq(~send | first)
        with m.Case(RxMessage.WRITE):
            m.d.comb += order.eq(~write | first)
        with m.Default():
            m.d.comb += order.eq(~first)
    with m.If(silent & first):
        m.d.comb += order.eq(0)

    length = Signal(name="length_error")
    with m.If(~operation.payload):
        m.d.comb += length.eq(header.length != 0)
    with m.Elif(~last):
        m.d.comb += length.eq(header.length != mtu)
    with m.Else():
        m.d.comb += length.eq((header.length > mtu) | ((header.length == 0) & ~first))
    with m.If(datagram):  # of any length that ingress lets pass, with its GRH area
        m.d.comb += length.eq(0)

    length32 = Signal(32)
    m.d.comb += length32.eq(header.length)
    # Against the RETH's length; the word of an atomic must be aligned.
    message = Signal(name="message_length_error")
    with m.If(atomic):
        m.d.comb += message.eq(header.va[:3] != 0)
        if config.placement:
            exact = (header.length == ATOMIC_BYTES) & (header.dma_length == ATOMIC_BYTES)
            with m.If(atomic_write & ~exact):
                m.d.comb += message.eq(1)
    with m.Elif(flush & wire_flush(header).level[0]):
        pass  # of a whole region the length means nothing
    with m.Elif(operation.address & (header.dma_length > LARGEST_MESSAGE)):
        m.d.comb += message.eq(1)
    with m.Elif(write & first & ~last):
        m.d.comb += message.eq(header.dma_length <= mtu)
    with m.Elif(write & last & ~first):
        m.d.comb += message.eq(~is_sum(rx.offset, length32, rx.dma_length))
    with m.Elif(write & last):
        m.d.comb += message.eq(header.length != header.dma_length)

    # A peer may have so many READs without an answer. The resource of one that is answered again
    # may be overwritten, as a peer with a new READ has that answer. The numbers are modulo 256.
    waiting = Signal(8, name="waiting")
    asked, numbered, following = Signal(name="asked"), Signal(name="numbered"), Signal(8)
    m.d.comb += [
        waiting.eq(rx.read_tail - reply.answered),
        asked.eq(rx.replay_seq != reply.replay_seq),
        following.eq(rx.read_tail + 1),
        numbered.eq((following == reply.read_head) | (asked & (following == rx.replay))),
    ]
    # By the bits of Access; local rights are the receive WQE's affair.
    granted = Cat(C(1, 1), cfg.remote_write, cfg.remote_read, cfg.remote_atomic)
    forbidden, crowded = (operation.rights & ~granted).any(), Const(0)
    too_many = operation.data & (waiting >= cfg.max_dest_rd_atomic)
    if config.placement:
        forbidden |= _misplaced(m, config, work)
        # A peer need not count these among its READs, so it has them dropped and no NAK.
        crowded = (flush | atomic_write) & too_many
        too_many &= ~(flush | atomic_write)
        m.d.comb += facts.places.eq(flush | atomic_write)
    strays = Const(0)
    if config.xrc:  # all packets of a message name the same queue
        named = names_source(config, operation)
        strays = named & ~first & (work.srq != rx.srq)
        m.d.comb += facts.lost.eq(named & work.lost & operation.built & ~order)
    m.d.comb += [
        facts.silent.eq(silent),
        facts.datagram.eq(datagram),
        facts.skips.eq(silent & first & ~datagram & unexpected),
        facts.behind.eq(distance[23] & ~silent),
        facts.ahead.eq(Mux(silent, ~first & (unexpected | order), ~distance[23] & unexpected)),
        facts.invalid.eq(
            ~operation.built | order | strays | length | message | forbidden | too_many
        ),
        facts.exceeds.eq(reaches(m, rx.offset, header.length, rx.dma_length, block=8)),
        facts.read_full.eq(operation.data & numbered),
        facts.crowded.eq(crowded | (facts.places & numbered)),
        facts.msn.eq(raised(rx.msn, C(1))),
        facts.resource.eq(cfg.read_base + (rx.read_tail & (cfg.max_dest_rd_atomic - 1))),
        facts.wraps.eq(rx.read_tail + 1 == cfg.max_dest_rd_atomic),
        facts.packets.eq(
            Mux(operation.by_length, packet_count(m, cfg.path_mtu, header.dma_length), 1)
        ),
        facts.single.eq(~operation.by_length | fit(header.dma_length, mtu)),
        facts.after.eq(after),
        facts.va.eq(Mux(operation.address, header.va, placed)),
        facts.key.eq(Mux(operation.address, header.rkey, rx.rkey)),
        facts.allow.eq(Mux(operation.address, wanted, remaining)),
    ]
    return facts


def _misplaced(m: Module, config: NicConfig, work: ResponderWork) -> Value:
    """Whether a FLUSH or an ATOMIC WRITE comes to a QP that has not been given to them, or a FLUSH
    asks for what the QP does not let peers ask for, or for what nobody knows (61h each)."""
    cfg, asked = work.cfg, wire_flush(work.header)
    flush, unknown = is_flush(config, work.operation), Signal(name="flush_unknown")
    granted = cfg.flush.as_value()
    m.d.comb += unknown.eq(
        (asked.type.as_value() == 0)
        | (asked.type.as_value() & ~granted).any()
        | (asked.unknown != 0)
        | asked.level[1]
    )
    return (_places(config, work.operation) & ~cfg.placement) | (flush & unknown)
