"""How a simulated host behaves: delays, bandwidth, order, refused cycles."""

from __future__ import annotations

from dataclasses import dataclass, fields

from hdl.bounds import WORD, within

__all__ = ["HostBehaviour"]

#: Highest times, ns, and seeds. What is not named has 32 bits.
_HIGHEST = {"ns": 10**10, "seed": 1 << 62}
#: Bandwidth that is neither 0 nor too low to be told in ps for each KiB.
_SLOWEST_GBPS, _FASTEST_GBPS = 0.001, 1_000_000

#: Shares of cycles are whole parts of this number in the compiled model.
STALL_PARTS = 256


@dataclass(frozen=True, kw_only=True)
class HostBehaviour:
    """Everything that can be chosen about a host. Times in ns, bandwidth in Gb/s of data.

    Raises ValueError for a value beyond what the model takes, or a share of 1 and more.
    """

    read_latency_ns: float = 500
    read_jitter_ns: float = 0
    write_delay_ns: float = 200  # until a write becomes visible
    write_jitter_ns: float = 0
    mmio_latency_ns: float = 100
    read_gbps: float = 0  # 0: what the port takes
    write_gbps: float = 0
    tlp_payload: int = 0  # headers of PCIe's packets count in the bandwidth, with payloads (MPS)
    tlp_read: int = 0  # and read requests (MRRS) of so many bytes at most; 0: data alone
    chunk_bytes: int = 0  # completions of reads alternate at multiples of it; 0: at every beat
    reorder: bool = True  # tags complete in any order
    stall_read: float = 0  # share of cycles that refuse a read,
    stall_write: float = 0  # that refuse a write,
    stall_completion: float = 0  # that complete nothing
    seed: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            within(name, value, 0, _HIGHEST.get(name.split("_")[-1], WORD))
            if name.startswith("stall") and value >= 1:
                raise ValueError(f"{name} must be less than 1, not {value!r}")
            if name.endswith("_gbps") and value:
                within(name, value, _SLOWEST_GBPS, _FASTEST_GBPS)

    def settings(self) -> dict[str, int]:
        """The same as the compiled model takes it (``sim.models.native.HostSettings``)."""
        found: dict[str, float] = {}
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            if name.endswith("_ns"):
                found[name.removesuffix("_ns") + "_ps"] = value * 1000
            elif name.endswith("_gbps"):
                per_kib = 1024 * 8000 / value if value else 0
                found[name.removesuffix("_gbps") + "_ps_per_kib"] = per_kib
            elif name.startswith("stall_"):
                found[name] = value * STALL_PARTS
            else:
                found[name] = value
        return {name: int(value) for name, value in found.items()}
