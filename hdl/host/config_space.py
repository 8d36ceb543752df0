"""PCI configuration space: header, BARs and the capabilities a driver walks.

Spec: PCI Local Bus 3.0, 6.1 (header), 6.2.5.1 (BAR sizing), 6.8.2 (MSI-X); Virtio 1.2, 4.1.4.
"""

from __future__ import annotations

from dataclasses import dataclass

from amaranth.hdl import Cat, Const, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from hdl.abi import virtio_pci as abi
from hdl.abi.layout import Struct
from hdl.abi.push import CFG_TYPE_PUSH, PUSH_BAR, PUSH_SLOT_BYTES
from hdl.abi.virtio_net import NET_CONFIG
from hdl.abi.virtio_rdma import CONFIG
from hdl.config import NicConfig
from hdl.csr.blocks import MANAGEMENT_DEVICE_ID, MANAGEMENT_VENDOR_ID

from .local import LocalPort, merge

__all__ = ["ConfigImage", "ConfigSpace", "management_image", "net_image", "rdma_image"]

#: Places in BAR 0 of the RDMA function.
BAR_REGISTERS, REGISTERS_BYTES = 0, 0x10000
COMMON_OFFSET = 0x0000
ISR_OFFSET = 0x1000
DEVICE_OFFSET = 0x2000
#: Where an adapter whose bus has its own configuration space may show this one.
CONFIG_OFFSET = 0x3000
PBA_OFFSET = 0x4000
MSIX_OFFSET = 0x8000
#: BAR 0 of the management function.
MANAGEMENT_BYTES = 1 << 20
#: BAR 2 holds the doorbells, four bytes for each queue.
BAR_NOTIFY = 2
NOTIFY_MULTIPLIER = 4

IMAGE_BYTES = 256
FIRST_CAPABILITY = 0x40
#: PCI class codes as they lie in the header: interface, subclass, class.
CLASS_ETHERNET = bytes((0x00, 0x00, 0x02))
CLASS_NETWORK_OTHER = bytes((0x00, 0x80, 0x02))
CLASS_ACCELERATOR = bytes((0x00, 0x00, 0x12))
MULTI_FUNCTION = 0x80
INTERRUPT_PIN_A = 1
#: A non-transitional device's subsystem ID keeps legacy drivers away (Virtio 1.2, 4.1.2.1).
SUBSYSTEM_ID = 0x40


def push_bytes(config: NicConfig) -> int:
    """Size of the push window of a function with this configuration; 0: it has none."""
    return max(4096, PUSH_SLOT_BYTES * config.qps) if config.push else 0


def notify_bytes(queues: int) -> int:
    """Size of the doorbell BAR of so many virtqueues: a power of two, at least a page."""
    return max(4096, 1 << (NOTIFY_MULTIPLIER * queues - 1).bit_length())


@dataclass
class ConfigImage:
    """Contents after reset and the bits a driver may change, of the first 256 bytes.

    ``msix`` and ``window`` are the addresses of the MSI-X and PCI_CFG capabilities, 0 for none.
    """

    data: bytearray
    mask: bytearray
    msix: int = 0
    window: int = 0

    def __post_init__(self) -> None:
        if len(self.data) != IMAGE_BYTES or len(self.mask) != IMAGE_BYTES:
            raise ValueError(f"An image has {IMAGE_BYTES} bytes, not {len(self.data)}")

    def _allow(self, start: int, struct: Struct, path: str, bits: int) -> None:
        place = struct.place(path)
        at = start + place.offset
        self.mask[at : at + place.size] = bits.to_bytes(place.size, "little")


def _header(image: ConfigImage, bars: dict[int, int], **values) -> None:
    """Put the header in; ``bars``: number -> size, 32-bit memory."""
    image.data[: abi.PCI_HEADER.size] = abi.PCI_HEADER.pack(header_type=MULTI_FUNCTION, **values)
    command = abi.PciCommand.MEMORY_SPACE | abi.PciCommand.BUS_MASTER | abi.PciCommand.INTX_DISABLE
    image._allow(0, abi.PCI_HEADER, "command", command)
    image._allow(0, abi.PCI_HEADER, "interrupt_line", 0xFF)
    first = abi.PCI_HEADER.offset("bar")
    for bar, size in bars.items():
        image.mask[first + 4 * bar : first + 4 * bar + 4] = (-size & 0xFFFF_FFFF).to_bytes(
            4, "little"
        )


def rdma_image(config: NicConfig) -> ConfigImage:
    """The RDMA function: device 42, five virtio capabilities and MSI-X."""
    return _virtio_image(
        {"device_id": abi.DEVICE_ID_RDMA, "class_code": CLASS_NETWORK_OTHER},
        queues=config.queues,
        vectors=config.vectors,
        device_bytes=CONFIG.size,
        push=push_bytes(config),
    )


def _virtio_image(
    identity: dict[str, int | bytes], *, queues: int, vectors: int, device_bytes: int, push: int = 0
) -> ConfigImage:
    """A function of virtio with this identity: so many virtqueues and MSI-X vectors, a device
    configuration of so many bytes, and a push window of as many, if any."""
    image = ConfigImage(bytearray(IMAGE_BYTES), bytearray(IMAGE_BYTES))
    _header(
        image,
        {BAR_REGISTERS: REGISTERS_BYTES, BAR_NOTIFY: notify_bytes(queues)}
        | ({PUSH_BAR: push} if push else {}),
        vendor_id=abi.VENDOR_ID,
        revision_id=abi.REVISION_ID,
        status=abi.PciStatus.CAPABILITIES,
        subsystem_vendor_id=abi.VENDOR_ID,
        subsystem_id=SUBSYSTEM_ID,
        capabilities=FIRST_CAPABILITY,
        interrupt_pin=INTERRUPT_PIN_A,
        **identity,
    )
    registers = BAR_REGISTERS
    structures = (
        (abi.CfgType.COMMON, abi.VIRTIO_PCI_CAP, registers, COMMON_OFFSET, abi.COMMON_CFG.size),
        (
            abi.CfgType.NOTIFY,
            abi.VIRTIO_PCI_NOTIFY_CAP,
            BAR_NOTIFY,
            0,
            NOTIFY_MULTIPLIER * queues,
        ),
        (abi.CfgType.ISR, abi.VIRTIO_PCI_CAP, registers, ISR_OFFSET, 1),
        (abi.CfgType.DEVICE, abi.VIRTIO_PCI_CAP, registers, DEVICE_OFFSET, device_bytes),
        (abi.CfgType.PCI_CFG, abi.VIRTIO_PCI_CFG_CAP, 0, 0, 0),
        *([(CFG_TYPE_PUSH, abi.VIRTIO_PCI_CAP, PUSH_BAR, 0, push)] if push else []),
    )
    at = FIRST_CAPABILITY
    for kind, struct, bar, offset, length in structures:
        fields = {
            "cap_vndr": abi.CapId.VENDOR,
            "cap_next": at + struct.size,
            "cap_len": struct.size,
            "cfg_type": kind,
            "bar": bar,
            "offset": offset,
            "length": length,
        }
        if kind is abi.CfgType.NOTIFY:
            fields["notify_off_multiplier"] = NOTIFY_MULTIPLIER
        if kind is abi.CfgType.PCI_CFG:
            image.window = at
            for path, bits in (("bar", 0xFF), ("offset", 0xFFFF_FFFF), ("length", 0xFFFF_FFFF)):
                image._allow(at, struct, path, bits)
        image.data[at : at + struct.size] = struct.pack(fields)
        at += struct.size
    image.msix = at
    image.data[at : at + abi.MSIX_CAP.size] = abi.MSIX_CAP.pack(
        cap_id=abi.CapId.MSIX,
        message_control=vectors - 1,
        table=MSIX_OFFSET | BAR_REGISTERS,
        pba=PBA_OFFSET | BAR_REGISTERS,
    )
    control = abi.MsixControl.FUNCTION_MASK | abi.MsixControl.ENABLE
    image._allow(at, abi.MSIX_CAP, "message_control", control)
    return image


def net_image(config: NicConfig) -> ConfigImage:
    """The network function: device 1, as the RDMA function; of a card without one, where nothing
    answers, a device of virtio without structures."""
    identity = {"device_id": abi.DEVICE_ID_NET, "class_code": CLASS_ETHERNET}
    if config.network:
        return _virtio_image(
            identity,
            queues=config.network_queues,
            vectors=config.network_vectors,
            device_bytes=NET_CONFIG.size,
        )
    image = ConfigImage(bytearray(IMAGE_BYTES), bytearray(IMAGE_BYTES))
    _header(image, {}, vendor_id=abi.VENDOR_ID, **identity)
    return image


def management_image() -> ConfigImage:
    """The management function: the register blocks in BAR 0, no capabilities, no interrupts."""
    image = ConfigImage(bytearray(IMAGE_BYTES), bytearray(IMAGE_BYTES))
    _header(
        image,
        {0: MANAGEMENT_BYTES},
        vendor_id=MANAGEMENT_VENDOR_ID,
        device_id=MANAGEMENT_DEVICE_ID,
        revision_id=1,
        class_code=CLASS_ACCELERATOR,
        subsystem_vendor_id=MANAGEMENT_VENDOR_ID,
        subsystem_id=MANAGEMENT_DEVICE_ID,
    )
    return image


class ConfigSpace(wiring.Component):
    """Registers of one function's configuration space.

    Members: ``port``; ``interrupt`` In, shown in the PCI status; ``flr`` In: a function-level
    reset, during which all registers are as after reset and writes are lost; Out: ``bus_master``,
    ``intx_disable``, ``msix_enable``, ``msix_mask``, and ``window_bar``, ``window_offset``,
    ``window_length`` of the PCI_CFG capability. Its data word is no register here: whoever owns the
    BARs serves it.
    Latency: ``done`` one cycle after ``start``. Errors: writes to read-only bits are lost; bytes
    beyond the first 256 read as 0. Reset: as in ``image``; a virtio device reset changes nothing.
    """

    def __init__(self, *, image: ConfigImage):
        self._image = image
        super().__init__(
            {
                "port": In(LocalPort(12)),
                "interrupt": In(1),
                "flr": In(1),
                "bus_master": Out(1),
                "intx_disable": Out(1),
                "msix_enable": Out(1),
                "msix_mask": Out(1),
                "window_bar": Out(8),
                "window_offset": Out(32),
                "window_length": Out(32),
            }
        )

    def elaborate(self, platform):
        m = Module()
        port, image = self.port, self._image
        words = {}
        for at in range(0, IMAGE_BYTES, 4):
            value = int.from_bytes(image.data[at : at + 4], "little")
            mask = int.from_bytes(image.mask[at : at + 4], "little")
            if not mask:
                words[at] = Const(value, 32)
                continue
            # Only the bits a driver may change are registers.
            held = Signal(32, init=value & mask, name=f"word_{at:02x}")
            words[at] = (held & mask) | (value & ~mask)
            with m.If(port.start & port.write & (port.addr == at)):
                m.d.sync += held.eq(merge(held, port))
            with m.If(self.flr):
                m.d.sync += held.eq(held.init)

        def field(start: int, struct: Struct, path: str):
            place = struct.place(path)
            at = start + place.offset
            return words[at & ~3][8 * (at & 3) : 8 * (at & 3) + 8 * place.size]

        status_word = abi.PCI_HEADER.offset("status") & ~3
        status_bit = 8 * (abi.PCI_HEADER.offset("status") & 3) + 3  # PciStatus.INTERRUPT
        m.d.sync += port.done.eq(port.start)
        with m.If(port.start):
            m.d.sync += port.read_data.eq(0)
            with m.Switch(port.addr):
                for at, word in words.items():
                    with m.Case(at):
                        if at == status_word:
                            live = Cat(Const(0, status_bit), self.interrupt)
                            m.d.sync += port.read_data.eq(word | live)
                        else:
                            m.d.sync += port.read_data.eq(word)

        command = field(0, abi.PCI_HEADER, "command")
        m.d.comb += [
            self.bus_master.eq(command[2]),  # PciCommand.BUS_MASTER
            self.intx_disable.eq(command[10]),  # PciCommand.INTX_DISABLE
        ]
        if image.msix:
            control = field(image.msix, abi.MSIX_CAP, "message_control")
            m.d.comb += [self.msix_mask.eq(control[14]), self.msix_enable.eq(control[15])]
        if image.window:
            for name in ("bar", "offset", "length"):
                value = field(image.window, abi.VIRTIO_PCI_CFG_CAP, name)
                m.d.comb += getattr(self, f"window_{name}").eq(value)
        return m
