"""Walks the SGEs of a line from any byte of the message."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.sums import wide_sum
from hdl.ports.jobs import WQE_LINE_BITS, Sge, WqeRead

from .types import CheckJob, TranslateRequest

__all__ = ["SgeWalk"]

#: Bits of a distance between bytes of a message, with its sign: an SGE may end 4 GiB behind.
DISTANCE = 34


class SgeWalk(wiring.Component):
    """Turns the SGEs that hold a packet into requests for Translate.

    ``start`` with ``job`` (both in one cycle, when not ``busy``) begins a packet: ``length`` bytes
    from byte ``offset`` of the message, or, with ``check_sink``, all of every SGE. ``busy`` falls
    when the last request has been taken, which has ``end``: it is of 0 bytes when the SGEs have
    ended before the packet (``short``, LOC_LEN_ERR) or a sink has none. SGEs of length 0 are passed
    over or requested like any other. A request's address is its ``va`` and ``into``.
    With ``resume`` the walk continues behind the last byte of the packet before.

    Parameters: ``access``: MrRow.access bits that a request needs.
    Members: ``slot``, ``slot_enable``, ``slot_data``: read port of the lines, latency 1, data stays
    until the next enabled read; ``slot_data`` is registered before use. The first SGE is read with
    ``start``. Nothing is read while not ``busy``, and ``slot_data`` need not stay then
    unless a job with ``resume`` follows.
    Latency: first request 3 cycles after ``start`` (2 with ``resume``). Throughput: one SGE per
    cycle, passed over or asked for.
    """

    def __init__(self, *, access: int):
        if not 0 <= access <= 15:
            raise ValueError(f"Access must be 0 to 15, not {access!r}")
        self._access = access
        super().__init__(
            {
                "start": In(1),
                "job": In(CheckJob),
                "busy": Out(1),
                "request": Out(stream.Signature(TranslateRequest)),
                "into": Out(32),
                "slot": Out(WqeRead),
                "slot_enable": Out(1),
                "slot_data": In(128),
            }
        )

    def elaborate(self, platform):
        m = Module()
        kept = Signal(
            data.StructLayout(
                {"function": 8, "pd": 16, "line": WQE_LINE_BITS, "num_sge": 6, "sink": 1}
            ),
            reset_less=True,
        )
        following = Signal(7, reset_less=True)  # next slot to read
        read = Signal()  # slot_data is the SGE behind ``raw``
        all_read = Signal()
        raw, raw_valid = Signal(Sge, reset_less=True), Signal()
        sge, sge_valid = Signal(Sge, reset_less=True), Signal()
        drop, take, move, more = Signal(), Signal(), Signal(), Signal()
        m.d.comb += all_read.eq(~read & (following >= kept.num_sge))

        # From the end of ``sge`` (of all SGEs passed or used up) to where the packet begins and
        # ends; not negative means: beyond. ``into``: from the start of ``sge`` to the first byte.
        length = Signal(13, reset_less=True)
        begins, ends = Signal(DISTANCE, reset_less=True), Signal(DISTANCE, reset_less=True)
        into, inside = self.into, Signal()  # inside: the packet begins there
        fresh = Signal()  # a packet has begun: ``ends`` is still that of the one before
        over, fits, final = Signal(), Signal(), Signal()
        whole_last = ~raw_valid & all_read
        m.d.comb += [
            over.eq(~begins[-1] & ~kept.sink),
            fits.eq(~ends[-1] | kept.sink),  # all that is left of the SGE is wanted
            final.eq(Mux(kept.sink, whole_last, ends[-1] | (ends == 0))),
        ]

        # The part of the SGE that is used: from the later of both beginnings to the earlier end.
        wanted = Signal(13)
        low = Mux(
            fits,
            Mux(inside, -begins[:13], sge.length[:13]),
            Mux(inside, length, sge.length[:13] + ends[:13]),
        )
        request = self.request.p
        m.d.comb += [
            wanted.eq(low),
            request.va.eq(sge.addr),
            request.function.eq(kept.function),
            request.pd.eq(kept.pd),
            request.key.eq(sge.lkey),
            request.access.eq(self._access | kept.sink),
            request.check_only.eq(kept.sink),
        ]

        with m.If(self.busy & ~fresh):
            with m.If(sge_valid):
                m.d.comb += [
                    drop.eq(over | (fits & self.request.ready)),
                    self.request.valid.eq(~over),
                    request.length.eq(
                        Cat(wanted, sge.length[13:] & kept.sink.replicate(19)),
                    ),
                    request.end.eq(final),
                ]
            with m.Elif(~raw_valid & all_read):
                m.d.comb += [
                    self.request.valid.eq(1),
                    request.short.eq(~kept.sink),
                    request.end.eq(1),
                ]
            with m.If(self.request.valid & self.request.ready & request.end):
                m.d.sync += self.busy.eq(0)

        # SGEs come from the line, are registered, and are then compared with the packet.
        negated = Signal(DISTANCE)
        m.d.comb += [
            move.eq(self.busy & ~fresh & raw_valid & (~sge_valid | drop)),
            take.eq(read & (~raw_valid | move)),
            more.eq(self.busy & (following < kept.num_sge) & (~read | take)),
            negated.eq(~Cat(raw.length, 0, 0)),
        ]
        begin_within = ~begins[-1] & ~kept.sink
        begins_next = wide_sum(m, begins, negated, carry=True)
        ends_next = wide_sum(m, ends, negated, carry=True)
        ends_fresh, reached = wide_sum(m, begins, length), wide_sum(m, sge.length, ends[:32])
        with m.If(drop):
            m.d.sync += sge_valid.eq(0)
        with m.If(move):
            m.d.sync += [
                sge.eq(raw),
                sge_valid.eq(1),
                raw_valid.eq(0),
                into.eq(begins[:32] & begin_within.replicate(32)),
                inside.eq(begin_within),
                begins.eq(begins_next),
                ends.eq(ends_next),
            ]
        with m.If(take):
            m.d.sync += [raw.eq(self.slot_data), raw_valid.eq(1), read.eq(0)]
        with m.If(more):
            m.d.sync += [read.eq(1), following.eq(following + 1)]
        m.d.comb += [
            self.slot.line.eq(Mux(self.busy, kept.line, self.job.line)),
            self.slot.slot.eq(Mux(self.busy, following, 0)),
            self.slot_enable.eq(more | (self.start & ~self.job.resume)),
        ]

        with m.If(fresh):
            m.d.sync += [fresh.eq(0), ends.eq(ends_fresh)]
        with m.If(self.start):
            m.d.sync += [
                kept.function.eq(self.job.function),
                kept.pd.eq(self.job.pd),
                kept.line.eq(self.job.line),
                kept.num_sge.eq(self.job.num_sge),
                kept.sink.eq(self.job.check_sink),
                length.eq(self.job.length),
                fresh.eq(1),
                self.busy.eq(1),
            ]
            with m.If(self.job.resume):
                m.d.sync += [begins.eq(ends), into.eq(reached), inside.eq(1)]
            with m.Else():
                m.d.sync += [
                    begins.eq(self.job.offset),
                    sge_valid.eq(0),
                    raw_valid.eq(0),
                    read.eq(self.job.num_sge != 0),
                    following.eq(1),
                ]
        return m
