"""How much there is of a board's device: what a card's cost is compared with."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["DEVICES", "Device"]


@dataclass(frozen=True)
class Device:
    """A device. family: of ``synth``. source: the vendor's table that its numbers are from.

    bram: block RAMs of the family's own size, as ``synth`` counts them. What host block and MAC
    take of the device is not known here.
    """

    board: str
    name: str
    family: str
    source: str
    lut: int
    ff: int
    bram: int
    uram: int
    dsp: int


DEVICES = (
    Device(
        "u55c",
        "XCU55C (VU47P)",
        "xcup",
        "AMD DS978",
        lut=1_303_680,
        ff=2_607_360,
        bram=2016,
        uram=960,
        dsp=9024,
    ),
    Device(
        "zcu106",
        "XCZU7EV",
        "xcup",
        "AMD DS891",
        lut=230_400,
        ff=460_800,
        bram=312,
        uram=96,
        dsp=1728,
    ),
    Device(
        "ecpix5",
        "LFE5UM5G-85F",
        "ecp5",
        "Lattice FPGA-DS-02012",
        lut=83_640,
        ff=83_640,
        bram=208,
        uram=0,
        dsp=156,
    ),
)
