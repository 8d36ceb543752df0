"""The compiled models' C interface, reached from Python inside a simulation through ctypes."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, byref, c_char_p, c_int, c_uint8, c_uint32, c_uint64, c_void_p
from functools import cache

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Access",
    "ClockStats",
    "Event",
    "HostSettings",
    "HostStats",
    "ImpairSettings",
    "ImpairStats",
    "LinkPackets",
    "LinkSettings",
    "LinkStats",
    "MMIO",
    "INTERRUPT",
    "READ_FAULT",
    "WRITE_FAULT",
    "FRAME",
    "PROTOCOL",
    "WRITTEN",
    "FETCH",
    "STORE",
    "clear",
    "events",
    "library",
    "memory",
    "structure",
]

MMIO, INTERRUPT, READ_FAULT, WRITE_FAULT, FRAME, PROTOCOL, WRITTEN, FETCH, STORE = range(1, 10)


class Event(ctypes.Structure):
    """One thing a model has to say (``struct Event`` of ``sim/models/events.hpp``)."""

    _fields_ = [
        ("kind", c_uint32),
        ("id", c_uint32),
        ("value", c_uint64),
        ("addr", c_uint64),
        ("time", c_uint64),
    ]


class Access(ctypes.Structure):
    """A transaction of the host port (``struct Access`` of the host model)."""

    _fields_ = [
        ("kind", c_uint32),
        ("function", c_uint32),
        ("addr", c_uint64),
        ("value", c_uint64),
        ("time", c_uint64),
    ]


def _words(*names: str) -> list[tuple[str, type]]:
    return [(name, c_uint64) for name in names]


class HostSettings(ctypes.Structure):
    """Behaviour of a host; may be changed at any time (``struct Settings`` of the host model)."""

    _fields_ = _words(
        "read_latency_ps",
        "read_jitter_ps",
        "write_delay_ps",
        "write_jitter_ps",
        "read_ps_per_kib",
        "write_ps_per_kib",
        "mmio_latency_ps",
        "chunk_bytes",
        "reorder",
        "stall_read",
        "stall_write",
        "stall_completion",
        "seed",
        "tlp_payload",
        "tlp_read",
    )


class HostStats(ctypes.Structure):
    """What a host has counted (``struct Stats`` of the host model); times in ps."""

    _fields_ = _words(
        "reads",
        "read_bytes",
        "read_beats",
        "read_faults",
        "writes",
        "write_bytes",
        "write_beats",
        "write_faults",
        "interrupts",
        "mmio_reads",
        "mmio_writes",
        "reads_outstanding",
        "reads_outstanding_max",
        "writes_pending",
        "first_read_ps",
        "last_read_ps",
        "first_write_ps",
        "last_write_ps",
        "cycles",
    )


class LinkSettings(ctypes.Structure):
    """Behaviour of a link port; may be changed at any time."""

    _fields_ = _words(
        "ps_per_byte",
        "delay_ps",
        "fifo_bytes",
        "peer",
        "buffer_bytes",
        "stall_tx",
        "stall_rx",
        "seed",
    )


class LinkStats(ctypes.Structure):
    """What a link port has counted; times in ps on the line."""

    _fields_ = _words(
        "tx_frames",
        "tx_bytes",
        "tx_bad",
        "rx_frames",
        "rx_bytes",
        "first_tx_ps",
        "last_tx_ps",
        "protocol_errors",
    )


class LinkPackets(ctypes.Structure):
    """Packets that a card has sent by opcode, and ACKNOWLEDGEs by syndrome; never cleared."""

    _fields_ = [("opcodes", c_uint64 * 256), ("syndromes", c_uint64 * 256)]


class ImpairSettings(ctypes.Structure):
    """What happens to the frames of one direction (``sim.models.impairments``)."""

    _fields_ = _words(
        "on",
        "seed",
        "loss",
        "burst",
        "every",
        "duplicate",
        "corrupt",
        "overtaken",
        "span",
        "delay_ps",
        "jitter_ps",
        "ps_per_byte",
        "queue_bytes",
        "pause_ps",
        "pause_every_ps",
        "operations",
        "answers",
        "skip",
        "drop",
    )


class ImpairStats(ctypes.Structure):
    """What has happened to them."""

    _fields_ = _words(
        "frames",
        "lost",
        "dropped",
        "overflowed",
        "duplicated",
        "corrupted",
        "overtaken",
        "sent",
        "paused",
    )

    @property
    def gone(self) -> int:
        """Frames that did not go on, whatever the reason."""
        return int(self.lost + self.dropped + self.overflowed)


class ClockStats(ctypes.Structure):
    """Edges since the start, how many of them were left out, jumps, looks at a card's whole state,
    and edges that a card has slept through."""

    _fields_ = _words("cycles", "skipped", "jumps", "looks", "slept")


_SIGNATURES: dict[str, tuple[type | None, list[type]]] = {
    "host_memory": (c_void_p, [c_int, c_uint64, c_uint64]),
    "host_settings": (c_void_p, [c_int]),
    "host_stats": (c_void_p, [c_int]),
    "host_reseed": (None, [c_int]),
    "host_mmio": (None, [c_int, *[c_uint32] * 6, c_uint64]),
    "host_push": (None, [c_int, c_uint32, c_uint32, c_char_p, c_uint32]),
    "host_watch": (None, [c_int, c_uint32, c_uint64, c_uint64]),
    "host_unwatch": (None, [c_int]),
    "host_answer": (None, [c_int, c_uint32, c_char_p]),
    "host_store": (c_int, [c_int, c_void_p]),
    "space_own": (None, [c_int, c_uint32]),
    "space_map": (c_int, [c_int, c_uint32, c_uint64, c_uint64, c_int, c_uint64, c_int]),
    "space_lend": (c_int, [c_int, c_uint64, c_int]),
    "space_unmap": (c_int, [c_int, c_uint32, c_uint64, c_uint64]),
    "space_faults": (c_uint64, [c_int, c_uint32, c_int]),
    "host_log": (None, [c_int, c_int]),
    "host_logged": (c_int, [c_int, POINTER(Access)]),
    "host_event": (c_int, [c_int, POINTER(Event)]),
    "clock_start": (None, [c_uint64]),
    "clock_stop": (None, []),
    "clock_jump": (None, [c_int, c_int]),
    "clock_wake": (None, []),
    "clock_idle": (c_int, []),
    "clock_timers": (c_int, []),
    "clock_stats": (c_void_p, []),
    "link_settings": (c_void_p, [c_int]),
    "link_stats": (c_void_p, [c_int]),
    "link_packets": (c_void_p, [c_int]),
    "link_reseed": (None, [c_int]),
    "link_impair_settings": (c_void_p, [c_int, c_int]),
    "link_impair_stats": (c_void_p, [c_int, c_int]),
    "link_impair": (None, [c_int]),
    "link_under_way": (c_uint64, [c_int, c_int]),
    "link_event": (c_int, [c_int, POINTER(Event)]),
    "link_capture": (c_int, [c_char_p]),
    "link_capture_end": (None, []),
    "link_inject": (None, [c_int, c_uint64, c_char_p, c_uint64, c_int]),
    "link_receive": (c_uint64, [c_int, c_void_p, POINTER(c_uint64)]),
}


@cache
def library() -> ctypes.CDLL:
    """The simulation program itself; a model that was not built in has no functions in it."""
    program = ctypes.CDLL(None)
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(program, name, None)
        if function is not None:
            function.restype, function.argtypes = result, arguments
    return program


def structure(kind: type[ctypes.Structure], function: str, *index: int) -> ctypes.Structure:
    """The structure that a model (of that ``index``) shares, as a view."""
    return kind.from_address(getattr(library(), function)(*index))


def clear(view: ctypes.Structure) -> None:
    """Set a shared structure to zero."""
    ctypes.memset(ctypes.addressof(view), 0, ctypes.sizeof(view))


def memory(index: int, base: int, size: int) -> NDArray[np.uint8]:
    """New memory, all zero, of host ``index``; MemoryError if the machine has none."""
    address = library().host_memory(index, base, size)
    if not address:
        raise MemoryError(f"No {size} bytes for the memory of host {index}")
    return np.ctypeslib.as_array((c_uint8 * size).from_address(address))


def events(function: str, index: int) -> list[Event]:
    """Take all events of a model; only then will its signal change again."""
    taken = []
    event = Event()
    fetch = getattr(library(), function)
    while fetch(index, byref(event)):
        taken.append(event)
        event = Event()
    return taken
