"""The vendor capability in the block's configuration space: where the virtio capabilities are."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.abi import virtio_pci as abi
from hdl.config import NicConfig

from .places import Places

__all__ = ["FIRST_REGISTER", "ConfigExtend", "capability"]

#: First word of the 16 bytes below 256 that the block leaves to the user (PG213, "Configuration
#: Extend Interface": the legacy space of 0xB0 to 0xBF).
FIRST_REGISTER = 0xB0 // 4


def capability(places: Places) -> bytes:
    """A ``virtio_pci_cap`` of a type that a driver of virtio must ignore (Virtio 1.2, 4.1.4)."""
    return abi.VIRTIO_PCI_CAP.pack(
        cap_vndr=abi.CapId.VENDOR,
        cap_len=abi.VIRTIO_PCI_CAP.size,
        cfg_type=abi.CFG_TYPE_LIST,
        bar=places.bar,
        offset=places.window,
        length=places.window_bytes,
    )


class ConfigExtend(wiring.Component):
    """Serves the 16 bytes of ``capability`` to each function with a driver; it is the last of the
    list.

    Members: the block's pins of the same names behind ``cfg_ext_``. Latency: 1 cycle.
    Errors: other registers and functions get no answer, and then read as 0. Writes are lost.
    Reset: nothing is read. Source: PG213, "Configuration Extend Interface".
    """

    def __init__(self, *, config: NicConfig, places: Places):
        self._config, self._words = config, capability(places)
        super().__init__(
            {
                "read_received": In(1),
                "register_number": In(10),
                "function_number": In(8),
                "read_data": Out(32),
                "read_data_valid": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.d.sync += self.read_data_valid.eq(0)
        with m.Switch(self.function_number):
            with m.Case(*self._config.driven_functions):
                with m.Switch(self.register_number):
                    for at in range(0, len(self._words), 4):
                        word = int.from_bytes(self._words[at : at + 4], "little")
                        with m.Case(FIRST_REGISTER + at // 4):
                            m.d.sync += [
                                self.read_data.eq(word),
                                self.read_data_valid.eq(self.read_received),
                            ]
        return m
