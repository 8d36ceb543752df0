"""What the rooms tell each other of atomics."""

from amaranth.lib import data

__all__ = ["OPERANDS_AT", "OPERAND_BYTES", "OPERAND_SLOT", "AtomicRequest", "AtomicResult"]

#: The slot of an atomic's line that holds its operands, behind the SGEs, as they are sent: the
#: end of AtomicETH. So many bytes of it, from there on.
OPERAND_SLOT = 31
OPERANDS_AT = 16 * OPERAND_SLOT
OPERAND_BYTES = 16


class AtomicRequest(data.Struct):
    """What an atomic does with its word; one for each ScatterJob of kind ATOMIC, in their order,
    not behind it. Numbers are native."""

    compares: 1  # it writes ``swap_add`` if it finds ``compare``; else it adds ``swap_add``
    swap_add: 64
    compare: 64
    resource: 16  # where its result is kept: the place of its ``ReadResource``


class AtomicResult(data.Struct):
    """What an atomic has found in its word; ``failed``: the host did not answer."""

    value: 64
    failed: 1
