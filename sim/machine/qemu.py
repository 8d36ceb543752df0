"""A QEMU that speaks vfio-user: where it comes from, and how it is started.

Debian has one (10.1 or newer) in the backports of trixie alone. It runs on Debian 12 as well,
through its own loader and libraries.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["BACKPORTS", "PACKAGES", "SUITE", "Qemu", "card_device"]

#: The release whose backports have it, and what is fetched of them.
SUITE, BACKPORTS = "trixie", "trixie-backports"
PACKAGES = ("qemu-system-x86",)
#: A register access may take as long as the card has work, ms.
_PATIENCE_MS = 600_000
#: Options of the guest's kernel. They leave out what costs a guest of a few minutes time, and
#: watchdogs that a clock which stands still would wake. Of the 512 receives that ib_mad posts for
#: each port, one by one, 64 are enough: each is a doorbell.
KERNEL_OPTIONS = (
    "ib_core.recv_queue_size=64 ib_core.send_queue_size=64 "
    "quiet mitigations=off nokaslr no_timer_check reboot=t panic=-1 cryptomgr.notests nowatchdog "
    "rcupdate.rcu_cpu_stall_suppress=1"
)


@dataclass(frozen=True)
class Qemu:
    """An unpacked QEMU. ``root``: where its packages were unpacked."""

    root: Path

    @property
    def libraries(self) -> Path:
        """Of itself and of what it loads."""
        return self.root / "usr/lib/x86_64-linux-gnu"

    @property
    def environment(self) -> dict[str, str]:
        """What its process needs beside the usual."""
        return {"QEMU_MODULE_DIR": str(self.libraries / "qemu")}

    def command(self, kernel: Path, initrd: Path, *, memory_mib: int, sleep: bool) -> list[str]:
        """Start a machine with a console that the caller adds, as all that is a device.

        sleep: an idle guest waits in wall time. Otherwise its clock goes on to the next timer.
        """
        files = self.root / "usr/share"
        return [
            *(str(self.root / "usr/lib64/ld-linux-x86-64.so.2"), "--library-path"),
            *(str(self.libraries), str(self.root / "usr/bin/qemu-system-x86_64")),
            *("-L", str(files / "qemu"), "-L", str(files / "seabios")),
            *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
            *("-M", "q35,memory-backend=m0", "-accel", "tcg", "-cpu", "max", "-smp", "1"),
            *("-icount", f"shift=3,sleep={'on' if sleep else 'off'}", "-m", str(memory_mib)),
            *("-object", f"memory-backend-memfd,id=m0,size={memory_mib}M,share=on"),
            *("-kernel", str(kernel), "-initrd", str(initrd)),
        ]


def card_device(path: Path, place: str, *more: tuple[str, object]) -> Sequence[str]:
    """The options for a function of a served card: its socket, its place on the guest's bus."""
    device = {
        "driver": "vfio-user-pci",
        "addr": place,
        "x-no-posted-writes": True,
        "x-msg-timeout": _PATIENCE_MS,
        "socket": {"type": "unix", "path": str(path)},
        **dict(more),
    }
    return "-device", json.dumps(device)
