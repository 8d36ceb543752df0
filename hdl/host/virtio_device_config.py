"""Device configuration of the RDMA function."""

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.abi.limits import device_limits
from hdl.abi.virtio_rdma import CONFIG
from hdl.config import NicConfig

from .local import NOTHING_THERE, LocalPort

__all__ = ["DeviceConfig"]


class DeviceConfig(wiring.Component):
    """The 640 bytes of ``virtio_rdma_config``: constants, and the GUID that follows from the MAC.

    Spec: virtio-rdma section 2; VR-2.7: 1, 2 and 4 bytes at any offset, so whole words are
    answered and the bus cuts the bytes out. Members: ``port``; ``mac`` In (48, first wire
    byte in bits 7:0); ``changed`` Out, one cycle: the contents are new from the next cycle on.
    Latency: ``done`` one cycle after ``start``.
    Errors: writes have no effect (VR-1.6); words beyond the structure read 0xFFFFFFFF.
    """

    def __init__(self, *, config: NicConfig):
        self._config = config
        super().__init__({"port": In(LocalPort(12)), "mac": In(48), "changed": Out(1)})

    def elaborate(self, platform):
        m = Module()
        contents = CONFIG.pack(device_limits(self._config))
        mac = Signal(48)  # as the contents show it
        m.d.sync += mac.eq(self.mac)
        m.d.comb += self.changed.eq(mac != self.mac)

        # sys_image_guid is the EUI-64 of the MAC address, in network order.
        guid = Cat(mac[:24], Const(0xFEFF, 16), mac[24:])
        first = CONFIG.offset("sys_image_guid")
        live = {first + 4 * i: guid[32 * i : 32 * i + 32] for i in range(2)}

        m.d.sync += self.port.done.eq(self.port.start)
        with m.If(self.port.start):
            m.d.sync += self.port.read_data.eq(0)
            with m.If(self.port.addr >= CONFIG.size):
                m.d.sync += self.port.read_data.eq(NOTHING_THERE)
            with m.Switch(self.port.addr):
                for at in range(0, CONFIG.size, 4):
                    word = live.get(at, int.from_bytes(contents[at : at + 4], "little"))
                    if at in live or word:
                        with m.Case(at):
                            m.d.sync += self.port.read_data.eq(word)
        return m
