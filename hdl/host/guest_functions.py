"""All guest functions of the card, and what of them the engines see as one."""

from amaranth.hdl import Array, Cat, Const, Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.arbiter import StreamArbiter
from hdl.common.tables import TableProgram, TableRead
from hdl.config import FUNCTION_RDMA, NicConfig
from hdl.ports.boxes import FunctionStatus
from hdl.ports.counter_names import COUNTER_INDEX, QP_COUNTER_INDEX, QP_COUNTER_SLOTS
from hdl.ports.host import WriteClient, write_beat
from hdl.ports.jobs import Doorbell, Interrupt, QueueError
from hdl.ports.numbers import card_number, number_in, ordinal_in, ordinal_of
from hdl.ports.rows import QueueRow

from .local import FunctionBus
from .virtio import VirtioFunction

__all__ = ["FLR_ANSWERS", "GuestFunctions"]


#: What each function says of its function-level reset.
FLR_ANSWERS = ("flr_clean", "flr_over", "fenced")


class Turns:
    """Whose turn it is among several askers: it stays with one who asks, and rests with the last
    one while nobody does, so that an idle card does not change."""

    def __init__(self, m: Module, asks: list, name: str):
        self.now = Signal(range(len(asks)), name=name)
        if len(asks) > 1:
            with m.If(Cat(asks).any() & ~Array(asks)[self.now]):
                m.d.sync += self.now.eq(self.now + 1)
                with m.If(self.now == len(asks) - 1):
                    m.d.sync += self.now.eq(0)


class GuestFunctions(wiring.Component):
    """A ``VirtioFunction`` for each guest function, joined to the engines, which serve them all.

    The engines know objects by the card's numbers, each function by its own
    (``hdl/ports/numbers.py``); here is the border. With one function there are wires alone.

    Members: ``bus0``..: all accesses of a function. ``status0``..: its state, and its device reset
    (``FunctionStatus``). Shared by all, with the card's numbers: ``doorbell``, ``queue_reset`` (of
    a function that is not in reset; taken when it is done), ``counters`` and ``qp_counters`` Out;
    ``interrupt``, ``queue_error``, ``queue_read0``.. and ``control_read`` (rows of the virtqueues),
    ``program`` (the firmware's view of them) In; ``write`` Out: MSI-X messages. A bit for each
    function: ``intx`` and the negotiated features (``told_features``) Out; ``flr`` In and
    ``flr_clean``, ``flr_over``, ``fenced`` Out, see ``VirtioFunction``; ``pushes`` Out, on a card
    with push windows: those that may push.
    Latency and throughput: those of ``VirtioFunction``; with several functions doorbells and
    messages take a cycle longer. Errors: see ``VirtioFunction``.
    Reset: power-on state; with several functions a device reset of one leaves the others alone.
    """

    def __init__(self, *, config: NicConfig, reads: int, counters: int):
        self._config, self._reads, self._counters = config, reads, counters
        count = range(config.functions)
        super().__init__(
            {f"bus{n}": In(FunctionBus()) for n in count}
            | {f"status{n}": Out(FunctionStatus()) for n in count}
            | {f"queue_read{i}": In(TableRead(16, QueueRow)) for i in range(reads)}
            | {name: Out(config.functions) for name in (*FLR_ANSWERS, "intx")}
            | {
                "flr": In(config.functions),
                "control_read": In(TableRead(16, QueueRow)),
                "doorbell": Out(stream.Signature(Doorbell)),
                "interrupt": In(stream.Signature(Interrupt)),
                "queue_error": In(stream.Signature(QueueError)),
                "queue_reset": Out(stream.Signature(16)),
                "write": Out(WriteClient(config.width)),
                "program": In(TableProgram(16, QueueRow)),
                "counters": Out(TableProgram(COUNTER_INDEX, 32)),
                "qp_counters": Out(TableProgram(QP_COUNTER_INDEX, 32)),
            }
            | ({"pushes": Out(config.functions)} if config.push else {})
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        functions = [
            VirtioFunction(
                config=config.guest,
                function=FUNCTION_RDMA + ordinal,
                reads=self._reads,
                counters=self._counters,
            )
            for ordinal in range(config.functions)
        ]
        for n, function in enumerate(functions):
            m.submodules[f"function{n}"] = function
            connect(m, flipped(getattr(self, f"bus{n}")), function.bus)
            status = getattr(self, f"status{n}")
            for name, member in FunctionStatus().members.items():
                mine, its = getattr(status, name), getattr(function, name)
                m.d.comb += mine.eq(its) if member.flow == Out else its.eq(mine)
            m.d.comb += function.flr.eq(self.flr[n])
        for name in (*FLR_ANSWERS, "intx", *(["pushes"] if config.push else [])):
            m.d.comb += getattr(self, name).eq(Cat(getattr(one, name) for one in functions))
        for name in (*(f"queue_read{i}" for i in range(self._reads)), "control_read"):
            self._rows(m, name, functions)
        self._program(m, functions)
        self._from_functions(m, functions)
        self._to_functions(m, functions)
        for name, slots in (("counters", None), ("qp_counters", QP_COUNTER_SLOTS)):
            self._read_counters(m, name, slots, functions)
        return m

    def _rows(self, m: Module, name: str, functions: list) -> None:
        """The row of a virtqueue, from the function that has the queue."""
        port, ports = getattr(self, name), [getattr(one, name) for one in functions]
        owner = Signal(range(len(functions)), name=f"{name}_owner")
        with m.If(port.enable):
            m.d.sync += owner.eq(ordinal_in(self._config, "queues", port.index))
        for one in ports:
            m.d.comb += [
                one.index.eq(number_in(self._config, "queues", port.index)),
                one.enable.eq(port.enable),
            ]
        with m.Switch(owner):
            for n, one in enumerate(ports):
                with m.Case(n):
                    m.d.comb += port.row.eq(one.row)

    def _program(self, m: Module, functions: list) -> None:
        """The firmware's access to the row of a virtqueue."""
        port = self.program
        for one in functions:
            m.d.comb += [
                one.program.index.eq(number_in(self._config, "queues", port.index)),
                one.program.row.eq(port.row),
            ]
        with m.Switch(ordinal_in(self._config, "queues", port.index)):
            for n, one in enumerate(functions):
                with m.Case(n):
                    m.d.comb += [
                        one.program.read.eq(port.read),
                        one.program.write.eq(port.write),
                        port.done.eq(one.program.done),
                        port.read_row.eq(one.program.read_row),
                    ]

    def _from_functions(self, m: Module, functions: list) -> None:
        """Doorbells, queue resets and MSI-X messages."""
        config = self._config

        def card_queue(ordinal: int, number):
            return card_number(config, "queues", Const(ordinal, 2), number)

        turns = Turns(m, [one.queue_reset.valid for one in functions], "resetter")
        for n, one in enumerate(functions):
            reset = one.queue_reset
            m.d.comb += one.queue_reset_done.eq(reset.valid & reset.ready)
            with m.If(turns.now == n):
                m.d.comb += [
                    self.queue_reset.valid.eq(reset.valid & ~one.resetting),
                    self.queue_reset.payload.eq(card_queue(n, reset.payload)),
                    reset.ready.eq(self.queue_reset.ready),
                ]
        if len(functions) == 1:
            connect(m, functions[0].doorbell, flipped(self.doorbell))
            connect(m, functions[0].write, flipped(self.write))
            return
        m.submodules.doorbells = doorbells = StreamArbiter(shape=Doorbell, inputs=len(functions))
        m.submodules.messages = messages = StreamArbiter(
            shape=write_beat(config.width), inputs=len(functions)
        )
        connect(m, doorbells.o, flipped(self.doorbell))
        connect(m, messages.o, flipped(self.write.beat))
        for n, one in enumerate(functions):
            rung = getattr(doorbells, f"i{n}")
            connect(m, one.write.beat, getattr(messages, f"i{n}"))
            m.d.comb += [
                rung.valid.eq(one.doorbell.valid),
                rung.payload.eq(one.doorbell.payload),
                rung.payload.queue.eq(card_queue(n, one.doorbell.payload.queue)),
                one.doorbell.ready.eq(rung.ready),
            ]

    def _to_functions(self, m: Module, functions: list) -> None:
        """Interrupts and broken queues, each to its function."""
        config = self._config
        asked, error = self.interrupt, self.queue_error
        m.d.comb += error.ready.eq(1)
        for n, one in enumerate(functions):
            m.d.comb += [
                one.interrupt.payload.eq(asked.payload),
                one.queue_error.payload.eq(error.payload),
                one.queue_error.payload.queue.eq(number_in(config, "queues", error.payload.queue)),
            ]
            with m.If(ordinal_of(config, asked.payload.function) == n):
                m.d.comb += [
                    one.interrupt.valid.eq(asked.valid),
                    asked.ready.eq(one.interrupt.ready),
                ]
            with m.If(ordinal_in(config, "queues", error.payload.queue) == n):
                m.d.comb += one.queue_error.valid.eq(error.valid)

    def _read_counters(self, m: Module, name: str, slots: int | None, functions: list) -> None:
        """One table of counters for all functions, in turn. With ``slots`` words for each QP, a
        function sees those of its own QPs."""
        table, ports = getattr(self, name), [getattr(one, name) for one in functions]
        turns = Turns(m, [port.read for port in ports], f"{name}_reader")
        for n, port in enumerate(ports):
            m.d.comb += port.read_row.eq(table.read_row)
            with m.If(turns.now == n):
                index = port.index
                if slots is not None:
                    bits = (slots - 1).bit_length()
                    pair = card_number(self._config, "qps", Const(n, 2), index[bits:])
                    index = Cat(index[:bits], pair)
                m.d.comb += [
                    table.index.eq(index),
                    table.read.eq(port.read),
                    port.done.eq(table.done),
                ]
