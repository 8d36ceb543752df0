"""The ECPIX-5: its files, and a bitstream of them by Yosys, nextpnr and ecppack."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from boards.ecpix5.card import BAUD, CONFIG, MEMORY_BYTES, Ecpix5Card
from boards.ecpix5.platform import Ecpix5Platform
from boards.ecpix5.top import MAC_HZ, Ecpix5Top
from sim.make.boards.carries import shorten
from sim.make.boards.columns import narrow
from sim.make.synth import tool
from sim.make.synth.place import attempt, run_tool
from sim.rtl.env import REPO, BuildError, roomy
from sim.tools import outputs

__all__ = ["NAME", "UNVERIFIED", "netlist", "route", "scripts", "shell", "summary", "write_board"]

NAME = "ecpix5"
#: What nobody has tried yet.
UNVERIFIED = (
    "No board has run it. Pins are those of amaranth-boards.",
    "RXC's delay is taken to be the PHY's own (KSZ9031), whose registers are not read.",
    "The link counts as up, and 1 Gb/s is the only speed.",
)
_PLACED = f"{NAME}.placed.json"
#: Of nextpnr: the part. What is placed and what is routed are two runs, because the second one then
#: takes all clocks for one of 50 MHz: told that the MAC's are quicker, the router gets nowhere.
_PART = (
    *("--um5g-85k", "--package", "CABGA554", "--speed", "8"),
    *("--lpf", f"{NAME}.lpf", "--timing-allow-fail", "--freq", "50"),
)
#: Placed for time, the design needs more wires than there are (docs/synthesis.md).
_PLACE = (
    *("--json", f"{NAME}.json", "--placer", "static", "--no-tmdriv"),
    *("--no-route", "--write", _PLACED),
)
#: This router takes each wire on its quickest way, one after the other. That of all wires at once
#: makes detours, which cost the core an eighth of its clock.
_ROUTE = (
    *("--json", _PLACED, "--no-pack", "--no-place", "--router", "router1"),
    *("--textcfg", f"{NAME}.config", "--report", "report.json"),
)
#: By the package's nextpnr the first of them is routed soonest (docs/synthesis.md).
_SEEDS = (3, 1, 7)
#: In Verilog, the modules that are mapped by themselves: the parts of the card, of the NIC those of
#: its boxes.
_PIECE = re.compile(rf"^module \\({NAME}\.card\.(?!nic )(?:nic\.[^. ]+\.)?[^. ]+) ", re.M)
#: What the parts always write the same to in a memory is taken out of it, and is a constant for who
#: reads it.
_COLUMNS = (
    *("opt_expr -mux_undef", "opt_clean", "opt_mem", "opt_clean"),
    *("opt_hier", "opt -fast", "opt_hier"),
)
#: FIFOs of few wide rows that go into block RAM. Yosys would take look-up tables and registers, of
#: which there are fewer, counted by what a FIFO takes.
_WIDE = "t:$mem_v2 a:no_rw_check=1 %i r:WIDTH>=400 %i r:SIZE>=16 %i"
#: Wide multiplexers and carry chains for comparisons with a constant are quick, and take up to a
#: fifth more look-up tables (docs/synthesis.md).
_SYNTH = f"synth_ecp5 -top {NAME} -nowidelut -cmp2softlogic"
#: Yosys' scripts in their order, with what each leaves.
_PARTS, _MAPPED = (f"{NAME}.ys", f"{NAME}.parts.json"), (f"{NAME}.map.ys", f"{NAME}.json")
_YOSYS = "import sys; from pyosys import libyosys; libyosys.run_pass('script ' + sys.argv[1])"


def shell(top: Any) -> dict[str, str]:
    """Return Verilog, constraints and the synthesis script of ``top`` on the board."""
    os.environ["AMARANTH_USE_YOSYS"] = "builtin"  # the pinned one, for Verilog
    plan = Ecpix5Platform().prepare(top, NAME, debug_verilog=True, emit_src=False)
    texts = {
        name: text if isinstance(text, str) else text.decode() for name, text in plan.files.items()
    }
    memory = (REPO / "hdl" / "common" / "ram.v").read_text()
    return {
        f"{NAME}.v": f"{texts[f'{NAME}.debug.v']}\n{memory}",
        f"{NAME}.lpf": texts[f"{NAME}.lpf"],
        **scripts(texts[f"{NAME}.debug.v"]),
    }


def scripts(text: str) -> dict[str, str]:
    """Return Yosys' scripts for the board's Verilog, which map piece by piece and join them.

    Between the two, ``netlist`` takes out columns of memories that nobody needs.

    Many passes go through all of a module for each memory or register that they find in it, so the
    whole in one module takes hours. Constants and unused ports pass between the pieces before. The
    pieces are joined before their logic becomes look-up tables: ``abc9`` gives two wires of one
    module the same name when it takes some of them by themselves.
    """
    pieces = " ".join(f"={name}" for name in _PIECE.findall(text))
    parts = (
        f"read_verilog -sv {NAME}.v",
        f"{_SYNTH} -run begin:coarse",
        "proc",
        *([f"setattr -mod -set keep_hierarchy 1 {pieces}"] if pieces else []),
        "flatten",
        *tool.ACROSS,
        *_COLUMNS,
        f"{_SYNTH} -run coarse:map_ram",
        "select *",  # not the part's own cells, which the other script reads again
        f"write_json -selected {_PARTS[1]}",
    )
    mapped = (
        "read_verilog -lib -specify +/ecp5/cells_sim.v +/ecp5/cells_bb.v",
        f"read_json {_PARTS[1]}",
        "opt_clean",  # what wrote the columns that are gone
        "opt -fast",  # what read those that are constants, as far as their part goes
        f'setattr -set ram_style "block" {_WIDE}',
        f"{_SYNTH} -run map_ram:map_luts",
        *([f"setattr -mod -unset keep_hierarchy {pieces}"] if pieces else []),
        "flatten",
        *("opt_expr", "opt_clean"),
        f"{_SYNTH} -run map_luts:",
        "stat",
        f"write_json {_MAPPED[1]}",
    )
    return {
        name: "".join(f"{step}\n" for step in steps)
        for (name, _), steps in ((_PARTS, parts), (_MAPPED, mapped))
    }


def write_board(folder: Path, *, commit: int = 0) -> list[Path]:
    """Write all files of the board into ``folder``; returns their names.

    commit: see ``NicConfig``. The gateware does not know it: with another constant the cells go to
    other places, and not each placement can be routed. The bitstream has it (``route``).
    """
    files = shell(Ecpix5Top(Ecpix5Card()))
    manifest = {
        "board": NAME,
        "part": f"{Ecpix5Platform.device}-{Ecpix5Platform.speed}{Ecpix5Platform.package}",
        "configuration": dataclasses.asdict(CONFIG),
        "commit": f"{commit:08x}",
        "clocks": {"sync": CONFIG.clock_hz, "mac_tx": MAC_HZ, "mac_txc": MAC_HZ, "mac_rx": MAC_HZ},
        "uart": BAUD,
        "memory": MEMORY_BYTES,
        "unverified": UNVERIFIED,
    }
    files["manifest.json"] = json.dumps(manifest, indent=2) + "\n"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        outputs.write_text(folder / name, text)
    return [folder / name for name in files]


def netlist(folder: Path, say: Callable[[str], None]) -> None:
    """Synthesise the files in ``folder``; leaves ``ecpix5.json`` and Yosys' log there.

    Raises BuildError when Yosys fails.
    """
    say("synthesis")
    with (folder / "yosys.log").open("w") as log:
        for (script, result), tidy in ((_PARTS, _narrowed), (_MAPPED, _shortened)):
            done = subprocess.run(
                [sys.executable, "-P", "-c", _YOSYS, script],
                cwd=folder,
                env={**os.environ, **roomy()},
                stdout=log,
                stderr=subprocess.STDOUT,
                check=False,
            )
            written = folder / result
            if done.returncode or not written.is_file():
                raise BuildError(f"Yosys ended with status {done.returncode}: {log.name}")
            design = json.loads(written.read_text())
            log.writelines(f"{line}\n" for line in tidy(design))
            log.flush()
            written.write_text(json.dumps(design))


def _narrowed(design: dict[str, Any]) -> list[str]:
    """Take columns out of the memories; returns what was done."""
    return [
        f"{name}: {after} of {before} columns" for name, (before, after) in narrow(design).items()
    ]


def _shortened(design: dict[str, Any]) -> list[str]:
    """Shorten the carry chains; returns what was done."""
    opened, begun = shorten(design["modules"][NAME])
    return [f"{opened} chains without a last carry, {begun} with a first one of their own"]


def route(folder: Path, say: Callable[[str], None], *, commit: int = 0) -> Path:
    """Make ``ecpix5.bit`` of netlist and constraints in ``folder``; returns its name.

    commit: what a reader of the part's USERCODE shall find, see ``NicConfig``.

    Leaves the tools' logs and nextpnr's ``report.json`` beside it. Raises BuildError when a tool
    fails, the design does not fit, a pin has no ball or one that the part lacks, or no placement
    can be routed; ToolError when nextpnr cannot be installed. Timing that is not met is no error:
    ``summary`` tells it.
    """
    command, environment = run_tool("nextpnr_ecp5", say, native=True)
    for seed in _SEEDS:
        for what, options in (("placing", _PLACE), ("routing", _ROUTE)):
            say(f"{what}, seed {seed}")
            log = folder / f"{what}.log"
            every = [*command, *_PART, *options, "--seed", str(seed)]
            status = attempt(every, folder, environment, log)
            if status:
                raise BuildError(f"nextpnr ended with status {status}: {log}")
        if status is not None:
            break
    else:
        raise BuildError(f"The router gets nowhere with seeds {', '.join(map(str, _SEEDS))}")
    say("packing")
    command, environment = run_tool("ecppack", say, native=True)
    command += ["--compress", "--usercode", str(commit), f"{NAME}.config", f"{NAME}.bit"]
    status = attempt(command, folder, environment, folder / "ecppack.log")
    if status or not (folder / f"{NAME}.bit").is_file():
        raise BuildError(f"ecppack ended with status {status}: {folder / 'ecppack.log'}")
    return folder / f"{NAME}.bit"


def summary(report: dict[str, Any]) -> tuple[list[str], bool]:
    """Return lines with clocks and cells of nextpnr's report, and whether all clocks are met."""
    lines, met = [], True
    for clock, found in report["fmax"].items():
        wanted = (MAC_HZ if "mac" in clock else CONFIG.clock_hz) / 1e6
        good = found["achieved"] >= wanted
        met &= good
        verdict = "met" if good else "NOT met"
        lines.append(f"{clock}: {found['achieved']:.1f} MHz of {wanted:.1f}: {verdict}")
    for cell in ("TRELLIS_COMB", "TRELLIS_FF", "DP16KD"):
        some = report["utilization"][cell]
        share = 100 * some["used"] / some["available"]
        lines.append(f"{cell}: {some['used']} of {some['available']}, {share:.0f} %")
    return lines, met
