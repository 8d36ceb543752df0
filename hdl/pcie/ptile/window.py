"""Virtio's access to the BARs through the configuration space, which P-Tile hands on."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Member, Out

from hdl.ports.host import MmioPort

__all__ = ["ConfigWindow", "window_pins"]


def window_pins() -> dict[str, Member]:
    """Members for what joins the interface (UG683059, "VirtIO PCI Configuration Access")."""
    return {
        "virtio_pcicfg_vfaccess": In(1),
        "virtio_pcicfg_pfnum": In(3),
        "virtio_pcicfg_bar": In(8),
        "virtio_pcicfg_length": In(32),
        "virtio_pcicfg_baroffset": In(32),
        "virtio_pcicfg_cfgdata": In(32),
        "virtio_pcicfg_cfgwr": In(1),
        "virtio_pcicfg_cfgrd": In(1),
        "virtio_pcicfg_apppfnum": Out(3),
        "virtio_pcicfg_rdack": Out(1),
        "virtio_pcicfg_rdbe": Out(4),
        "virtio_pcicfg_data": Out(32),
    }


class ConfigWindow(wiring.Component):
    """Puts an access of virtio's PCI_CFG capability between those of the host.

    Members: ``virtio_pcicfg_*``: the block's pins; ``mmio``: of the adapter; ``card``: what stands
    before the card's registers.
    Latency: none for accesses of the host, which wait for at most one access of this component.
    Errors: a length other than 1, 2 or 4, an offset that is not a multiple of it, and a virtual
    function reach no register: a read gives 0, a write is lost (Virtio 1.2, 4.1.4.9).
    Reset: nothing is asked for.
    """

    def __init__(self):
        super().__init__({**window_pins(), "mmio": Out(MmioPort()), "card": In(MmioPort())})

    def elaborate(self, platform):
        m = Module()
        mmio, card = self.mmio, self.card
        asked = data.StructLayout(
            {"write": 1, "function": 3, "bar": 3, "offset": 32, "strb": 4, "data": 32, "good": 1}
        )
        held, waits = Signal(asked, reset_less=True), Signal()
        offset, length = self.virtio_pcicfg_baroffset, self.virtio_pcicfg_length
        lanes = Signal(4)
        with m.Switch(length):
            for size in (1, 2, 4):
                with m.Case(size):
                    m.d.comb += lanes.eq((1 << size) - 1)
        good = Signal()
        aligned = (offset[:2] & (length[:3] - 1)[:2]) == 0
        m.d.comb += good.eq(
            lanes.any() & aligned & (self.virtio_pcicfg_bar < 6) & ~self.virtio_pcicfg_vfaccess
        )
        with m.If(self.virtio_pcicfg_cfgwr | self.virtio_pcicfg_cfgrd):
            m.d.sync += [
                waits.eq(1),
                held.write.eq(self.virtio_pcicfg_cfgwr),
                held.function.eq(self.virtio_pcicfg_pfnum),
                held.bar.eq(self.virtio_pcicfg_bar),
                held.offset.eq(offset),
                held.strb.eq(lanes),
                held.data.eq(self.virtio_pcicfg_cfgdata),
                held.good.eq(good),
            ]
        reading, passing = Signal(), Signal()  # an answer is awaited; the host has the card
        shift = held.offset[:2]
        own = Signal(mmio.req.payload.shape())
        m.d.comb += [
            own.function.eq(held.function),
            own.bar.eq(held.bar),
            own.addr.eq(held.offset & ~3),
            own.write.eq(held.write),
            own.strb.eq((held.strb << shift)[:4]),
            own.data.eq((held.data << (shift << 3))[:32]),
            card.req.payload.eq(Mux(passing, mmio.req.payload, own)),
            mmio.req.ready.eq(card.req.ready & passing),
            mmio.rsp.payload.eq(card.rsp.payload),
            self.virtio_pcicfg_apppfnum.eq(held.function),
            self.virtio_pcicfg_rdbe.eq(held.strb),
        ]
        with m.If(mmio.req.valid & mmio.req.ready & ~mmio.req.payload.write):
            m.d.sync += reading.eq(1)
        with m.Elif(mmio.rsp.valid & mmio.rsp.ready):
            m.d.sync += reading.eq(0)
        m.d.sync += self.virtio_pcicfg_rdack.eq(0)
        with m.FSM(name="window"):
            # PASS: accesses of the host pass; ends when one of virtio waits and none is on its way.
            with m.State("PASS"):
                m.d.comb += [
                    passing.eq(1),
                    card.req.valid.eq(mmio.req.valid),
                    mmio.rsp.valid.eq(card.rsp.valid),
                    card.rsp.ready.eq(mmio.rsp.ready),
                ]
                with m.If(waits & ~mmio.req.valid & ~reading):
                    m.next = "ACCESS"
            # ACCESS: asks the card; ends when it takes the request, or at once if that is no good.
            with m.State("ACCESS"):
                m.d.comb += card.req.valid.eq(held.good)
                with m.If(card.req.ready | ~held.good):
                    m.d.sync += [waits.eq(0), self.virtio_pcicfg_data.eq(0)]
                    m.next = "PASS"
                    with m.If(~held.write):
                        m.next = "HEAR"
            # HEAR: waits for the answer to a read; ends with it.
            with m.State("HEAR"):
                m.d.comb += card.rsp.ready.eq(1)
                with m.If(card.rsp.valid):
                    m.d.sync += self.virtio_pcicfg_data.eq(card.rsp.payload >> (shift << 3))
                with m.If(card.rsp.valid | ~held.good):
                    m.d.sync += self.virtio_pcicfg_rdack.eq(1)
                    m.next = "PASS"
        return m
