"""Device configuration of the network function."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.virtio_net import (
    DUPLEX_FULL,
    HASH_KEY_BYTES,
    NET_CONFIG,
    RSS_TABLE,
    SPEED_UNKNOWN,
    HashType,
    NetStatus,
)
from hdl.config import NicConfig

from .local import NOTHING_THERE, LocalPort

__all__ = ["NetDeviceConfig", "line_rate"]

#: Rates of Ethernet in Mbit/s that a card may have.
RATES = (1000, 10_000, 25_000, 40_000, 50_000, 100_000, 200_000)


#: What a driver may say of how frames are spread over the queues of several pairs.
SPREAD = {
    "rss_max_key_size": HASH_KEY_BYTES,
    "rss_max_indirection_table_length": RSS_TABLE,
    "supported_hash_types": sum(HashType),
}


def line_rate(config: NicConfig) -> int:
    """The rate of the card's port in Mbit/s: the highest one that its data path carries."""
    carried = config.width * config.clock_hz // 1_000_000
    return max((rate for rate in RATES if rate <= carried), default=SPEED_UNKNOWN)


class NetDeviceConfig(wiring.Component):
    """``virtio_net_config``: MAC address and state of the link as they are, and constants.

    Spec: Virtio 1.2, 5.1.4. Members: ``port``; ``mac`` In (48, first wire byte in bits 7:0),
    ``link`` In (it is up), ``mtu`` In (bytes); ``changed`` Out, one cycle: the contents are new
    from the next cycle on.
    Latency: ``done`` one cycle after ``start``.
    Errors: writes have no effect; words beyond the structure read 0xFFFFFFFF.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__(
            {
                "port": In(LocalPort(12)),
                "mac": In(48),
                "link": In(1),
                "mtu": In(16),
                "changed": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        told = Cat(self.mac, self.link, self.mtu)
        shown = Signal.like(told)  # as the contents show it
        m.d.sync += shown.eq(told)
        m.d.comb += self.changed.eq(shown != told)
        mac, link, mtu = shown[:48], shown[48], shown[49:]

        contents = NET_CONFIG.pack(
            max_virtqueue_pairs=self._config.network,
            speed=line_rate(self._config),
            duplex=DUPLEX_FULL,
            **(SPREAD if self._config.network > 1 else {}),
        )
        status = Mux(link, int(NetStatus.LINK_UP), 0)
        live = {"mac": mac, "status": Cat(status, Const(0, 16))[:16], "mtu": mtu}
        whole = Signal(8 * NET_CONFIG.size)
        m.d.comb += whole.eq(int.from_bytes(contents, "little"))
        for name, value in live.items():
            place = NET_CONFIG.place(name)
            m.d.comb += whole[8 * place.offset : 8 * place.end].eq(value)
        m.d.sync += self.port.done.eq(self.port.start)
        with m.If(self.port.start):
            m.d.sync += self.port.read_data.eq(NOTHING_THERE)
            with m.Switch(self.port.addr):
                for at in range(0, NET_CONFIG.size, 4):
                    with m.Case(at):
                        m.d.sync += self.port.read_data.eq(whole[8 * at : 8 * at + 32])
        return m
