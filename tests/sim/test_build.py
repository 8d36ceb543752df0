"""Generate, build, run: caching, failures that are reported, waves, C++, odd paths."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sim.rtl import env
from sim.rtl.build import (
    BuildError,
    Reach,
    Rtl,
    Visible,
    bench,
    build_model,
    lint,
    model_sources,
    run,
    sources,
    verilog,
)
from sim.rtl.simulate import Call, simulate
from tests.sim.parts import Echo

ECHO = Rtl(Echo, {"width": 24})
MODULE = "tests.sim.bench_echo"


def test_bench_passes_and_says_what_ran() -> None:
    results = bench(Rtl(Echo, {"width": 24}), test_module=MODULE)
    assert [case.name for case in results.cases] == ["passes_words"]
    assert results.cases[0].sim_ns > 20 * 4
    assert "passes_words" in results.log.read_text()


def test_second_time_is_cached() -> None:
    first = build_model(ECHO)
    started = time.monotonic()
    assert build_model(ECHO) == first
    assert time.monotonic() - started < 1


def other_folder(build: Path) -> str:
    """A build folder with nothing but Verilator's own compiled files; as a setting's value."""
    runtime = env.build_root() / "runtime"
    runtime.mkdir(exist_ok=True)
    build.mkdir()
    (build / "runtime").symlink_to(runtime)
    return str(build)


def test_sources_are_all_that_another_machine_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = pickle.dumps(model_sources(ECHO))
    monkeypatch.setenv("ROCINANTE_BUILD_DIR", other_folder(tmp_path / "build"))
    monkeypatch.setattr(env, "REPO", tmp_path)  # no gateware there
    received = pickle.loads(sent)
    assert received.key == pickle.loads(sent).key
    assert received.key != replace(received, control=received.control + "\n").key
    assert run(received.build(), test_module=MODULE).cases[0].passed
    assert [path.name for path in tmp_path.glob("build/models/*/echo")] == ["echo"]


def test_seed_repeats_a_run() -> None:
    def words(seed: int) -> str:
        log = run(build_model(ECHO), test_module=MODULE, seed=seed).log.read_text()
        return next(line for line in log.splitlines() if "words [" in line).split("words")[1]

    assert words(5) == words(5) != words(6)


def test_failing_test_is_reported() -> None:
    with pytest.raises(AssertionError) as caught:
        run(build_model(ECHO), test_module=MODULE, extra_env={"ECHO": "wrong"}, seed=9)
    text = str(caught.value)
    assert "1 of 2 tests" in text
    assert "fails: " in text and "count is not what was asked" in text
    assert "Repeat: ./rocinante test --seed 9" in text and "test_failing_test_is_reported" in text


def test_hanging_simulation_ends() -> None:
    with pytest.raises(AssertionError, match="still running after 2 s"):
        run(build_model(ECHO), test_module=MODULE, testcase="hangs",
            extra_env={"ECHO": "hang"}, timeout_s=2)  # fmt: skip


def test_processor_time_of_a_simulation_is_limited(tmp_path: Path) -> None:
    model = build_model(ECHO)
    call = Call(
        test_module=MODULE,
        testcase="hangs",
        extra_env={"ECHO": "hang"},
        waves=False,
        seed=1,
        timeout_s=120,
        processor_s=2,
    )
    assert "ended without results" in simulate(model.folder, model.top, call, tmp_path)


@pytest.mark.parametrize(("module", "testcase"), [("tests.sim.no_such", None), (MODULE, "no_such")])
def test_nothing_run_is_a_failure(module: str, testcase: str | None) -> None:
    with pytest.raises(AssertionError, match="Simulation failed"):
        run(build_model(ECHO), test_module=module, testcase=testcase)


def test_verilog_is_generated_once_and_again_after_a_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCINANTE_BUILD_DIR", str(tmp_path / "build"))
    monkeypatch.syspath_prepend(str(tmp_path))
    part = tmp_path / "cached_part.py"
    source = """\
        from tests.sim.parts import Echo
        import pathlib

        def make(*, width):
            with open({note!r}, "a") as note:
                note.write("x")
            return Echo(width=width{more})
        """
    note = tmp_path / "note"

    def write(more: str) -> None:
        part.write_text(textwrap.dedent(source).format(note=str(note), more=more))
        os.utime(part, (1, 1))  # older than the elaboration, as a file at rest is

    write("")
    piece = Rtl("cached_part:make", {"width": 8}, name="cached")
    first = verilog(piece)
    assert verilog(piece) == first
    assert note.read_text() == "x"
    write(" + 1")
    second = verilog(piece)
    assert note.read_text() == "xx"
    assert second != first and "[8:0]" in second.read_text()


def test_elaboration_error_is_reported() -> None:
    with pytest.raises(BuildError, match="Width must be at least 1 bit, not 0"):
        verilog(Rtl(Echo, {"width": 0}))


def test_undriven_clock_is_refused() -> None:
    with pytest.raises(BuildError, match="clock domain has no driver"):
        verilog(Rtl("tests.sim.parts:Undriven"))


def test_lint_adds_hand_written_modules() -> None:
    big = Rtl("hdl.common.ram:Ram", {"shape": 512, "depth": 16384})
    assert [path.name for path in sources(big)[1:]] == ["ram.v"]
    lint(big)


def test_lint_keeps_loops_visible() -> None:
    lint(ECHO)
    with pytest.raises(ValueError, match="UNOPTFLAT"):
        lint(ECHO, waive=["UNOPTFLAT"])


LOOP = """\
module looped(input clk, input a, b, output c);
  wire d = c ^ a;
  assign c = d & b;
endmodule
"""


def test_loop_stops_the_build(tmp_path: Path) -> None:
    (tmp_path / "looped.sv").write_text(LOOP)
    with pytest.raises(BuildError, match="UNOPTFLAT"):
        build_model([], top="looped", extra_sources=[tmp_path / "looped.sv"])


@pytest.mark.parametrize(("visible", "seen"), [("ports", False), ("top", True), ("all", True)])
def test_visible_signals(visible: Visible, seen: bool) -> None:
    piece = Rtl("tests.sim.parts:Hidden")
    model = build_model(piece, reach=Reach(visible=visible))
    run(model, test_module=MODULE, testcase="sees_inner_signal", extra_env={"ECHO": f"sees {seen}"})


@pytest.mark.parametrize(
    "values",
    [
        {"factory": "no colon"},
        {"factory": lambda: None},
        {"factory": Echo, "params": {"width": object()}},
        {"factory": Echo, "name": "two words"},
    ],
)
def test_bad_rtl_is_a_value_error(values: dict) -> None:
    with pytest.raises(ValueError, match="must|need"):
        Rtl(**values)


DPI_TOP = """\
module ticker(input clk, output reg [63:0] ticks);
  import "DPI-C" function longint unsigned tick();
  initial ticks = 0;
  always @(posedge clk) ticks <= tick();
endmodule
"""
DPI_CODE = """\
#include "start.h"
extern "C" {
unsigned long long tick_count = START;
unsigned long long tick() { return ++tick_count; }
}
"""


def test_cxx_model_shares_memory_with_python(tmp_path: Path) -> None:
    sources = {"ticker.sv": DPI_TOP, "tick.cpp": DPI_CODE, "start.h": "#define START 0\n"}
    for name, text in sources.items():
        (tmp_path / name).write_text(text)
    model = build_model([], top="ticker", extra_sources=[tmp_path / name for name in sources])
    run(model, test_module=MODULE, testcase="shares_memory", extra_env={"ECHO": "dpi"})


def test_what_reads_nothing_of_the_design_is_compiled_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROCINANTE_BUILD_DIR", other_folder(tmp_path / "build"))

    def log(start: int, top: str = DPI_TOP) -> str:
        """Of a build; its C++ is no other test's."""
        header = f"// {tmp_path}\n#define START {start}\n"
        texts = {"ticker.sv": top, "tick.cpp": DPI_CODE, "start.h": header}
        for name, text in texts.items():
            (tmp_path / name).write_text(text)
        model = build_model([], top="ticker", extra_sources=[tmp_path / name for name in texts])
        return (model.folder / "build.log").read_text()

    assert "-o tick.o" in log(7)
    again = log(7, DPI_TOP.replace("initial", "initial  "))
    assert "-o tick.o" not in again and " tick.o " in again and "-o verilator.o" in again
    assert "-o tick.o" in log(8)
    assert "headers.h.gch" not in again, "the compiler says why it does not use them"


def test_broken_source_is_reported(tmp_path: Path) -> None:
    (tmp_path / "broken.sv").write_text("module broken(input clk);\n  wires x;\nendmodule\n")
    with pytest.raises(BuildError, match="broken.sv:2"):
        build_model([], top="broken", extra_sources=[tmp_path / "broken.sv"])


def test_waves() -> None:
    try:
        env.require_waves()
    except env.ToolError as error:
        pytest.skip(str(error))
    results = bench(Rtl(Echo, {"width": 24}), test_module=MODULE, waves=True)
    assert results.waves is not None and results.waves.stat().st_size > 100


def test_build_folder_inside_another_checkout(tmp_path: Path, monkeypatch) -> None:
    """The bench that runs is this checkout's, wherever the run's folder is."""
    model = build_model(ECHO)
    other = tmp_path / "tests" / "sim"
    other.mkdir(parents=True)
    shutil.copy(env.REPO / "pyproject.toml", tmp_path)
    for package in (other, other.parent):
        (package / "__init__.py").touch()
    (other / "bench_echo.py").write_text("raise RuntimeError('a bench of another checkout')\n")
    monkeypatch.setenv("ROCINANTE_BUILD_DIR", str(tmp_path / ".build"))
    assert run(model, test_module=MODULE).cases[0].passed


def test_works_behind_a_path_with_spaces(tmp_path: Path) -> None:
    """Sources, packages and build folder all under a name that make cannot take."""
    odd = tmp_path / "a $b c"
    odd.mkdir()
    packages = odd / "site packages"
    packages.mkdir()
    shutil.copytree(env.verilator_root(), packages / "verilator")
    (packages / "cocotb").symlink_to(env.cocotb_root())
    top = odd / "odd top.sv"
    top.write_text(
        "module odd(input clk, output [63:0] ticks);\n  assign ticks = 2000;\nendmodule\n"
    )
    code = f"""
        from pathlib import Path
        from sim.rtl import env
        env.verilator_root = lambda: Path({str(packages / "verilator")!r})
        env.cocotb_root = lambda: Path({str(packages / "cocotb")!r})
        from sim.rtl.build import Rtl, bench, build_model, lint
        bench(Rtl("tests.sim.parts:Echo", {{"width": 24}}), test_module={MODULE!r})
        lint(Rtl("tests.sim.parts:Echo", {{"width": 24}}))
        build_model([], top="odd", extra_sources=[{str(top)!r}])
    """
    folder = other_folder(odd / "build")
    environment = {**os.environ, "ROCINANTE_BUILD_DIR": folder, "PYTHONPATH": "."}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment, cwd=env.REPO, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_allocator_of_programs_that_take_much_memory(monkeypatch) -> None:
    """It is loaded; where its path is not for the loader, large pages of the C library serve."""
    code = "print('libmimalloc' in open('/proc/self/maps').read())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **env.roomy()}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == str(env.is_plain(sys.prefix)), done.stderr
    monkeypatch.setattr(env, "is_plain", lambda path: False)
    assert env.roomy.__wrapped__() == {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
