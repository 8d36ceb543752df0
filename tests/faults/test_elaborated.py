"""Each force of a fault finds its signals in the component as it is elaborated today.

A force that finds none ends the run of its fault, and a fault that cannot be put in catches
nothing. The text of a class does not show that: a name may stay there when its signal has moved.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from amaranth.hdl import Fragment, Module
from amaranth.lib import io

from boards.profiles import PROFILES
from boards.u55c.top import U55cTop
from boards.zcu106.top import Zcu106Top
from hdl.abi.virtio_rdma import POST_SEND
from hdl.axi_nic import AxiNic
from hdl.bridge.bridge import Bridge
from hdl.config import NicConfig
from hdl.mac.gigabit import GigabitMac
from hdl.mac.rgmii import Rgmii, RgmiiPins
from hdl.memory.scatter import Scatter
from hdl.network.network import Network
from hdl.nic import Nic
from hdl.pcie.control import FunctionControl
from hdl.pcie.host import PcieHost
from hdl.pcie.ptile.host import PTileHost
from hdl.pcie.ptile.window import ConfigWindow
from hdl.pcie_nic import bars, places
from hdl.queues.push.window import PushWindow
from tests.faults.catalogue import FAULTS
from tests.force import Force, ForceError, Place, applied
from tests.memory.pair_key import declare

PINS = {"tx_clk": "o", "tx_ctl": "o", "tx_data": "o", "rx_ctl": "i", "rx_data": "i"}


def rgmii() -> Rgmii:
    ports = {
        name: io.SimulationPort(way, 4 if name.endswith("data") else 1)
        for name, way in PINS.items()
    }
    return Rgmii(pins=RgmiiPins(**ports))


class Buffers:
    """A platform whose buffers at the pins are empty: Amaranth has none for both edges."""

    def get_io_buffer(self, _buffer: Any) -> Module:
        return Module()


def tops() -> Iterator[tuple[Any, Any]]:
    """Yield what has, all together, each component that a fault is in, and its platform.

    A board's top has its core as a black box. No card has a key that names entries: the last one
    has an imaginary kind.
    """
    wide = NicConfig(width=512)
    # A core with AXI has no push window.
    everything = replace(PROFILES["everything"], width=64, functions=2, push=False)
    yield AxiNic(config=everything), None
    yield PushWindow(config=NicConfig(width=64, push=True), least=POST_SEND.size), None
    yield Nic(config=NicConfig(width=64, qps=64, hot_qps=16)), None
    yield Network(config=NicConfig(width=64, network=2)), None
    yield PcieHost(config=wide), None
    yield PTileHost(config=wide, bars=bars(wide)), None
    yield ConfigWindow(), None
    yield FunctionControl(config=wide, places=places(wide), patience=1), None
    yield U55cTop(), None
    yield Zcu106Top(), None
    yield Bridge(size=4096, divisor=10), None
    yield GigabitMac(width=64, frame_bytes=2048), None
    yield rgmii(), Buffers()
    with pytest.MonkeyPatch.context() as patch:
        declare(patch)
        yield Scatter(config=NicConfig(width=64, mrs=16)), None


@dataclass(frozen=True)
class Search(Force):
    """A force that changes nothing: notes whether what it says can be said of an instance."""

    found: list[str] = field(default_factory=list)

    def __call__(self, component: Any, fragment: Fragment, names: dict[str, Any]) -> None:
        place = Place(component, fragment, names, self.part)
        try:
            self.change(place.signal(self.signal), place)
        except ForceError:
            return
        self.found.append(type(component).__name__)


@pytest.mark.slow
def test_each_force_finds_its_signals() -> None:
    forces = {one.name: one.force for one in FAULTS if one.force is not None}
    searches = {
        name: Search(force.part, force.signal, force.change) for name, force in forces.items()
    }
    with applied(*searches.values()):
        for top, platform in tops():
            Fragment.get(top, platform)
    assert not [name for name, search in searches.items() if not search.found]
