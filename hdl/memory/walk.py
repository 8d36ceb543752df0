"""Walks the SGEs of a line from any byte of the message."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.common.sums import wide_sum
from hdl.ports.jobs import WQE_LINE_BITS, LineStore, Sge, WqeRead

from .types import CheckJob, TranslateRequest

__all__ = ["SgeWalk"]

#: Bits of a distance between bytes of a message, with its sign: an SGE may end 4 GiB behind.
DISTANCE = 34


class SgeReader(wiring.Component):
    """Reads the SGEs of a line one after another and keeps the next one in a register.

    Members: ``start`` In, with ``store``, ``line`` and ``num_sge``: begin with the first SGE of
    that line, or, with ``resume``, go on behind the SGE that was taken last; ``run`` In: a job
    runs, in the cycles behind ``start``; ``fetched``: ``slot_data`` is SGE ``fetched_slot``, for
    the last time; ``valid`` with ``sge`` Out: the next SGE; ``take`` In: it is taken; ``ended``
    Out: all have been taken; ``slot``, ``slot_enable``, ``slot_data``: read port of the lines.
    Latency: 2 cycles. Throughput: one SGE per cycle. Reset: nothing is read.
    """

    def __init__(self):
        super().__init__(
            {
                "start": In(1),
                "resume": In(1),
                "run": In(1),
                "store": In(LineStore),
                "line": In(WQE_LINE_BITS),
                "num_sge": In(6),
                "fetched": Out(1),
                "fetched_slot": Out(5),
                "valid": Out(1),
                "sge": Out(Sge),
                "take": In(1),
                "ended": Out(1),
                "slot": Out(WqeRead),
                "slot_enable": Out(1),
                "slot_data": In(128),
            }
        )

    def elaborate(self, platform):
        m = Module()
        line, num_sge = Signal.like(self.line, reset_less=True), Signal(6, reset_less=True)
        store = Signal(LineStore, reset_less=True)
        following = Signal(7, reset_less=True)  # next slot to read
        read = Signal()  # ``slot_data`` is the SGE behind ``sge``
        sge, fetch, more = Signal(Sge, reset_less=True), Signal(), Signal()
        m.d.comb += [
            self.sge.eq(sge),
            self.ended.eq(~self.valid & ~read & (following >= num_sge)),
            fetch.eq(read & (~self.valid | self.take)),
            more.eq(self.run & (following < num_sge) & (~read | fetch)),
            self.slot.store.eq(Mux(self.run, store, self.store)),
            self.slot.line.eq(Mux(self.run, line, self.line)),
            self.slot.slot.eq(Mux(self.run, following, 0)),
            self.slot_enable.eq(more | (self.start & ~self.resume)),
            self.fetched.eq(fetch),
        ]
        with m.If(self.slot_enable):
            m.d.sync += self.fetched_slot.eq(self.slot.slot)
        with m.If(self.take):
            m.d.sync += self.valid.eq(0)
        with m.If(fetch):
            m.d.sync += [sge.eq(self.slot_data), self.valid.eq(1), read.eq(0)]
        with m.If(more):
            m.d.sync += [read.eq(1), following.eq(following + 1)]
        with m.If(self.start):
            m.d.sync += [store.eq(self.store), line.eq(self.line), num_sge.eq(self.num_sge)]
        with m.If(self.start & ~self.resume):
            m.d.sync += [self.valid.eq(0), read.eq(self.num_sge != 0), following.eq(1)]
        return m


class SgeWalk(wiring.Component):
    """Turns the SGEs that hold a packet into requests for Translate.

    ``start`` with ``job`` (both in one cycle, when not ``busy``) begins a packet: ``length`` bytes
    from byte ``offset`` of the message, or, with ``check_sink``, all of every SGE; with ``copy``
    as well, all but the first are only to be read. ``busy`` falls
    when the last request has been taken, which has ``end``: it is of 0 bytes when the SGEs have
    ended before the packet (``short``, LOC_LEN_ERR) or a sink has none. SGEs of length 0 are passed
    over or requested like any other. A request's address is its ``va`` and ``into``.
    With ``resume`` the walk continues behind the last byte of the packet before. ``fetched``:
    ``slot_data`` is SGE ``fetched_slot`` of the job; with ``check_sink`` each of them comes once.

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
                "fetched": Out(1),
                "fetched_slot": Out(5),
                "slot": Out(WqeRead),
                "slot_enable": Out(1),
                "slot_data": In(128),
            }
        )

    def elaborate(self, platform):
        m = Module()
        kept = Signal(
            data.StructLayout({"function": 8, "pd": 16, "sink": 1, "copy": 1}), reset_less=True
        )
        m.submodules.reader = reader = SgeReader()
        raw, sge, sge_valid = reader.sge, Signal(Sge, reset_less=True), Signal()
        drop, move = Signal(), reader.take
        m.d.comb += [
            reader.start.eq(self.start),
            reader.resume.eq(self.job.resume),
            reader.run.eq(self.busy),
            reader.store.eq(self.job.store),
            reader.line.eq(self.job.line),
            reader.num_sge.eq(self.job.num_sge),
            reader.slot_data.eq(self.slot_data),
            self.slot.eq(reader.slot),
            self.slot_enable.eq(reader.slot_enable),
            self.fetched.eq(reader.fetched),
            self.fetched_slot.eq(reader.fetched_slot),
        ]

        # From the end of ``sge`` (of all SGEs passed or used up) to where the packet begins and
        # ends; not negative means: beyond. ``into``: from the start of ``sge`` to the first byte.
        length = Signal(13, reset_less=True)
        begins, ends = Signal(DISTANCE, reset_less=True), Signal(DISTANCE, reset_less=True)
        into, inside = self.into, Signal()  # inside: the packet begins there
        fresh = Signal()  # a packet has begun: ``ends`` is still that of the one before
        over, fits, final = Signal(), Signal(), Signal()
        m.d.comb += [
            over.eq(~begins[-1] & ~kept.sink),
            fits.eq(~ends[-1] | kept.sink),  # all that is left of the SGE is wanted
            final.eq(Mux(kept.sink, reader.ended, ends[-1] | (ends == 0))),
        ]

        # The part of the SGE that is used: from the later of both beginnings to the earlier end.
        wanted = Signal(13)
        low = Mux(
            fits,
            Mux(inside, -begins[:13], sge.length[:13]),
            Mux(inside, length, sge.length[:13] + ends[:13]),
        )
        request, behind = self.request.p, Signal()  # behind the first SGE
        with m.If(self.start):
            m.d.sync += [kept.copy.eq(self.job.copy), behind.eq(0)]
        with m.Elif(self.request.valid & self.request.ready):
            m.d.sync += behind.eq(1)
        m.d.comb += [
            wanted.eq(low),
            request.va.eq(sge.addr),
            request.function.eq(kept.function),
            request.pd.eq(kept.pd),
            request.key.eq(sge.lkey),
            request.access.eq(self._access | (kept.sink & ~(kept.copy & behind))),
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
            with m.Elif(reader.ended):
                m.d.comb += [
                    self.request.valid.eq(1),
                    request.short.eq(~kept.sink),
                    request.end.eq(1),
                ]
            with m.If(self.request.valid & self.request.ready & request.end):
                m.d.sync += self.busy.eq(0)

        # An SGE is registered a second time, and is then compared with the packet.
        negated = Signal(DISTANCE)
        m.d.comb += [
            move.eq(self.busy & ~fresh & reader.valid & (~sge_valid | drop)),
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
                into.eq(begins[:32] & begin_within.replicate(32)),
                inside.eq(begin_within),
                begins.eq(begins_next),
                ends.eq(ends_next),
            ]

        with m.If(fresh):
            m.d.sync += [fresh.eq(0), ends.eq(ends_fresh)]
        with m.If(self.start):
            m.d.sync += [
                kept.function.eq(self.job.function),
                kept.pd.eq(self.job.pd),
                kept.sink.eq(self.job.check_sink),
                length.eq(self.job.length),
                fresh.eq(1),
                self.busy.eq(1),
            ]
            with m.If(self.job.resume):
                m.d.sync += [begins.eq(ends), into.eq(reached), inside.eq(1)]
            with m.Else():
                m.d.sync += [begins.eq(self.job.offset), sge_valid.eq(0)]
        return m
