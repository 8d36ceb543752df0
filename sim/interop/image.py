"""The guest's kernel and first file system, built from packages and kept.

What is kept is known by the contents it was built from and by the distribution. A newer kernel
comes after ``./rocinante clean``.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from sim.interop.cpio import Node, archive
from sim.interop.kernel import image, loading_order, module_files, read_module
from sim.interop.packages import kernel_packages, require_commands, unpack
from sim.rtl.env import ToolError, build_root
from sim.rtl.verilog import digest

__all__ = ["GuestImage", "build"]

_SOURCES = Path(__file__).parent / "guest"
#: What the guest needs beside its kernel; headers and static libraries of the agent among it.
_PACKAGES = (
    *("busybox-static", "libibverbs-dev", "libnl-3-dev", "libnl-route-3-dev"),
    # The programs that connect, and the libraries that they load.
    *("rdmacm-utils", "librdmacm1", "libibverbs1", "ibverbs-providers", "libc6"),
    *("libnl-3-200", "libnl-route-3-200", "libgcc-s1"),
)
#: Programs of rdmacm-utils, and what they load.
_PROGRAMS = ("rping", "ucmatose", "udaddy")
_LIBRARIES = (
    *("libc.so.6", "libibverbs.so.1", "librdmacm.so.1", "libnl-3.so.200", "libnl-route-3.so.200"),
    "libgcc_s.so.1",  # for pthread_exit
)
_LOADER = "ld-linux-x86-64.so.2"
#: rxe asks the crypto layer for "crc32", whose module nobody depends on by name.
_MODULES = (
    "virtio_pci",
    "virtio_net",
    "virtio_console",
    "ib_uverbs",
    "crc32_generic",
    "rdma_rxe",
    "rdma_ucm",
)
#: A kernel without one of these cannot be such a guest; the others may be built in.
_NEEDED = ("rdma_rxe", "rdma_ucm")
_FOLDERS = ("/proc", "/sys", "/dev", "/tmp")


@dataclass(frozen=True)
class GuestImage:
    """``kernel`` and ``initramfs`` as QEMU takes them; ``packages`` they came from."""

    kernel: Path
    initramfs: Path
    packages: tuple[str, ...]


def build() -> GuestImage:
    """Return the guest's files, built if they are not at hand.

    Raises ToolError: packages that cannot be had, an agent that does not compile.
    """
    here = [Path(__file__).parent / name for name in ("image.py", "kernel.py", "cpio.py")]
    contents = [path.read_bytes() for path in sorted([*here, *_SOURCES.iterdir()])]
    key = digest(*contents, _distribution())
    folder = build_root() / "guest" / key
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=folder.parent, prefix="new") as name:
                made = Path(name, "image")
                made.mkdir()
                _make(Path(name), made)
                made.rename(folder)
    packages = json.loads((folder / "packages.json").read_text())
    return GuestImage(folder / "vmlinux", folder / "initramfs", tuple(packages))


def _distribution() -> str:
    release = Path("/etc/os-release")
    return release.read_text() if release.exists() else ""


def _make(work: Path, target: Path) -> None:
    require_commands({"gcc": "gcc libc6-dev", "apt-get": "apt", "dpkg-deb": "dpkg"})
    root = work / "root"
    root.mkdir()
    names = unpack([*kernel_packages(), *_PACKAGES], root)
    files = module_files(root)
    for module in _NEEDED:
        if module not in files:
            raise ToolError(f"No module {module} in {', '.join(names)}")
    agent = _compile(root, work / "agent")
    nodes = {name: Node.folder() for name in _FOLDERS}
    nodes["/init"] = Node.file((_SOURCES / "init").read_bytes(), executable=True)
    nodes["/bin/agent"] = Node.file(agent.read_bytes(), executable=True)
    nodes["/bin/busybox"] = Node.file(_only(root, "*bin/busybox").read_bytes(), executable=True)
    nodes |= _programs(root)
    for i, module in enumerate(loading_order(_MODULES, files)):
        nodes[f"/modules/{i:02}-{module}.ko"] = Node.file(read_module(files[module]))
    (target / "initramfs").write_bytes(archive(nodes))
    (target / "vmlinux").write_bytes(image(_only(root, "boot/vmlinuz-*").read_bytes()))
    (target / "packages.json").write_text(json.dumps(names))


def _programs(root: Path) -> dict[str, Node]:
    """What connects by librdmacm, with its libraries, each where the loader looks for it."""

    def program(path: Path) -> Node:
        return Node.file(path.read_bytes(), executable=True)

    provider = _only(root, "lib/*/libibverbs/librxe-rdmav*.so")
    driver = _only(root, "etc/libibverbs.d/rxe.driver")
    folder = provider.parent.parent.name
    nodes = {f"/bin/{name}": program(_only(root, f"bin/{name}")) for name in _PROGRAMS}
    nodes |= {f"/lib/{folder}/{name}": program(_only(root, f"lib/*/{name}")) for name in _LIBRARIES}
    nodes[f"/lib64/{_LOADER}"] = program(_only(root, f"lib/*/{_LOADER}"))
    nodes[f"/usr/lib/{folder}/libibverbs/{provider.name}"] = program(provider)
    nodes["/etc/libibverbs.d/rxe.driver"] = Node.file(driver.read_bytes())
    return nodes


def _only(root: Path, pattern: str) -> Path:
    found = [path for path in (*root.glob(pattern), *root.glob(f"usr/{pattern}")) if path.is_file()]
    if not found:
        raise ToolError(f"No {pattern} in the packages")
    return found[0]


def _compile(root: Path, agent: Path) -> Path:
    """Compile the agent with the unpacked headers and static libraries."""
    libraries = sorted({path.parent for path in root.glob("**/lib*.a")})
    provider = _only(root, "lib/*/librxe-rdmav*.a")
    command = ["gcc", "-std=gnu17", "-O2", "-Wall", "-Wextra", "-static"]
    command += ["-DRDMA_STATIC_PROVIDERS=rxe", f"-I{root / 'usr/include'}"]
    command += [str(path) for path in sorted(_SOURCES.glob("*.c"))]
    command += ["-o", str(agent), *(f"-L{path}" for path in libraries)]
    command += [f"-l:{provider.name}", "-libverbs", "-lnl-route-3", "-lnl-3", "-lpthread"]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line]
        raise ToolError(f"The guest's agent does not compile: {(errors or [done.stderr])[0]}")
    return agent
