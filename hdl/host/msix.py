"""MSI-X: table, pending bits, and interrupts as writes to the host.

Spec: PCI Local Bus 3.0, 6.8.2 (structures), 6.8.3.4 (masking and pending bits).
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi import virtio_pci as abi
from hdl.common.address import kept
from hdl.common.contract import require
from hdl.common.ram import Ram
from hdl.config import NicConfig
from hdl.ports.host import STREAM_DATA, WriteClient
from hdl.ports.jobs import Interrupt

from .local import NOTHING_THERE, LocalPort, merge

__all__ = ["Msix"]


class MsixEntry(data.Struct):
    """One vector; addresses are kept to multiples of 4 so that a message is never split."""

    address: 64
    data: 32
    masked: 1


class Msix(wiring.Component):
    """Sends a 4-byte write for each interrupt, or keeps it pending while it is masked.

    Parameters: ``vectors``: how many there are; ``function``: the PCI function that writes.
    Members: ``i``, stream of Interrupt; ``write`` (``WriteClient``); ``table`` and ``pending``, the
    two structures' registers; ``enable`` In; ``mask`` In holds all vectors back; ``flush`` In (one
    cycle) forgets all pending bits (device reset); ``clear`` In, held
    during a function-level reset, does so too, and makes the table what it is after reset; writes
    to the table are lost then. ``clean`` Out: it has been done.
    Latency: 2 cycles from ``i`` to the write when idle; after unmasking, at most 4 cycles for each
    vector of the table. Throughput: one interrupt in 2 cycles; several for one masked vector become
    one. A register access is answered within a few cycles, whatever the write side does.
    Errors: a vector beyond the table (0xFFFF too) is ignored. Addresses lose their low two bits.
    Reset: every vector masked, nothing pending; a device reset leaves the table as it is.
    """

    def __init__(self, *, config: NicConfig, vectors: int, function: int):
        self._config = config
        self._width, self._vectors, self._function = config.width, vectors, function
        super().__init__(
            {
                "i": In(stream.Signature(Interrupt)),
                "write": Out(WriteClient(config.width)),
                "table": In(LocalPort(15)),
                "pending": In(LocalPort(12)),
                "enable": In(1),
                "mask": In(1),
                "flush": In(1),
                "clear": In(1),
                "clean": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        vectors, words = self._vectors, -(-self._vectors // 32)
        m.submodules.entries = entries = Ram(shape=MsixEntry, depth=vectors)
        m.submodules.bits = bits = Ram(shape=32, depth=words)
        count = Signal(range(vectors + 1))  # pending bits that are set
        index = Signal(range(vectors))
        scan = Signal(range(vectors))
        scanning = Signal()
        table_waits, pending_waits, flush_waits = Signal(), Signal(), Signal()
        clear_waits, clearing = Signal(), Signal()
        busy = table_waits | pending_waits | flush_waits | clear_waits
        m.d.sync += clearing.eq(self.clear)
        m.d.comb += self.clean.eq(clearing & ~clear_waits)

        message, full = self._message(m, (table_waits, pending_waits, flush_waits))
        open_, entry, bit = Signal(), entries.read0.row, Signal()
        m.d.comb += [
            open_.eq(self.enable & ~self.mask),
            bit.eq(bits.read0.row.bit_select(index[:5], 1)),
        ]
        with m.FSM(name="vector", init="CLEAR"):
            # CLEAR: masks one entry after the other; ends with the last one.
            with m.State("CLEAR"):
                m.d.comb += [
                    entries.write.index.eq(index),
                    entries.write.row.masked.eq(1),
                    entries.write.enable.eq(1),
                ]
                m.d.sync += [index.eq(index + 1), scan.eq(0)]
                with m.If(index == vectors - 1):
                    m.d.sync += index.eq(0)
                    m.next = "FLUSH"
            # FLUSH: clears the pending bits, a word a cycle; ends with the last one.
            with m.State("FLUSH"):
                m.d.comb += [bits.write.index.eq(index), bits.write.enable.eq(1)]
                m.d.sync += [index.eq(index + 1), flush_waits.eq(0), count.eq(0)]
                with m.If(index == words - 1):
                    m.d.sync += clear_waits.eq(0)
                    m.next = "IDLE"
            # IDLE: takes a flush, an access, an interrupt, or the next vector of the scan; ends
            # with one.
            with m.State("IDLE"):
                m.d.comb += self.i.ready.eq(~busy)
                m.d.comb += [entries.read0.enable.eq(1), bits.read0.enable.eq(1)]
                m.d.sync += scanning.eq(0)
                with m.If(clear_waits):
                    m.d.sync += index.eq(0)
                    m.next = "CLEAR"
                with m.Elif(flush_waits):
                    m.d.sync += index.eq(0)
                    m.next = "FLUSH"
                with m.Elif(table_waits):
                    m.d.comb += entries.read0.index.eq(self.table.addr[4:])
                    m.next = "TABLE"
                with m.Elif(pending_waits):
                    m.d.comb += bits.read0.index.eq(self.pending.addr[2:])
                    m.next = "PENDING"
                with m.Elif(self.i.valid):
                    m.d.comb += [
                        entries.read0.index.eq(self.i.payload.vector),
                        bits.read0.index.eq(self.i.payload.vector[5:]),
                    ]
                    m.d.sync += index.eq(self.i.payload.vector)
                    with m.If(self.i.payload.vector < vectors):
                        m.next = "LOOKUP"
                with m.Elif((count != 0) & open_ & ~full):
                    m.d.comb += [
                        entries.read0.index.eq(scan),
                        bits.read0.index.eq(scan[5:]),
                    ]
                    m.d.sync += [
                        index.eq(scan),
                        scan.eq(Mux(scan == vectors - 1, 0, scan + 1)),
                        scanning.eq(1),
                    ]
                    m.next = "LOOKUP"
            # LOOKUP: sends an interrupt that is wanted, new or found pending by the scan, or notes
            # it as pending; one cycle.
            with m.State("LOOKUP"):
                m.d.comb += bits.write.index.eq(index[5:])
                place = Const(1, 32) << index[:5]
                with m.If(open_ & ~entry.masked & ~full):
                    with m.If(bit | ~scanning):
                        m.d.sync += [
                            full.eq(1),
                            message.address.eq(entry.address),
                            message.data.eq(entry.data),
                        ]
                    with m.If(bit):
                        m.d.comb += [
                            bits.write.row.eq(bits.read0.row & ~place),
                            bits.write.enable.eq(1),
                        ]
                        m.d.sync += count.eq(count - 1)
                with m.Elif(~scanning & ~bit):
                    m.d.comb += [
                        bits.write.row.eq(bits.read0.row | place),
                        bits.write.enable.eq(1),
                    ]
                    m.d.sync += count.eq(count + 1)
                m.next = "IDLE"
            # TABLE: answers an access to the table; one cycle.
            with m.State("TABLE"):
                self._table(m, entries, entry)
                m.d.sync += table_waits.eq(0)
                m.next = "IDLE"
            # PENDING: answers an access to the pending bits; one cycle.
            with m.State("PENDING"):
                exists = self.pending.addr[2:] < words
                m.d.sync += [
                    pending_waits.eq(0),
                    self.pending.done.eq(1),
                    self.pending.read_data.eq(Mux(exists, bits.read0.row, 0)),
                ]
                m.next = "IDLE"
        with m.If(self.clear & ~clearing):
            m.d.sync += clear_waits.eq(1)
        require(m, platform, count <= vectors, "no more vectors are pending than there are")
        return m

    def _message(self, m: Module, waits) -> tuple[Signal, Signal]:
        """Note what waits for the machine, and send the message that is ready.

        Returns the message, and whether there is one."""
        table_waits, pending_waits, flush_waits = waits
        for port, waiting in ((self.table, table_waits), (self.pending, pending_waits)):
            m.d.sync += port.done.eq(0)
            with m.If(port.start):
                m.d.sync += waiting.eq(1)
        with m.If(self.flush):
            m.d.sync += flush_waits.eq(1)

        beat = self.write.beat
        full = Signal()
        message = Signal(data.StructLayout({"address": 64, "data": 32}), reset_less=True)
        m.d.comb += [
            beat.valid.eq(full),
            beat.payload.stream_id.eq(STREAM_DATA),
            beat.payload.function.eq(self._function),
            beat.payload.addr.eq(message.address),
            beat.payload.data.eq(message.data),
            beat.payload.keep.eq(0b1111),
            beat.payload.first.eq(1),
            beat.payload.last.eq(1),
        ]
        with m.If(beat.ready):
            m.d.sync += full.eq(0)
        return message, full

    def _table(self, m: Module, entries: Ram, entry) -> None:
        """Answer an access to the table; its entry is at the RAM's output."""
        port = self.table
        exists = Signal()
        value, merged = Signal(32), Signal(32)
        m.d.comb += exists.eq(port.addr[4:] < self._vectors)
        words = (
            (abi.MSIX_ENTRY.offset("message_address"), entry.address[:32]),
            (abi.MSIX_ENTRY.offset("message_address") + 4, entry.address[32:]),
            (abi.MSIX_ENTRY.offset("message_data"), entry.data),
            (abi.MSIX_ENTRY.offset("vector_control"), entry.masked),
        )
        row = entries.write.row
        m.d.comb += [
            merged.eq(merge(value, port)),
            entries.write.index.eq(port.addr[4:]),
            entries.write.enable.eq(port.write & exists & ~self.clear),
            row.eq(entry),
        ]
        with m.Switch(port.addr[:4]):
            for offset, part in words:
                with m.Case(offset):
                    m.d.comb += value.eq(part)
        with m.Switch(port.addr[:4]):
            with m.Case(words[0][0]):
                m.d.comb += row.address[:32].eq(kept(self._config, Cat(Const(0, 2), merged[2:])))
            with m.Case(words[1][0]):
                m.d.comb += row.address[32:].eq(kept(self._config, Cat(Const(0, 32), merged))[32:])
            with m.Case(words[2][0]):
                m.d.comb += row.data.eq(merged)
            with m.Case(words[3][0]):
                m.d.comb += row.masked.eq(merged[0])
        m.d.sync += [
            port.done.eq(1),
            port.read_data.eq(Mux(exists, value, NOTHING_THERE)),
        ]
