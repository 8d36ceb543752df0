"""The used index of each queue, and what each CQ is armed for."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.ram import Ram
from hdl.common.tables import TableProgram
from hdl.config import NicConfig
from hdl.ports.numbers import CqNumber
from hdl.ports.rows import CqRow

__all__ = ["CompletionTables"]


class CompletionTables(wiring.Component):
    """Two tables of the completion engine, and the firmware's windows on them.

    Members: ``queue`` with ``look`` reads ``used_index``; ``cq`` with ``look_armed`` reads
    ``armed``; both stay until the next read. ``count`` (a cycle): the index that was read last goes
    up by one, and is that of queue ``counted``; ``reset`` with ``count``: that of ``reset_queue``
    becomes 0 instead. ``arm`` (a cycle): CQ ``arm_cq`` is armed for ``arm_flags``. ``clear``: all
    rows are cleared, one a cycle, up to the cycle of ``last``; ``cleared``: they have been.
    ``used_program``, ``cq_program``: the firmware's windows; ``buffers``: the part of the latter
    that CqBuffers has, which is not written in a cycle of ``hold``.
    Latency: 1 cycle; what ``count`` and ``arm`` write can be read 2 cycles later. Throughput: one
    of each a cycle; the firmware waits for a cycle without one. Errors: none.
    Reset: nothing is valid before ``cleared``.
    """

    def __init__(self, *, config: NicConfig):
        self._queues, self._cqs = config.queues, config.cqs
        queue_bits, cq_bits = ceil_log2(config.queues), max(1, ceil_log2(config.cqs))
        flags = ("look", "look_armed", "count", "reset", "arm", "clear", "hold")
        super().__init__(
            {name: In(1) for name in flags}
            | {
                "queue": In(queue_bits),
                "used_index": Out(16),
                "cq": In(cq_bits),
                "armed": Out(2),
                "counted": In(queue_bits),
                "reset_queue": In(queue_bits),
                "arm_cq": In(cq_bits),
                "arm_flags": In(2),
                "last": Out(1),
                "cleared": Out(1),
                "used_program": In(TableProgram(16, 16)),
                "cq_program": In(TableProgram(CqNumber, CqRow)),
                "buffers": Out(TableProgram(CqNumber, CqRow)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        queue_bits, cq_bits = len(self.queue), len(self.cq)
        m.submodules.indices = indices = Ram(shape=16, depth=self._queues, reads=2)
        m.submodules.armed = armed = Ram(shape=2, depth=self._cqs, reads=2)
        clear = Signal(range(self._queues))
        # What is to be written into the tables, a cycle later, when it is.
        index_write, index_reset = Signal(), Signal(reset_less=True)
        index_place, index_row = Signal(queue_bits, reset_less=True), Signal(16, reset_less=True)
        arm_write = Signal()
        arm_row, arm_place = Signal(2, reset_less=True), Signal(cq_bits, reset_less=True)
        m.d.comb += [
            indices.read0.index.eq(self.queue),
            indices.read0.enable.eq(self.look),
            self.used_index.eq(indices.read0.row),
            armed.read0.index.eq(self.cq),
            armed.read0.enable.eq(self.look_armed),
            self.armed.eq(armed.read0.row),
            self.last.eq(clear == self._queues - 1),
        ]
        m.d.sync += [
            index_write.eq(self.count),
            index_place.eq(Mux(self.reset, self.reset_queue, self.counted)),
            index_row.eq(indices.read0.row),
            index_reset.eq(self.reset),
            arm_write.eq(self.arm),
            arm_row.eq(self.arm_flags),
            arm_place.eq(self.arm_cq),
        ]
        with m.If(self.clear):
            m.d.sync += [clear.eq(clear + 1), self.cleared.eq(self.last)]

        # The firmware's windows: its writes wait for a cycle without one of ours.
        program, window, buffers = self.used_program, self.cq_program, self.buffers
        index_read = Signal()
        m.d.sync += index_read.eq(program.read & ~index_read)
        m.d.comb += [
            indices.read1.index.eq(program.index[:queue_bits]),
            indices.read1.enable.eq(program.read),
            program.read_row.eq(indices.read1.row),
            program.done.eq(index_read | (program.write & self.cleared & ~index_write)),
            indices.write.enable.eq(~self.cleared | index_write | program.write),
            armed.read1.index.eq(window.index[:cq_bits]),
            armed.read1.enable.eq(window.read),
            buffers.index.eq(window.index),
            buffers.row.eq(window.row),
            buffers.read.eq(window.read),
            buffers.write.eq(window.write & self.cleared & ~arm_write & ~self.hold),
            window.done.eq(buffers.done),
            armed.write.enable.eq(~self.cleared | arm_write | (window.write & window.done)),
        ]
        read_row = Signal(CqRow)
        m.d.comb += [
            read_row.position.eq(buffers.read_row.position),
            read_row.available.eq(buffers.read_row.available),
            read_row.error.eq(buffers.read_row.error),
            read_row.armed.eq(armed.read1.row),
            window.read_row.eq(read_row),
        ]
        with m.If(~self.cleared):
            m.d.comb += [indices.write.index.eq(clear), armed.write.index.eq(clear)]
        with m.Else():
            m.d.comb += [
                indices.write.index.eq(Mux(index_write, index_place, program.index[:queue_bits])),
                indices.write.row.eq(
                    Mux(index_write, Mux(index_reset, 0, index_row + 1), program.row)
                ),
                armed.write.index.eq(Mux(arm_write, arm_place, window.index[:cq_bits])),
                armed.write.row.eq(Mux(arm_write, arm_row, window.row.armed)),
            ]
        return m
