"""The register block of a card on which the rows of a few QPs are on chip, and the others' in
memory that the firmware gives; and all blocks that only some cards have."""

from __future__ import annotations

from hdl.config import NicConfig

from .connections import connection_blocks
from .describe import Block, Register, const, ro, rw
from .diagnostics import watching
from .kinds import Kind
from .network import network_blocks

__all__ = ["RECORD_BYTES", "context", "optional_blocks"]

#: Bytes from one QP's record to the next one's.
RECORD_BYTES = 256


def context(config: NicConfig) -> Block:
    """Where the rows of the QPs are that are not on chip."""
    return Block(
        "context",
        Kind.CONTEXT,
        (
            Register("hot_qps", (const("value", 32, config.hot_qps, "QPs whose rows are here"),)),
            Register("size", (const("value", 32, config.qps * RECORD_BYTES, "bytes of memory"),)),
            Register(
                "base_low",
                (rw("value", 32),),
                "bus address of that memory, a multiple of its size; its first contents do not "
                "matter",
            ),
            Register("base_high", (rw("value", 32, "and the upper bits"),)),
            Register(
                "control",
                (rw("enable", 1, "there is such memory; rows that are not here wait for that"),),
            ),
            Register(
                "missed", (ro("value", 32, "rows of a QP that had to be brought, mod 2**32"),)
            ),
            Register(
                "lost",
                (
                    ro(
                        "value",
                        32,
                        "records that could not be read: their QPs are as after a reset",
                    ),
                ),
            ),
        ),
        "memory of the QPs' rows",
    )


def optional_blocks(config: NicConfig) -> dict[str, Block]:
    """The blocks that a card has with this configuration, and others do not, by name."""
    hot = {"context": context(config)} if config.hot_qps else {}
    return watching(config) | hot | network_blocks(config) | connection_blocks(config)
