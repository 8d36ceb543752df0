"""From heads to the buffers of chains of one descriptor."""

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped
from amaranth.utils import ceil_log2

from hdl.abi.layout import amaranth_layout
from hdl.abi.virtio_pci import DESC, PACKED_DESC, DescFlags
from hdl.common.address import mask
from hdl.common.fifo import StreamFifo
from hdl.config import NicConfig
from hdl.ports.host import ReadClient

from .flow import ReadFlow
from .packed import is_packed
from .read import ReadShare
from .types import DESC_BYTES, FlowRead, HeadFound, Table, element

__all__ = ["SingleDescriptors"]


class SingleDescriptors(wiring.Component):
    """Reads the descriptor of each head; ``depth`` reads are in flight.

    Spec: Virtio 1.2, 2.7.5 (descriptor table).
    Parameters: ``least``, ``most``: bytes of a buffer that is taken; others are ``odd``;
    ``writable``: buffers the device writes are taken, and none it reads; ``guesses``: heads may be
    guessed; ``bypass`` as in ReadFlow.
    Members: ``i`` heads; ``table``: the descriptor table of each, in the same order; ``o`` one
    Element per head, in order; with ``guesses`` ``guess``: reads of the
    descriptors of heads that will come with ``guessed``, in their order. A guess that is right
    saves the head its host read, one that is not is read and left. Of a packed ring the Element has
    the buffer's id as its head.
    Latency: a host read plus 5 cycles. Throughput: a head in 3 cycles (4 at 64 bits).
    Errors: none of its own: a head beyond the table, a descriptor with NEXT, INDIRECT or of the
    wrong direction, a length beyond the bounds, a buffer in the last ``most`` bytes of the address
    space, memory that does not answer: ``odd``. Without an answer of a packed ring there is no id:
    the Element has failed. A failed head passes as it is, odd as well.
    """

    def __init__(
        self,
        *,
        config: NicConfig,
        least: int,
        most: int,
        depth: int,
        writable: bool = False,
        guesses: bool = True,
        bypass: bool = True,
    ):
        if not 1 <= least <= most <= 65536:
            raise ValueError(f"Bounds must be 1 to 65536 bytes, not {least!r} to {most!r}")
        self._config, self._least, self._most, self._depth = config, least, most, depth
        self._writable, self._guesses, self._bypass = writable, guesses, bypass
        members = {
            "i": In(stream.Signature(HeadFound)),
            "table": In(stream.Signature(Table)),
            "o": Out(stream.Signature(element(most))),
            "read_client": Out(ReadClient(config.width)),
        }
        if guesses:
            members["guess"] = In(stream.Signature(FlowRead))
        super().__init__(members)

    def elaborate(self, platform):
        m = Module()
        waiting = data.StructLayout(
            {"head": 16, "failed": 1, "table": Table, "odd": 1, "right": 1, "guessed": 1}
        )
        m.submodules.waits = waits = StreamFifo(shape=waiting, depth=self._depth)
        width, depth = self._config.width, self._depth
        m.submodules.flow = flow = ReadFlow(
            config=self._config, size=DESC_BYTES, reads=depth, bypass=self._bypass
        )
        if self._guesses:
            m.submodules.guesses = guesses = ReadFlow(
                config=self._config, size=DESC_BYTES, reads=depth
            )
            m.submodules.share = share = ReadShare(
                width=width, clients=2, depth=max(8, 2 * depth), register=False
            )
            connect(m, flow.read_client, share.client0)
            connect(m, guesses.read_client, share.client1)
            connect(m, share.read_client, flipped(self.read_client))
            # A guess that has to wait is not made, so there is room for some.
            m.submodules.guessing = guessing = StreamFifo(shape=FlowRead, depth=16)
            connect(m, flipped(self.guess), guessing.i)
            connect(m, guessing.o, guesses.i)
        else:
            connect(m, flow.read_client, flipped(self.read_client))
        self._ask(m, waits, flow)
        self._take(m, waits, flow)
        return m

    def _ask(self, m: Module, waits, flow) -> None:
        """Ask for the descriptor of a head, unless it was guessed right or there is none."""
        found, found_valid = Signal(HeadFound, reset_less=True), Signal()
        table = Signal(Table, reset_less=True)
        outside, right, gone = Signal(), Signal(), Signal()
        m.d.comb += [
            outside.eq(found.failed | ((found.head & ~mask(table.size_log2)) != 0)),
            right.eq(found.guessed & (found.head == found.guess)),
            flow.i.payload.function.eq(table.function),
            flow.i.payload.addr.eq(table.desc),
            flow.i.payload.offset.eq(DESC_BYTES * found.head),
            flow.i.payload.length.eq(DESC_BYTES),
            flow.i.valid.eq(found_valid & ~outside & ~right & waits.i.ready),
            waits.i.payload.head.eq(found.head),
            waits.i.payload.failed.eq(found.failed),
            waits.i.payload.table.eq(table),
            waits.i.payload.guessed.eq(found.guessed),
            waits.i.payload.odd.eq(outside),
            waits.i.payload.right.eq(right),
            waits.i.valid.eq(found_valid & (outside | right | flow.i.ready)),
            gone.eq(waits.i.valid & waits.i.ready),
            self.i.ready.eq(~found_valid & self.table.valid),
            self.table.ready.eq(~found_valid & self.i.valid),
        ]
        with m.If(~found_valid):
            m.d.sync += [
                found.eq(self.i.payload),
                table.eq(self.table.payload),
                found_valid.eq(self.i.valid & self.table.valid),
            ]
        with m.If(gone):
            m.d.sync += found_valid.eq(0)

    def _take(self, m: Module, waits, flow) -> None:
        """Take descriptors as they come; a guess first, which is the descriptor or nothing."""
        width = self._config.width
        desc = Signal(amaranth_layout(DESC), reset_less=True)
        failed, guessed = Signal(reset_less=True), Signal()
        unfit, coming = Signal(), Signal()
        waited, element = waits.o.payload, self.o.payload
        beat, beat_valid = Signal.like(flow.o.payload), Signal()
        from_guess = Signal()
        m.d.comb += [beat.eq(flow.o.payload), beat_valid.eq(flow.o.valid)]
        if self._guesses:
            m.d.comb += from_guess.eq(waited.guessed & ~guessed)
            with m.If(from_guess):
                m.d.comb += [
                    beat.eq(m.submodules.guesses.o.payload),
                    beat_valid.eq(m.submodules.guesses.o.valid),
                ]
        bits = Signal(8 * DESC_BYTES)
        if width >= 8 * DESC_BYTES:
            m.d.comb += bits.eq(beat.data)
        else:
            kept = Signal(8 * DESC_BYTES - width, reset_less=True)
            m.d.comb += bits.eq(Cat(kept, beat.data))
            with m.If(beat_valid & ~beat.last):
                m.d.sync += kept.eq(beat.data)
        m.d.comb += [
            element.head.eq(waited.head),
            element.place.eq(waited.head),
            element.failed.eq(waited.failed),
            element.table.eq(waited.table),
            element.addr.eq(desc.addr),
            element.length.eq(desc.len),
            element.odd.eq(waited.odd | failed | unfit),
        ]
        packed = is_packed(self._config, waited.table.rules)
        with m.If(packed):
            m.d.comb += [
                element.head.eq(_as_packed(desc).id),
                element.failed.eq(waited.failed | (failed & ~waited.odd)),
            ]

        def is_unfit(desc):
            flags = Mux(packed, _as_packed(desc).flags, desc.flags)
            return (
                ((flags & (DescFlags.NEXT | DescFlags.INDIRECT)) != 0)
                | (((flags & DescFlags.WRITE) != 0) != int(self._writable))
                | (desc.len < self._least)
                | (desc.len > self._most)
                | desc.addr[ceil_log2(self._most) :].all()
            )

        # What comes by way of a FIFO is early enough to be judged as it comes.
        if self._bypass:
            m.d.comb += unfit.eq(is_unfit(desc))
        else:
            m.d.comb += coming.eq(is_unfit(data.View(desc.shape(), bits)))
        with m.FSM(name="take"):
            # WAIT: waits for the next descriptor; ends with it, or at once if none is read.
            with m.State("WAIT"):
                m.d.sync += [desc.eq(bits), failed.eq(beat.error)]
                if not self._bypass:
                    m.d.sync += unfit.eq(coming)
                with m.If(~waits.o.valid):
                    pass
                if self._guesses:
                    with m.Elif(from_guess):
                        m.d.comb += m.submodules.guesses.o.ready.eq(1)
                        with m.If(beat_valid & beat.last):
                            m.d.sync += guessed.eq(1)
                            with m.If(waited.right):
                                m.next = "GIVE"
                with m.Elif(waited.odd):
                    m.next = "GIVE"
                with m.Else():
                    m.d.comb += flow.o.ready.eq(1)
                    with m.If(beat_valid & beat.last):
                        m.next = "GIVE"
            # GIVE: gives it, with what is known of it; ends when it is taken.
            with m.State("GIVE"):
                m.d.comb += [self.o.valid.eq(1), waits.o.ready.eq(self.o.ready)]
                m.d.sync += guessed.eq(0)
                with m.If(self.o.ready):
                    m.next = "WAIT"


def _as_packed(desc) -> data.View:
    """The same bytes as a descriptor of a packed ring."""
    return data.View(amaranth_layout(PACKED_DESC), Value.cast(desc))
