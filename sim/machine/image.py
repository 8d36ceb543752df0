"""What a guest boots from, built from packages and this project's sources, and kept.

Each step has a folder below the build folder, known by what it was made from. A step that has been
done is not done again. ``./rocinante clean`` lets the next start take newer packages.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from sim.interop import kernel
from sim.interop.cpio import Node, archive
from sim.machine import qemu, releases, toolchain, tree
from sim.machine.packages import provider
from sim.machine.qemu import Qemu
from sim.machine.releases import RELEASES, Release
from sim.machine.sources import Apt
from sim.rtl.env import ToolError, build_root
from sim.rtl.verilog import digest

__all__ = ["Image", "build", "fetch_qemu", "write_provider"]

_HERE = Path(__file__).parent
_FOLDERS = ("/proc", "/sys", "/dev", "/tmp", "/run", "/root", "/var/log", "/mnt")
_KERNEL = "linux-image-"
#: Where rdma-core's own tests are in its package, and in a guest.
_SUITE = ("usr/share/doc/rdma-core/tests", "usr/lib/rdma-core/tests")
#: What a signed module ends with.
_SIGNED = b"~Module signature appended~\n"
_PROVIDERS = "/usr/lib/x86_64-linux-gnu/libibverbs"


@dataclass(frozen=True)
class Image:
    """``kernel`` and ``initramfs`` as QEMU takes them. driver: whether the module is in it."""

    kernel: Path
    initramfs: Path
    packages: tuple[str, ...]
    driver: bool


def build(release: Release, say: Callable[[str], None]) -> Image:
    """The files of a guest, built if they are not at hand.

    say: takes what is under way. Raises ToolError: packages that cannot be had, a driver that does
    not compile.
    """
    driver = toolchain.has("kernel")
    root = _unpacked(release, say)
    facts = json.loads((root / "packages.json").read_text())
    extra = _driver(release, root, facts["kernel"], say) if driver else None
    scripts = [path.read_bytes() for path in sorted((_HERE / "guest").iterdir())]
    code = [(_HERE / name).read_bytes() for name in ("image.py", "tree.py", "releases.py")]
    key = digest(root.name, extra.name if extra else "", *scripts, *code)

    def make(target: Path) -> None:
        say("making the first file system")
        (target / "initramfs").write_bytes(archive(_nodes(root, facts, extra)))
        packed = tree.only(root / "root", "boot/vmlinuz-*").read_bytes()
        (target / "vmlinux").write_bytes(kernel.image(packed))

    kind = f"image-{release.number}-"
    folder = _kept(f"{kind}{key}", make, instead=kind)
    names = tuple(facts["packages"])
    return Image(folder / "vmlinux", folder / "initramfs", names, driver)


def fetch_qemu(say: Callable[[str], None]) -> Qemu:
    """A QEMU that speaks vfio-user, unpacked if it is not at hand. Raises ToolError."""

    def make(target: Path) -> None:
        say("fetching QEMU")
        _apt(qemu.SUITE).fetch(qemu.PACKAGES, target / "root", suite=qemu.BACKPORTS)

    return Qemu(_kept(f"qemu-{digest(*qemu.PACKAGES, qemu.BACKPORTS)}", make) / "root")


def write_provider(
    folder: Path, release: Release = RELEASES["12"], say: Callable[[str], None] = lambda _: None
) -> Path:
    """Write the provider's Debian package into ``folder``; its path. Raises BuildError.

    release: whose libraries it is linked with. What is linked with an older one's fits newer ones.
    """
    root, controls = _libraries(release, provider.LIBRARY_PACKAGES, say)
    libraries = tree.only(root, "usr/lib/*/libibverbs.so.1").parent
    return provider.write(_rdma_core(say), libraries, controls, folder)


# Steps ------------------------------------------------------------------------------------------


def _base() -> Path:
    return build_root() / "machine"


def _kept(name: str, make: Callable[[Path], None], *, instead: str = "") -> Path:
    """The folder ``name``, which ``make`` fills if it is not there. Others wait meanwhile.

    instead: the beginning of the names of folders that a new one takes the place of.
    """
    folder = _base() / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix="new") as work:
                made = Path(work, "made")
                made.mkdir()
                make(made)
                made.rename(folder)
            for old in folder.parent.glob(f"{instead}*") if instead else ():
                if old.is_dir() and old != folder:
                    shutil.rmtree(old, ignore_errors=True)
    return folder


def _apt(suite: str) -> Apt:
    """apt for a release; the backports are looked at when they are asked for."""
    suites = [suite, qemu.BACKPORTS] if suite == qemu.SUITE else [suite]
    return Apt(_base() / "apt" / suite, suites)


def _unpacked(release: Release, say: Callable[[str], None]) -> Path:
    """The guest's packages and its kernel, and the headers of that kernel beside them."""

    def make(target: Path) -> None:
        say(f"fetching the packages of Debian {release.number}")
        apt = _apt(release.suite)
        version = _kernel(apt)
        names = [*releases.PROGRAM_PACKAGES]
        files = apt.fetch(names, target / "root", suite=release.suite)
        say("fetching its kernel")
        files |= apt.fetch([f"{_KERNEL}{version}"], target / "root", suite=release.suite)
        headers = apt.fetch([f"linux-headers-{version}"], target / "headers", suite=release.suite)
        _suite(target / "root")
        _compile_python(target / "root")
        facts = {"kernel": version, "packages": sorted({*files, *headers}), "files": files}
        (target / "packages.json").write_text(json.dumps(facts))

    wanted = digest(*releases.PROGRAM_PACKAGES, release.suite, *_SUITE)
    return _kept(f"debian-{release.number}-{wanted}", make)


def _kernel(apt: Apt) -> str:
    """The version of the release's kernel, as its packages have it in their names."""
    for name in apt.depends(f"{_KERNEL}amd64"):
        if name.startswith(_KERNEL):
            return name.removeprefix(_KERNEL)
    raise ToolError(f"The release has no {_KERNEL}amd64")


def _suite(root: Path) -> None:
    """Put rdma-core's own tests, which its package has among its documents, where they can run."""
    packed, target = (root / name for name in _SUITE)
    target.mkdir(parents=True)
    for path in sorted(packed.glob("*.py*")):
        data = path.read_bytes()
        name = path.name.removesuffix(".gz")
        (target / name).write_bytes(gzip.decompress(data) if name != path.name else data)


def _compile_python(root: Path) -> None:
    """Compile what a guest imports: there it would take long, and at each start anew."""
    python = tree.only(root, "usr/bin/python3.*[0-9]")
    options = ("-q", "--invalidation-mode", "unchecked-hash", "-x", tree.UNUSED_PYTHON)
    _inside(root, python, "-m", "compileall", *options, str(root / "usr/lib"))


def _driver(release: Release, root: Path, version: str, say: Callable[[str], None]) -> Path:
    """The module and the provider for the guest of ``root``."""

    def make(target: Path) -> None:
        say("compiling the guest's driver")
        toolchain.build_module(root / "headers", version, target / "module")
        if not toolchain.has("provider"):
            return
        package = write_provider(target, release, say)
        _install(package, target / "installed")

    packaging = Path(provider.__file__).read_bytes()
    key = digest(root.name, toolchain.source_key(), packaging)
    kind = f"driver-{release.number}-"
    return _kept(f"{kind}{key}", make, instead=kind)


def _rdma_core(say: Callable[[str], None]) -> Path:
    """The unpacked sources of rdma-core, fetched if they are not at hand."""

    def make(target: Path) -> None:
        say("fetching the sources of rdma-core")
        packed = _apt(qemu.SUITE).source("rdma-core", target)
        toolchain.unpack_source(packed, target)
        packed.unlink()

    (folder,) = [path for path in _kept("rdma-core", make).iterdir() if path.is_dir()]
    return folder


def _libraries(
    release: Release, names: Sequence[str], say: Callable[[str], None]
) -> tuple[Path, list[Path]]:
    """Packages of libraries, fetched if they are not at hand.

    Returns the folder where they were unpacked, and of each package one with its control files.
    """

    def make(target: Path) -> None:
        say(f"fetching libraries of Debian {release.number}")
        apt = _apt(release.suite)
        for name in names:
            apt.fetch_alone(name, target / "root")
            apt.fetch_alone(name, target / name, what="--control")

    folder = _kept(f"libraries-{release.number}-{digest(*names)}", make)
    return folder / "root", [folder / name for name in names]


def _install(package: Path, target: Path) -> None:
    """Unpack a package as dpkg would below another root; it has no scripts."""
    subprocess.run(["dpkg-deb", "--extract", str(package), str(target)], check=True)


# Contents ---------------------------------------------------------------------------------------


def _nodes(root: Path, facts: Mapping[str, object], extra: Path | None) -> dict[str, Node]:
    """All that the first file system holds."""
    files: Mapping[str, list[str]] = facts["files"]  # type: ignore[assignment]
    version = str(facts["kernel"])
    nodes = {name: Node.folder() for name in _FOLDERS}
    nodes |= {f"/{name}": Node.link(f"usr/{name}") for name in ("bin", "sbin", "lib", "lib64")}
    nodes["/usr/bin/sh"] = Node.link("bash")
    nodes |= _programs(root / "root", files)
    nodes |= tree.libraries_of(root / "root", nodes)
    suite = sorted((root / "root" / _SUITE[1]).glob("*.py"))
    nodes |= tree.nodes_of(root / "root", [str(one.relative_to(root / "root")) for one in suite])
    nodes |= _modules(root / "root", version, extra)
    if extra is not None and (installed := extra / "installed").exists():
        paths = [path for path in installed.rglob("*") if path.is_file()]
        nodes |= tree.nodes_of(installed, [str(one.relative_to(installed)) for one in paths])
    for path in (_HERE / "guest").iterdir():
        place = "/init" if path.name == "init" else f"/etc/{path.name}"
        nodes[place] = Node.file(path.read_bytes(), executable=path.name == "init")
    return nodes


def _programs(root: Path, files: Mapping[str, list[str]]) -> dict[str, Node]:
    """Programs and what belongs to them; of providers, that of Soft-RoCE alone: each costs time
    in each program that is started."""
    found: dict[str, Node] = {}
    chosen = (*(f"{name}_" for name in releases.PROGRAM_PACKAGES), *releases.LIBRARY_PACKAGES)
    for name, paths in files.items():
        if name.startswith(chosen):
            found |= tree.nodes_of(root, paths)
    for place in list(found):
        is_provider = place.startswith((f"{_PROVIDERS}/", "/etc/libibverbs.d/"))
        if is_provider and "rxe" not in place:
            del found[place]
    return found


def _modules(root: Path, version: str, extra: Path | None) -> dict[str, Node]:
    """Modules without compression, and the tables by which modprobe finds them."""
    files = kernel.module_files(root)
    for module in releases.NEEDED_MODULES:
        if module not in files:
            raise ToolError(f"The kernel {version} has no module {module}")
    with tempfile.TemporaryDirectory(prefix="rocinante") as work:
        folder = Path(work, "lib/modules", version)
        for name in kernel.loading_order(releases.MODULES, files):
            path = folder / "kernel" / f"{name}.ko"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_unsigned(kernel.read_module(files[name])))
        if extra is not None:
            (folder / "kernel/rocinante.ko").write_bytes(
                (extra / "module/rocinante.ko").read_bytes()
            )
        for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
            for found in root.glob(f"**/lib/modules/{version}/{name}"):
                (folder / name).write_bytes(found.read_bytes())
        _depmod(root, Path(work), version)
        return {
            f"/usr/lib/modules/{version}/{path.relative_to(folder)}": Node.file(path.read_bytes())
            for path in folder.rglob("*")
            if path.is_file()
        }


def _unsigned(module: bytes) -> bytes:
    """A module without its signature, which takes long to check. The kernel notes that it is so.

    Spec: Linux, include/linux/module_signature.h: the signature, 12 bytes about it, a mark.
    """
    if not module.endswith(_SIGNED):
        return module
    about = module[: -len(_SIGNED)]
    return about[: -12 - int.from_bytes(about[-4:], "big")]


def _depmod(root: Path, base: Path, version: str) -> None:
    kmod = tree.only(root, "usr/bin/kmod", "bin/kmod")
    _inside(root, kmod, "-b", str(base), version, name="depmod")


def _inside(root: Path, program: Path, *arguments: str, name: str = "") -> None:
    """Run a program of the packages in ``root`` on this machine, by its own loader."""
    libraries = ":".join(str(root / f"{top}lib/x86_64-linux-gnu") for top in ("", "usr/"))
    done = subprocess.run(
        [
            *(str(tree.loader_of(root)), "--argv0", name or str(program)),
            *("--library-path", libraries, str(program), *arguments),
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C", "PYTHONHOME": str(root / "usr"), "PYTHONPATH": ""},
    )
    if done.returncode:
        raise ToolError(f"{name or program.name} of the guest: {done.stderr.strip()[-200:]}")
