"""``Receive`` for a test bench: all flags of its ports in two vectors, payloads as they are."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.config import NicConfig
from hdl.transport.outstanding.types import FORESEEN
from hdl.transport.receive.receive import Receive
from tests.context.late import Late

__all__ = ["CONFIG", "INPUTS", "OUTPUTS", "TABLES", "WRITES", "ReceiveSide"]

CONFIG = NicConfig(
    width=64, qps=64, cqs=4, mrs=16, gids=4, max_rd_atomic=8, read_resources=256, outstanding=256
)

#: Streams into and out of Receive; the position is the bit in ``flags_in`` and ``flags_out``.
INPUTS = ("header", "poke", "fetch_rsp", "head_rsp", "scatter_checked", "keys_rsp")
OUTPUTS = (
    "repoke",
    "fetch_req",
    "sink_back",
    "head_req",
    "pop",
    "scatter_job",
    "effects",
    "wake",
    "restart",
    "timer",
    "keys_req",
    "atomic",
)
#: Rows of a QP that are looked at -> by which look, as which of its rows.
LOOKS = {
    "cfg": ("context", "cfg"),
    "reply": ("context", "reply"),
    "ahead_read": ("context", "rx_ahead"),
    "rx_read": ("committed", "rx"),
    "ack_read": ("context", "ack"),
    "sent_read": ("context", "sent"),
}
#: Tables read, and tables written; their enables follow the streams in ``flags_out``.
TABLES = (*LOOKS, "resource_read", "running")
WRITES = ("ahead_write", "rx_write", "ack_write", "resource_write")


class ReceiveSide(wiring.Component):
    """One vector of all ``valid`` in and ``ready`` in, one of all ``ready``, ``valid``, ``enable``
    out: a bench in Python then looks at one signal in a cycle. ``late``: seed of the cycles that
    its rows take; 0: they are there a cycle later."""

    def __init__(self, *, late: int = 0):
        self.receive, self._late = Receive(config=CONFIG), late
        members = {
            "flags_in": In(len(INPUTS) + len(OUTPUTS)),
            "flags_out": Out(len(INPUTS) + len(OUTPUTS) + len(TABLES) + len(WRITES)),
            "foreseen": In(1),  # what head_rsp shows
            "settled": Out(1),
            "merged_acks": Out(32),
            "counters": Out(self.receive.signature.members["counters"].shape),
        }
        for name in INPUTS:
            members[name] = In(self._payload(name))
        for name in OUTPUTS:
            members[name] = Out(self._payload(name))
        for name in TABLES:
            look, row = LOOKS.get(name, (name, None))
            port = getattr(self.receive, look)
            members[f"{name}_index"] = Out((port.number if row else port.index).shape())
            members[name] = In(self._shape(port.rows[row] if row else port.row))
        for name in WRITES:
            members[f"{name}_index"] = Out(getattr(self.receive, name).index.shape())
            members[name] = Out(self._shape(getattr(self.receive, name).row))
        super().__init__(members)

    @staticmethod
    def _shape(value):
        return value.shape()

    def _stream(self, name):
        outer, _, inner = name.partition("_")
        return getattr(self.receive.keys, inner) if outer == "keys" else getattr(self.receive, name)

    def _payload(self, name):
        return self._shape(self._stream(name).payload)

    def elaborate(self, platform):
        m = Module()
        m.submodules.receive = receive = self.receive
        m.d.comb += receive.foreseen.valid.eq(self.foreseen)
        m.d.comb += [
            receive.foreseen[name].eq(receive.head_rsp.payload.entry[name]) for name in FORESEEN
        ]
        m.d.comb += [
            self.counters.eq(receive.counters),
            self.settled.eq(receive.idle & receive.turned & ~receive.sink_back.valid),
            self.merged_acks.eq(receive.merged_acks),
        ]
        flags = []
        for bit, name in enumerate(INPUTS):
            port = self._stream(name)
            m.d.comb += [port.payload.eq(getattr(self, name)), port.valid.eq(self.flags_in[bit])]
            flags.append(port.ready)
        for bit, name in enumerate(OUTPUTS, len(INPUTS)):
            port = self._stream(name)
            m.d.comb += getattr(self, name).eq(port.payload)
            if isinstance(port.ready, Signal):  # else it is always ready
                m.d.comb += port.ready.eq(self.flags_in[bit])
            flags.append(port.valid)
        looks = self._looks(m)
        for name in TABLES:
            if name in LOOKS:
                look, row = LOOKS[name]
                port = looks[look]
                m.d.comb += [
                    getattr(self, f"{name}_index").eq(port.number),
                    port.rows[row].eq(getattr(self, name)),
                ]
                flags.append(port.enable)
                continue
            port = getattr(receive, name)
            m.d.comb += [
                getattr(self, f"{name}_index").eq(port.index),
                port.row.eq(getattr(self, name)),
            ]
            flags.append(port.enable)
        for name in WRITES:
            port = getattr(receive, name)
            m.d.comb += [
                getattr(self, f"{name}_index").eq(port.index),
                getattr(self, name).eq(port.row),
            ]
            flags.append(port.enable)
        m.d.comb += self.flags_out.eq(Cat(flags))
        return m

    def _looks(self, m: Module) -> dict:
        """What is asked of the bench by each of Receive's looks at a QP."""
        looks = {}
        for name, machine in (("context", "receive"), ("committed", "commit")):
            looks[name] = look = getattr(self.receive, name)
            if self._late:
                m.submodules[name] = late = Late(machine, seed=self._late)
                wiring.connect(m, look, late.i)
                looks[name] = look = late.o
            m.d.comb += look.valid.eq(1)
        return looks
