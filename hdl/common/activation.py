"""A list of QPs that need service: each QP at most once, its flags merged while it waits."""

from amaranth.hdl import Cat, Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.config import ACTIVATION_FLAGS, QP_BITS

from .contract import require
from .ram import Ram
from .skid import Register

__all__ = ["Activation", "ActivationList", "FLAG_DATA", "activation_layout"]

#: The flag that comes with data (lists with ``data_width``): the newest data replaces the older.
FLAG_DATA = 8


class Activation(data.Struct):
    """A QP that needs service, and why. Merged per QP: flags are ORed while it waits."""

    qp: QP_BITS
    flags: ACTIVATION_FLAGS  # of ``hdl.ports.activations``, or ``ReplyFlags``


def activation_layout(data_width: int):
    """Payload of a list's streams: ``Activation``, or that and ``data``."""
    if not data_width:
        return Activation
    return data.StructLayout({"qp": QP_BITS, "flags": ACTIVATION_FLAGS, "data": data_width})


class ActivationList(wiring.Component):
    """Membership bit and flags per QP in RAM, and a queue of QP numbers as deep as there are QPs.

    A QP is in the queue at most once, so the queue cannot overflow: a set is always accepted,
    whatever the service side does. Service is round robin in the order of activation.

    Members: ``set0`` .. ``set<n-1>`` In, ``o`` Out (flags merged since the last time it was taken);
    ``level``: QPs waiting; with ``data_width`` each set may carry data (``FLAG_DATA`` says that it
    does), and the newest data are kept; ``ready``: the RAM has been cleared after reset.
    Parameters: ``held``: each set waits for its turn in a register, so that no port's ``ready``
    depends on another's ``valid``.
    Latency: 2 cycles from a set to ``o`` when no QP waits, otherwise 4; 1 more with ``held``.
    Throughput: one set or one take in two cycles; with n set ports each waits at most n turns.
    A set with all flags 0 is dropped.
    Reset: empty; cleared row by row, sets wait meanwhile.
    """

    def __init__(self, *, qps: int, sets: int = 1, data_width: int = 0, held: bool = False):
        if qps < 2 or qps & (qps - 1):
            raise ValueError(f"QPs must be a power of two, at least 2, not {qps!r}")
        if sets < 1:
            raise ValueError(f"Sets must be at least 1 port, not {sets!r}")
        self._qps, self._sets, self._held = qps, sets, held
        self._payload = activation_layout(data_width)
        # No field of 0 bits: Verilog has none, and prints it as two.
        row = {"flags": ACTIVATION_FLAGS} | ({"data": data_width} if data_width else {})
        self._row = data.StructLayout(row)
        payloads = stream.Signature(self._payload)
        members = {f"set{i}": In(payloads) for i in range(sets)}
        super().__init__(
            members
            | {
                "o": Out(payloads),
                "level": Out(range(qps + 1)),
                "ready": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        index = ceil_log2(self._qps)
        # Flags are read in one state and written in others.
        m.submodules.flags = flags = Ram(shape=self._row, depth=self._qps, forward=False)
        m.submodules.queue = queue = Ram(shape=index, depth=self._qps, forward=False)
        head, tail = Signal(index), Signal(index)
        clear = Signal(range(self._qps + 1))
        some = Signal()  # QPs wait; a register, as a level of many bits is long to look at
        m.d.comb += [
            self.ready.eq(clear == self._qps),
            queue.write.index.eq(tail),
            queue.read0.index.eq(head),
            queue.read0.enable.eq(1),
        ]

        # One operation at a time: read the QP's flags, then write them back merged or cleared.
        sets = [getattr(self, f"set{i}") for i in range(self._sets)]
        if self._held:
            sets = [self._hold(m, f"held{i}", port) for i, port in enumerate(sets)]
        turn = Signal(range(self._sets))
        chosen = Signal(self._payload)
        has_data = self._payload is not Activation
        taken = Signal()  # the output register is full
        turn_to_take = Signal()  # sets and takes alternate when both are wanted
        wanted = Signal()
        select = Signal(range(self._sets))
        m.d.comb += [self.o.valid.eq(taken)]
        with m.If(self.o.ready):
            m.d.sync += taken.eq(0)

        self._choose(m, sets, turn, select, wanted)
        full = self.level == self._qps
        require(m, platform, ~(queue.write.enable & full), "a QP waits in the list at most once")
        require(m, platform, some == (self.level != 0), "it is known whether QPs wait")
        payload = Signal(self._payload)
        for i, port in enumerate(sets):
            with m.If(select == i):
                m.d.comb += payload.eq(port.payload)

        with m.FSM(name="operation"):
            with m.State("CLEAR"):
                # CLEAR: writes no flags into one row after the other; ends with the last one.
                m.d.comb += [
                    flags.write.index.eq(clear),
                    flags.write.enable.eq(1),
                ]
                m.d.sync += clear.eq(clear + 1)
                with m.If(clear == self._qps - 1):
                    m.next = "IDLE"
            with m.State("IDLE"):
                # IDLE: reads the flags of a set port's QP, or of the queue's head, in turns; ends
                # when there is one.
                with m.If(wanted & ~(turn_to_take & some & ~taken)):
                    m.d.sync += turn_to_take.eq(1)
                    for i, port in enumerate(sets):
                        with m.If(select == i):
                            m.d.comb += port.ready.eq(1)
                    m.d.sync += [turn.eq(select), chosen.eq(payload)]
                    m.d.comb += [
                        flags.read0.index.eq(payload.qp),
                        flags.read0.enable.eq(1),
                    ]
                    m.next = "SET"
                with m.Elif(some & ~taken):
                    m.d.comb += [
                        flags.read0.index.eq(queue.read0.row),
                        flags.read0.enable.eq(1),
                    ]
                    # The output of a RAM is late, so it indexes no other RAM at once.
                    m.d.sync += chosen.qp.eq(queue.read0.row)
                    m.next = "TAKE"
            with m.State("SET"):
                # SET: adds the new flags, and lets the QP wait if it did not; one cycle.
                m.d.comb += [
                    flags.write.index.eq(chosen.qp),
                    flags.write.row.flags.eq(flags.read0.row.flags | chosen.flags),
                    flags.write.enable.eq(1),
                    queue.write.row.eq(chosen.qp),
                ]
                if has_data:
                    newer = (chosen.flags & FLAG_DATA) != 0
                    m.d.comb += flags.write.row.data.eq(
                        Mux(newer, chosen.data, flags.read0.row.data)
                    )
                with m.If(~some & (~taken | self.o.ready)):
                    # No QP waits, so this one goes straight to the output.
                    m.d.comb += flags.write.enable.eq(0)
                    m.d.sync += [self.o.payload.eq(chosen), taken.eq(chosen.flags != 0)]
                with m.Elif((flags.read0.row.flags == 0) & (chosen.flags != 0)):
                    m.d.comb += queue.write.enable.eq(1)
                    m.d.sync += [tail.eq(tail + 1), self.level.eq(self.level + 1), some.eq(1)]
                m.next = "IDLE"
                with m.If(~some):
                    m.next = "SETTLE"  # what is written is the head
            with m.State("TAKE"):
                # TAKE: moves the queue's head with all its flags to the output; one cycle.
                m.d.comb += [
                    flags.write.index.eq(chosen.qp),
                    flags.write.enable.eq(1),
                ]
                if has_data:
                    m.d.sync += self.o.payload.data.eq(flags.read0.row.data)
                m.d.sync += [
                    self.o.payload.qp.eq(chosen.qp),
                    self.o.payload.flags.eq(flags.read0.row.flags),
                    taken.eq(1),
                    turn_to_take.eq(0),
                    head.eq(head + 1),
                    self.level.eq(self.level - 1),
                    some.eq(self.level != 1),
                ]
                m.next = "SETTLE"
            with m.State("SETTLE"):
                # SETTLE: waits until the queue's RAM shows the new head; one cycle.
                m.next = "IDLE"
        return m

    def _choose(self, m: Module, sets, turn, select, wanted) -> None:
        """Fixed order starting after the last one served, so that no port starves."""
        requests = Signal(self._sets)
        m.d.comb += requests.eq(Cat(s.valid for s in sets))
        for last in range(self._sets):
            with m.If(turn == last):
                for step in reversed(range(1, self._sets + 1)):
                    candidate = (last + step) % self._sets
                    with m.If(requests[candidate]):
                        m.d.comb += [select.eq(candidate), wanted.eq(1)]

    def _hold(self, m: Module, name: str, port):
        m.submodules[name] = register = Register(shape=self._payload)
        wiring.connect(m, wiring.flipped(port), register.i)
        return register.o
