"""Which work requests a device has."""

from __future__ import annotations

from hdl.abi.enums import AtomicCap, DeviceCap, WrOpcode
from hdl.abi.layout import Values

__all__ = ["INVALIDATING", "LAYOUTS", "lacks"]

INVALIDATING = (WrOpcode.LOCAL_INV, WrOpcode.SEND_WITH_INV, WrOpcode.RDMA_READ_WITH_INV)
LAYOUTS = (WrOpcode.MKEY_LIST, WrOpcode.MKEY_INTERLEAVED)
_ATOMIC = (WrOpcode.ATOMIC_CMP_AND_SWP, WrOpcode.ATOMIC_FETCH_AND_ADD)
#: Bits of the capabilities that requests need.
_CAPABILITIES = {
    **dict.fromkeys((*INVALIDATING, WrOpcode.REG_MR), DeviceCap.MEM_MGT_EXTENSIONS),
    **dict.fromkeys((WrOpcode.FLUSH, WrOpcode.ATOMIC_WRITE), DeviceCap.ATOMIC_WRITE),
}


def lacks(device: Values, opcode: WrOpcode) -> bool:
    """Whether a device with this configuration does not have the work request: it says so only for
    whole groups."""
    if opcode in _ATOMIC:
        return bool(device.atomic_cap == AtomicCap.NONE)
    if opcode == WrOpcode.MEMCPY:
        return not device.max_memcpy_length
    if opcode in LAYOUTS:
        return not device.max_mkey_entries
    needed = _CAPABILITIES.get(opcode, DeviceCap(0))
    return bool(needed & ~device.device_cap_flags)
