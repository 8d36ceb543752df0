"""What the completer wants to know of a response and of the oldest WQE, for one register stage."""

from amaranth.hdl import Const, Module, Mux, Signal, Value
from amaranth.lib import data, enum

from hdl.abi.enums import WcOpcode, WcStatus
from hdl.common.count import raised
from hdl.common.sums import wide_difference
from hdl.ports.rows import QpAck
from hdl.wire.opcodes import Kind

from ..outstanding.types import Foreseen
from ..recovery.segment import PSN_BLOCK, mtu_bytes
from .types import CompleterWork, Syndrome

__all__ = ["EntryFacts", "Response", "ResponseFacts", "entry_facts", "response_facts"]


class Response(enum.Enum, shape=3):
    """What a response packet says."""

    ACK = 0
    SEQUENCE = 1  # NAK 60h
    RNR = 2
    FATAL = 3  # NAK 61h, 62h, 63h
    DATA = 4  # READ response, or the answer to an atomic
    INVALID = 5  # none of these


class ResponseFacts(data.Struct):
    """The packet alone."""

    response: Response
    status: 8  # WC status for the WQE that a FATAL answers
    first: 1  # READ response FIRST or ONLY
    last: 1  # READ response LAST or ONLY
    full: 1  # its payload is one path MTU
    next_psn: 24  # behind it


class EntryFacts(data.Struct):
    """The packet's PSN and the oldest outstanding WQE."""

    behind: 1  # PSN before the oldest unacknowledged one
    expected: 1  # PSN is the oldest unacknowledged one
    at_last: 1  # PSN is the last of the WQE
    past: 1  # PSN lies behind the last of the WQE
    ghost: 1  # PSN has not left the card: nobody can have answered it
    awaited: 1  # an answer is: a packet that asks for one has left and is not acknowledged
    idle: 1  # none is behind this packet
    acknowledged: 1  # every packet of the WQE has been acknowledged before
    other_kind: 1  # data that answer an atomic for a READ, or the other way round
    packets: 24  # of the READ before this one
    next_psn: 24  # behind the WQE


def response_facts(m: Module, work: CompleterWork) -> Signal:
    """Facts of the packet alone; IBTA vol 1, 9.7.5.2 (syndromes), 9.7.5.1.1 (READ responses)."""
    header = work.header
    facts = Signal(ResponseFacts, name="response_now")
    operation, syndrome = work.operation, header.syndrome
    m.d.comb += [
        facts.response.eq(Response.INVALID),
        facts.first.eq(operation.first),
        facts.last.eq(operation.last),
        facts.full.eq(header.length == mtu_bytes(m, work.cfg.path_mtu)),
        facts.next_psn.eq(raised(header.psn, Const(1))),
    ]
    with m.If(operation.response & operation.data):
        m.d.comb += facts.response.eq(Response.DATA)
    with m.Elif((operation.kind == Kind.ACKNOWLEDGE) & (header.length == 0)):
        with m.Switch(syndrome):
            with m.Case("000-----"):
                m.d.comb += facts.response.eq(Response.ACK)
            with m.Case("001-----"):
                m.d.comb += facts.response.eq(Response.RNR)
            with m.Case(Syndrome.PSN_SEQUENCE):
                m.d.comb += facts.response.eq(Response.SEQUENCE)
            for code, status in (
                (Syndrome.INVALID_REQUEST, WcStatus.REM_INV_REQ_ERR),
                (Syndrome.REMOTE_ACCESS, WcStatus.REM_ACCESS_ERR),
                (Syndrome.REMOTE_OPERATIONAL, WcStatus.REM_OP_ERR),
            ):
                with m.Case(code):
                    m.d.comb += [facts.response.eq(Response.FATAL), facts.status.eq(status)]
    return facts


def is_atomic(entry: Foreseen) -> Value:
    """Whether the WQE is an atomic."""
    return entry.completion.matches(WcOpcode.COMP_SWAP, WcOpcode.FETCH_ADD)


def entry_facts(
    m: Module, work: CompleterWork, said: ResponseFacts, entry: Foreseen, ack: QpAck
) -> Signal:
    """Facts of the packet against the oldest WQE and the oldest unacknowledged PSN."""
    facts = Signal(EntryFacts, name="entry_now")
    header = work.header

    def distance(psn, start):
        return wide_difference(m, psn, start, block=PSN_BLOCK)[:24]

    behind, past = distance(header.psn, ack.psn), distance(entry.last_psn, header.psn)
    left = distance(entry.last_psn, ack.psn)
    sent, unanswered = work.sent, distance(ack.psn, work.sent.asked)
    packets = distance(header.psn, entry.first_psn)
    owed = Mux(work.finish, unanswered, distance(said.next_psn, sent.asked))
    m.d.comb += [
        facts.behind.eq(behind[23]),
        facts.expected.eq(behind == 0),
        facts.at_last.eq(past == 0),
        facts.past.eq(past[23]),
        facts.ghost.eq(~distance(header.psn, sent.psn)[23]),
        facts.awaited.eq(sent.waits & unanswered[23]),
        facts.idle.eq(~(sent.waits & owed[23])),
        facts.acknowledged.eq(left[23]),
        facts.packets.eq(packets),
        facts.next_psn.eq(raised(entry.last_psn, Const(1))),
        facts.other_kind.eq(is_atomic(entry) != (work.operation.kind == Kind.ATOMIC_RESPONSE)),
    ]
    return facts
