"""Walks the SGEs of a line from any byte of the message."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.enums import WcStatus
from hdl.ports.jobs import Sge, WqeRead

from .types import CheckJob, TranslateRequest

__all__ = ["SgeWalk"]


class SgeWalk(wiring.Component):
    """Turns the SGEs that hold a packet into requests for Translate.

    ``start`` with ``job`` (both in one cycle, when ``idle``) begins a packet: ``length`` bytes from
    byte ``offset`` of the message, or, with ``check_sink``, all of every SGE. ``busy`` falls when
    the last request has been taken; ``status`` then says whether the SGEs were long enough
    (LOC_LEN_ERR) and within the address space (LOC_PROT_ERR). ``stop`` ends the walk. SGEs of
    length 0 are passed over.
    With ``resume`` the walk goes on behind the last byte of the packet before, without ``offset``.

    Parameters: ``access``: MrRow.access bits that a request needs.
    Members: ``slot``, ``slot_enable``, ``slot_data``: read port of the lines, latency 1, data stays
    until the next enabled read; ``slot_data`` is registered before use.
    Latency: first request 3 cycles after ``start`` (1 with ``resume``); 1 more when ``offset`` lies
    in the middle of an SGE. Throughput: one SGE per cycle, passed over or asked for.
    """

    def __init__(self, *, access: int):
        if not 0 <= access <= 15:
            raise ValueError(f"Access must be 0 to 15, not {access!r}")
        self._access = access
        super().__init__(
            {
                "start": In(1),
                "job": In(CheckJob),
                "stop": In(1),
                "busy": Out(1),
                "status": Out(8),
                "request": Out(stream.Signature(TranslateRequest)),
                "slot": Out(WqeRead),
                "slot_enable": Out(1),
                "slot_data": In(128),
            }
        )

    def elaborate(self, platform):
        m = Module()
        kept = Signal(
            data.StructLayout({"function": 8, "pd": 16, "line": 8, "num_sge": 6, "sink": 1}),
            reset_less=True,
        )
        skip, need = Signal(32, reset_less=True), Signal(13, reset_less=True)
        following = Signal(7, reset_less=True)  # next slot to read
        read = Signal()  # slot_data is the SGE behind ``sge``
        sge, sge_valid = Signal(Sge, reset_less=True), Signal()
        fetched = Signal(Sge)
        wrapped = Signal()  # what is left of ``sge`` lies beyond the end of the address space
        drop, take, more = Signal(), Signal(), Signal()
        m.d.comb += [
            fetched.eq(self.slot_data),
            take.eq(read & (~sge_valid | drop)),
            more.eq((following < kept.num_sge) & (~read | take)),
        ]

        # What of the SGE is wanted. Both differences at once: one of them is not negative.
        wanted, rest, fits = Signal(32), Signal(33), Signal()
        m.d.comb += [
            rest.eq(sge.length - need),
            fits.eq(kept.sink | rest[32] | (rest == 0)),  # all that is left of the SGE is wanted
            wanted.eq(Mux(fits, sge.length, need)),
            self.request.p.function.eq(kept.function),
            self.request.p.pd.eq(kept.pd),
            self.request.p.key.eq(sge.lkey),
            self.request.p.va.eq(sge.addr),
            self.request.p.length.eq(wanted),
            self.request.p.access.eq(self._access | kept.sink),
            self.request.p.check_only.eq(kept.sink),
            self.request.p.end.eq(~kept.sink & (~rest[32] | (rest == 0))),
        ]

        with m.If(self.busy):
            with m.If(self.stop):
                m.d.sync += self.busy.eq(0)
            with m.Elif(~kept.sink & (need == 0)):
                m.d.sync += self.busy.eq(0)
            with m.Elif(sge_valid):
                with m.If(sge.length <= skip):
                    m.d.comb += drop.eq(1)
                    m.d.sync += skip.eq(skip - sge.length)
                with m.Elif(skip != 0):
                    m.d.sync += [
                        skip.eq(0),
                        Cat(sge.addr, wrapped).eq(sge.addr + skip),
                        sge.length.eq(sge.length - skip),
                    ]
                with m.Elif(wrapped):
                    m.d.sync += [self.busy.eq(0), self.status.eq(WcStatus.LOC_PROT_ERR.value)]
                with m.Else():
                    m.d.comb += self.request.valid.eq(1)
                    with m.If(self.request.ready):
                        m.d.comb += drop.eq(fits)
                        m.d.sync += [
                            need.eq(Mux(fits, need - sge.length[:13], 0)),
                            Cat(sge.addr, wrapped).eq(sge.addr + need),
                            sge.length.eq(rest),
                        ]
                        with m.If(~kept.sink & ~rest[32]):
                            m.d.sync += self.busy.eq(0)
            with m.Elif(~read & (following >= kept.num_sge)):
                m.d.sync += self.busy.eq(0)
                with m.If(~kept.sink):
                    m.d.sync += self.status.eq(WcStatus.LOC_LEN_ERR.value)

        with m.If(drop):
            m.d.sync += sge_valid.eq(0)
        with m.If(take):
            m.d.sync += [sge_valid.eq(1), sge.eq(fetched), wrapped.eq(0), read.eq(0)]
        with m.If(more):
            m.d.sync += [read.eq(1), following.eq(following + 1)]
        m.d.comb += [
            self.slot.line.eq(kept.line),
            self.slot.slot.eq(following),
            self.slot_enable.eq(more),
        ]

        with m.If(self.start):
            m.d.sync += [
                kept.function.eq(self.job.function),
                kept.pd.eq(self.job.pd),
                kept.line.eq(self.job.line),
                kept.num_sge.eq(self.job.num_sge),
                kept.sink.eq(self.job.check_sink),
                need.eq(self.job.length),
                skip.eq(0),
                self.busy.eq(1),
                self.status.eq(0),
            ]
            with m.If(~self.job.resume):
                m.d.sync += [
                    skip.eq(self.job.offset),
                    sge_valid.eq(0),
                    read.eq(0),
                    following.eq(0),
                ]
        return m
