"""How long messages take inside the card: from doorbell to wire, from wire to host."""

from amaranth.hdl import Module, ResetInserter, Signal, Value
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.ports.latency import LatencyPort, ReceiveSteps, SendSteps
from hdl.ports.numbers import QpNumber

from .histogram import CYCLE_BITS, Histogram

__all__ = ["Latency", "ReceiveProbe", "SendProbe"]

#: Bits of the number of packets between two places: more than a receive buffer lists.
_PACKETS = 15


def _between(m: Module, name: str, enters: Value, leaves: Value) -> Value:
    """How many have entered and not left, with those of this cycle. One that leaves when there is
    none is not counted."""
    held, level = Signal(_PACKETS, name=f"{name}_held"), Signal(_PACKETS, name=name)
    m.d.comb += level.eq(held)
    with m.If(enters & ~leaves):
        m.d.comb += level.eq(held + 1)
    with m.Elif(leaves & ~enters & (held != 0)):
        m.d.comb += level.eq(held - 1)
    m.d.sync += held.eq(level)
    return level


def _registered(m: Module, steps):
    """A copy, a cycle later: whoever makes the steps drives a register and nothing else for it."""
    copy = Signal(steps.shape(), name="copy")
    m.d.sync += copy.eq(steps)
    return copy


class SendProbe(wiring.Component):
    """Measures from a doorbell to the next request packet of its QP on its way to the MAC.

    Members: ``steps`` In; ``sample`` Out: cycles. One message is measured at a time. A further
    doorbell of its QP begins the measurement again while no packet has followed, as the one before
    may have told of what had been sent.
    Latency: 2 cycles from the frame to ``sample``. Errors: a measurement is given up when it does
    not fit the sample's bits, or when that is not taken until the next one.
    Reset: nothing is measured.
    """

    def __init__(self):
        super().__init__({"steps": In(SendSteps), "sample": Out(stream.Signature(CYCLE_BITS))})

    def elaborate(self, platform):
        m = Module()
        steps = _registered(m, self.steps)
        qp, key = Signal(QpNumber), Signal.like(steps.job_key)
        cycles, left = Signal(CYCLE_BITS), Signal(_PACKETS)
        building = _between(m, "building", steps.header, steps.frame)
        m.d.sync += cycles.eq(cycles + 1)
        with m.If(self.sample.ready):
            m.d.sync += self.sample.valid.eq(0)
        with m.FSM(name="measure"):
            with m.State("IDLE"):
                # IDLE: nothing is measured; ends with a doorbell.
                m.d.sync += [cycles.eq(1), qp.eq(steps.doorbell_qp)]
                with m.If(steps.doorbell):
                    m.next = "JOB"
            with m.State("JOB"):
                # JOB: the QP has had a doorbell; ends when a request packet of it goes to gather,
                # or too late.
                m.d.sync += key.eq(steps.job_key)
                with m.If(steps.job & (steps.job_qp == qp)):
                    m.next = "HEADER"
                with m.Elif(steps.doorbell & (steps.doorbell_qp == qp)):
                    m.d.sync += cycles.eq(1)
                with m.Elif(cycles.all()):
                    m.next = "IDLE"
            with m.State("HEADER"):
                # HEADER: the packet is on its way; ends when its header goes to the egress, or too
                # late: a packet may be refused, or sent again later.
                m.d.sync += left.eq(building)
                with m.If(cycles.all()):
                    m.next = "IDLE"
                with m.Elif(steps.header & (steps.header_key == key)):
                    m.next = "FRAME"
            with m.State("FRAME"):
                # FRAME: ``left`` frames are to begin, of which it is the last; ends when it does,
                # or too late.
                with m.If(cycles.all()):
                    m.next = "IDLE"
                with m.Elif(steps.frame):
                    m.d.sync += left.eq(left - 1)
                    with m.If(left == 1):
                        m.d.sync += [self.sample.valid.eq(1), self.sample.payload.eq(cycles)]
                        m.next = "IDLE"
        return m


class ReceiveProbe(wiring.Component):
    """Measures from the last beat of a frame with payload until all of that is on its way on.

    Parameters: ``before``: cycles from the frame's last beat to ``steps.kept``.
    Members: ``steps`` In; ``taken`` In: the last beat of some payload goes to the write engine;
    ``sample`` Out: cycles. One packet is measured at a time.
    Latency: 2 cycles from ``taken`` to ``sample``. Errors: a measurement is given up when it does
    not fit the sample's bits, or when nobody takes the packet, of a group without members. A
    datagram without payload, whose GRH alone is taken, may end one too soon.
    Reset: nothing is measured.
    """

    def __init__(self, *, before: int):
        self._before = before
        super().__init__(
            {
                "steps": In(ReceiveSteps),
                "taken": In(1),
                "sample": Out(stream.Signature(CYCLE_BITS)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        steps, taken = _registered(m, self.steps), Signal()
        m.d.sync += taken.eq(self.taken)
        cycles, ahead, left = Signal(CYCLE_BITS), Signal(_PACKETS), Signal(_PACKETS)
        stored = _between(m, "stored", steps.kept, steps.freed)
        leaving = _between(m, "leaving", steps.passed, taken)
        m.d.sync += cycles.eq(cycles + 1)
        with m.If(self.sample.ready):
            m.d.sync += self.sample.valid.eq(0)
        with m.FSM(name="measure"):
            with m.State("IDLE"):
                # IDLE: nothing is measured; ends when a packet is kept.
                m.d.sync += [cycles.eq(self._before + 1), ahead.eq(stored)]
                with m.If(steps.kept):
                    m.next = "STORED"
            with m.State("STORED"):
                # STORED: it is the last of ``ahead`` packets; ends when its last beat leaves the
                # buffer, when it is freed without, or too late.
                m.d.sync += left.eq(leaving)
                with m.If(cycles.all()):
                    m.next = "IDLE"
                with m.Elif(ahead != 1):
                    m.d.sync += ahead.eq(ahead - steps.freed)
                with m.Elif(steps.passed):
                    m.next = "LEAVING"
                with m.Elif(steps.freed):
                    m.next = "IDLE"
            with m.State("LEAVING"):
                # LEAVING: ``left`` last beats are to be taken, of which its own is the last; ends
                # when that is, or too late.
                with m.If(cycles.all()):
                    m.next = "IDLE"
                with m.Elif(taken):
                    m.d.sync += left.eq(left - 1)
                    with m.If(left == 1):
                        m.d.sync += [self.sample.valid.eq(1), self.sample.payload.eq(cycles)]
                        m.next = "IDLE"
        return m


class Latency(wiring.Component):
    """Both measurements and their histograms.

    Parameters: ``before``: see ``ReceiveProbe``. Members: ``send``, ``receive``, ``taken`` In: what
    happens; ``core_reset`` In: the rooms are in reset, and what is measured is given up; ``port``
    In: the histograms.
    Latency, errors: see the parts. Reset: all counts 0; a device reset keeps them.
    """

    def __init__(self, *, before: int):
        self._before = before
        super().__init__(
            {
                "send": In(SendSteps),
                "receive": In(ReceiveSteps),
                "taken": In(1),
                "core_reset": In(1),
                "port": In(LatencyPort()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        send, receive = SendProbe(), ReceiveProbe(before=self._before)
        m.d.comb += [
            send.steps.eq(self.send),
            receive.steps.eq(self.receive),
            receive.taken.eq(self.taken),
        ]
        for name, probe in (("send", send), ("receive", receive)):
            m.submodules[f"{name}_probe"] = ResetInserter(self.core_reset)(probe)
            m.submodules[f"{name}_histogram"] = histogram = Histogram()
            connect(m, probe.sample, histogram.sample)
            connect(m, flipped(getattr(self.port, name)), histogram.port)
        return m
