"""The virtio-rdma device: its configuration and its control queue.

Spec: virtio-rdma, sections 1 to 3.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from typing import Any, cast

from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import RdmaFeature, Response
from hdl.abi.layout import Values
from hdl.abi.push import PUSH_MOST_BYTES, PUSH_SLOT_BYTES, push_pieces
from hdl.abi.virtio_pci import DEVICE_ID_RDMA, NO_VECTOR
from hdl.ports.counter_names import COUNTERS, PORT_COUNTERS, QP_COUNTERS, merge_halves
from sim.guest.driver.control import CommandChannel, ControlQueue
from sim.guest.driver.device import DriverOptions, VirtioPciDevice, VirtQueue
from sim.guest.driver.errors import CommandError, DeviceError, RdmaError
from sim.guest.driver.observer import Observer
from sim.guest.driver.pci import Window, find_push_window
from sim.guest.driver.platform import Platform, PushMmio

#: Vectors 0 and 1 are for configuration changes and the control queue, the rest for CQs.
_FIRST_CQ_VECTOR = 2


class RdmaDevice(VirtioPciDevice):
    """A virtio-rdma function with its control queue running.

    config: the unpacked device configuration. control: the control queue. channel: the way that
    control requests take, which is the control queue unless somebody puts another in its place.
    observer: who looks on, if anybody does.
    """

    config: Values
    control: VirtQueue
    channel: CommandChannel
    observer: Observer | None = None
    #: Where WQEs go with their doorbells, if PUSH was negotiated.
    push_window: Window | None = None

    @classmethod
    async def start_up(
        cls, platform: Platform, function: int = 1, options: DriverOptions | None = None
    ) -> RdmaDevice:
        """Finds, initialises and starts the device at ``function``."""
        device = cls(platform, function, options or DriverOptions())
        await device.open(DEVICE_ID_RDMA)
        device.config = abi.CONFIG.unpack(await device.config_bytes(abi.CONFIG.size))
        device._check_config()
        if device.has(RdmaFeature.PUSH):
            device.push_window = await find_push_window(device.pci)
        await device.enable_vectors(_FIRST_CQ_VECTOR + device.config.max_cq)
        device.control = await device.setup_queue(abi.CONTROL_QUEUE, vector=device.control_vector())
        device.channel = ControlQueue(device, device.control)
        await device.start()
        return device

    def _check_config(self) -> None:
        for name, limit in (("max_cq", abi.MAX_CQ_LIMIT), ("max_qp", abi.MAX_QP_LIMIT)):
            if not 1 <= self.config[name] <= limit:
                raise DeviceError(f"{name} must be 1 to {limit}, not {self.config[name]}")

    def control_vector(self) -> int:
        """The vector of the control queue."""
        return min(1, self.vectors - 1) if self.vectors else NO_VECTOR

    def cq_vector(self, comp_vector: int) -> int:
        """The vector for completion vector ``comp_vector``; vectors are shared when few."""
        if not self.vectors:
            return NO_VECTOR
        first = min(_FIRST_CQ_VECTOR, self.vectors - 1)
        return first + comp_vector % (self.vectors - first)

    def can_push(self, element: bytes) -> bool:
        """Whether a send element may go with its doorbell."""
        return self.push_window is not None and len(element) <= PUSH_MOST_BYTES

    async def push(self, queue: VirtQueue, head: int, element: bytes) -> None:
        """Rings a send queue's doorbell with the element that was published last, at ``head``."""
        window, mmio = self.push_window, cast("PushMmio", self.platform.mmio)
        assert window is not None
        pair = (queue.index - abi.sq_queue(0, self.config.max_cq)) // 2
        at = window.offset + PUSH_SLOT_BYTES * pair
        for piece in push_pieces(queue.next_avail - 1 & 0xFFFF, head, element):
            await mmio.write_combined(self.function, window.bar, at, piece)
            at += len(piece)

    async def counters(self) -> dict[str, int]:
        """The device's counters by name, those of 64 bits whole; RdmaError(EOPNOTSUPP) without."""
        header = await self._counter_header()
        names = (PORT_COUNTERS + COUNTERS)[: header["count"]]
        places = {name: abi.COUNTER_WINDOW.size + 4 * i for i, name in enumerate(names)}
        words = {name: await self._counter_word(place) for name, place in places.items()}
        for high in (name for name in words if name.endswith("_high")):
            low = high.removesuffix("_high") + "_low"
            while True:  # until no carry came between the halves
                words[low] = await self._counter_word(places[low])
                before, words[high] = words[high], await self._counter_word(places[high])
                if words[high] == before:
                    break
        found = merge_halves(words)
        if self.observer:
            self.observer.counted(found)
        return found

    async def qp_counters(self, qpn: int) -> dict[str, int]:
        """The counters of one QP by name; RdmaError(EOPNOTSUPP) without."""
        names = QP_COUNTERS[: (await self._counter_header())["qp_count"]]
        window, bar = abi.QP_COUNTER_OFFSET, abi.COUNTER_BAR
        async with self._lock:
            await self.platform.mmio.write(self.function, bar, window, 4, qpn)
            return {
                name: await self.platform.mmio.read(
                    self.function, bar, window + abi.QP_COUNTER_WINDOW.size + 4 * i, 4
                )
                for i, name in enumerate(names)
            }

    async def _counter_header(self) -> dict[str, int]:
        header = {
            place.path: await self._counter_word(place.offset)
            for place in abi.COUNTER_WINDOW.places()
        }
        if (header["magic"], header["version"]) != (abi.COUNTER_MAGIC, abi.COUNTER_VERSION):
            raise RdmaError(errno.EOPNOTSUPP, f"Function {self.function} shows no counters")
        return header

    async def _counter_word(self, offset: int) -> int:
        return await self.platform.mmio.read(
            self.function, abi.COUNTER_BAR, abi.COUNTER_OFFSET + offset, 4
        )

    async def command(
        self, command: abi.AnyCommand, request: Mapping[str, Any] | None = None, **fields: Any
    ) -> Values:
        """One control command; returns the unpacked response data.

        Raises CommandError when the device refuses it, DeviceError for a short response.
        """
        request_struct, response_struct = abi.structures(command)
        body = request_struct.pack(request, **fields)
        result = await self.channel.request(
            bytes([command]) + body, abi.RESPONSE_HEADER.size + response_struct.size, command.name
        )
        if self.observer:
            self.observer.commanded(command, result.response)
        if result.response != Response.OK:
            raise CommandError(command.name, result.response)
        if result.written < abi.RESPONSE_HEADER.size + response_struct.size:
            raise DeviceError(f"{command.name}: only {result.written} bytes of response")
        return response_struct.unpack(result.data[abi.RESPONSE_HEADER.size :])
