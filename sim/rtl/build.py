"""From gateware to a simulation that has run: the interface every room's tests use.

``bench(...)`` does all of it for one component::

    bench(Rtl("hdl.egress.egress:Egress", {"width": 512}), test_module="tests.egress.bench_egress")

and consists of ``verilog(Rtl(...))`` -> ``build_model([...])`` -> ``run(model, ...)``. Each step is
cached by content below ``.build/`` and safe in several processes at once; a model whose Verilog,
sources and options have been seen before is not compiled again.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from sim import models
from sim.rtl import env, reached, runner
from sim.rtl.env import BuildError, build_root
from sim.rtl.readable import FILE as PROBES
from sim.rtl.readable import MODEL, Probe, rules, save
from sim.rtl.results import Attempt, CaseResult, read_cases, report
from sim.rtl.simulate import Call, simulate
from sim.rtl.verilog import Rtl, digest, sources, verilog

__all__ = [
    "Attempt",
    "BuildError",
    "BuiltModel",
    "Call",
    "CaseResult",
    "ModelSources",
    "Reach",
    "Results",
    "Rtl",
    "attempt",
    "bench",
    "build_model",
    "lint",
    "model_sources",
    "read_cases",
    "run",
    "sources",
    "verilog",
]

log = logging.getLogger("rocinante.build")

# Verilator's warnings that generated Verilog cannot avoid, each with its reason. They are waived
# for generated files only; every other warning stops the build. UNOPTFLAT (a combinational loop,
# or what looks like one and simulates as slowly) is never to be listed here.
WAIVERS = {
    "ASCRANGE": "a structure's field of no bits is declared as [-1:0]; nothing reads it",
    "CASEINCOMPLETE": "the default is assigned before the case statement",
    "CMPCONST": "what one width needs compares with a constant at another",
    "PROCASSINIT": "a register has its power-on value where it is declared",
    "SYNCASYNCNET": "a reset reaches other clocks through synchronisers, which take it at any time",
    "WIDTHEXPAND": "Amaranth widens operands by its own rules before Yosys prints them",
    "WIDTHTRUNC": "likewise when it assigns to something narrower",
    "UNSIGNED": "as CMPCONST",
    "VARHIDDEN": "a structure's field may have the name of an instance",
    "UNUSEDSIGNAL": "Yosys declares every Amaranth signal, read or not",
}

_DEFAULT_SEED = 1

#: The compiler's passes that take two fifths of its time and gain nothing: what Verilator writes
#: has no structures to take apart, next to no store or load to save, and nothing computed twice.
_USELESS = tuple(f"-fno-{one}" for one in ("ipa-modref", "code-hoisting"))
_USELESS += tuple(f"-fno-tree-{one}" for one in ("sra", "dse", "fre", "pre"))
#: No collection of garbage below 2 GB: after one, each large piece of memory is looked for in a
#: list that has become long, which took half of the time for a CRC of 512 bits.
_ROOMY = "--param=ggc-min-heapsize=2000000"
#: Its options for a model that is to run fast, and for one that is to be built quickly. -O2 runs a
#: whole NIC of 64 bits no faster than -Os and takes longer; at 512 bits they were not compared.
_FAST = ("-Os", *_USELESS, _ROOMY)
_QUICK = ("-O1", *_USELESS, _ROOMY)

Visible = Literal["ports", "top", "all"]


class _Counting(runner.Options):
    """A model that counts the branches entered (``reached``), in each of its cards apart."""

    def arguments(self) -> list[str]:
        return [*super().arguments(), "--coverage-user"]


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What Python can reach of a simulation beside the ports of its top module.

    visible: signals, by name: ``"ports"`` none; ``"top"`` all of the top module; ``"all"`` those of
    every module, which makes a simulation less than half as fast.
    readable: probes inside the gateware, by the name of the ``rtl`` they are in; they cost next to
    nothing. Inside the simulation ``sim.rtl.readable.load`` returns them.
    memories: the words of large memories can be read and written (``sim.bench.bulk.memories``).
    """

    visible: Visible = "ports"
    readable: Mapping[str, Sequence[Probe]] = field(default_factory=dict)
    memories: bool = False


@dataclass(frozen=True)
class BuiltModel:
    """A compiled simulation. ``folder`` holds the executable (named ``top``) and ``build.log``."""

    top: str
    folder: Path
    waves: bool

    @property
    def executable(self) -> Path:
        """The simulation program."""
        return self.folder / self.top


@dataclass(frozen=True)
class Results:
    """What a finished run left: its cases, its folder with ``sim.log``, its seed."""

    cases: tuple[CaseResult, ...]
    folder: Path
    seed: int
    waves: Path | None = None

    @property
    def log(self) -> Path:
        """The simulation's output."""
        return self.folder / "sim.log"


@dataclass(frozen=True)
class ModelSources:
    """All that a model is compiled from: another machine needs nothing else.

    ``files``: name -> contents of sources and headers. ``readable``: probes inside the gateware.
    """

    files: Mapping[str, bytes]
    control: str
    options: runner.Options
    readable: tuple[Probe, ...] = ()

    @property
    def key(self) -> str:
        """Hash of all of it, on whatever machine."""
        contents = [part for name in sorted(self.files) for part in (name, self.files[name])]
        return digest(repr((self.options, self.readable)), self.control, *contents)

    def build(self) -> BuiltModel:
        """Compile them, or return the model compiled before on this machine.

        Raises BuildError with the end of the log, ToolError when a system tool is missing.
        """
        env.require_compiler()
        if self.options.waves:
            env.require_waves()
        top = self.options.top
        contents = [part for name in sorted(self.files) for part in (name, self.files[name])]
        key = digest(repr(self.options), runner.fingerprint(), self.control, *contents)
        folder = build_root() / "models" / f"{top}-{key}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        # The second lock is for the folder to compile in, which other checkouts may share.
        with FileLock(folder.with_suffix(".lock")):
            if not (folder / top).exists():
                with FileLock(env.work_root() / f"{key}.lock"):
                    _compile(folder, key, self)
            if self.readable and not (folder / PROBES).exists():
                save(self.readable, folder / PROBES)
        return BuiltModel(top=top, folder=folder, waves=self.options.waves)


def model_sources(
    rtl: Rtl | Sequence[Rtl],
    *,
    top: str | None = None,
    extra_sources: Iterable[Path | str] = (),
    waves: bool = False,
    fast: bool = True,
    reach: Reach = Reach(),
    repeated: Iterable[str] = (),
) -> ModelSources:
    """Generate the gateware and return all that ``build_model`` compiles, which explains the rest.

    Raises BuildError when the gateware does not elaborate.
    """
    rtls = [replace(one, checked=True) for one in ([rtl] if isinstance(rtl, Rtl) else rtl)]
    extra_sources = [*extra_sources, *([models.MEMORIES] if reach.memories else [])]
    names = [piece.name for piece in rtls]
    if len(set(names)) != len(names):
        raise ValueError(f"Gateware names must differ, not {names!r}")
    files: dict[str, Path] = {}
    for piece in rtls:
        generated, *written = _sources_logged(piece)
        files |= {f"{piece.name}.sv": generated, **{path.name: path for path in written}}
    waived = list(files)
    for path in (Path(source).resolve() for source in extra_sources):
        if files.setdefault(path.name, path) != path:
            raise ValueError(f"Source names must differ: {path.name!r} occurs twice")
    if not files:
        raise ValueError("Nothing to build: no rtl and no extra_sources")
    top = top or (names[-1] if names else next(iter(files.values())).stem)
    kind = _Counting if reached.wanted() else runner.Options
    options = kind(
        top=top,
        waves=waves,
        visible=reach.visible,
        optimise=" ".join(_FAST if fast else _QUICK),
        cxx=any(Path(name).suffix in runner.CXX for name in files),
        plain=reached.wanted(),
    )
    return ModelSources(
        files={name: path.read_bytes() for name, path in files.items()},
        control=_control(top, waived, reach=reach, repeated=repeated),
        options=options,
        readable=tuple(probe for found in reach.readable.values() for probe in found),
    )


def build_model(rtl: Rtl | Sequence[Rtl], **details: Any) -> BuiltModel:
    """Compile gateware and models into one simulation, or return the one compiled before.

    ``details`` are those of ``model_sources``:
    top: the top module; without it the name of the only (or last) ``rtl``.
    extra_sources: SystemVerilog, C++ (DPI functions) and the headers both include. The files land
    in one folder, so ``#include "x.h"`` needs no path and names must differ. C++ symbols are
    exported: ``ctypes.CDLL(None)`` finds them from Python inside the simulation.
    waves: able to record FST waves (slower; needs zlib and lz4 headers).
    repeated: modules whose instances share their code (``sim.rtl.twins``).
    fast: for long runs. Without it the compiler optimises less: five sixths of the build time, and
    a sixth more to run.

    Raises BuildError with the end of the log, ToolError when a system tool is missing.
    """
    env.require_compiler()
    if details.get("waves"):
        env.require_waves()
    return model_sources(rtl, **details).build()


def attempt(model: BuiltModel, call: Call, folder: Path) -> Attempt:
    """Run cocotb tests on ``model`` in ``folder``; returns how they ended, well or not."""
    call = replace(call, extra_env={**call.extra_env, MODEL: str(model.folder)})
    problem = simulate(model.folder, model.top, call, folder)
    cases = read_cases(folder / "results.xml")
    if not problem and not cases:
        problem = "no test was found"
    return Attempt(problem, cases)


def run(
    model: BuiltModel,
    *,
    test_module: str,
    testcase: str | Sequence[str] | None = None,
    extra_env: Mapping[str, str] | None = None,
    waves: bool | None = None,
    seed: int | None = None,
    timeout_s: float = 600,
) -> Results:
    """Run the cocotb tests of ``test_module`` on ``model``; returns when all have passed.

    testcase: names of the tests to run; without it all.
    waves: record ``dump.fst`` (the model needs ``waves`` too); without it if the model can.
    seed: of Python's ``random`` inside the simulation; without it COCOTB_RANDOM_SEED or 1.
    timeout_s: real time after which a simulation that hangs is ended.

    Raises AssertionError with the failing tests' messages, the end of the log and the command
    which repeats the run.
    """
    waves = model.waves if waves is None else waves
    if waves and not model.waves:
        raise ValueError("Waves need a model built with waves=True")
    if seed is None:
        seed = int(os.environ.get("COCOTB_RANDOM_SEED", _DEFAULT_SEED))
    label = os.environ.get("PYTEST_CURRENT_TEST", test_module).split(" (")[0]
    case = testcase if testcase is None or isinstance(testcase, str) else ",".join(testcase)
    call = Call(
        test_module=test_module,
        testcase=case,
        extra_env=extra_env or {},
        waves=waves,
        seed=seed,
        timeout_s=timeout_s,
    )
    with _own_folder(f"{label}-{model.top}-{case or 'all'}") as folder:
        tried = attempt(model, call, folder)
        if not tried.passed:
            raise AssertionError(report(tried, folder, seed, label))
        return Results(tried.cases, folder, seed, folder / "dump.fst" if waves else None)


def bench(
    rtl: Rtl,
    *,
    test_module: str,
    extra_env: Mapping[str, str] | None = None,
    waves: bool | None = None,
    timeout_s: float = 600,
) -> Results:
    """Generate, build and run one component's tests; see ``Rtl``, ``build_model`` and ``run``.

    ``waves`` defaults to what ``rocinante test --waves`` asked for.
    """
    if waves is None:
        waves = os.environ.get("ROCINANTE_WAVES") == "1"
    model = build_model(rtl, waves=waves, fast=False)
    return run(model, test_module=test_module, extra_env=extra_env, timeout_s=timeout_s)


def lint(rtl: Rtl, *, waive: Sequence[str] = ()) -> None:
    """Pass ``rtl``'s Verilog through ``verilator -Wall``.

    waive: further warnings by name, each to be explained where it is given.
    Raises BuildError with the warnings.
    """
    if "UNOPTFLAT" in waive:
        raise ValueError("UNOPTFLAT stays visible: it is a loop, or simulates as slowly as one")
    paths = sources(rtl)
    with runner.wheel(env.work_root()) as tools, tempfile.TemporaryDirectory() as temporary:
        control = Path(temporary, "control.vlt")
        control.write_text(_control(rtl.name, [path.name for path in paths], [*WAIVERS, *waive]))
        command = [*env.verilator_command(tools.verilator), "--vpi", *runner.CHECK]
        command += ["-Mdir", "obj", "--top-module", rtl.name, "control.vlt"]
        for path in paths:
            shutil.copy(path, temporary)
            command.append(path.name)
        environment = {**os.environ, **env.make_environment(tools.verilator)}
        done = subprocess.run(
            command,
            cwd=temporary,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise BuildError(f"{rtl.factory} does not pass lint:\n{done.stderr[-6000:]}")


def _sources_logged(rtl: Rtl) -> list[Path]:
    log.info("Generating %s", rtl.name)
    started = time.monotonic()
    paths = sources(rtl)
    log.debug("%s after %.1f s", rtl.name, time.monotonic() - started)
    return paths


def _control(
    top: str,
    generated: Sequence[str],
    waived: Iterable[str] = WAIVERS,
    reach: Reach = Reach(),
    repeated: Iterable[str] = (),
) -> str:
    """Return Verilator's control file: what Python can reach, waivers for generated files.

    repeated: modules that stay apart from the one above them.
    """
    lines = ["`verilator_config", f'public_flat_rw -module "{top}" -port "*"']
    for name, found in reach.readable.items():
        lines += rules(found, name)
    if reach.memories:
        lines.append('public_flat_rd -module "rocinante_ram" -var "rows"')
    lines += [f'no_inline -module "{name}"' for name in repeated]
    lines += [f'lint_off -rule {name} -file "*{file}"' for file in generated for name in waived]
    return "\n".join([*lines, ""])


def _compile(folder: Path, key: str, sources: ModelSources) -> None:
    """Compile in a plain-named folder; keep the executable, the log and nothing else."""
    top = sources.options.top
    log.info("Compiling model %s (%s)", top, folder.name)
    started = time.monotonic()
    work = env.work_root() / key
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for name, contents in sources.files.items():
        (work / name).write_bytes(contents)
    (work / "control.vlt").write_text(sources.control)
    inputs = [work / name for name in sources.files if Path(name).suffix not in runner.HEADERS]
    inputs.insert(0, work / "control.vlt")
    try:
        executable = runner.compile_model(work, inputs, sources.options, build_root() / "runtime")
    except RuntimeError as error:
        text = (work / "build.log").read_text(errors="replace")
        raise BuildError(f"Building {top} failed ({error}):\n{_relevant(text)}") from None
    done = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(done, ignore_errors=True)
    done.mkdir()
    shutil.copy2(executable, done / top)
    shutil.copy2(work / "build.log", done)
    shutil.rmtree(folder, ignore_errors=True)
    done.rename(folder)
    shutil.rmtree(work, ignore_errors=True)
    log.info("Model %s compiled in %.1f s", top, time.monotonic() - started)


def _relevant(text: str) -> str:
    """Return the lines of a build log that say what is wrong, or else its end."""
    lines = text.splitlines()
    marked = [n for n, line in enumerate(lines) if re.search(r"%(Error|Warning)|error:", line)]
    start = min(marked[0] if marked else len(lines), max(0, len(lines) - 40))
    return "\n".join(lines[start : start + 60])


@contextmanager
def _own_folder(label: str) -> Iterator[Path]:
    """Yield a folder that no other process uses; the same label finds the same folder again."""
    slug = re.sub(r"[^A-Za-z0-9_.=-]+", "-", label)
    slug = f"{slug[:100]}-{digest(label)[:6]}"
    runs = build_root() / "runs"
    runs.mkdir(parents=True, exist_ok=True)
    number = 0
    while True:
        name = slug if number == 0 else f"{slug}.{number}"
        lock = FileLock(runs / f"{name}.lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            number += 1
            continue
        try:
            shutil.rmtree(runs / name, ignore_errors=True)
            (runs / name).mkdir()
            yield runs / name
            return
        finally:
            lock.release()
