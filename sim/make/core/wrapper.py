"""The core's outer module: ports by the names that tools know, their list, a template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sim.rtl.build import WAIVERS

__all__ = ["Port", "core_ports", "port_list", "source", "template"]

#: Bus interfaces: Vivado's name of the bus, its protocol, what it is for.
BUSES = {
    "m_axi": ("aximm", "AXI4", "host memory"),
    "s_axil": ("aximm", "AXI4LITE", "registers; an address is {function, BAR, offset}"),
    "m_axis_tx": ("axis", "", "frames to the MAC, without FCS"),
    "s_axis_rx": ("axis", "", "frames from the MAC, without FCS"),
}
#: What other ports are for.
MEANINGS = {
    "clk": "clock of the core, `m_axi` and `s_axil`",
    "rst": "reset of the core, synchronous, active high",
    "mac_tx_clk": "clock of `m_axis_tx`",
    "mac_tx_rst": "its reset, together with `rst`",
    "mac_rx_clk": "clock of `s_axis_rx` and `link_up`",
    "mac_rx_rst": "its reset, together with `rst`",
    "intx": "legacy interrupt of each guest function: a level",
    "irq": "a pulse of one cycle for each message to a word of the interrupt window",
    "link_up": "the MAC has a link",
    "mac_tx_drops": "frames of `m_axis_tx` that the design around has dropped, modulo 65536",
    "mac_rx_drops": "frames for `s_axis_rx` that the design around has dropped, modulo 65536",
}
#: What the signals of the buses with a meaning of their own say.
SIGNALS = {
    "awuser": "PCI function that writes",
    "aruser": "PCI function that reads",
    "awid": "always 0: writes stay in order",
    "arid": "tag: responses come in any order",
    "tuser": "with `tlast`: the frame is bad",
}


@dataclass(frozen=True)
class Port:
    """A port of the outer module. ``inner``: its name at the core; ``domain``: its clock's name."""

    name: str
    inner: str
    output: bool
    width: int
    domain: str

    @property
    def bus(self) -> str:
        """Name of the bus that it belongs to, or nothing."""
        return next((bus for bus in BUSES if self.name.startswith(f"{bus}_")), "")

    @property
    def signal(self) -> str:
        """Its name within its bus."""
        return self.name.removeprefix(f"{self.bus}_")

    @property
    def meaning(self) -> str:
        """What it is for, in a line."""
        if not self.bus:
            return MEANINGS[self.name]
        said = SIGNALS.get(self.signal)
        return f"{BUSES[self.bus][2]}: {said or self.signal.upper()}"


def core_ports(ports: dict[str, tuple[str, int]]) -> list[Port]:
    """Return the outer ports for those of the core (name -> direction and width), clocks first."""
    own = "mac_tx_clk" in ports
    found = []
    for inner, (direction, width) in ports.items():
        name = inner.replace("__", "_")
        domain = "clk"
        if own and name.startswith(("m_axis_tx", "mac_tx")):
            domain = "mac_tx_clk"
        elif own and name.startswith(("s_axis_rx", "mac_rx", "link_up")):
            domain = "mac_rx_clk"
        found.append(Port(name, inner, direction == "output", width, domain))
    order = [*(name for name in MEANINGS if name.endswith(("clk", "rst"))), *BUSES]
    return sorted(
        found,
        key=lambda port: (
            order.index(port.bus or port.name) if (port.bus or port.name) in order else len(order)
        ),
    )


def _attributes(port: Port, ports: Sequence[Port], clocks: dict[str, int]) -> str:
    """What Vivado needs to see buses, clocks and resets."""
    if port.name.endswith("clk"):  # no bus has a signal of such a name
        buses = dict.fromkeys(one.bus for one in ports if one.bus and one.domain == port.name)
        reset = port.name.removesuffix("clk") + "rst"
        facts = f"ASSOCIATED_BUSIF {':'.join(buses)}, ASSOCIATED_RESET {reset}"
        domain = port.name.removesuffix("_clk") if port.name != "clk" else "sync"
        return (
            f'  (* X_INTERFACE_INFO = "xilinx.com:signal:clock:1.0 {port.name} CLK", '
            f'X_INTERFACE_PARAMETER = "{facts}, FREQ_HZ {clocks[domain]}" *)\n'
        )
    if port.name in MEANINGS and port.name.endswith("rst"):
        return (
            f'  (* X_INTERFACE_INFO = "xilinx.com:signal:reset:1.0 {port.name} RST", '
            'X_INTERFACE_PARAMETER = "POLARITY ACTIVE_HIGH" *)\n'
        )
    if not port.bus:
        return ""
    kind, protocol, _ = BUSES[port.bus]
    first = next(one for one in ports if one.bus == port.bus) is port
    facts = f', X_INTERFACE_PARAMETER = "PROTOCOL {protocol}"' if protocol and first else ""
    place = f"xilinx.com:interface:{kind}:1.0 {port.bus} {port.signal.upper()}"
    return f'  (* X_INTERFACE_INFO = "{place}"{facts} *)\n'


def _range(port: Port) -> str:
    return f"[{port.width - 1}:0] " if port.width > 1 else ""


def source(name: str, ports: Sequence[Port], clocks: dict[str, int], core: str) -> str:
    """Return the whole file: the outer module and, behind it, the core's own text.

    Warnings of Verilator that generated text cannot avoid are off there, and only there.
    """
    head = ",\n".join(
        f"{_attributes(port, ports, clocks)}"
        f"  {'output' if port.output else 'input '} wire {_range(port)}{port.name}"
        for port in ports
    )
    pins = ",\n".join(f"    .{port.inner}({port.name})" for port in ports)
    off = "".join(f"/* verilator lint_off {rule} */\n" for rule in WAIVERS)
    return (
        "// Rocinante, an RDMA NIC: generated by `rocinante verilog`. Ports: ports.md.\n"
        "/* verilator lint_off DECLFILENAME */\n"
        "// A reset also sets what synchronises it to another clock.\n"
        "/* verilator lint_off SYNCASYNCNET */\n"
        f"module {name} (\n{head}\n);\n"
        f"  {name}_core core (\n{pins}\n  );\nendmodule\n\n"
        f"// What follows is generated from Amaranth.\n{off}\n{core}"
    )


def template(name: str, ports: Sequence[Port]) -> str:
    """Return SystemVerilog that instantiates the core, with a declaration for each port."""
    lines = [f"logic {_range(port)}{port.name};" for port in ports]
    pins = ",\n".join(f"    .{port.name}({port.name})" for port in ports)
    return "\n".join([*lines, "", f"{name} nic (\n{pins}\n);", ""])


def port_list(name: str, ports: Sequence[Port], clocks: dict[str, int]) -> str:
    """Return the ports as a page in Markdown."""
    rows = [
        f"| `{port.name}` | {'out' if port.output else 'in'} | {port.width} | `{port.domain}` "
        f"| {port.meaning} |"
        for port in ports
    ]
    named = ", ".join(
        f"`{'clk' if domain == 'sync' else domain + '_clk'}` {hertz / 1e6:g} MHz"
        for domain, hertz in clocks.items()
    )
    return "\n".join(
        [
            f"# Ports of `{name}`",
            "",
            f"Clocks: {named}. All resets are active high, synchronous to their clocks, and begin "
            "and end together; they last 8 cycles of the slowest clock or more.",
            "",
            "| port | direction | bits | clock | meaning |",
            "|---|---|---|---|---|",
            *rows,
            "",
        ]
    )
