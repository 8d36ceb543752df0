"""Where a simulation stands that has come to no end: rooms, hosts, wires, queues, table rows.

``stall_report`` takes no simulated time and works in whatever state the cards are. ``node_report``
asks the register bus, which goes on while the data path is stuck; it gives up when that is stuck
too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from cocotb.triggers import SimTimeoutError, with_timeout

from firmware.device import HardwareError
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import WrOpcode
from sim.guest.driver.memory import view
from sim.rtl.readable import Probe, load

__all__ = ["card_report", "driver_report", "handle_of", "node_report", "stall_report"]

#: Statistics worth a line of their own; times and totals in beats are not.
_STATISTICS = {
    "host": (
        "reads",
        "writes",
        "interrupts",
        "reads_outstanding",
        "writes_pending",
        "read_faults",
        "write_faults",
    ),
    "wire": ("tx_frames", "tx_bad", "rx_frames", "protocol_errors"),
}

#: Simulated time for one step of reading registers, and how many CQs and QPs are worth it.
_PATIENCE_US = 200
_OBJECTS = 8


def stall_report(testbench: Any) -> str:
    """All that is not at rest, card by card: state machines, levels, streams, host and wire."""
    found = load()
    lines = []
    for i in range(4):
        card = testbench.dut._get(f"nic{i}")
        if card is None and i >= max(len(testbench.hosts), len(testbench.wires)):
            continue
        lines.append(f"Card {i}")
        if card is not None:
            lines += [f"  {line}" for line in card_report(card, found)]
        for kind, ends in (("host", testbench.hosts), ("wire", testbench.wires)):
            for end in ends:
                if getattr(end, "index", None) == i:  # hosts in Python have no statistics
                    lines.append(f"  {kind}: {_statistics(end.stats, _STATISTICS[kind])}")
    return "\n".join(lines)


def card_report(card: Any, found: Sequence[Probe]) -> list[str]:
    """A line for each component of a card that is not at rest, by its place below the top."""
    said: dict[str, list[str]] = {}
    unread = 0
    for probe in found:
        value = _value(card, probe.path, probe.signal)
        ready = _value(card, probe.path, probe.ready) if probe.ready else 1
        if value is None or ready is None:
            unread += 1
        elif text := probe.describe(value, ready):
            said.setdefault(probe.component, []).append(text)
    lines = [f"{place}: {', '.join(texts)}" for place, texts in sorted(said.items())]
    if not lines:
        lines.append("everything is at rest" if found else "built without probes")
    if unread:
        lines.append(f"({unread} of {len(found)} probes cannot be read)")
    return lines


def handle_of(card: Any, path: Sequence[str], signal: str) -> Any:
    """A signal below ``card``; None without a name, or when the simulator has no such signal."""
    if not signal:
        return None
    handle = card
    for part in (*path, signal):
        handle = handle._get(f"\\{part} " if "$" in part else part)
        if handle is None:
            return None
    return handle


def _value(card: Any, path: Sequence[str], signal: str) -> int | None:
    """A signal's value; None when the simulator has no such signal or no value for it."""
    handle = handle_of(card, path, signal)
    try:
        return None if handle is None else int(handle.value)
    except ValueError:  # X or Z
        return None


def _statistics(stats: Any, names: Sequence[str]) -> str:
    return ", ".join(f"{name} {getattr(stats, name)}" for name in names)


def driver_report(context: Any) -> Iterator[str]:
    """What the driver waits for: work not given back, completion queues."""
    for cqn, cq in context.cqs.items():
        state = "completions to poll" if cq.queue.has_used() else "nothing to poll"
        yield (
            f"CQ {cqn}: {state}, the device has {cq.queue.outstanding} of {cq.cqe} buffers"
            f"{', armed' if cq._armed else ''}"
        )
    for qpn, qp in context.qps.items():
        yield (
            f"QP {qpn:#x} ({qp.state.name}): {qp.sq.outstanding} sends and {qp.rq.outstanding} "
            f"receives outstanding{_oldest(qp.sq)}"
        )


def _oldest(sq: Any) -> str:
    """The send request that the device has held for longest."""
    pending = sq.ring.pending if hasattr(sq, "ring") else ()  # a target has no queue
    addr = next(iter(pending), None)
    if addr is None:
        return ""
    request = abi.POST_SEND.unpack(view(sq.ctx.memory, addr, abi.POST_SEND.size).tobytes())
    names = {opcode.value: opcode.name for opcode in WrOpcode}
    return f", oldest send: wr_id {request.wr_id:#x} {names.get(request.opcode, request.opcode)}"


async def node_report(node: Any) -> str:
    """Driver and registers of one node of ``sim.bench.system``, whose firmware must be stopped."""
    lines = [f"Node {node.name}"]
    context = getattr(node, "context", None)  # none while the driver comes up
    if context is not None:
        lines += driver_report(context)
    steps = _registers(node.registers, context)
    try:
        while True:
            lines.append(await with_timeout(anext(steps), _PATIENCE_US, "us"))
    except StopAsyncIteration:
        pass
    except SimTimeoutError:
        lines.append("(registers do not answer)")
    except HardwareError as error:
        lines.append(f"({error})")
    return "\n  ".join(lines)


async def _registers(registers: Any, context: Any) -> AsyncIterator[str]:
    yield f"counters: {_values(await registers.counters())}"
    for cqn in list(context.cqs)[:_OBJECTS] if context else ():
        yield f"cq {cqn}: {_values(await registers.read_row('cq', cqn))}"
    for qpn in list(context.qps)[:_OBJECTS] if context else ():
        pair = abi.qp_index(qpn, context.device.config.max_qp)
        for table in ("qp_cfg", "qp_fetch", "qp_tx", "qp_ack", "qp_sent", "qp_rx", "qp_reply"):
            row = await registers.read_row(table, pair)
            if table == "qp_cfg":
                row = {name: row[name] for name in ("state", "dest_qpn")}
            yield f"QP {qpn:#x} {table}: {_values(row)}"


def _values(values: dict[str, int]) -> str:
    return ", ".join(f"{name} {value:#x}" for name, value in values.items() if value) or "all 0"
