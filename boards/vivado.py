"""Files for AMD Vivado: constraints from a board's platform, IP cores and the project's script.

Written after public scripts and from memory. AMD's guides define what is used here: UG835
(commands), UG903 and UG912 (constraints). They have not been compared with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from amaranth.build.dsl import Clock

from boards.pins import balls, leaves

__all__ = ["Ip", "pin_constraints", "project_script"]


def pin_constraints(platform) -> str:
    """Return XDC that places each port, and tells the period of each clock at a pin."""
    lines = []
    for port, sub in leaves(platform):
        for bit, ball in balls(port, sub).items():
            place = f"[get_ports {{{bit}}}]" if "[" in bit else f"[get_ports {bit}]"
            lines.append(f"set_property PACKAGE_PIN {ball} {place}")
            lines += [f"set_property {name} {value} {place}" for name, value in sub.attrs.items()]
        if isinstance(sub.clock, Clock):
            period = sub.clock.period * 1e9
            lines.append(f"create_clock -name {port} -period {period:.3f} [get_ports {port}]")
    return "\n".join([*lines, ""])


@dataclass(frozen=True)
class Ip:
    """An IP core of Vivado's catalogue: ``name`` there, made as the module ``module``."""

    module: str
    name: str
    properties: Mapping[str, object]

    def script(self) -> str:
        """Return the Tcl text that creates it, to be synthesised by itself (out of context)."""
        lines = [f"create_ip -name {self.name} -vendor xilinx.com -library ip "
                 f"-module_name {self.module}", "set_property -dict [list \\"]  # fmt: skip
        lines += [f"    CONFIG.{name} {{{value}}} \\" for name, value in self.properties.items()]
        lines += [f"] [get_ips {self.module}]", f"generate_target all [get_ips {self.module}]",
                  f"create_ip_run [get_ips {self.module}]"]  # fmt: skip
        return "\n".join([*lines, ""])


_HEAD = """\
# Makes @NAME@.bit of the files beside this one: vivado -mode batch -source build.tcl
set here [file dirname [file normalize [info script]]]
create_project @NAME@ [file join $here project] -part @PART@ -force
"""
_BOARD = """\
set board [lindex [lsort [get_board_parts @BOARD@]] end]
if {$board eq ""} { error "Vivado has no files of the board @BOARD@: install them" }
set_property board_part $board [current_project]
"""
_FILES = """\
add_files -norecurse [file join $here @NAME@.sv]
add_files -norecurse -fileset constrs_1 [file join $here @NAME@.xdc]
set_property PROCESSING_ORDER LATE [get_files @NAME@.xdc]

"""
_TAIL = """
set_property top @NAME@ [current_fileset]
update_compile_order -fileset sources_1
launch_runs synth_1 -jobs 4
wait_on_run synth_1
launch_runs impl_1 -to_step write_bitstream -jobs 4
wait_on_run impl_1
foreach run {synth_1 impl_1} {
    if {[get_property PROGRESS [get_runs $run]] ne "100%"} { error "$run has failed: see its log" }
}
open_run impl_1
report_utilization -file [file join $here utilization.txt]
report_timing_summary -file [file join $here timing.txt]
report_cdc -file [file join $here cdc.txt]
report_methodology -file [file join $here methodology.txt]
foreach check {max min} {
    set slack [get_property SLACK [get_timing_paths -delay_type $check -max_paths 1]]
    if {$slack < 0} { error "Timing is not met ($check): slack $slack ns, see timing.txt" }
}
write_bitstream -force [file join $here @NAME@.bit]
"""


def project_script(
    name: str, part: str, *, ips: tuple[Ip, ...], board: str = "", design: str = "", end: str = ""
) -> str:
    """Return the Tcl text that makes ``name``.bit; it ends with an error if timing is not met.

    ``board``: a pattern of a board whose files Vivado must have; ``design``: Tcl behind the files,
    before the IP cores; ``end``: Tcl behind the bitstream.
    """
    cores = "\n".join(ip.script() for ip in ips)
    text = _HEAD + (_BOARD if board else "") + _FILES + design + cores + _TAIL + end
    for word, value in {"NAME": name, "PART": part, "BOARD": board}.items():
        text = text.replace(f"@{word}@", value)
    return text
