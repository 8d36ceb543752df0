"""Files for Intel Quartus Prime Pro: assignments, constraints, IP cores and the project's script.

Written after public scripts and from memory; Intel's manuals of the commands have not been compared
with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from amaranth.build.dsl import Clock

from boards.pins import balls, leaves

__all__ = ["Ip", "assignments", "clocks", "part", "project_script"]

FAMILY = "Agilex"


def part(platform) -> str:
    """Return the part as Quartus names it."""
    return f"{platform.device}{platform.package}{platform.speed}{platform.suffix}"


@dataclass(frozen=True)
class Ip:
    """An IP core of Quartus' catalogue: ``name`` there, made as the module ``module``."""

    module: str
    name: str
    parameters: Mapping[str, object]

    def script(self, device: str) -> str:
        """Return the text for qsys-script that makes ``module``.ip, for a part."""
        unit = f"{self.name}_0"
        lines = [
            "package require -exact qsys 21.3",
            f"create_system {self.module}",
            f"set_project_property DEVICE {{{device}}}",
            f"set_project_property DEVICE_FAMILY {{{FAMILY}}}",
            "set_project_property HIDE_FROM_IP_CATALOG {true}",
            f"add_instance {unit} {self.name}",
        ]
        lines += [
            f"set_instance_parameter_value {unit} {{{name}}} {{{value}}}"
            for name, value in self.parameters.items()
        ]
        lines += [
            f"set_instance_property {unit} AUTO_EXPORT true",
            f"save_system {{{self.module}.ip}}",
        ]
        return "\n".join([*lines, ""])


def assignments(platform, name: str, *, ips: tuple[Ip, ...], design: Mapping[str, str]) -> str:
    """Return the project's settings (QSF): part, files, ``design``, and each port's place."""

    def whole(key: str, value: str) -> str:
        return f'set_global_assignment -name {key} "{value}"'

    files = {"SYSTEMVERILOG_FILE": f"{name}.sv", "SDC_FILE": f"{name}.sdc"}
    settings = {"FAMILY": FAMILY, "DEVICE": part(platform), **files, "TOP_LEVEL_ENTITY": name}
    lines = [whole(key, value) for key, value in {**settings, **design}.items()]
    lines += [whole("IP_FILE", f"{ip.module}.ip") for ip in ips]
    for port, sub in leaves(platform):
        for bit, ball in balls(port, sub).items():
            lines.append(f"set_location_assignment PIN_{ball} -to {bit}")
            lines += [
                f'set_instance_assignment -name {key.upper()} "{value}" -to {bit}'
                for key, values in sub.attrs.items()
                for value in ([values] if key == "io_standard" else values.split())
            ]
    return "\n".join([*lines, ""])


def clocks(platform) -> str:
    """Return SDC that tells the period of each clock at a pin, and what the fitter finds itself."""
    lines = []
    for port, sub in leaves(platform):
        if isinstance(sub.clock, Clock):
            period = sub.clock.period * 1e9
            for bit in balls(port, sub):
                lines.append(f"create_clock -name {{{bit}}} -period {period:.3f} "
                             f"[get_ports {{{bit}}}]")  # fmt: skip
    return "\n".join([*lines, "derive_clock_uncertainty", ""])


_PROJECT = """\
# Makes @NAME@.sof of the files beside this one: quartus_sh -t build.tcl
package require ::quartus::project
package require ::quartus::flow
cd [file dirname [file normalize [info script]]]
foreach ip {@IPS@} {
    exec qsys-script --quartus-project=none --script=$ip.tcl
}
project_open @NAME@
execute_module -tool ipg -args "--synthesis=verilog"
execute_flow -compile
project_close
set summary [open output_files/@NAME@.sta.summary]
foreach {_ slack} [regexp -all -inline {Slack +: +(-?[0-9.]+)} [read $summary]] {
    if {$slack < 0} { error "Timing is not met: slack $slack ns, see the reports" }
}
close $summary
"""


def project_script(name: str, ips: tuple[Ip, ...]) -> str:
    """Return the Tcl text that makes ``name``.sof; it ends with an error if timing is not met."""
    text = _PROJECT.replace("@IPS@", " ".join(ip.module for ip in ips))
    return text.replace("@NAME@", name)
