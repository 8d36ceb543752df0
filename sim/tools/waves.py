"""What a command keeps of recorded waves: the FST, and beside it what GTKWave opens first."""

from __future__ import annotations

import shutil
from pathlib import Path

from amaranth.lib.data import Layout

from hdl.common.packet import packet_beat
from hdl.ports.host import MmioRequest, edge_read_beat, edge_read_request, edge_write_beat
from sim.tools import outputs

__all__ = ["keep", "signals"]

#: GTKWave's zoom: 200 pixels stand for 2**25 ps, so that a window has what a short run lasts.
_ZOOM = "*-25.0 0"


def signals(width: int) -> dict[str, list[tuple[str, int]]]:
    """The streams of a card in the order in which a message passes them.

    width: of its data path, bits. Returns name and bits of their signals, by what happens there.
    """

    def stream(name: str, shape: object, *, ready: bool = True) -> list[tuple[str, int]]:
        bits = Layout.cast(shape).size
        return [(f"{name}__valid", 1), *[(f"{name}__ready", 1)] * ready, (f"{name}__payload", bits)]

    beat = packet_beat(width)
    return {
        "doorbell, registers": stream("host__mmio__req", MmioRequest),
        "host reads": stream("host__rd_req", edge_read_request())
        + stream("host__rd_rsp", edge_read_beat(width), ready=False),
        "to the wire": stream("mac_tx", beat),
        "from the wire": stream("mac_rx", beat),
        "host writes, interrupts": stream("host__wr", edge_write_beat(width)),
    }


def keep(waves: Path, target: Path, *, width: int, cards: int = 1) -> Path:
    """Copy ``waves`` to ``target``, and write a save file for GTKWave with the suffix ``.gtkw``.

    Returns the save file's path.
    """
    shutil.copyfile(waves, target)
    lines = [f'[dumpfile] "{target.absolute()}"', "[timestart] 0", "[size] 1400 900", _ZOOM]
    lines += ["testbench.clk", "testbench.rst"]
    for card in range(cards):
        for title, members in signals(width).items():
            lines.append(f"-card {card}: {title}")
            for name, bits in members:
                place = f"testbench.nic{card}_{name}"
                lines.append(place if bits == 1 else f"{place}[{bits - 1}:0]")
    saved = target.with_suffix(".gtkw")
    outputs.write_text(saved, "\n".join(lines) + "\n")
    return saved
