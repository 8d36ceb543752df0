"""What is on the ECPIX-5 between the UART and the PHY: core, MAC, and the bridge as its host."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.bridge.bridge import Bridge
from hdl.config import NicConfig
from hdl.mac.gigabit import GigabitMac
from hdl.mac.rgmii import Gmii
from hdl.nic import Nic

__all__ = ["BAUD", "CONFIG", "MEMORY_BYTES", "Ecpix5Card"]

#: RC with retry, without what would not fit.
CONFIG = NicConfig(
    width=64,
    clock_hz=50_000_000,
    qps=16,
    cqs=4,
    mrs=8,
    gids=1,
    vectors=2,
    queue_size=16,
    address_bits=24,
    mtu=1024,
    read_tags=8,
    read_bytes=64,
    write_bytes=64,
    max_sge=2,
    max_inline=16,
    wqes_ahead=1,
    packets_ahead=1,
    send_lines=4,
    recv_lines=8,
    read_sinks=4,
    long_sinks=2,
    outstanding=16,
    read_resources=16,
    max_rd_atomic=2,
    translation_lines=0,
    gather_bytes=8192,
    receive_bytes=8192,
    uc=False,
    ud=False,
    atomics=False,
    fast_registration=False,
    srq=False,
    events=False,
    resize=False,
    mw=False,
    page_sizes=False,
    two_level=False,
    mcast=False,
    loopback=False,
    ipv6=False,
)
#: Bytes of host memory, and bits per second of the UART: a divisor of the core's clock, and of the
#: 12 MHz that the board's FT2232H divides.
MEMORY_BYTES = 32768
BAUD = 2_000_000
#: The longest frame: Ethernet with a tag, IPv6, UDP, BTH, RETH, payload, ICRC.
FRAME_BYTES = 18 + 40 + 8 + 12 + 16 + CONFIG.mtu + 4


class Ecpix5Card(wiring.Component):
    """The card without pins and PLL.

    Parameters: ``divisor``: cycles of a bit of the UART.
    Members: ``rx`` In, ``tx`` Out: the UART; ``to_phy`` Out, ``from_phy`` In: GMII, of ``mac_tx``
    and ``mac_rx``.
    The link counts as up: the PHY's registers are not read.
    Reset: of ``sync`` and ``mac_tx`` together; of ``mac_rx`` at any time.
    """

    def __init__(self, *, divisor: int = CONFIG.clock_hz // BAUD):
        self._divisor = divisor
        super().__init__(
            {
                "rx": In(1, init=1),
                "tx": Out(1, init=1),
                "to_phy": Out(Gmii()),
                "from_phy": In(Gmii()),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.nic = nic = Nic(config=CONFIG, around=("mac_rx_drops",))
        m.submodules.bridge = bridge = Bridge(size=MEMORY_BYTES, divisor=self._divisor)
        m.submodules.mac = mac = GigabitMac(width=CONFIG.width, frame_bytes=FRAME_BYTES)
        connect(m, nic.host, bridge.host)
        connect(m, nic.mac_tx, mac.i)
        connect(m, mac.o, nic.mac_rx)
        connect(m, mac.tx, flipped(self.to_phy))
        connect(m, flipped(self.from_phy), mac.rx)
        m.d.comb += [nic.link_up.eq(1), bridge.rx.eq(self.rx), self.tx.eq(bridge.tx)]
        m.d.comb += nic.around.mac_rx_drops.eq(mac.overruns)
        return m
