"""The virtio-rdma device: its configuration and its control queue.

Spec: virtio-rdma, sections 1 to 3.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import ControlCommand, Response
from hdl.abi.layout import Values
from hdl.abi.virtio_pci import DEVICE_ID_RDMA, NO_VECTOR
from hdl.csr.counter_names import COUNTERS, PORT_COUNTERS, QP_COUNTERS, merge_halves
from sim.guest.driver.device import DriverOptions, VirtioPciDevice, VirtQueue
from sim.guest.driver.errors import CommandError, DeviceError, RdmaError
from sim.guest.driver.memory import view
from sim.guest.driver.platform import Platform
from sim.guest.driver.virtqueue import RingPolicy, Segment

#: Vectors 0 and 1 are for configuration changes and the control queue, the rest for CQs.
_FIRST_CQ_VECTOR = 2


@dataclass(eq=False)
class _Command:
    name: str
    addr: int
    written: int | None = None


@dataclass
class CommandResult:
    """What came back for a control request: ``written`` bytes, the first is the response byte."""

    written: int
    data: bytes = field(repr=False)

    @property
    def response(self) -> int:
        """The response byte; DeviceError when the device wrote none."""
        if not self.data:
            raise DeviceError("A control request came back without a response byte")
        return self.data[0]


class RdmaDevice(VirtioPciDevice):
    """A virtio-rdma function with its control queue running.

    ``config`` is the unpacked device configuration.
    """

    config: Values
    control: VirtQueue

    @classmethod
    async def start_up(
        cls, platform: Platform, function: int = 1, options: DriverOptions | None = None
    ) -> RdmaDevice:
        """Finds, initialises and starts the device at ``function``."""
        device = cls(platform, function, options or DriverOptions())
        await device.open(DEVICE_ID_RDMA)
        device.config = abi.CONFIG.unpack(await device.config_bytes(abi.CONFIG.size))
        device._check_config()
        await device.enable_vectors(_FIRST_CQ_VECTOR + device.config.max_cq)
        device.control = await device.setup_queue(abi.CONTROL_QUEUE, vector=device.control_vector())
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
        return merge_halves(words)

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
        self, command: ControlCommand, request: Mapping[str, Any] | None = None, **fields: Any
    ) -> Values:
        """One control command; returns the unpacked response data.

        Raises CommandError when the device refuses it, DeviceError for a short response.
        """
        request_struct, response_struct = abi.COMMANDS[command]
        body = request_struct.pack(request, **fields)
        result = await self.control_request(
            bytes([command]) + body, abi.RESPONSE_HEADER.size + response_struct.size, command.name
        )
        if result.response != Response.OK:
            raise CommandError(command.name, result.response)
        if result.written < abi.RESPONSE_HEADER.size + response_struct.size:
            raise DeviceError(f"{command.name}: only {result.written} bytes of response")
        return response_struct.unpack(result.data[abi.RESPONSE_HEADER.size :])

    async def control_request(
        self,
        request: bytes,
        response_size: int,
        name: str = "request",
        policy: RingPolicy | None = None,
    ) -> CommandResult:
        """Any bytes as a control request with ``response_size`` writable bytes; for tests too.

        Command and data, response and data are in buffers of their own (VR-3.3) unless ``policy``
        cuts otherwise. Several requests may be under way at once.
        """
        size = len(request) + response_size
        if not size:
            raise RdmaError(errno.EINVAL, f"{name}: an empty control request")
        queue, memory = self.control, self.platform.memory
        addr = memory.alloc(size)
        view(memory, addr, len(request))[:] = np.frombuffer(request, np.uint8)
        header = 1
        segments = [
            Segment(addr, min(header, len(request))),
            Segment(addr + header, len(request) - header),
            Segment(addr + len(request), min(header, response_size), writable=True),
            Segment(addr + len(request) + header, response_size - header, writable=True),
        ]
        if policy is not None and policy.split:
            segments = [
                Segment(addr, len(request)),
                Segment(addr + len(request), response_size, writable=True),
            ]
        token = _Command(name, addr)
        try:
            await self._add_control(
                [segment for segment in segments if segment.size > 0], token, policy
            )
        except BaseException:
            memory.free(addr)
            raise
        queue.enable_interrupts()
        await queue.kick()
        await self.wait_until(lambda: self._reap_control(token), f"{name} answered")
        written = token.written or 0
        data = view(memory, addr + len(request), response_size)[:written].tobytes()
        memory.free(addr)
        return CommandResult(written, data)

    async def _add_control(
        self, segments: list[Segment], token: _Command, policy: RingPolicy | None
    ) -> None:
        """Adds a request, after others have made room for it if need be."""
        queue = self.control
        while True:
            usual, queue.policy = queue.policy, self._policy(policy or queue.policy)
            try:
                queue.add(segments, token)
                return
            except RdmaError as error:
                if error.errno != errno.ENOSPC or not queue.outstanding:
                    raise
            finally:
                queue.policy = usual
            before = queue.free_descriptors

            def room(before: int = before) -> bool:
                return self._reap_control(token) or queue.free_descriptors > before

            await self.wait_until(room, f"{token.name}: room in the control queue")

    def _reap_control(self, token: _Command) -> bool:
        while self.control.has_used():
            for used in self.control.reap():
                assert isinstance(used.token, _Command)
                used.token.written = used.size
            self.control.enable_interrupts()
        return token.written is not None
