"""A QEMU that speaks vfio-user, and a Debian guest for it, from the machine's own package sources.

Debian 12 and 13 have it in the backports of trixie alone. It is fetched by apt into a folder, with
lists and a status of its own there: the machine's are left as they are. It is only unpacked.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from sim.interop import image
from sim.interop.cpio import Node, archive

SUITE, BACKPORTS = "trixie", "trixie-backports"
PACKAGES = ("qemu-system-x86", "pciutils")
LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = "usr/lib64/ld-linux-x86-64.so.2"
CONFIGURATION = """
Dir::Etc::sourcelist "{0}/sources.list";
Dir::Etc::sourceparts "-";
Dir::State::lists "{0}/lists";
Dir::State::status "{0}/status";
Dir::Cache "{0}/cache";
APT::Sandbox::User "";
Acquire::Languages "none";
"""
#: What the guest does: it looks at its devices before and after virtio-pci has bound them.
INIT = """#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
look() { /own/ld.so --library-path /own /own/lspci -vv -s 04.0; }
look
for module in /modules/*virtio*.ko; do insmod "$module"; done
look
for device in /sys/bus/virtio/devices/*; do
    echo "device $(cat "$device/device") status $(cat "$device/status")"
done
cd /sys/bus/pci/drivers/virtio-pci
echo 0000:00:04.0 >unbind && echo 0000:00:04.0 >bind && echo "bound again: $(ls)"
poweroff -f
"""


#: Of its kernel.
OPTIONS = "console=ttyS0 quiet mitigations=off nokaslr no_timer_check reboot=t panic=-1"


class Missing(Exception):
    """The machine's package sources do not have it."""


def call(*command, **more):
    found = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if found.returncode:
        raise Missing(f"{' '.join(map(str, command[:3]))}: {found.stderr.strip()[-300:]}")
    return found.stdout


def fetch(folder: Path) -> Path:
    """The root of what was unpacked."""
    listed = call(
        "apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME)", "Created-By: Packages"
    )
    sources = [line.split() for line in listed.splitlines()]
    own = [uri for uri, name in sources if "-" not in name]
    if not own:
        raise Missing("no source of a release of Debian")
    for name in ("lists/partial", "cache/archives/partial", "root"):
        (folder / name).mkdir(parents=True)
    keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
    lines = [f"deb [signed-by={keys}] {own[0]} {suite} main\n" for suite in (SUITE, BACKPORTS)]
    (folder / "sources.list").write_text("".join(lines))
    (folder / "status").touch()
    (folder / "apt.conf").write_text(CONFIGURATION.format(folder))
    apt = ("env", f"APT_CONFIG={folder}/apt.conf", "apt-get", "-q", "-y")
    call(*apt, "update")
    wanted = ("--no-install-recommends", "--download-only", "-t", BACKPORTS, "install")
    call(*apt, *wanted, *PACKAGES)
    for package in sorted((folder / "cache/archives").glob("*.deb")):
        call("dpkg-deb", "-x", package, folder / "root")
        package.unlink()
    return folder / "root"


def initramfs(root: Path, folder: Path) -> tuple[Path, Path]:
    """Kernel and first file system of the guest: those of ``interop``, with lspci."""
    base = image.build()
    program = root / "usr/bin/lspci"
    needed = call(root / LOADER, "--library-path", root / LIBRARIES, "--list", program)
    paths = [word for line in needed.splitlines() for word in line.split() if word.startswith("/")]
    nodes = {
        "/init": Node.file(INIT.encode(), executable=True),
        "/own/lspci": Node.file(program.read_bytes(), executable=True),
        "/own/ld.so": Node.file((root / LOADER).read_bytes(), executable=True),
        "/usr/share/misc/pci.ids": Node.file((root / "usr/share/misc/pci.ids").read_bytes()),
    }
    for path in map(Path, paths):
        nodes[f"/own/{path.name}"] = Node.file(path.read_bytes())
    # A kernel takes several archives; of two files with one name the last one stays.
    target = folder / "initramfs"
    target.write_bytes(base.initramfs.read_bytes() + archive(nodes))
    return base.kernel, target


def boot(root: Path, kernel: Path, initrd: Path, socket: Path, seconds: float) -> str:
    """Run the guest to its end; its console."""
    device = (
        '{"driver":"vfio-user-pci","addr":"04.0","x-no-posted-writes":true,'
        f'"x-msg-timeout":600000,"socket":{{"type":"unix","path":"{socket}"}}}}'
    )
    command = [
        *(root / LOADER, "--library-path", root / LIBRARIES, root / "usr/bin/qemu-system-x86_64"),
        *("-L", root / "usr/share/qemu", "-L", root / "usr/share/seabios"),
        *("-nodefaults", "-no-user-config", "-nographic", "-no-reboot", "-serial", "stdio"),
        *("-M", "q35,memory-backend=m0", "-accel", "tcg", "-icount", "shift=3,sleep=off"),
        *("-cpu", "max", "-smp", "1", "-m", "512", "-device", device),
        *("-object", "memory-backend-memfd,id=m0,size=512M,share=on"),
        *("-kernel", kernel, "-initrd", initrd),
        *("-append", OPTIONS),
    ]  # fmt: skip
    modules = root / LIBRARIES / "qemu"
    return call(
        "env", f"QEMU_MODULE_DIR={modules}", *command, timeout=seconds, stdin=subprocess.DEVNULL
    )
