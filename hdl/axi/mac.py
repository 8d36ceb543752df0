"""The way of frames between a NIC and AXI4-Stream, with the MAC's clocks or without."""

from amaranth.hdl import Module
from amaranth.lib.wiring import connect, flipped

from hdl.common.crossing import AsyncStreamFifo, LevelCrossing
from hdl.ports.packet import packet_beat

from .frames import AxiStreamIn, AxiStreamOut

__all__ = ["MAC_RX", "MAC_TX", "join_frames"]

#: Clock domains of the MAC's side, when it has clocks of its own.
MAC_TX, MAC_RX = "mac_tx", "mac_rx"


def join_frames(m: Module, nic, top, *, width: int, mac_clocks: bool) -> None:
    """Join ``mac_tx``, ``mac_rx`` and ``link_up`` of ``nic`` to ``m_axis_tx``, ``s_axis_rx`` and
    ``link_up`` of ``top``; ``mac_clocks``: these belong to the domains ``MAC_TX`` and ``MAC_RX``,
    and FIFOs lie between."""
    m.submodules.frames_out = frames_out = AxiStreamOut(width=width)
    m.submodules.frames_in = frames_in = AxiStreamIn(width=width)
    connect(m, frames_out.o, flipped(top.m_axis_tx))
    connect(m, flipped(top.s_axis_rx), frames_in.i)
    if not mac_clocks:
        connect(m, nic.mac_tx, frames_out.i)
        connect(m, frames_in.o, nic.mac_rx)
        m.d.comb += nic.link_up.eq(top.link_up)
        return
    beat = packet_beat(width)
    m.submodules.to_mac = to_mac = AsyncStreamFifo(shape=beat, i_domain="sync", o_domain=MAC_TX)
    m.submodules.from_mac = from_mac = AsyncStreamFifo(shape=beat, i_domain=MAC_RX, o_domain="sync")
    m.submodules.link = link = LevelCrossing(i_domain=MAC_RX, o_domain="sync")
    connect(m, nic.mac_tx, to_mac.i)
    connect(m, to_mac.o, frames_out.i)
    connect(m, frames_in.o, from_mac.i)
    connect(m, from_mac.o, nic.mac_rx)
    m.d.comb += [link.i.eq(top.link_up), nic.link_up.eq(link.o)]
