"""The four engines side by side in one simulation model; they share nothing but the clock."""

from dataclasses import replace

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import Out, connect, flipped

from hdl.config import FUNCTION_RDMA, NicConfig
from hdl.queues.completion.engine import CompletionEngine
from hdl.queues.control.engine import ControlEngine
from hdl.queues.receive.fetch import RecvFetch
from hdl.queues.send import SendFetch

#: Of every access in these tests.
FUNCTION = FUNCTION_RDMA


def small_config(width: int, ahead: int = 64) -> NicConfig:
    """Few queues and lines, full-size WQEs; ``ahead`` of them are read at a time."""
    few = {"qps": 4, "cqs": 4, "mrs": 2, "gids": 1, "vectors": 8}
    few |= {"send_lines": 4, "recv_lines": 32}
    return NicConfig(width=width, wqes_ahead=ahead, **few)


def wide_config(width: int) -> NicConfig:
    """The default's queue pairs; fewer lines than queues, so that they run out."""
    return NicConfig(width=width, recv_lines=128, mrs=2, gids=1, vectors=8)


def many_cqs_config(width: int) -> NicConfig:
    """A CQ for each of 64 queue pairs."""
    return NicConfig(width=width, qps=128, cqs=64, mrs=2, gids=1, vectors=8)


def two_functions_config(width: int) -> NicConfig:
    """Two guest functions with few queues."""
    return NicConfig(width=width, functions=2, qps=8, cqs=4, mrs=4, gids=2, vectors=8)


def packed_config(width: int, ahead: int = 64) -> NicConfig:
    """The same with packed rings."""
    return replace(small_config(width, ahead), packed=True)


class RecvTop(wiring.Component):
    """Member ``recv``: RecvFetch of many queue pairs."""

    def __init__(self, *, width: int):
        self._engine = RecvFetch(config=wide_config(width))
        super().__init__({"recv": Out(self._engine.signature)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.recv = self._engine
        connect(m, self._engine, flipped(self.recv))
        return m


class CompletionTop(wiring.Component):
    """Member ``completion``: CompletionEngine of a card with 64 CQs."""

    def __init__(self, *, width: int):
        self._engine = CompletionEngine(config=many_cqs_config(width))
        super().__init__({"completion": Out(self._engine.signature)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.completion = self._engine
        connect(m, self._engine, flipped(self.completion))
        return m


class ControlTop(wiring.Component):
    """Member ``control``: ControlEngine of a card with two functions."""

    def __init__(self, *, width: int):
        self._engine = ControlEngine(config=two_functions_config(width))
        super().__init__({"control": Out(self._engine.signature)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.control = self._engine
        connect(m, self._engine, flipped(self.control))
        return m


class QueuesTop(wiring.Component):
    """Members ``send``, ``recv``, ``completion``, ``control``: those of the engines."""

    CONFIG = staticmethod(small_config)

    def __init__(self, *, width: int, ahead: int = 64):
        config = self.CONFIG(width, ahead)
        self._engines = {
            "send": SendFetch(config=config),
            "recv": RecvFetch(config=config),
            "completion": CompletionEngine(config=config),
            "control": ControlEngine(config=config),
        }
        super().__init__({name: Out(one.signature) for name, one in self._engines.items()})

    def elaborate(self, platform):
        m = Module()
        for name, engine in self._engines.items():
            m.submodules[name] = engine
            connect(m, engine, flipped(getattr(self, name)))
        return m


class PackedTop(QueuesTop):
    """The same engines on a card with packed rings."""

    CONFIG = staticmethod(packed_config)
