"""The registers of the connections of DC, and the port of what serves them."""

from amaranth.hdl import Module, Signal

__all__ = ["connect_connections"]


def connect_connections(m: Module, block, port) -> None:
    """The registers of the block ``connections`` (``hdl/csr/connections.py``) and its port. A
    packet to send is kept in a register, as the firmware writes it word by word."""
    received, window, words = port.received, block.received_row, block.sent_row
    sent = Signal(port.sent.payload.shape(), reset_less=True)
    m.d.sync += window.read_data.eq(received.payload.as_value().word_select(window.index, 32))
    with m.If(words.enable & words.write):
        m.d.sync += sent.as_value().word_select(words.index, 32).eq(words.data)
    with m.If(block.control_send):
        m.d.sync += port.sent.valid.eq(1)
    with m.Elif(port.sent.ready):
        m.d.sync += port.sent.valid.eq(0)
    m.d.comb += [
        port.sent.payload.eq(sent),
        received.ready.eq(block.control_take),
        block.status_received.eq(received.valid),
        block.status_sending.eq(port.sent.valid | block.control_send),
        block.status_asks.eq(port.asks),
        block.dropped.eq(port.dropped),
        port.qp.eq(block.qp),
        port.forget.eq(block.forget),
        block.asked_destination.eq(port.destination),
        block.asked_stream.eq(port.stream),
        block.status_asked.eq(port.asked),
    ]
