"""What programs look up about devices with ``cat``, ``ls`` and ``rdma``, for devices of a process.

Linux would show simulated devices in /sys and by netlink if it knew them. A folder of files takes
the place of /sys/class/infiniband, and commands that stand first on PATH look there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

from sim.programs.cards import Card

__all__ = ["show"]

_CLASS = "/sys/class/infiniband"
#: A command that looks into the folder for what would be below /sys/class/infiniband.
_LOOKING = """\
#!/bin/sh
for word do
    shift
    case "$word" in
    {shown}/*) word="{folder}${{word#{shown}}}" ;;
    esac
    set -- "$@" "$word"
done
PATH="{path}" exec {name} "$@"
"""
_TELLING = """\
#!/bin/sh
case "$*" in
*link*) cat "{folder}/links" ;;
*) echo "rdma: this process knows links alone" >&2; exit 1 ;;
esac
"""


def show(cards: list[Card], folder: Path) -> None:
    """Make the files and the commands in ``folder``, and put these first on PATH."""
    links: list[dict[str, object]] = []
    for card in cards:
        for path, text in _files(card).items():
            file = folder / "class" / card.name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")
        link = {"ifindex": len(links), "ifname": card.name, "port": 1, "state": "ACTIVE"}
        links.append({**link, "physical_state": "LINK_UP"})
    (folder / "links").write_text(json.dumps(links) + "\n")
    before = os.environ.get("PATH", "")
    commands = {
        name: _LOOKING.format(shown=_CLASS, folder=folder / "class", path=before, name=name)
        for name in ("cat", "ls")
    }
    commands["rdma"] = _TELLING.format(folder=folder)
    for name, text in commands.items():
        file = folder / "bin" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    os.environ["PATH"] = os.pathsep.join([str(folder / "bin"), before])


def _files(card: Card) -> Mapping[str, str]:
    """Files of a device, as Linux has them."""
    config = card.context.query_device()
    guid = ":".join(config.sys_image_guid.hex()[i : i + 4] for i in range(0, 16, 4))
    port = "ports/1"
    found = {
        "node_guid": guid,
        "sys_image_guid": guid,
        "node_type": "1: CA",
        f"{port}/state": "4: ACTIVE",
        f"{port}/phys_state": "5: LinkUp",
        f"{port}/link_layer": "Ethernet",
    }
    pkeys = card.do(_pkeys(card))
    return found | {f"{port}/pkeys/{index}": f"{pkey:#06x}" for index, pkey in enumerate(pkeys)}


async def _pkeys(card: Card) -> list[int]:
    port = await card.context.query_port()
    return [await card.context.query_pkey(1, index) for index in range(port.pkey_tbl_len)]
