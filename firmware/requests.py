"""Which words of a control request the firmware needs: register reads are what a command costs."""

from __future__ import annotations

from firmware.qp import FIELDS
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import ControlCommand, QpAttrMask

__all__ = ["HEAD_WORDS", "needed_words"]

#: Words at the beginning of a request that say which others are needed.
HEAD_WORDS = 3


def _words() -> dict[QpAttrMask, set[int]]:
    """The words of MODIFY_QP that hold what each bit of its mask names."""
    states = {QpAttrMask.STATE: ("qp_state",), QpAttrMask.CUR_STATE: ("cur_qp_state",)}
    found: dict[QpAttrMask, set[int]] = {}
    for bit, names in (states | FIELDS).items():
        places = [abi.CMD_MODIFY_QP.place(f"attrs.{name}") for name in names]
        first = abi.REQUEST_HEADER.size
        found[bit] = {
            word
            for place in places
            for word in range((first + place.offset) // 4, (first + place.end - 1) // 4 + 1)
        }
    return found


_MODIFY_WORDS = _words()
_MASK_AT = abi.REQUEST_HEADER.size + abi.CMD_MODIFY_QP.offset("attr_mask")


def needed_words(head: bytes, words: int) -> set[int]:
    """The words to read of a request of ``words`` words that begins with ``head``: all, but of
    MODIFY_QP only those with attributes that its mask names."""
    if len(head) < 4 * HEAD_WORDS or head[0] != ControlCommand.MODIFY_QP:
        return set(range(words))
    mask = int.from_bytes(head[_MASK_AT : _MASK_AT + 4], "little")
    named = (needed for bit, needed in _MODIFY_WORDS.items() if mask & bit)
    return {word for word in set().union(*named) if word < words} | set(range(HEAD_WORDS))
