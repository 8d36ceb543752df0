"""``Receive`` for a test bench: all flags of its ports in two vectors, payloads as they are."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.config import NicConfig
from hdl.transport.receive.receive import Receive

__all__ = ["CONFIG", "INPUTS", "OUTPUTS", "TABLES", "WRITES", "ReceiveSide"]

CONFIG = NicConfig(
    width=64, qps=64, cqs=4, mrs=16, gids=4, max_rd_atomic=8, read_resources=256, outstanding=256
)

#: Streams into and out of Receive; the position is the bit in ``flags_in`` and ``flags_out``.
INPUTS = ("header", "poke", "fetch_rsp", "sink_rsp", "head_rsp", "scatter_checked", "keys_rsp")
OUTPUTS = (
    "repoke",
    "fetch_req",
    "sink_req",
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
#: Tables read, and tables written; their enables follow the streams in ``flags_out``.
TABLES = ("cfg", "reply", "ahead_read", "rx_read", "ack_read", "sent_read", "resource_read")
TABLES += ("running",)
WRITES = ("ahead_write", "rx_write", "ack_write", "resource_write")


class ReceiveSide(wiring.Component):
    """One vector of all ``valid`` in and ``ready`` in, one of all ``ready``, ``valid``, ``enable``
    out: a bench in Python then looks at one signal in a cycle."""

    def __init__(self):
        self.receive = Receive(config=CONFIG)
        members = {
            "flags_in": In(len(INPUTS) + len(OUTPUTS)),
            "flags_out": Out(len(INPUTS) + len(OUTPUTS) + len(TABLES) + len(WRITES)),
            "settled": Out(1),
            "merged_acks": Out(32),
            "counters": Out(self.receive.signature.members["counters"].shape),
        }
        for name in INPUTS:
            members[name] = In(self._payload(name))
        for name in OUTPUTS:
            members[name] = Out(self._payload(name))
        for name in TABLES:
            members[f"{name}_index"] = Out(getattr(self.receive, name).index.shape())
            members[name] = In(self._shape(getattr(self.receive, name).row))
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
        m.d.comb += [
            self.counters.eq(receive.counters),
            self.settled.eq(receive.idle & receive.turned),
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
        for name in TABLES:
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
