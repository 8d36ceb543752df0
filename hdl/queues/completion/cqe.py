"""Writing a CQE over the buffers the driver gave for it."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.layout import amaranth_layout
from hdl.abi.virtio_rdma import CQE
from hdl.common.shift import keep_mask
from hdl.config import NicConfig
from hdl.ports.host import STREAM_DATA, WriteClient
from hdl.ports.jobs import Completion, QueueErrorCause
from hdl.ports.shared import ex

from ..ring.types import Segment

__all__ = ["CqeWriter"]

#: IBTA numbers ports from 1; the device has one.
PORT = 1


class CqeWriter(wiring.Component):
    """Writes one CQE (38 bytes) over a chain of writable segments, whatever their lengths.

    Spec: virtio-rdma VR-4.1, VR-4.8 to VR-4.13.
    Members: ``completion`` (stable while it works), ``start`` (a cycle): with ``odd`` the CQE goes
    to ``segment``, the chain's buffers, all of which are taken, else to ``addr``, where there is
    room; ``done`` (a cycle) with ``cause``, NONE when the CQE was written whole.
    Latency: 1 cycle and one per beat; with ``odd`` 2 more per segment, one per byte of a segment
    that ends inside the CQE. Errors: the chain's own; DESC_LENGTH when it has less than 38 bytes.
    """

    def __init__(self, *, config: NicConfig):
        self._width = config.width
        super().__init__(
            {
                "completion": In(Completion),
                "start": In(1),
                "odd": In(1),
                "addr": In(64),
                "segment": In(stream.Signature(Segment)),
                "done": Out(1),
                "cause": Out(QueueErrorCause),
                "write_client": Out(WriteClient(config.width)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        lanes = self._width // 8
        layout = amaranth_layout(CQE)
        fields = Signal(layout)
        completion, segment = self.completion, self.segment.payload
        m.d.comb += [
            fields.wr_id.eq(completion.wr_id),
            fields.status.eq(completion.status),
            fields.opcode.eq(completion.opcode),
            fields.vendor_err.eq(completion.vendor_error),
            fields.byte_len.eq(completion.byte_len),
            fields.ex.eq(ex(completion)),
            fields.qp_num.eq(completion.qp_num),
            fields.src_qp.eq(completion.src_qp),
            fields.wc_flags.eq(completion.flags),
            fields.pkey_index.eq(completion.pkey_index),
            fields.sl.eq(completion.sl),
            fields.port_num.eq(PORT),
        ]

        rest = Signal(8 * CQE.size, reset_less=True)  # bytes not written yet, from bit 0
        left = Signal(range(CQE.size + 1))
        run, shifts = Signal(range(CQE.size + 1)), Signal(range(CQE.size + 1))
        addr, first = Signal(64, reset_less=True), Signal()
        run_last, chained = Signal(), Signal()
        beat = self.write_client.beat.payload
        m.d.comb += [
            run_last.eq(run <= lanes),
            beat.stream_id.eq(STREAM_DATA),
            beat.function.eq(completion.function),
            beat.addr.eq(addr),
            beat.data.eq(rest),
            beat.keep.eq(keep_mask(run, lanes)),
            beat.first.eq(first),
            beat.last.eq(run_last),
        ]
        with m.FSM(name="state"):
            # IDLE: takes the CQE; ends when it is to be written: to its address, or with ``odd`` to
            # the segments.
            with m.State("IDLE"):
                m.d.sync += [
                    rest.eq(fields),
                    left.eq(CQE.size),
                    run.eq(CQE.size),
                    addr.eq(self.addr),
                    first.eq(1),
                    chained.eq(self.odd),
                ]
                with m.If(self.start):
                    m.next = "WRITE"
                    with m.If(self.odd):
                        m.next = "SEGMENT"
            # SEGMENT: takes the next segment of the chain, as far as the CQE needs it; ends when it
            # comes, and all with a broken chain.
            with m.State("SEGMENT"):
                m.d.sync += [
                    run.eq(Mux(segment.length < left, segment.length[: len(left)], left)),
                    addr.eq(segment.addr),
                    first.eq(1),
                ]
                with m.If(self.segment.valid):
                    with m.If(segment.cause != QueueErrorCause.NONE):
                        m.d.comb += [
                            self.segment.ready.eq(1),
                            self.done.eq(1),
                            self.cause.eq(segment.cause),
                        ]
                        m.next = "IDLE"
                    with m.Elif(left == 0):
                        m.next = "NEXT"
                    with m.Else():
                        m.next = "WRITE"
            # WRITE: writes the bytes of the segment; ends with the last beat of them.
            with m.State("WRITE"):
                m.d.comb += self.write_client.beat.valid.eq(1)
                with m.If(self.write_client.beat.ready):
                    m.d.sync += first.eq(0)
                    with m.If(run_last):
                        m.d.sync += [left.eq(left - run), shifts.eq(run)]
                        with m.If(~chained):
                            m.d.comb += self.done.eq(1)
                            m.next = "IDLE"
                        with m.Elif(left == run):
                            m.next = "NEXT"
                        with m.Else():
                            m.next = "SHIFT"
                    with m.Else():
                        m.d.sync += [
                            left.eq(left - lanes),
                            run.eq(run - lanes),
                            rest.eq(rest >> (8 * lanes)),
                        ]
            # SHIFT: brings what is left of the CQE to the beginning, a byte a cycle; ends when it
            # lies there.
            with m.State("SHIFT"):
                with m.If(shifts == 0):
                    m.next = "NEXT"
                with m.Else():
                    m.d.sync += [rest.eq(rest >> 8), shifts.eq(shifts - 1)]
            # NEXT: goes on to the next segment; one cycle, and the end of all with the last one.
            with m.State("NEXT"):
                m.d.comb += self.segment.ready.eq(1)
                with m.If(segment.last):
                    m.d.comb += self.done.eq(1)
                    with m.If(left != 0):
                        m.d.comb += self.cause.eq(QueueErrorCause.DESC_LENGTH)
                    m.next = "IDLE"
                with m.Else():
                    m.next = "SEGMENT"
        return m
