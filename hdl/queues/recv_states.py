"""The state machine of RecvFetch, but for its idle state."""

from types import SimpleNamespace

from amaranth.hdl import Module
from amaranth.lib import data, enum

from hdl.ports.jobs import WQE_LINE_BITS, FetchStatus

from .recv_ahead import DOORBELL, POLLED
from .recv_shares import QueueShare

__all__ = [
    "After",
    "Parts",
    "RecvQueue",
    "ahead_states",
    "forget_states",
    "refuse",
    "request_states",
]


class After(enum.Enum, shape=2):
    """Where it goes on when the list of a queue has been dropped."""

    RESET = 0  # the queue is being reset
    LOOK = 1  # it is asked for another position
    EVICT = 2  # the request needs a line
    SWEEP = 3  # nobody has asked for it


class RecvQueue(data.Struct):
    """The WQEs of a receive queue in lines, at hand or on their way: ``count`` from position
    ``first`` on, linked from line ``head`` to line ``tail``."""

    first: 16
    count: WQE_LINE_BITS
    head: WQE_LINE_BITS
    tail: WQE_LINE_BITS
    available: 16  # avail index as far as known
    seen: 2  # epoch of the last request
    share: QueueShare
    used: 1  # it has been asked for since its lines were forgotten
    given: 1  # the first has been asked for, and may be again
    polling: 1  # its avail index is being read
    waits: 1  # it is among those that wait for lines
    late: 4  # lines that it may have without waiting, as a request found none


class Parts(SimpleNamespace):
    """Components, registers and wires of RecvFetch, by their names there; ``port``: its members."""


def request_states(m: Module, p: Parts) -> None:
    """From a request whose rows are being read (ASK) to its answer, or to the wait for it."""
    with m.State("ASK"):
        m.d.comb += [p.path.tag.enable.eq(1), p.told_sinks.look.eq(1)]
        with m.If(~p.request.send):
            m.d.comb += p.path.tag.index.eq(p.table.read0.row.head)
        m.d.sync += [p.queue.eq(p.table.read0.row), p.row.eq(p.port.queue_read.row)]
        m.next = "GATHER"
    with m.State("GATHER"):
        m.next = "LOOK"
    with m.State("LOOK"):
        m.d.sync += [
            p.asks_more.eq(0),
            p.answer.status.eq(FetchStatus.OK),
            p.answer.error.eq(0),
            p.answer.available.eq(p.best),
            p.answer.head.eq(p.tag.head),
            p.answer.line.eq(p.line),
            p.answer.wqe.eq(p.tag.wqe),
            p.queue.seen.eq(p.epoch),
            p.queue.used.eq(1),
        ]
        with m.If(~p.row.enabled):
            m.d.sync += [p.answer.status.eq(FetchStatus.EMPTY), p.queue.used.eq(0)]
            m.next = "ANSWER"
        with m.Elif(p.told_found):
            m.d.comb += p.told_sinks.touch.eq(1)
            m.d.sync += [
                p.answer.head.eq(p.told_sinks.tag.head),
                p.answer.line.eq(p.told_sinks.found_line),
                p.answer.wqe.eq(p.told_sinks.tag.wqe),
            ]
            m.next = "ANSWER"
        with m.Elif(p.here & p.ready):
            m.d.comb += p.sinks.touch.eq(p.request.send)
            m.next = "ANSWER"
        with m.Elif(p.here & p.fault_valid):
            m.d.sync += [
                p.answer.status.eq(p.fault.found.status),
                p.answer.error.eq(p.fault.found.error),
                p.answer.head.eq(p.fault.head),
            ]
            for name in ("num_sge", "wr_id", "length"):
                m.d.sync += p.answer.wqe[name].eq(p.fault.found.wqe[name])
            m.next = "ANSWER"
            with m.If(p.fault.found.status == FetchStatus.QUEUE_ERROR):
                m.d.sync += p.complains.eq(1)
                m.next = "ERROR"
        with m.Elif(p.here & p.lines.busy):
            m.d.sync += [p.waiting.eq(1), p.wanted.eq(p.line)]
            m.next = "NOTE"
        with m.Elif(p.here):
            # A sink's line may still be read; a queue's has not been given out.
            m.next = "ISSUE"
            with m.If(p.request.send):
                m.next = "FREE"
        with m.Elif((p.offset < p.queue.count) & (p.queue.count != 0)):
            m.d.comb += [p.lines.release.eq(1), p.links.read0.enable.eq(1)]
            m.d.sync += [p.queue.first.eq(p.queue.first + 1), p.queue.count.eq(p.queue.count - 1)]
            m.next = "PASS"
        with m.Elif(p.queue.count != 0):
            m.d.sync += p.after.eq(After.LOOK)
            m.next = "DROP"
        with m.Elif(p.known):
            m.next = "OWN"
        with m.Elif(p.found_valid):
            m.d.sync += p.found_valid.eq(0)
            m.d.sync += [
                p.queue.first.eq(p.request.position),
                p.queue.available.eq(p.found.available),
            ]
            m.next = "GATHER"
            with m.If(p.found.status != FetchStatus.OK):
                m.d.sync += [
                    p.answer.status.eq(p.found.status),
                    p.answer.available.eq(p.found.available),
                    p.fault.found.cause.eq(p.found.cause),
                ]
                m.next = "ANSWER"
                with m.If(p.found.status == FetchStatus.QUEUE_ERROR):
                    m.d.sync += p.complains.eq(1)
                    m.next = "ERROR"
        with m.Else():
            m.d.comb += p.index.i.valid.eq(1)
            m.d.sync += p.indexing.eq(p.index.i.ready)
            with m.If(p.index.i.ready):
                m.next = "NOTE"
    with m.State("FREE"):
        m.d.comb += p.sinks.drop.eq(~p.lines.read0)
        with m.If(~p.lines.read0):
            m.next = "ISSUE"
    with m.State("PASS"):
        m.d.sync += p.queue.given.eq(0)
        m.d.sync += p.queue.head.eq(p.links.read0.row)
        m.next = "PASSED"
    with m.State("PASSED"):
        m.d.comb += p.path.tag.enable.eq(1)
        m.next = "GATHER"
    with m.State("OWN"):
        m.d.sync += p.queue.available.eq(p.best)
        with m.If(p.lines.spare_valid):
            m.d.comb += p.lines.own.eq(1)
            m.d.sync += [
                p.queue.first.eq(p.request.position),
                p.queue.count.eq(1),
                p.queue.given.eq(1),
                p.queue.late.eq(p.queue.share.run),
                p.queue.head.eq(p.lines.spare),
                p.queue.tail.eq(p.lines.spare),
            ]
            m.next = "ISSUE"
        with m.Elif(p.lines.free == 0):
            m.d.comb += p.table.write.enable.eq(1)
            m.d.sync += p.after.eq(After.EVICT)
            m.next = "EVICT"
    with m.State("ISSUE"):
        m.d.comb += p.path.i.valid.eq(1)
        m.d.sync += [p.fault_valid.eq(0), p.asks_more.eq(1), p.wanted.eq(p.line)]
        with m.If(p.path.i.ready):
            m.d.sync += p.waiting.eq(1)
            m.next = "NOTE"
    with m.State("REFUSE"):
        m.d.comb += p.port.rsp.valid.eq(1)
        with m.If(p.port.rsp.ready):
            m.next = "IDLE"
    with m.State("ERROR"):
        with m.If(p.port.error.ready):
            m.d.sync += p.complains.eq(0)
            m.next = "ANSWER"
    with m.State("ANSWER"):
        m.d.comb += [p.port.rsp.valid.eq(1), p.links.read0.enable.eq(1)]
        with m.If(p.port.rsp.ready):
            m.next = "NOTE"
            with m.If(p.answer.status == FetchStatus.OK):
                m.d.sync += [p.lines.current_valid.eq(1), p.asks_more.eq(1)]
                with m.If(~p.request.send):
                    m.d.sync += p.queue.given.eq(~p.request.last)
                    with m.If(p.request.last):
                        m.next = "FINISH"
    with m.State("FINISH"):
        m.d.comb += p.lines.release.eq(1)
        m.d.sync += [
            p.queue.first.eq(p.queue.first + 1),
            p.queue.count.eq(p.queue.count - 1),
            p.queue.head.eq(p.links.read0.row),
            p.queue.share.eq(p.shares.after),
            p.answers.eq(p.answers + 1),
        ]
        m.next = "NOTE"
    with m.State("NOTE"):
        with m.If(p.request.send):
            m.next = "IDLE"
        with m.Else():
            m.d.comb += [p.table.write.enable.eq(1), p.ahead.more.valid.eq(p.asks_more)]
            with m.If(~p.asks_more | p.ahead.more.ready):
                m.next = "IDLE"


def refuse(m: Module, p: Parts) -> None:
    """Nobody gets what was offered before a queue was dropped: it is empty for now (REFUSE)."""
    asked = p.port.req
    m.d.comb += asked.ready.eq(1)
    m.d.sync += [
        p.request.eq(asked.payload),
        p.answer.status.eq(FetchStatus.EMPTY),
        p.answer.available.eq(asked.payload.position),
        p.lines.current_valid.eq(0),
    ]
    m.next = "REFUSE"


def ahead_states(m: Module, p: Parts) -> None:
    """One look at a queue that may have something to fetch ahead (AHEAD)."""
    with m.State("AHEAD"):
        m.d.sync += [p.queue.eq(p.table.read0.row), p.row.eq(p.port.queue_read.row)]
        m.d.sync += p.fetches_more.eq(0)
        with m.If((p.item.flags & POLLED) != 0):
            m.d.sync += [p.queue.available.eq(p.item.data), p.queue.polling.eq(0)]
        m.next = "WEIGH"
    with m.State("WEIGH"):
        m.next = "FETCH"
    with m.State("FETCH"):
        m.d.comb += p.fetching.eq(1)
        m.d.comb += p.ahead.settled.eq((p.item.flags & POLLED) != 0)
        m.d.sync += p.item.flags.eq(p.item.flags & ~POLLED)
        wait, first = p.shares.wait, p.shares.first
        with m.If(p.port.queue_reset.valid | ~p.row.enabled):
            m.d.sync += p.item_valid.eq(0)
            m.d.comb += first.ready.eq(p.item_waits)
        with m.Elif(p.more_known & p.shares.may):
            m.d.comb += [
                p.path.i.valid.eq(p.lines.spare_valid),
                p.lines.own.eq(p.lines.spare_valid & p.path.i.ready),
                p.links.write.enable.eq(p.lines.own & (p.queue.count != 0)),
            ]
            with m.If(p.lines.own):
                m.d.sync += [
                    p.queue.tail.eq(p.lines.spare),
                    p.queue.count.eq(p.queue.count + 1),
                    p.queue.late.eq(p.queue.late - (p.queue.late != 0)),
                    p.item_valid.eq(0),
                    p.fetches_more.eq(~p.item_waits),  # else it is still the first
                ]
                with m.If(p.queue.count == 0):
                    m.d.sync += [p.queue.head.eq(p.lines.spare), p.queue.seen.eq(p.epoch)]
        with m.Elif(
            ~p.more_known
            & ~p.queue.polling
            & (((p.item.flags & DOORBELL) != 0) | (p.queue.used & ((p.item.flags & POLLED) == 0)))
        ):
            m.d.comb += p.ahead.poll.valid.eq(1)
            with m.If(p.ahead.poll.ready):
                m.d.sync += [p.queue.polling.eq(1), p.item_valid.eq(0)]
                m.d.comb += first.ready.eq(p.item_waits)
        with m.Elif(p.more_known & p.shares.wants):
            m.d.sync += [p.item_valid.eq(0), p.queue.waits.eq(1)]
            m.d.comb += wait.valid.eq(~p.queue.waits)
        with m.Else():
            m.d.sync += p.item_valid.eq(0)
            m.d.comb += first.ready.eq(p.item_waits)
        with m.If(first.ready):
            m.d.sync += p.queue.waits.eq(0)
        m.next = "FETCHED"
    with m.State("FETCHED"):
        m.d.comb += [p.table.write.enable.eq(1), p.ahead.more.valid.eq(p.fetches_more)]
        with m.If(~p.fetches_more | p.ahead.more.ready):
            m.next = "IDLE"


def forget_states(m: Module, p: Parts) -> None:
    """Drop the list of the owner of a line: the one being read (OWNER), the next (EVICT); or of the
    queue whose row is being read (LOAD)."""
    with m.State("EVICT"):
        m.d.comb += p.owners.read0.enable.eq(1)
        with m.If(p.looked[1]):
            p.sweep_on()
        with m.If(p.looked[1] & p.lines.swept):
            m.next = "OWNER"
        with m.Elif(p.lines.free != 0):
            p.load(p.request.qp, p.request.queue)
            m.next = "ASK"
    with m.State("OWNER"):
        p.load(p.owners.read0.row, 0)
        m.next = "LOAD"
    with m.State("LOAD"):
        m.d.sync += p.queue.eq(p.table.read0.row)
        m.next = "STALE"
    with m.State("STALE"):
        fresh = (p.epoch - p.queue.seen)[:2] < 2
        mine = p.waiting & (p.request.qp == p.qp)
        m.next = "DROP"
        with m.If((p.after == After.SWEEP) & (fresh | mine)):
            m.next = "IDLE"
        with m.Elif(p.after == After.RESET):
            with m.If(p.reset_pair[15] | ~p.reset_pair[0]):
                m.next = "RESET"  # no receive p.queue
        with m.Else():
            m.d.sync += [p.queue.used.eq(0), p.queue.share.eq(0)]
    with m.State("DROP"):
        m.d.comb += [p.lines.release.eq(p.queue.count != 0), p.links.read0.enable.eq(1)]
        m.d.sync += p.queue.count.eq(p.queue.count - 1)
        m.next = "DROPPED"
        with m.If(p.queue.count == 0):
            m.d.sync += [p.queue.count.eq(0), p.queue.given.eq(0)]
            with m.Switch(p.after):
                with m.Case(After.RESET):
                    m.d.sync += [p.queue.eq(0), p.queue.waits.eq(p.queue.waits)]
                    m.next = "CLEAN"
                with m.Case(After.LOOK):
                    m.next = "GATHER"
                with m.Case(After.EVICT, After.SWEEP):
                    m.next = "FORGET"
    with m.State("DROPPED"):
        m.d.sync += p.queue.head.eq(p.links.read0.row)
        m.next = "DROP"
    with m.State("FORGET"):
        m.d.comb += p.table.write.enable.eq(1)
        m.next = "IDLE"
        with m.If(p.after == After.EVICT):
            m.next = "EVICTED"
    with m.State("EVICTED"):
        p.load(p.request.qp, p.request.queue)
        m.next = "ASK"
    with m.State("CLEAN"):
        m.d.comb += p.table.write.enable.eq(1)
        m.next = "RESET"
    with m.State("RESET"):
        m.d.comb += [p.port.queue_reset.ready.eq(1), p.path.flush.eq(1), p.sinks.clear.eq(1)]
        m.d.comb += p.told_sinks.clear.eq(1)
        m.next = "IDLE"
