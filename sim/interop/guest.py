"""A Linux guest in QEMU: started, watched, ended with its parent.

The guest's clocks run in wall time. Its two connections are socket pairs, which QEMU inherits:
frames as of ``-netdev stream``, and the agent's lines on a virtio serial port.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from sim.interop.image import GuestImage
from sim.interop.packages import require_commands

__all__ = ["Guest", "GuestError", "require_qemu"]

#: Frames of a path MTU of 4096 with all their headers, and to spare.
NETDEV_MTU = 9000
_MEMORY_MIB = 512
#: Wall-clock time in which a guest must be up, in seconds. Ten times what it needs.
BOOT_SECONDS = 60.0
_CONSOLE_LINES = 12
#: Kernel options that leave out what costs a guest of a few minutes time.
_QUICK = "quiet mitigations=off nokaslr no_timer_check reboot=t cryptomgr.notests panic=-1"
#: What a guest would leave to its card: segments and checksums would come unfinished.
_OFFLOADS = (
    *("csum", "gso", "mrg_rxbuf", "host_tso4", "host_tso6", "host_ecn", "host_ufo"),
    *("guest_csum", "guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo"),
)


class GuestError(RuntimeError):
    """The guest does not run as it should; the message ends with its console's last lines."""


def require_qemu() -> None:
    """Install QEMU when that is allowed; ToolError otherwise."""
    require_commands({"qemu-system-x86_64": "qemu-system-x86", "setpriv": "util-linux"})


class Guest:
    """A running guest; close it, or use it in a ``with``.

    ``wire`` is its Ethernet as a stream of frames, ``control`` the connection to its agent; both
    are sockets of this process. mac: of its card. addresses: with prefix length.
    """

    def __init__(
        self, image: GuestImage, folder: Path, *, mac: str, addresses: Sequence[str]
    ) -> None:
        self._console = folder / "console.log"
        self._console.touch()
        self.mac = mac
        self.wire, wire = socket.socketpair()
        self.control, control = socket.socketpair()
        with wire, control:
            self._process = subprocess.Popen(
                [
                    # With its parent ends whatever it does: a guest that hangs does not listen.
                    *("setpriv", "--pdeathsig", "KILL"),
                    *_command(image, mac, addresses),
                    *("-serial", f"file:{self._console}"),
                    *("-netdev", _stream(wire.fileno())),
                    *("-chardev", f"socket,id=control,fd={control.fileno()}"),
                ],
                pass_fds=(wire.fileno(), control.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=(folder / "qemu.log").open("wb"),
                stderr=subprocess.STDOUT,
            )
        self._messages = folder / "qemu.log"

    def __enter__(self) -> Guest:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def running(self) -> bool:
        """Whether QEMU still runs."""
        return self._process.poll() is None

    def last_lines(self) -> str:
        """What QEMU said, and the last lines of the console."""
        messages = self._messages.read_text(errors="replace").splitlines()
        console = self._console.read_text(errors="replace").splitlines()
        lines = [line for line in messages if line.strip()][-_CONSOLE_LINES:]
        lines += [line for line in console if line.strip()][-_CONSOLE_LINES:]
        return "\n".join(f"  | {line}" for line in lines) or "  | (its console is empty)"

    def error(self, what: str) -> GuestError:
        """``what`` with the console's last lines, once QEMU had a moment to say why it ends."""
        deadline = time.monotonic() + 1
        while self.running and time.monotonic() < deadline:
            time.sleep(0.05)
        state = "" if self.running else f" (QEMU ended with status {self._process.returncode})"
        return GuestError(f"{what}{state}:\n{self.last_lines()}")

    def close(self) -> None:
        """End QEMU."""
        self._process.kill()
        self._process.wait()
        self.wire.close()
        self.control.close()


def _stream(descriptor: int) -> str:
    return f"stream,id=wire,server=off,addr.type=fd,addr.str={descriptor}"


def _command(image: GuestImage, mac: str, addresses: Sequence[str]) -> list[str]:
    words = [f"rocinante.mtu={NETDEV_MTU}", *(f"rocinante.address={one}" for one in addresses)]
    off = ",".join(f"{name}=off" for name in _OFFLOADS)
    card = f"virtio-net-pci,netdev=wire,mac={mac},host_mtu={NETDEV_MTU},romfile=,{off}"
    return [
        "qemu-system-x86_64",
        *("-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1"),
        *("-m", str(_MEMORY_MIB), "-nodefaults", "-no-user-config", "-display", "none"),
        *("-no-reboot", "-kernel", str(image.kernel), "-initrd", str(image.initramfs)),
        *("-append", " ".join(["console=ttyS0", _QUICK, *words])),
        *("-device", f"{card},rx_queue_size=1024"),
        *("-device", "virtio-serial-pci", "-device", "virtserialport,chardev=control"),
    ]
