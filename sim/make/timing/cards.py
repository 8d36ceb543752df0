"""The boards whose clock is estimated: what is mapped for each, and how well the model fits it."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from hdl.config import NicConfig
from sim.make.sta.delays import ECP5, ULTRASCALE_PLUS, Delays
from sim.make.synth.parts import WHOLE, Part


@dataclass(frozen=True)
class Card:
    """A board. module: where its ``CONFIG`` is. family: of ``sim.make.synth.tool``.

    note: what is not the board's own in these figures.
    """

    name: str
    title: str
    module: str
    family: str
    delays: Delays
    note: str

    @property
    def config(self) -> NicConfig:
        """The configuration of the board's NIC."""
        return import_module(self.module).CONFIG

    @property
    def part(self) -> Part:
        """What is mapped: the NIC, without the board's host block and MAC."""
        return Part(WHOLE, "all", self.config)


_ADAPTER = "The adapter of the host block and the crossing to the MAC are not in it."

CARDS = {
    card.name: card
    for card in (
        Card("u55c", "Alveo U55C", "boards.u55c.top", "xcup", ULTRASCALE_PLUS, _ADAPTER),
        Card(
            "de10_agilex",
            "DE10-Agilex",
            "boards.de10_agilex.top",
            "xcup",
            ULTRASCALE_PLUS,
            "Yosys has no Agilex: the cells and the delays are those of UltraScale+. An ALM has "
            "eight inputs and an M20K 20 kbit, so levels and RAMs differ. No delay of an Agilex "
            f"cell was found in public. {_ADAPTER}",
        ),
        Card("zcu106", "ZCU106", "boards.zcu106.top", "xcup", ULTRASCALE_PLUS, _ADAPTER),
        Card(
            "ecpix5",
            "ECPIX-5",
            "boards.ecpix5.card",
            "ecp5",
            ECP5,
            "nextpnr has placed and routed the whole design, and its figure counts "
            "([synthesis.md](synthesis.md#the-whole-of-the-ecpix-5)): in a part that is four "
            "fifths full, the core ends below the far case. Bridge and MAC are not in it.",
        ),
    )
}
