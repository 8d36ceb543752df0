"""One guest: a QEMU process with its lines, started and ended by this one."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sim.machine.image import Image
from sim.machine.qemu import KERNEL_OPTIONS, Qemu, card_device
from sim.rtl.env import ToolError

__all__ = ["ENDS", "Card", "Guest", "Plan"]

#: The lines of a guest's commands, by the number that the guest has for them.
ENDS = (1, 3)
_MEMORY_MIB = 768
#: Frames of a path MTU of 4096 with all their headers, and to spare.
NETDEV_MTU = 9000
_CONSOLE_LINES = 8
_PANIC = "Kernel panic - not syncing: "
#: What a virtio-net of QEMU would leave to the other end, which may not be one.
_OFFLOADS = (
    *("csum", "gso", "mrg_rxbuf", "host_tso4", "host_tso6", "host_ecn", "host_ufo"),
    *("guest_csum", "guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo"),
)


@dataclass(frozen=True)
class Card:
    """A function of a card on a guest's bus, or a network interface alone.

    mac: of the card, and of the interface beside it. addresses: with prefix length. socket: of the
    served function. network: of the card's network function, None: a virtio-net of QEMU stands in
    its place. space: the network namespace that the interface belongs to, "" for the first.
    """

    mac: str
    addresses: Sequence[str]
    socket: Path | None = None
    network: Path | None = None
    space: str = ""


@dataclass(frozen=True)
class Plan:
    """What a guest has. ``hosts``: names of addresses. ``commands``: by their line. sleep: see
    ``Qemu.command``. driver: parameters of the card's driver, None for a guest without it."""

    name: str
    cards: Sequence[Card]
    hosts: Mapping[str, str]
    commands: Mapping[int, Sequence[str]]
    sleep: bool
    driver: str | None = None
    soft_roce: bool = False
    spaces: Mapping[int, str] = field(default_factory=dict)


class Guest:
    """A running guest; close it.

    ``lines`` has this end of each line of a command, ``control`` that of the control line. wire:
    the other end of the guest's Ethernet, a stream of frames, if somebody has it.
    """

    def __init__(
        self, qemu: Qemu, image: Image, plan: Plan, folder: Path, wire: socket.socket | None
    ) -> None:
        self.plan = plan
        self._folder = folder / plan.name
        self._folder.mkdir()
        self._console = self._folder / "console"
        self._messages = self._folder / "messages"
        self.control, control = socket.socketpair()
        pairs = {end: socket.socketpair() for end in ENDS}
        self.lines = {end: ours for end, (ours, _) in pairs.items()}
        theirs = {2: control, **{end: other for end, (_, other) in pairs.items()}}
        given = [control, *(other for _, other in pairs.values())]
        if wire is not None:
            given.append(wire)
        command = [
            # With its parent ends whatever it does: a guest that hangs does not listen.
            *("setpriv", "--pdeathsig", "KILL"),
            *qemu.command(image.kernel, image.initramfs, memory_mib=_MEMORY_MIB, sleep=plan.sleep),
            *("-append", f"console=ttyS0 rdinit=/init {KERNEL_OPTIONS}"),
            *("-serial", f"file:{self._console}"),
            *self._ports(theirs),
            *self._bus(wire),
            *self._settings(image),
        ]
        try:
            with self._messages.open("wb") as messages:
                self.process = subprocess.Popen(
                    command,
                    pass_fds=[end.fileno() for end in given],
                    stdin=subprocess.DEVNULL,
                    stdout=messages,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **qemu.environment},
                    start_new_session=True,  # Ctrl-C is for this process, which ends the guest
                )
        except FileNotFoundError:
            raise ToolError("setpriv not found: apt-get install util-linux") from None
        finally:
            for end in given:
                end.close()

    def last_lines(self) -> list[str]:
        """What QEMU said, and the last lines of the guest's console, or those before a panic."""
        messages, console = self._said(self._messages), self._said(self._console)
        found = [line for line in messages if ": warning: " not in line][-_CONSOLE_LINES:]
        panics = [at for at, line in enumerate(console) if _PANIC in line]
        end = panics[0] + 1 if panics else len(console)
        return found + console[max(0, end - _CONSOLE_LINES) : end]

    @property
    def ended(self) -> str:
        """How it has ended, "" while it runs."""
        status = self.process.poll()
        if status is None:
            return ""
        for line in self._said(self._console):
            if _PANIC in line:
                return f"the guest's kernel has panicked: {line.partition(_PANIC)[2]}"
        return "the guest has ended by itself" if not status else f"QEMU ended with status {status}"

    @staticmethod
    def _said(path: Path) -> list[str]:
        text = path.read_text(errors="replace") if path.exists() else ""
        return [line for line in text.splitlines() if line.strip()]

    def close(self) -> None:
        """End QEMU."""
        self.process.kill()
        self.process.wait()
        for end in (self.control, *self.lines.values()):
            end.close()

    # QEMU's options -----------------------------------------------------------------------------

    def _ports(self, theirs: Mapping[int, socket.socket]) -> Sequence[str]:
        """Serial ports 1 to 3, each a socket of ours."""
        words: list[str] = []
        for number in sorted(theirs):
            name = f"line{number}"
            words += ["-chardev", f"socket,id={name},fd={theirs[number].fileno()}"]
            words += ["-serial", f"chardev:{name}"]
        return words

    def _bus(self, wire: socket.socket | None) -> Sequence[str]:
        """Network interfaces, each with the card's function behind it: the cards' own, or some of
        QEMU's on one Ethernet."""
        words: list[str] = []
        if wire is not None:
            stream = f"stream,id=wire,server=off,addr.type=fd,addr.str={wire.fileno()}"
            words += ["-netdev", stream, "-netdev", "hubport,id=out,hubid=0,netdev=wire"]
        off = ",".join(f"{name}=off" for name in _OFFLOADS)
        for i, card in enumerate(self.plan.cards):
            if card.network is not None:
                words += card_device(card.network, f"{_slot(i)}.0", ("multifunction", True))
            else:
                words += ["-netdev", f"hubport,id=net{i},hubid=0"]
                words += [
                    "-device",
                    f"virtio-net-pci,netdev=net{i},mac={card.mac},host_mtu={NETDEV_MTU},romfile=,"
                    f"rx_queue_size=1024,addr={_slot(i)}.0,multifunction=on,{off}",
                ]
            if card.socket is not None:
                words += card_device(card.socket, f"{_slot(i)}.1")
        return words

    def _settings(self, image: Image) -> Sequence[str]:
        """What the guest's first process reads."""
        plan = self.plan
        places = [
            f"{_slot(i)}.0/{','.join(card.addresses)}@{card.space}"
            for i, card in enumerate(plan.cards)
        ]
        hosts = "".join(f"{address} {name}\\n" for name, address in plan.hosts.items())
        driver = plan.driver if image.driver else None
        values = {
            "HOST": plan.name,
            "MTU": str(NETDEV_MTU),
            "PLACES": " ".join(places),
            "HOSTS": hosts,
            "ACQUAINTED": "" if any(card.network for card in plan.cards) else "yes",
            "RXE": f"{_slot(0)}.0" if plan.soft_roce else "",
            "DRIVER": "" if driver is None else driver or "dyndbg=-p",
            **{f"SPACE{end}": plan.spaces.get(end, "") for end in ENDS},
        }
        files = {"settings": "".join(f"{name}={shlex.quote(v)}\n" for name, v in values.items())}
        files |= {f"run{end}": shlex.join(words) + "\n" for end, words in plan.commands.items()}
        words: list[str] = []
        for name, text in files.items():
            path = self._folder / name
            path.write_text(text)
            words += ["-fw_cfg", f"name=opt/rocinante/{name},file={path}"]
        return words


def _slot(number: int) -> str:
    """The place of a card on the guest's bus."""
    return f"{4 + number:02x}"
