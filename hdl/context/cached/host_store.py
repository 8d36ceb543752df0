"""The records of the QPs in memory of the host."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.common.contract import taken_at_once
from hdl.common.fifo import StreamFifo
from hdl.config import NicConfig
from hdl.csr.context import RECORD_BYTES
from hdl.ports.context import BackingPort
from hdl.ports.host import STREAM_CONTROL, ReadClient, WriteClient

from .places import FILLS
from .record import beats_of

__all__ = ["HostStore"]


class HostStore(wiring.Component):
    """Keeps each QP's record in ``RECORD_BYTES`` bytes of host memory, at ``base``.

    Parameters: ``bits`` of a record. Members: ``store``: the cache; ``base`` In: bus address, a
    multiple of all records' bytes; ``enable`` In: there is memory, before which every request
    waits. ``read_client``, ``write_client``: in the name of the management function, as its memory
    it is. No read overtakes a write there, so a record is read as it was written last.
    Latency: 2 cycles from a request to that at the client, and 2 from an answer. Throughput: a beat
    a cycle. ``FILLS`` reads are under way at most, and there is room for all of their answers.
    Errors: a read that fails is passed on. Reset: nothing is under way; no host read may be in
    flight.
    """

    def __init__(self, *, config: NicConfig, bits: int):
        self._config, self._beats = config, beats_of(bits, config.width)
        if self._beats * config.width > 8 * RECORD_BYTES:
            raise ValueError(f"Bits of a record must fit {RECORD_BYTES} bytes, not {bits!r}")
        super().__init__(
            {
                "store": In(BackingPort(config.width)),
                "base": In(64),
                "enable": In(1),
                "read_client": Out(ReadClient(config.width)),
                "write_client": Out(WriteClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config, store, request = self._config, self.store, self.store.request
        read, beat, rsp = self.read_client.req, self.write_client.beat, self.read_client.rsp
        shape = data.StructLayout({"data": config.width, "last": 1, "error": 1})
        depth = 1 << ceil_log2(FILLS * self._beats)
        m.submodules.answers = answers = StreamFifo(shape=shape, depth=depth)
        taken_at_once(m, platform, answers.i, "there is room for each record that was asked for")
        connect(m, answers.o, flipped(store.answer))
        first = Signal()  # beat of a record
        offset, number = ceil_log2(RECORD_BYTES), ceil_log2(config.qps)
        addr = Signal(64, reset_less=True)
        m.d.comb += [
            read.payload.function.eq(config.management_function),
            read.payload.addr.eq(addr),
            read.payload.length.eq(self._beats * config.bytes_per_beat),
            beat.payload.stream_id.eq(STREAM_CONTROL),
            beat.payload.function.eq(config.management_function),
            beat.payload.addr.eq(addr),
            beat.payload.data.eq(store.record.payload.data),
            beat.payload.keep.eq(~0),
            beat.payload.first.eq(first),
            beat.payload.last.eq(store.record.payload.last),
            answers.i.valid.eq(rsp.valid),
            answers.i.payload.data.eq(rsp.payload.data),
            answers.i.payload.last.eq(rsp.payload.last),
            answers.i.payload.error.eq(rsp.payload.error),
        ]
        with m.FSM(name="store"):
            # IDLE: works out where the record is; ends with a request.
            with m.State("IDLE"):
                qp = request.payload.qp[:number]
                m.d.sync += [
                    addr.eq(Cat(Const(0, offset), qp, self.base[offset + number :])),
                    first.eq(1),
                ]
                m.d.comb += request.ready.eq(self.enable)
                with m.If(request.valid & self.enable):
                    m.next = "READ"
                    with m.If(request.payload.write):
                        m.next = "WRITE"
            # READ: asks for the record; ends when that is taken.
            with m.State("READ"):
                m.d.comb += read.valid.eq(1)
                with m.If(read.ready):
                    m.next = "IDLE"
            # WRITE: passes the record on; ends when its last beat is taken.
            with m.State("WRITE"):
                m.d.comb += [
                    beat.valid.eq(store.record.valid),
                    store.record.ready.eq(beat.ready),
                ]
                with m.If(beat.valid & beat.ready):
                    m.d.sync += first.eq(0)
                    with m.If(beat.payload.last):
                        m.next = "IDLE"
        return m
