"""The vendors' boards: names in scripts and constraints, ports of blocks, the whole."""

import functools
import json
import re

import pytest
from click.testing import CliRunner

from sim.make.boards.command import build
from sim.make.boards.vendor import TIMING, write_shell
from sim.rtl.verilog import module_ports, verilog
from tests.boards.bench import needs_tclsh
from tests.boards.cases import CASES

each = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@functools.cache
def files(name):
    """All that a board needs but the core."""
    return write_shell(CASES[name].bench.board)


@needs_tclsh
@each
def test_script_names_what_is_there(case, tmp_path):
    done = case.bench.script(files(case.name), tmp_path)
    assert done.returncode == 0 and not done.stderr, done.stderr
    said = done.stdout.splitlines()
    assert {line for line in said if line.startswith("made")} == {f"made {n}" for n in case.made}


BROKEN = [(case.name, *one) for case in CASES.values() for one in case.broken]


@needs_tclsh
@pytest.mark.parametrize("name,file,right,broken,said", BROKEN)
def test_what_is_broken_is_found(tmp_path, name, file, right, broken, said):
    texts = files(name)
    assert right in texts[file]
    changed = texts | {file: texts[file].replace(right, broken, 1)}
    done = CASES[name].bench.script(changed, tmp_path)
    assert done.returncode == 1 and f"WRONG: {said}" in done.stderr, done.stderr


MISSING = [
    (case.name, file)
    for case in CASES.values()
    for file in sorted(case.files - {"build.tcl", "manifest.json"})
]


@needs_tclsh
@pytest.mark.parametrize("name,missing", MISSING)
def test_a_missing_file_is_found(tmp_path, name, missing):
    less = {file: text for file, text in files(name).items() if file != missing}
    done = CASES[name].bench.script(less, tmp_path)
    assert done.returncode == 1 and "WRONG: no file" in done.stderr, done.stderr


FAILING = [(case.name, *one) for case in CASES.values() for one in case.failing.items()]


@needs_tclsh
@pytest.mark.parametrize("name,fact,said", FAILING)
def test_a_run_that_fails_ends_the_script(tmp_path, name, fact, said):
    done = CASES[name].bench.script(files(name), tmp_path, [fact])
    assert done.returncode == 2 and f"ENDS: {said}" in done.stderr, done.stderr


@each
def test_lint_with_stubs(case, tmp_path):
    done = case.bench.lint(tmp_path, files(case.name)[f"{case.name}.sv"], case.bench.blocks)
    assert done.returncode == 0, done.stderr[-3000:]


BLOCKS = [(case.name, block) for case in CASES.values() for block in case.bench.blocks]


@pytest.mark.parametrize("name,block", BLOCKS, ids=[f"{name}-{one.name}" for name, one in BLOCKS])
def test_lint_finds_a_missing_port(tmp_path, name, block):
    text = files(name)[f"{name}.sv"]
    assert CASES[name].bench.finds_a_missing_port(tmp_path, text, block)


@each
def test_what_is_known_of_the_clock(case):
    """Levels and estimate are those that are recorded, not written by hand."""
    known = json.loads(TIMING.read_text())[case.name]
    told = " ".join(case.bench.board.warnings)
    assert f"up to {max(map(int, known['levels']['register']))} levels of logic" in told
    assert f"{known['fmax_mhz']['usual']:.0f} MHz in the usual case" in told
    assert told.count("levels") == 1


@pytest.mark.slow  # the core is generated and read
@each
def test_build(case, tmp_path):
    """The whole: one file with top and core, whose ports are those that the top expects."""
    result = CliRunner().invoke(build, [case.name, "-o", str(tmp_path)])
    assert result.exit_code == 0 and "Unverified:" in result.output, result.output
    texts = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert texts.keys() == case.files
    text = texts[f"{case.name}.sv"]
    assert text.count("\nmodule rocinante(") + text.count("\nmodule rocinante (") == 1
    core = module_ports(verilog(case.core).read_text(), case.core.name)
    assert {name.replace("__", case.joint): (way[0], width)
            for name, (way, width) in core.items()} == {
        name: tuple(port) for name, port in case.bench.blocks[0].ports.items()
    }  # fmt: skip
    manifest = json.loads(texts.pop("manifest.json"))
    assert manifest["part"] == case.bench.board.part
    assert manifest["unverified"] == list(case.bench.board.warnings)
    assert re.fullmatch("[0-9a-f]{8}", manifest["commit"])
    assert None not in manifest.values()
    done = case.bench.lint(tmp_path, text, case.blocks)
    assert done.returncode == 0, done.stderr[-3000:]
    done = case.bench.script(texts, tmp_path)
    assert done.returncode == 0, done.stderr
