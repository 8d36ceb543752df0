"""Descriptors of the AMD UltraScale+ integrated block for PCI Express (PG213).

Each is the head of a packet on one of the four user streams, lowest bits first. The names of the
streams are those of the guide: CQ and CC are requests of the host and their completions, RQ and RC
are requests of the card and theirs.
"""

import enum

from amaranth.lib import data

__all__ = [
    "WIDTH",
    "CompletionStatus",
    "RcError",
    "RequestType",
    "cc_descriptor",
    "cc_user",
    "completion_beat",
    "cq_descriptor",
    "cq_user",
    "rc_descriptor",
    "rc_user",
    "rq_descriptor",
    "rq_user",
]

#: Data bits of each stream.
WIDTH = 512


class RequestType(enum.IntEnum):
    """Transaction types (PG213, "Completer Request Descriptor Formats")."""

    MEM_READ = 0
    MEM_WRITE = 1
    MSG = 12


class CompletionStatus(enum.IntEnum):
    """Status of a completion (PCI Express Base Specification, "Completion Rules")."""

    SC = 0
    UR = 1


class RcError(enum.IntEnum):
    """Why the block passes a completion that is not good (PG213, "Handling of Completion
    Errors"). FLR and TIMEOUT end requests that get no completion; INVALID_TAG is a completion of a
    tag of which the block has no request."""

    NONE = 0
    POISONED = 1
    NO_DATA = 3
    INVALID_TAG = 6
    FLR = 8
    TIMEOUT = 9


def cq_descriptor() -> data.StructLayout:
    """Memory, I/O or atomic request on CQ. ``addr`` and ``words`` count 4 bytes."""
    return data.StructLayout(
        {
            "at": 2, "addr": 62, "words": 11, "type": 4, "reserved": 1, "requester": 16,
            "tag": 8, "function": 8, "bar": 3, "aperture": 6, "tc": 3, "attr": 3, "reserved1": 1,
        }
    )  # fmt: skip


def cc_descriptor() -> data.StructLayout:
    """Completion on CC. ``lower_addr`` and ``byte_count`` are in bytes, ``words`` in 4 bytes."""
    return data.StructLayout(
        {
            "lower_addr": 7, "reserved": 1, "at": 2, "reserved1": 6, "byte_count": 13, "locked": 1,
            "reserved2": 2, "words": 11, "status": 3, "poisoned": 1, "reserved3": 1,
            "requester": 16, "tag": 8, "function": 8, "bus": 8, "completer_id_enable": 1, "tc": 3,
            "attr": 3, "force_ecrc": 1,
        }
    )  # fmt: skip


def rq_descriptor() -> data.StructLayout:
    """Memory request on RQ (PG213, "Requester Request Descriptor Formats").

    ``addr`` and ``words`` count 4 bytes. The block puts its bus number into ``requester``, whose
    lowest 8 bits are the function.
    """
    return data.StructLayout(
        {
            "at": 2, "addr": 62, "words": 11, "type": 4, "poisoned": 1, "requester": 16,
            "tag": 8, "completer": 16, "requester_id_enable": 1, "tc": 3, "attr": 3,
            "force_ecrc": 1,
        }
    )  # fmt: skip


def rc_descriptor() -> data.StructLayout:
    """Completion on RC (PG213, "Requester Completion Descriptor Format").

    ``lower_addr`` and ``byte_count`` are in bytes, ``words`` in 4 bytes; ``byte_count`` is what the
    request still lacks, with this completion. ``error``: 0, or why the block ends the request.
    ``completed``: the request's last one.
    """
    return data.StructLayout(
        {
            "lower_addr": 12, "error": 4, "byte_count": 13, "locked": 1, "completed": 1,
            "reserved": 1, "words": 11, "status": 3, "poisoned": 1, "reserved1": 1,
            "requester": 16, "tag": 8, "completer": 16, "reserved2": 1, "tc": 3, "attr": 3,
            "reserved3": 1,
        }
    )  # fmt: skip


def completion_beat() -> data.StructLayout:
    """A beat of a completion's data, which begin in lane 0.

    ``head``: the descriptor, on the packet's first beat. ``abort``: the data are no good, on its
    last one.
    """
    return data.StructLayout({"data": WIDTH, "head": rc_descriptor(), "abort": 1, "last": 1})


def rq_user() -> data.StructLayout:
    """``s_axis_rq_tuser`` at 512 bits (PG213, "512-bit Requester Interface")."""
    return data.StructLayout(
        {
            "first_be": 8, "last_be": 8, "addr_offset": 4, "sop": 2, "sop_ptr": 4, "eop": 2,
            "eop_ptr": 8, "discontinue": 1, "tph": 24, "seq_num0": 6, "seq_num1": 6, "parity": 64,
        }
    )  # fmt: skip


def rc_user() -> data.StructLayout:
    """``m_axis_rc_tuser`` at 512 bits (PG213, "512-bit Requester Interface")."""
    return data.StructLayout(
        {
            "byte_en": 64, "sop": 4, "sop_ptr": 8, "eop": 4, "eop_ptr": 16, "discontinue": 1,
            "parity": 64,
        }
    )  # fmt: skip


def cc_user() -> data.StructLayout:
    """``s_axis_cc_tuser`` at 512 bits (PG213, "512-bit Completer Interface")."""
    return data.StructLayout(
        {"sop": 2, "sop_ptr": 4, "eop": 2, "eop_ptr": 8, "discontinue": 1, "parity": 64}
    )


def cq_user() -> data.StructLayout:
    """``s_axis_cq_tuser`` at 512 bits (PG213, "512-bit Completer Interface").

    Without straddle only the lower half of each pair is used.
    """
    return data.StructLayout(
        {
            "first_be": 8, "last_be": 8, "byte_en": 64, "sop": 2, "sop_ptr": 4, "eop": 2,
            "eop_ptr": 8, "discontinue": 1, "tph": 22, "parity": 64,
        }
    )  # fmt: skip
