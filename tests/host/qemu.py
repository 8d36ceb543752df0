"""A Debian guest that looks at a served card with stock programs, before a driver has it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from sim.interop.cpio import Node, archive
from sim.machine import image
from sim.machine.qemu import KERNEL_OPTIONS, card_device
from sim.machine.releases import RELEASES

#: What the guest does: it looks at its devices before and after virtio-pci has bound them.
INIT = """#!/bin/bash
export PATH=/usr/sbin:/usr/bin
mount() { busybox mount "$@"; }
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
look() { lspci -vv -s 04.0; }
look
modprobe virtio_pci
look
for device in /sys/bus/virtio/devices/*; do
    echo "device $(busybox cat "$device/device") status $(busybox cat "$device/status")"
done
cd /sys/bus/pci/drivers/virtio-pci
echo 0000:00:04.0 >unbind && echo 0000:00:04.0 >bind && echo "bound again: $(busybox ls)"
busybox poweroff -f
"""


def prepare(folder: Path) -> tuple:
    """QEMU, and the guest's kernel and first file system. ToolError: they cannot be had."""
    qemu, base = image.fetch_qemu(print), image.build(RELEASES["12"], print)
    # A kernel takes several archives; of two files with one name the last one stays.
    target = folder / "initramfs"
    init = archive({"/init": Node.file(INIT.encode(), executable=True)})
    target.write_bytes(base.initramfs.read_bytes() + init)
    return qemu, base.kernel, target


def boot(qemu, kernel: Path, initrd: Path, socket: Path, seconds: float) -> str:
    """Run the guest to its end; its console."""
    done = subprocess.run(
        [
            *qemu.command(kernel, initrd, memory_mib=512, sleep=False),
            *("-append", f"console=ttyS0 {KERNEL_OPTIONS}", "-serial", "stdio"),
            *card_device(socket, "04.0"),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        env={**os.environ, **qemu.environment},
    )
    assert not done.returncode, done.stderr
    return done.stdout
