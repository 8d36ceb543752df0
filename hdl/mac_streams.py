"""The way of frames between a NIC and AXI4-Stream, with the MAC's clocks or without."""

from amaranth.hdl import DomainRenamer, Module
from amaranth.lib.wiring import In, Member, connect, flipped
from amaranth.utils import ceil_log2

from hdl.axi.frames import AxiStreamIn, AxiStreamOut
from hdl.common.crossing import LevelCrossing
from hdl.egress.rows import FRAME_BYTES
from hdl.mac.cmac import SLACK, CmacCrossing

__all__ = ["MAC_COUNTERS", "MAC_RX", "MAC_TX", "drop_counts", "join_frames"]

#: Clock domains of the MAC's side, when it has clocks of its own.
MAC_TX, MAC_RX = "mac_tx", "mac_rx"
#: What is counted between the NIC and the MAC, by the names of ``Nic``'s ``around``.
MAC_COUNTERS = ("mac_tx_drops", "mac_rx_drops")


def drop_counts(*, mac_clocks: bool) -> dict[str, Member]:
    """Members of a top without MAC clocks: what the design around it drops on the same ways."""
    return {} if mac_clocks else dict.fromkeys(MAC_COUNTERS, In(16))


def join_frames(m: Module, nic, top, *, width: int, mac_clocks: bool) -> None:
    """Join ``mac_tx``, ``mac_rx``, ``link_up`` and the drops of ``nic`` to ``m_axis_tx``,
    ``s_axis_rx``, ``link_up`` and the drops of ``top``. ``mac_clocks``: these belong to the domains
    ``MAC_TX`` and ``MAC_RX``, and a ``CmacCrossing`` lies between, which counts the drops."""
    m.submodules.frames_out = frames_out = AxiStreamOut(width=width)
    frames_in = AxiStreamIn(width=width)
    m.submodules.frames_in = DomainRenamer(MAC_RX)(frames_in) if mac_clocks else frames_in
    connect(m, frames_out.o, flipped(top.m_axis_tx))
    connect(m, flipped(top.s_axis_rx), frames_in.i)
    if not mac_clocks:
        connect(m, nic.mac_tx, frames_out.i)
        connect(m, frames_in.o, nic.mac_rx)
        m.d.comb += nic.link_up.eq(top.link_up)
        m.d.comb += [nic.around[name].eq(getattr(top, name)) for name in MAC_COUNTERS]
        return
    depth = 1 << ceil_log2(2 * -(-FRAME_BYTES // (width // 8)) + SLACK)
    m.submodules.crossing = crossing = CmacCrossing(
        width=width, frame_bytes=FRAME_BYTES, tx_beats=depth, rx_beats=depth
    )
    m.submodules.link = link = LevelCrossing(i_domain=MAC_RX, o_domain="sync")
    m.submodules.carries = carries = LevelCrossing(i_domain=MAC_RX, o_domain=MAC_TX)
    connect(m, nic.mac_tx, crossing.i)
    connect(m, crossing.tx, frames_out.i)
    connect(m, frames_in.o, crossing.rx)
    connect(m, crossing.o, nic.mac_rx)
    m.d.comb += [
        link.i.eq(top.link_up),
        carries.i.eq(top.link_up),
        nic.link_up.eq(link.o),
        crossing.rx_up.eq(top.link_up),
        crossing.tx_up.eq(carries.o),
        nic.around.mac_tx_drops.eq(crossing.tx_drops),
        nic.around.mac_rx_drops.eq(crossing.rx_drops),
    ]
