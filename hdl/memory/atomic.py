"""Atomic operations on words of host memory."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.contract import require, taken_at_once
from hdl.common.fifo import StreamFifo
from hdl.common.sums import wide_sum
from hdl.common.tables import TableWrite
from hdl.config import NicConfig
from hdl.ports.atomics import AtomicRequest, AtomicResult
from hdl.ports.host import STREAM_DATA, ReadClient, WriteClient
from hdl.ports.numbers import QpNumber
from hdl.wire.opcodes import ATOMIC_BYTES

from .cut import word_use
from .types import AtomicWord, WordUse

__all__ = ["DEPTH", "AtomicUnit"]

#: Words at work: 500 ns of the host and what is around it, at 20 million a second, and a reserve.
DEPTH = 32
#: Requests that wait for their words: those of all jobs that Scatter has, and some on their way.
REQUESTS = 64


class AtomicUnit(wiring.Component):
    """Reads a word, works out what it becomes, and writes it; one operation on a word at a time.

    All atomics of the card pass here, so they are atomic among its QPs and functions. They are
    executed in their order (``word``), but their host reads overlap: an in-order pipeline with a
    scoreboard of the words that are at work. An operation on one of them reads nothing: it takes
    what the one before has made of the word (store-to-load forwarding). A word leaves the
    scoreboard when its write has been accepted. A read that is asked for later finds it, since no
    host read overtakes a write of the NIC.
    An ATOMIC WRITE is an operation that needs nothing of its word, and so reads nothing. A FLUSH
    (``WordUse.READ``) always reads, and changes nothing: when the host has answered, it has all
    that was written before, because on its way no read overtakes a write.
    Spec: IBTA vol 1, 9.4.5 (ATOMIC operations), 9.4.5.1 (atomicity), A19.4 (FLUSH, ATOMIC WRITE).
    Members: ``request``: what each operation does, in the order of ``word`` and not behind it;
    ``word``: its place, of which an operation that is dropped takes only the request; ``qp`` In,
    ``busy`` Out: whether an operation of that QP that may change its word is at work, ``word``
    included; ``read_client``, ``write_client``; ``result`` (a cycle): the old value, with the place
    it is kept at; ``done`` (a cycle): an operation that was not dropped has its result kept, and
    its write accepted; ``changed`` (with it): it is one that may change its word.
    Latency: 6 cycles and a host read; with forwarding 7 cycles. Throughput: an operation in 3
    cycles with forwarding, in 4 without, as long as no more than ``DEPTH`` are at work.
    Errors: a word that cannot be read is not written, and its result has ``failed``. Reset: empty;
    no host read may be in flight.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "request": In(stream.Signature(AtomicRequest, always_ready=True)),
                "word": In(stream.Signature(AtomicWord)),
                "qp": In(QpNumber),
                "busy": Out(1),
                "read_client": Out(ReadClient(config.width)),
                "write_client": Out(WriteClient(config.width)),
                "result": Out(TableWrite(16, AtomicResult)),
                "done": Out(1),
                "changed": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        slot = range(DEPTH)
        row = data.StructLayout(
            {"function": 8, "addr": 64, "slot": slot, "drop": 1, "forwarded": 1, "source": slot}
            | word_use(self._config)
        )
        m.submodules.requests = requests = StreamFifo(shape=AtomicRequest, depth=REQUESTS)
        m.submodules.rows = rows = StreamFifo(shape=row, depth=2 * DEPTH)
        valid = Signal(DEPTH)  # the scoreboard's words
        retired, retires = Signal(slot), Signal()
        m.d.comb += [requests.i.valid.eq(self.request.valid), requests.i.p.eq(self.request.p)]
        self._take(m, platform, rows, valid)
        taken_at_once(m, platform, requests.i, "there is room for each operation")
        self._execute(m, platform, rows, requests, retired, retires)
        with m.If(retires):
            m.d.sync += valid.bit_select(retired, 1).eq(0)
        return m

    def _take(self, m: Module, platform, rows: StreamFifo, valid: Signal) -> None:
        """Words enter the scoreboard, and are read unless they are there."""
        at = Signal(AtomicWord, reset_less=True)
        head = Signal(range(DEPTH))
        words = [Signal(64 + 8, name=f"word{n}", reset_less=True) for n in range(DEPTH)]
        qps = [Signal(QpNumber, name=f"qp{n}", reset_less=True) for n in range(DEPTH)]
        changes = Signal(DEPTH) if self._config.placement else Const(-1, DEPTH)  # all but FLUSHes
        newest = Signal(DEPTH)  # the last operation on its word
        match = Signal(DEPTH)  # ... if that is the word at hand: one bit or none
        arriving, word = self.word.payload, Cat(at.addr, at.function)
        forwarded, enters, asked = Signal(), Signal(), self.read_client.req
        room = Signal(init=1)  # the place at ``head`` is free; a register, as pipelines wait for it
        row = rows.i.payload
        m.d.comb += [
            forwarded.eq(match.any()),
            asked.payload.function.eq(at.function),
            asked.payload.addr.eq(at.addr),
            asked.payload.length.eq(ATOMIC_BYTES),
            row.function.eq(at.function),
            row.addr.eq(at.addr),
            row.slot.eq(head),
            row.drop.eq(at.drop),
            row.forwarded.eq(forwarded),
            row.source.eq(_number(match)),
        ]
        reads = Const(0)  # a FLUSH, from which nothing is forwarded, and nothing to it
        comes = self.word.valid  # ... and no FLUSH
        if self._config.placement:
            reads, stores = at.use == WordUse.READ, at.use == WordUse.STORE
            comes &= arriving.use != WordUse.READ
            m.d.comb += row.word.eq(at.use)
            with m.If(reads):
                m.d.comb += [forwarded.eq(0), asked.payload.addr[:3].eq(0)]
            with m.If(stores):
                m.d.comb += forwarded.eq(1)  # it needs nothing of its word
        with m.FSM(name="take") as fsm:
            # IDLE: takes a word and compares it with those at work; ends with it.
            with m.State("IDLE"):
                m.d.comb += self.word.ready.eq(rows.i.ready & room)
                m.d.sync += [at.eq(arriving), room.eq(~valid.bit_select(head, 1))]
                for n in range(DEPTH):
                    same = words[n] == Cat(arriving.addr, arriving.function)
                    m.d.sync += match[n].eq(valid[n] & newest[n] & same)
                with m.If(self.word.valid & self.word.ready):
                    m.next = "ENTER"
            # ENTER: asks the host for the word, unless an operation at work has it; ends when the
            # word is in the scoreboard. One that has left it meanwhile can still be forwarded.
            with m.State("ENTER"):
                m.d.comb += [
                    asked.valid.eq(~at.drop & ~forwarded),
                    enters.eq(~asked.valid | asked.ready),
                    rows.i.valid.eq(enters),
                ]
                m.d.sync += room.eq(~valid.bit_select((head + 1)[: len(head)], 1))
                with m.If(enters):
                    m.next = "IDLE"
        require(m, platform, (match & (match - 1)) == 0, "one operation is the last on its word")
        taken = enters & ~at.drop & valid.bit_select(head, 1)
        require(m, platform, ~taken, "no operation takes the place of one that is at work")
        with m.If(enters & ~at.drop):
            m.d.sync += head.eq(head + 1)
            with m.If(~reads):
                m.d.sync += newest.eq(newest & ~match)
            with m.Switch(head):
                for n in range(DEPTH):
                    with m.Case(n):
                        m.d.sync += [
                            words[n].eq(word),
                            qps[n].eq(at.qp),
                            valid[n].eq(1),
                            newest[n].eq(~reads),
                        ]
                        if self._config.placement:
                            m.d.sync += changes[n].eq(~reads)
        among = Cat(
            valid[n] & changing & (qps[n] == self.qp) for n, changing in enumerate(changes)
        ).any()
        m.d.comb += self.busy.eq(comes | (~fsm.ongoing("IDLE") & ~reads) | among)

    def _execute(self, m: Module, platform, rows, requests, retired, retires) -> None:
        """One operation after the other, when its word is there."""
        m.submodules.answers = answers = StreamFifo(shape=AtomicResult, depth=DEPTH)
        m.submodules.values = values = memory.Memory(shape=AtomicResult, depth=DEPTH, init=[])
        store, load = values.write_port(), values.read_port(domain="comb")
        row, request = rows.o.payload, requests.o.payload
        old, total = Signal(AtomicResult, reset_less=True), Signal(64, reset_less=True)
        equal, changes = Signal(reset_less=True), Signal()
        beat, answer = self.write_client.beat, self.read_client.rsp
        taken_at_once(m, platform, answers.i, "there is room for each word that was asked for")
        m.d.comb += [
            answers.i.valid.eq(answer.valid & answer.payload.last),
            answers.i.payload.value.eq(answer.payload.data),
            answers.i.payload.failed.eq(answer.payload.error),
            load.addr.eq(row.source),
            store.addr.eq(row.slot),
            store.en.eq(retires),
            store.data.failed.eq(old.failed),
            store.data.value.eq(
                Mux(request.compares, Mux(equal, request.swap_add, old.value), total)
            ),
            changes.eq((~request.compares | equal) & ~old.failed),
            beat.payload.stream_id.eq(STREAM_DATA),
            beat.payload.function.eq(row.function),
            beat.payload.addr.eq(row.addr),
            beat.payload.data.eq(store.data.value),
            beat.payload.keep.eq((1 << ATOMIC_BYTES) - 1),
            beat.payload.first.eq(1),
            beat.payload.last.eq(1),
            retired.eq(row.slot),
            self.done.eq(retires),
            self.changed.eq(retires),
            self.result.index.eq(request.resource),
            self.result.row.eq(old),
            self.result.enable.eq(retires),
        ]
        if self._config.placement:
            with m.If(row.word == WordUse.READ):
                m.d.comb += [changes.eq(0), self.changed.eq(0)]
        added = wide_sum(m, old.value, request.swap_add)[:64]
        with m.FSM(name="execute"):
            # WORD: takes what the word holds; ends when that is known. Dropped ones just go.
            with m.State("WORD"):
                m.d.sync += old.eq(Mux(row.forwarded, load.data, answers.o.payload))
                if self._config.placement:
                    with m.If(row.word == WordUse.STORE):
                        m.d.sync += old.eq(0)  # what is added to it is the word
                with m.If(rows.o.valid & requests.o.valid):
                    with m.If(row.drop):
                        m.d.comb += [rows.o.ready.eq(1), requests.o.ready.eq(1)]
                    with m.Elif(row.forwarded | answers.o.valid):
                        m.d.comb += answers.o.ready.eq(~row.forwarded)
                        m.next = "VALUE"
            # VALUE: works out what it becomes; ends by itself.
            with m.State("VALUE"):
                m.d.sync += [total.eq(added), equal.eq(old.value == request.compare)]
                m.next = "WRITE"
            # WRITE: writes it if it changes, and keeps the result; ends when the write is accepted.
            with m.State("WRITE"):
                m.d.comb += beat.valid.eq(changes)
                with m.If(~changes | beat.ready):
                    m.d.comb += [retires.eq(1), rows.o.ready.eq(1), requests.o.ready.eq(1)]
                    m.next = "WORD"


def _number(one_hot: Signal):
    """The number of the bit that is set."""
    bits = ceil_log2(len(one_hot))
    return Cat(
        Cat(one_hot[n] for n in range(len(one_hot)) if n >> bit & 1).any() for bit in range(bits)
    )
