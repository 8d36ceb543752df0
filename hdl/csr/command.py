"""The firmware's commands to the rooms."""

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, Signature

from hdl.config import CQ_BITS, NicConfig
from hdl.ports.jobs import Activation, ClearCounters, DropList, DropQueue

from .block import BlockBus, CsrBlock
from .blocks import command

__all__ = [
    "ArmCq",
    "Commands",
    "MemoryCommands",
    "Operation",
    "QueueCommands",
    "TransportCommands",
]


class ArmCq(data.Struct):
    """REQ_NOTIFY_CQ. ``flags``: solicited 1, next 2."""

    cq: CQ_BITS
    flags: 2


class Operation(Signature):
    """Seen from the firmware: ``start`` is held, with ``argument``, until ``done`` (one cycle)."""

    def __init__(self, argument_width: int):
        super().__init__(
            {"start": Out(1), "argument": Out(argument_width), "done": In(1)}
            if argument_width
            else {"start": Out(1), "done": In(1)}
        )


class TransportCommands(Signature):
    """What the firmware asks of the transport, seen from the registers."""

    def __init__(self):
        activation = Out(stream.Signature(Activation))
        super().__init__(
            {
                "activate_send": activation,
                "activate_receive": activation,
                "activate_reply": activation,
                "drop": Out(stream.Signature(DropList)),
                "clear_counters": Out(stream.Signature(ClearCounters)),
                "drain": Out(Operation(0)),
                "timer_tick": Out(16),
            }
        )


class QueueCommands(Signature):
    """What the firmware asks of the queues, seen from the registers."""

    def __init__(self):
        super().__init__(
            {
                "arm_cq": Out(stream.Signature(ArmCq)),
                "drop_queue": Out(stream.Signature(DropQueue)),
            }
        )


class MemoryCommands(Signature):
    """What the firmware asks of the memory box, seen from the registers."""

    def __init__(self):
        super().__init__({"invalidate": Out(Operation(16))})


class Commands(wiring.Component):
    """Turns register writes into streams and start/done handshakes.

    Members: ``bus``; streams ``arm_cq`` (ArmCq), ``activate_send``, ``activate_receive``,
    ``activate_reply`` (Activation), ``drop`` (DropList), ``clear_counters``
    (ClearCounters), ``drop_queue`` (DropQueue); ``drain`` and ``invalidate``
    (``Operation``; the argument of the latter is the MR index); ``timer_tick``: see ``QpTimers``.
    Latency: ``valid`` or ``start`` 2 cycles after the write. Errors: a command written while the
    one before is still ``busy`` is ignored and shows in ``ignored``. Reset: nothing pending.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        groups = (TransportCommands(), QueueCommands(), MemoryCommands())
        members = {name: one for group in groups for name, one in group.members.items()}
        super().__init__({"bus": In(BlockBus())} | members)

    def elaborate(self, platform):
        m = Module()
        description = command(self._config)
        m.submodules.registers = registers = CsrBlock(block=description)
        wiring.connect(m, wiring.flipped(self.bus), registers.bus)
        order = [field.name for field in description.register("busy").fields]
        ignored = {name: Signal(name=f"{name}_ignored") for name in order}
        m.d.comb += self.timer_tick.eq(registers.timer_tick_cycles)
        m.d.comb += registers.ignored_commands.eq(Cat(ignored[name] for name in order))

        arguments = {
            "drop": {"qp": registers.drop_qp},
            "drop_queue": {
                "queue": registers.drop_queue_queue,
                "keep_index": ~registers.drop_queue_restart,
                "position": registers.drop_queue_position,
            },
            "clear_counters": {"qp": registers.clear_counters_qp},
            "arm_cq": {"cq": registers.arm_cq_cq, "flags": registers.arm_cq_flags},
        }
        for name in ("activate_send", "activate_receive", "activate_reply"):
            arguments[name] = {
                "qp": getattr(registers, f"{name}_qp"),
                "flags": getattr(registers, f"{name}_flags"),
            }
        for name, values in arguments.items():
            port = getattr(self, name)
            busy, write = port.valid, getattr(registers, f"{name}_write")
            m.d.comb += [
                getattr(registers, f"busy_{name}").eq(busy | write),
                ignored[name].eq(write & busy),
            ]
            with m.If(port.valid & port.ready):
                m.d.sync += port.valid.eq(0)
            with m.Elif(write & ~busy):
                m.d.sync += port.valid.eq(1)
                m.d.sync += [port.payload[field].eq(value) for field, value in values.items()]

        for name, write in (
            ("drain", registers.drain_start),
            ("invalidate", registers.invalidate_write),
        ):
            port = getattr(self, name)
            m.d.comb += [
                getattr(registers, f"busy_{name}").eq(port.start | write),
                ignored[name].eq(write & port.start),
            ]
            with m.If(port.start & port.done):
                m.d.sync += port.start.eq(0)
            with m.Elif(write & ~port.start):
                m.d.sync += port.start.eq(1)
                if name == "invalidate":
                    m.d.sync += port.argument.eq(registers.invalidate_mr)
        return m
