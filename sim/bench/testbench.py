"""A simulation of one or two cards: generates the top, builds it, and brings it up inside cocotb.

Outside the simulation: ``build`` (and ``sim.rtl.build.run``). Inside: ``Testbench(dut, ...)``, then
``await testbench.start()``.

The top, ``testbench``, has ``clk``, ``rst`` and per card <i>: an instance of the gateware
(``nic<i>``), a ``host_model`` when it has a host port (members ``host``), a ``link_model`` when it
has MAC ports (``mac_tx``, ``mac_rx``), and their wake signals ``host<i>_event`` and
``wire<i>_event``. Further ports of the gateware become ports of the top, named ``nic<i>_<port>``.
``off<i>`` stops the clock of a card and its models: it costs no time then, so one model serves
simulations of one card and of two. ``sleep<i>`` does the same while nothing in them can change.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Literal

from cocotb.simtime import get_sim_time
from cocotb.triggers import RisingEdge, Timer

from hdl.config import NicConfig
from sim import models
from sim.bench import coverage
from sim.bench.probes import probes
from sim.guest.driver.management import Management
from sim.models import native
from sim.models.platform import Deadline, Host, Wire
from sim.rtl.build import BuiltModel, ModelSources, Reach, Rtl, Visible, model_sources, verilog
from sim.rtl.env import build_root
from sim.rtl.readable import WRITTEN, place
from sim.rtl.verilog import module_ports

__all__ = ["Testbench", "build", "plain", "sources", "top_source"]

_RESET_CYCLES = 3  # and one more, because the cards' reset is a register

#: Pins of the host model of a card without a push window.
_NO_PUSH = [".push__payload()", ".push__valid()", ".push__ready(1'b0)"]


def top_source(
    ports: dict[str, tuple[str, int]],
    *,
    module: str,
    width: int,
    nics: int,
    with_models: bool = True,
    written: Iterable[str] = (),
) -> str:
    """SystemVerilog of the top for ``nics`` instances of ``module``.

    written: registers of a card, by their place in it, that the clock model writes. Logic behind
    them is evaluated again when ``settle`` rises.
    The reset of the cards is a register: what depends on an input of the top at once would be
    evaluated with each edge of the clock, changed or not.
    Without models the host port's signals are ports of the top too, and its MAC ports, if it has
    any, AXI streams ``nic<i>_mac_tx`` and ``nic<i>_mac_rx`` (error in ``tuser``).
    Raises ValueError if a host or MAC port's width does not fit ``width``.
    """
    beats = {
        "host__rd_rsp__payload": width + 10,
        "host__wr__payload": width + width // 8 + 91,
        "host__push__payload": width + width // 8 + 40,
        "mac_tx__payload": width + width // 8 + 3,
    }
    for port, bits in beats.items():
        if port in ports and ports[port][1] != bits:
            raise ValueError(f"{port} must have {bits} bits at width {width}, not {ports[port][1]}")
    clocked = range(nics if with_models else 0)
    inputs = ["clk", "rst", *(f"{flag}{i}" for i in clocked for flag in ("off", "sleep"))]
    head = [f"    input logic {name}" for name in [*inputs, *(["settle"] if with_models else [])]]
    body = [f"    wire clk{i} = clk & ~(off{i} | sleep{i});" for i in clocked]
    for i in range(nics):
        clock = f"clk{i}" if with_models else "clk"
        reset = f"rst{i}" if with_models else "rst"
        joined = [f".clk({clock})", f".rst({reset})"]
        host, wire = [], []
        for port, (direction, bits) in sorted(ports.items()):
            if port in ("clk", "rst"):
                continue
            signal = f"nic{i}_{port}"
            joined.append(f".{port}({signal})")
            if port.startswith("host__") and with_models:
                host.append(f".{port.removeprefix('host__')}({signal})")
            elif port.startswith(("mac_tx__", "mac_rx__")):
                wire.append(f".{port}({signal})")
            else:
                head.append(f"    {direction} logic [{bits - 1}:0] {signal}")
                continue
            body.append(f"    logic [{bits - 1}:0] {signal};")
        body.append(_instance(module, f"nic{i}", joined))
        if not with_models:
            macs = [("mac_tx", True), ("mac_rx", False)] if "mac_tx__payload" in ports else []
            for name, out in macs:
                streams, lines = _axi_stream(f"nic{i}_{name}", width, out=out)
                head += streams
                body += lines
            continue
        body += [f"    logic {reset};", f"    always_ff @(posedge {clock}) {reset} <= rst;"]
        body += [
            f"    always @(posedge settle) nic{i}.{place} <= nic{i}.{place};" for place in written
        ]
        absent = [] if "host__push__payload" in ports else _NO_PUSH
        for model, name, pins, open_pins in (
            ("host_model", "host", host, absent),
            ("link_model", "wire", wire, []),
        ):
            if pins:
                head.append(f"    output logic {name}{i}_event")
                own = [f".clk({clock})", f".rst({reset})", f".event_o({name}{i}_event)"]
                kind = f"{model} #(.WIDTH({width}), .ID({i}))"
                body.append(_instance(kind, f"{name}{i}", own + pins + open_pins))
    lines = ["`timescale 1ps / 1ps", "module testbench (", ",\n".join(head), ");", *body]
    # An AXI stream has nothing that says which beat is the first.
    # A card without a push window leaves pins of its host's model open.
    waived = "PINCONNECTEMPTY" if with_models else "UNUSEDSIGNAL"
    return "\n".join([f"/* verilator lint_off {waived} */", *lines, "endmodule", ""])


def _axi_stream(name: str, width: int, *, out: bool) -> tuple[list[str], list[str]]:
    """Ports of the top and what joins them to a packet stream ``name``."""
    fields = {"tdata": width, "tkeep": width // 8, "tlast": 1, "tuser": 1, "tvalid": 1, "tready": 1}
    ports = [
        f"    {'output' if out != (field == 'tready') else 'input'} logic "
        f"[{bits - 1}:0] {name}_{field}"
        for field, bits in fields.items()
    ]
    data, keep, last, user, valid, ready = (f"{name}_{field}" for field in fields)
    if out:
        lines = [
            f"    assign {data} = {name}__payload[0+:{width}];",
            f"    assign {keep} = {name}__payload[{width}+:{width // 8}];",
            f"    assign {{{user}, {last}}} = {name}__payload[{width + width // 8 + 1}+:2];",
            f"    assign {valid} = {name}__valid;",
            f"    assign {name}__ready = {ready};",
        ]
    else:
        lines = [
            f"    logic {name}_first;",
            f"    always @(posedge clk) if (rst) {name}_first <= 1;",
            f"    else if ({valid} & {ready}) {name}_first <= {last};",
            f"    assign {name}__payload = {{{user}, {last}, {name}_first, {keep}, {data}}};",
            f"    assign {name}__valid = {valid};",
            f"    assign {ready} = {name}__ready;",
        ]
    return ports, lines


def _instance(module: str, name: str, pins: Iterable[str]) -> str:
    return f"    {module} {name} (\n        " + ",\n        ".join(pins) + "\n    );"


def build(rtl: Rtl | None = None, **details: Any) -> BuiltModel:
    """Build the simulation that ``sources``, with the same arguments, describes."""
    return sources(rtl, **details).build()


def plain(config: NicConfig) -> BuiltModel:
    """Build two cards of which nothing rewrites the C++ that Verilator has made.

    It shows that the usual model is the same design (``tests/nic/test_plain.py``).
    """
    usual = sources(config=config, fast=False)
    return replace(usual, options=replace(usual.options, plain=True)).build()


def sources(
    rtl: Rtl | None = None,
    *,
    config: NicConfig,
    nics: int = 2,
    waves: bool = False,
    visible: Visible = "ports",
    with_models: bool = True,
    fast: bool | None = None,
) -> ModelSources:
    """All of the simulation of ``nics`` (1 to 4) cards; without ``rtl`` they are the whole NIC.

    Of two cards the second can be switched off: the model of one card is this one.

    with_models: False leaves hosts and wires to Python (``sim.measure.simspeed``).
    fast: for a simulation of many minutes: a sixth more time to build the model, and a seventh
    less to run it. By default cards of 64 bits are, as the same traffic takes them more cycles,
        but none that records waves: that runs for moments, and has more to compile.
    """
    if not 1 <= nics <= 4:
        raise ValueError(f"nics must be 1 to 4, not {nics!r}")
    rtl = replace(rtl or Rtl("hdl.nic:Nic", {"config": config}, "nic"), checked=True)
    text = verilog(rtl).read_text()
    ports = module_ports(text, rtl.name)
    folder = (
        build_root() / "testbench" / f"{rtl.name}-{rtl.key}-{nics}{'' if with_models else '-bare'}"
    )
    folder.mkdir(parents=True, exist_ok=True)
    top = folder / "testbench.sv"
    found = probes(text)
    source = top_source(
        ports,
        module=rtl.name,
        width=config.width,
        nics=nics,
        with_models=with_models,
        written=[place(probe) for probe in found if probe.signal in WRITTEN],
    )
    if not top.exists() or top.read_text() != source:
        top.write_text(source)
    extra = {top}
    if with_models:
        extra |= set(models.CLOCK)
        extra |= set(models.HOST if "host__rd_req__payload" in ports else ())
        extra |= set(models.LINK if "mac_tx__payload" in ports else ())
    return model_sources(
        rtl,
        top="testbench",
        extra_sources=sorted(extra),
        waves=waves,
        fast=config.width == 64 and not waves if fast is None else fast,
        repeated=[rtl.name] if nics > 1 and with_models else [],
        reach=Reach(visible=visible, readable={rtl.name: found}, memories=True),
    )


class Testbench:
    """Clock, reset, hosts and wires of a running simulation.

    dut: the top. memory: bytes of each host. shuffle: seed of the page order, None = ascending.
    connect: join the cards 0 and 1 by a wire (else the far end of each is Python).
    cards: how many are in use; the others stand still.
    jump: leave out cycles in which nothing can change; nobody but the clock may notice. Not for a
    bench that drives other inputs than hosts and wires, or waits for edges other than with
    ``cycles``. ``ROCINANTE_JUMP=0`` in the environment forbids it.
    With "rest" long pauses are cheap: while nothing happens, epochs (hdl/common/epoch.py) last a
    thousand times as long. What follows a pause may come some cycles earlier or later then.
    Members: ``hosts``, ``wires``, ``management`` (one for each card, as far as it has the port),
    ``period_ps``.
    """

    __test__ = False  # not a test, whatever pytest thinks of its name

    def __init__(
        self,
        dut: Any,
        *,
        config: NicConfig,
        memory: int = 256 << 20,
        shuffle: int | None = 1,
        connect: bool = True,
        jump: bool | Literal["rest"] = False,
        cards: int = 4,
    ):
        self.dut, self.config, self._cards = dut, config, cards
        self.period_ps = 1_000_000_000_000 // config.clock_hz // 2 * 2
        self.hosts: list[Host] = []
        self.wires: list[Wire] = []
        self._memory, self._shuffle, self._connect = memory, shuffle, connect
        self._jump = bool(jump) and os.environ.get("ROCINANTE_JUMP") != "0"
        self._rest = jump == "rest"
        self._clock = native.structure(native.ClockStats, "clock_stats")

    @property
    def clock(self) -> Any:
        """Edges until now and how many of them were left out (``sim.models.native.ClockStats``)."""
        native.library().clock_wake()
        return self._clock

    @property
    def timers_run(self) -> bool:
        """Whether a timer of a QP runs, or has run until a moment ago: at most its class's step."""
        return bool(native.library().clock_timers())

    async def start(self) -> None:
        """Start the clock, reset, create hosts and wires."""
        gc.freeze()  # what has been imported stays: no need to look through it for garbage
        self.dut.rst.value = 1
        native.library().clock_start(self.period_ps)
        for i in range(4):
            if (off := getattr(self.dut, f"off{i}", None)) is not None:
                off.value = int(i >= self._cards)
        for i in range(self._cards):
            if (signal := getattr(self.dut, f"host{i}_event", None)) is not None:
                shuffle = None if self._shuffle is None else self._shuffle + i
                self.hosts.append(Host(i, signal, size=self._memory, shuffle=shuffle))
            if (signal := getattr(self.dut, f"wire{i}_event", None)) is not None:
                self.wires.append(Wire(i, signal))
        for i in range(4):
            if (link := getattr(self.dut, f"nic{i}_link_up", None)) is not None:
                link.value = 1
        if self.wires:
            coverage.keep()
        number = self.config.management_function
        self.management = [Management(host.mmio, number) for host in self.hosts]
        for wire in self.wires:
            wire.disconnect()
        if self._connect and len(self.wires) >= 2:
            self.wires[0].connect(self.wires[1])
        await RisingEdge(self.dut.clk)
        self._first_edge = int(get_sim_time("step"))
        await self.cycles(_RESET_CYCLES)
        self.dut.rst.value = 0
        await self.cycles(2)
        native.library().clock_jump(self._jump, self._rest)

    def stop(self) -> None:
        """Stop the clock, hosts and wires, so that another ``Testbench`` can begin."""
        ends: list[Host | Wire] = [*self.hosts, *self.wires]
        for end in ends:
            end.stop()
        native.library().clock_stop()

    def deadline(self, cycles: int, report: Callable[[], Any] | None = None) -> Deadline:
        """Fail the test after that many cycles; ``report`` says what was stuck."""
        return Deadline(cycles, self.period_ps, report)

    async def cycles(self, count: int) -> None:
        """Wait for ``count`` rising edges of the clock; Python does not wake for each of them."""
        if count > 1:
            now = int(get_sim_time("step"))
            edge = now - (now - self._first_edge) % self.period_ps
            await Timer(edge + count * self.period_ps - self.period_ps // 4 - now, "step")
        if count > 0:
            native.library().clock_wake()
            await RisingEdge(self.dut.clk)
