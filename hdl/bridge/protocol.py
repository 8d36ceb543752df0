"""The bridge's commands, for gateware and for the program at the other end. Spec: docs/bridge.md.

A request is SYNC, command, argument, address (4 bytes), data and check; an answer is ANSWER,
command, status, length of the data, data and check. Numbers are little-endian. The check is
CRC-16/IBM-3740 of all between the first byte and itself, as ``binascii.crc_hqx(text, 0xFFFF)``.
"""

from enum import IntEnum

__all__ = [
    "ANSWER",
    "BLOCK_BYTES",
    "MESSAGES",
    "MESSAGE_WINDOW",
    "MOST_WORDS",
    "NO_BLOCK",
    "SYNC",
    "WORD_BYTES",
    "Command",
    "Status",
]

SYNC, ANSWER = 0x5A, 0xA5
#: Bytes of a word of memory; words of a command at most.
WORD_BYTES, MOST_WORDS = 8, 16
#: Bytes of a block of memory that POLL returns when the card has written in it.
BLOCK_BYTES = 64
NO_BLOCK = 0xFFFF_FFFF
#: A write of the card to MESSAGE_WINDOW + 4 n is interrupt n.
MESSAGE_WINDOW, MESSAGES = 0x00FE_0000, 32


class Command(IntEnum):
    """What a request asks for. Its argument is a number of words or the strobes of a register."""

    READ_REGISTER = 1  # argument: strobes; the answer has 4 bytes
    WRITE_REGISTER = 2  # argument: strobes; 4 bytes of data
    READ_MEMORY = 3  # argument: words; the answer has 8 bytes for each
    WRITE_MEMORY = 4  # argument: words; 8 bytes and their strobes (1 byte) for each
    POLL = 5  # the answer: interrupts (4), block (4), and what is in the block if there is one


class Status(IntEnum):
    """How a request has ended. All but OK: it was not executed."""

    OK = 0
    BAD_CHECK = 1  # the check, or a byte without a stop bit
    BAD_REQUEST = 2  # no such command, or an argument that it does not have
    BAD_ADDRESS = 3  # outside memory, or not a multiple of 8
