"""What a message can be: operations, the types of queue pairs that have them, their effect."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GRH_BYTES", "OPERATIONS", "Message", "Operation", "of_type"]

#: In front of each datagram in its receive buffer.
GRH_BYTES = 40
_WORDS = 1 << 64


@dataclass(frozen=True)
class Operation:
    """``done``: the opcode of its completion; ``receives``: of the one at the other side, if any.

    types: of queue pairs that have it. address: it names remote memory. fetches: data come back.
    size: of each message, if it is fixed.
    """

    done: str
    receives: str | None = None
    types: tuple[str, ...] = ("RC",)
    address: bool = False
    fetches: bool = False
    size: int | None = None


OPERATIONS = {
    "SEND": Operation("SEND", "RECV", ("RC", "UC", "UD")),
    "SEND_WITH_IMM": Operation("SEND", "RECV", ("RC", "UC", "UD")),
    "RDMA_WRITE": Operation("RDMA_WRITE", None, ("RC", "UC"), address=True),
    "RDMA_WRITE_WITH_IMM": Operation(
        "RDMA_WRITE", "RECV_RDMA_WITH_IMM", ("RC", "UC"), address=True
    ),
    "RDMA_READ": Operation("RDMA_READ", address=True, fetches=True),
    "ATOMIC_CMP_AND_SWP": Operation("COMP_SWAP", address=True, fetches=True, size=8),
    "ATOMIC_FETCH_AND_ADD": Operation("FETCH_ADD", address=True, fetches=True, size=8),
}


def of_type(kind: str) -> list[str]:
    """The operations that queue pairs of a type have."""
    return [opcode for opcode, one in OPERATIONS.items() if kind in one.types]


@dataclass(frozen=True)
class Message:
    """``opcode`` posted by party ``source`` (0 or 1) on connection ``qp``, of ``size`` bytes.

    An operation whose messages have one size takes that.
    """

    opcode: str
    size: int
    source: int
    qp: int = 0

    def __post_init__(self) -> None:
        if self.operation.size is not None:
            object.__setattr__(self, "size", self.operation.size)

    def __str__(self) -> str:
        return f"{self.opcode} of {self.size} bytes on QP {self.qp}"

    @property
    def operation(self) -> Operation:
        """What it is."""
        return OPERATIONS[self.opcode]

    @property
    def writer(self) -> int:
        """The party whose data travel to the other one's memory, or come back from its memory."""
        return 1 - self.source if self.operation.fetches else self.source

    @property
    def atomic(self) -> bool:
        """Whether it changes the word that it fetches."""
        return self.operation.size is not None

    def requests(self, mtu: int) -> int:
        """Request packets that it takes: what is fetched takes one."""
        return 1 if self.operation.fetches else max(1, -(-self.size // mtu))

    @property
    def imm(self) -> bool:
        """Whether it carries immediate data."""
        return self.opcode.endswith("_WITH_IMM")

    def operands(self, word: bytes, chosen: int) -> dict[str, int]:
        """Of an atomic on ``word``. A random ``chosen`` lets a comparison fail half the time."""
        if self.opcode == "ATOMIC_FETCH_AND_ADD":
            return {"compare_add": chosen}
        return {
            "compare_add": int.from_bytes(word, "little") ^ (chosen & 1) << 63,
            "swap": chosen,
        }

    def changed(self, word: bytes, chosen: int) -> bytes:
        """The word behind the atomic with ``operands(word, chosen)``."""
        before, operands = int.from_bytes(word, "little"), self.operands(word, chosen)
        if self.opcode == "ATOMIC_FETCH_AND_ADD":
            after = (before + operands["compare_add"]) % _WORDS
        else:
            after = operands["swap"] if before == operands["compare_add"] else before
        return after.to_bytes(8, "little")
