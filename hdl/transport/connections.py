"""Packets that open and close connections of DC, between the wire and the firmware."""

from amaranth.hdl import Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.arbiter import StreamArbiter
from hdl.common.contract import keeps_offers
from hdl.common.count import increment
from hdl.common.fifo import StreamFifo
from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.connections import ConnectionPort
from hdl.ports.headers import ReceivedControl, RxHeader, TxHeader
from hdl.ports.shared import CONTROL_BYTES, DC_NUMBER, DC_STREAM, control_content, received_control
from hdl.wire.opcodes import DcControl

from .send.connected import DcAsked

__all__ = ["Connections"]

#: Packets that wait for the firmware.
WAITING = 8


class Connections(wiring.Component):
    """Takes the packets of ``DcControl`` out of those that have come, and puts the firmware's into
    those that go out; keeps what initiators wait for.

    Spec: docs/extensions.md, extension DC.
    Members: ``header`` In, ``passed`` Out: packets that came, with those of ``DcControl`` and
    without them; ``answer`` In, ``o`` Out: packets without payload to send, without the firmware's
    and with them; ``apart`` In: a request is held; ``port`` In: the firmware.
    Latency: 0 cycles from ``header`` to ``passed``, 1 from ``answer`` to ``o``. Throughput: one
    packet per cycle. Errors: a packet of ``DcControl`` that finds ``WAITING`` others is dropped and
    counted in ``port.dropped``. Reset: no packets; what is asked for stays, until the firmware
    forgets it.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "header": In(stream.Signature(RxHeader)),
                "passed": Out(stream.Signature(RxHeader)),
                "answer": In(stream.Signature(TxHeader)),
                "o": Out(stream.Signature(TxHeader)),
                "apart": In(DcAsked),
                "port": In(ConnectionPort()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        port = self.port
        m.submodules.waiting = waiting = StreamFifo(shape=ReceivedControl, depth=WAITING)
        connect(m, waiting.o, flipped(port.received))
        header, control = self.header.payload, Signal()
        m.d.comb += [
            control.eq(header.opcode.matches(*DcControl)),
            self.passed.payload.eq(header),
            self.passed.valid.eq(self.header.valid & ~control),
            waiting.i.valid.eq(self.header.valid & control),
            waiting.i.payload.content.eq(received_control(header)),
            self.header.ready.eq(control | self.passed.ready),
        ]
        for name in ("opcode", "dest_qp", "psn", "pkey", "function", "gid_index"):
            m.d.comb += waiting.i.payload[name].eq(header[name])
        for name in ("src_gid", "src_mac"):
            m.d.comb += waiting.i.payload[name].eq(header[name])
        with m.If(waiting.i.valid & ~waiting.i.ready):
            increment(m, port.dropped)
        self._send(m)
        self._ask(m)
        keeps_offers(m, platform, self)
        return m

    def _send(self, m: Module) -> None:
        """The firmware's packets, between the answers of the QPs."""
        m.submodules.arbiter = arbiter = StreamArbiter(shape=TxHeader, inputs=2)
        connect(m, flipped(self.answer), arbiter.i0)
        connect(m, arbiter.o, flipped(self.o))
        packet, header = self.port.sent.payload, arbiter.i1.payload
        m.d.comb += [
            arbiter.i1.valid.eq(self.port.sent.valid),
            self.port.sent.ready.eq(arbiter.i1.ready),
            header.av.eq(packet.av),
        ]
        for name in ("opcode", "dest_qp", "psn", "pkey", "ack_request"):
            m.d.comb += header[name].eq(packet[name])
        at = 0
        for name in ("va", "rkey", "dma_length", "imm", "msn", "syndrome"):
            m.d.comb += header[name].eq(packet.content[at : at + len(header[name])])
            at += len(header[name])
        m.d.comb += header.departure.psn.eq(packet.content[at:])
        assert len(control_content(header)) == 8 * CONTROL_BYTES == len(packet.content)

    def _ask(self, m: Module) -> None:
        """What each initiator waits for; a request that is held comes before the firmware."""
        port, apart = self.port, self.apart
        row = data.StructLayout({"destination": DC_NUMBER, "stream": DC_STREAM, "valid": 1})
        m.submodules.asked = asked = Ram(shape=row, depth=self._config.qps, forward=True)
        forgets, forgotten = Signal(), Signal.like(port.qp)
        m.d.comb += [
            asked.read0.index.eq(port.qp),
            asked.read0.enable.eq(1),
            port.asked.eq(asked.read0.row.valid),
            port.destination.eq(asked.read0.row.destination),
            port.stream.eq(asked.read0.row.stream),
            asked.write.enable.eq(apart.valid | forgets),
            asked.write.index.eq(forgotten),
        ]
        with m.If(port.forget):
            m.d.sync += [forgets.eq(1), forgotten.eq(port.qp)]
        with m.Elif(~apart.valid):
            m.d.sync += forgets.eq(0)
        with m.If(apart.valid):
            m.d.comb += [
                asked.write.index.eq(apart.qp),
                asked.write.row.destination.eq(apart.destination),
                asked.write.row.stream.eq(apart.stream),
                asked.write.row.valid.eq(1),
            ]
            m.d.sync += port.asks.eq(port.asks + 1)
