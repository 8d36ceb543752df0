"""What the host sets in P-Tile's configuration space, as P-Tile tells it word by word."""

from amaranth.hdl import Array, Cat, Const, Module, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import Out

from hdl.config import NicConfig
from hdl.pcie.control import FUNCTIONS
from hdl.pcie.settings import least

from .bus import config_pins
from .tlp import identity

__all__ = ["Settings"]

#: Addresses of the words that matter (UG683059, "Configuration Output Interface").
DEVICE_CONTROL, BUS_NUMBER, INTERRUPTS, MSI = 0x00, 0x01, 0x02, 0x0C


def _word(**places: tuple[int, int]) -> data.StructLayout:
    """A layout of fields at the given first bits: name -> (first bit, bits)."""
    fields, at = {}, 0
    for name, (first, bits) in sorted(places.items(), key=lambda item: item[1]):
        if first > at:
            fields[f"skipped{at}"] = first - at
        fields[name], at = bits, first + bits
    return data.StructLayout(fields)


_DEVICE_CONTROL = _word(max_payload=(0, 3), max_read=(3, 3), extended_tags=(6, 1),
                        bus_master=(7, 1))  # fmt: skip
_BUS_NUMBER = _word(bus=(0, 8), device=(8, 5))
_INTERRUPTS = _word(disable=(13, 1))
_MSI = _word(enable=(5, 1), mask=(6, 1))


class Settings(wiring.Component):
    """Keeps what the card must know of each function.

    Members: ``tl_cfg_*``: the block's pins; ``identity`` Out: requester and completer ID of each
    function; ``may_ask`` Out: a bit for each function: it is a bus master; ``function_status``,
    ``msix_enable``, ``msix_mask`` Out: for ``FunctionControl``; ``max_payload``, ``max_read`` Out:
    codes of the sizes, the least of all functions that read and write; ``extended_tags`` Out: a
    bit for each function: it may use 8 bits of tag.
    Latency: 1 cycle; P-Tile comes back to a word after some hundred cycles. Reset: as in the
    configuration space after reset.
    """

    def __init__(self, *, config: NicConfig):
        self._functions = config.driven_functions
        super().__init__(
            {
                **config_pins(),
                **{f"identity{n}": Out(identity()) for n in range(FUNCTIONS)},
                "may_ask": Out(FUNCTIONS),
                "function_status": Out(4 * FUNCTIONS),
                "msix_enable": Out(FUNCTIONS),
                "msix_mask": Out(FUNCTIONS),
                "max_payload": Out(3),
                "max_read": Out(3, init=2),
                "extended_tags": Out(FUNCTIONS),
            }
        )

    def elaborate(self, platform):
        m = Module()
        control, intx_disable = [], []
        for n in range(FUNCTIONS):
            device = Signal(_DEVICE_CONTROL, name=f"device{n}", init={"max_read": 2})
            disable = Signal(name=f"intx_disable{n}")
            place = Signal(_BUS_NUMBER, name=f"place{n}")
            who = getattr(self, f"identity{n}")
            control.append(device)
            intx_disable.append(disable)
            m.d.comb += who.eq(Cat(Const(n, 3), place.device, place.bus))
            with m.If(self.tl_cfg_func == n):
                with m.Switch(self.tl_cfg_add):
                    with m.Case(DEVICE_CONTROL):
                        m.d.sync += device.eq(self.tl_cfg_ctl)
                    with m.Case(BUS_NUMBER):
                        m.d.sync += place.eq(self.tl_cfg_ctl)
                    with m.Case(INTERRUPTS):
                        word = data.View(_INTERRUPTS, self.tl_cfg_ctl[: _INTERRUPTS.size])
                        m.d.sync += disable.eq(word.disable)
                    with m.Case(MSI):
                        word = data.View(_MSI, self.tl_cfg_ctl[: _MSI.size])
                        m.d.sync += [
                            self.msix_enable[n].eq(word.enable),
                            self.msix_mask[n].eq(word.mask),
                        ]
            status = self.function_status[4 * n : 4 * n + 4]
            m.d.comb += status.eq(Cat(0, 0, device.bus_master, disable))
            m.d.comb += self.may_ask[n].eq(device.bus_master)
            m.d.comb += self.extended_tags[n].eq(device.extended_tags)
        driven = [control[n] for n in self._functions]
        for name in ("max_payload", "max_read"):
            m.d.sync += getattr(self, name).eq(least(getattr(one, name) for one in driven))
        return m

    def of(self, function):
        """Return the identity of a function."""
        return data.View(
            identity(), Array(getattr(self, f"identity{n}").as_value() for n in range(FUNCTIONS))[
                function[: (FUNCTIONS - 1).bit_length()]
            ],
        )  # fmt: skip
