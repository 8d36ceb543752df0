"""Both directions of the memory room under one top, so that one build serves all tests."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect, flipped

from hdl.config import NicConfig
from hdl.memory.gather import Gather
from hdl.memory.scatter import Scatter

__all__ = ["Room"]


class Room(wiring.Component):
    """Members ``gather`` and ``scatter``: those of Gather and Scatter."""

    def __init__(self, *, config: NicConfig):
        self._parts = {"gather": Gather(config=config), "scatter": Scatter(config=config)}
        super().__init__({name: Out(part.signature) for name, part in self._parts.items()})

    def elaborate(self, platform):
        m = Module()
        for name, part in self._parts.items():
            m.submodules[name] = part
            connect(m, part, flipped(getattr(self, name)))
        return m
