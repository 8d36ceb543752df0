"""Names of numbers, and GIDs as text."""

from __future__ import annotations

from typing import Any

from sim.programs.pyverbs import enums

__all__ = [
    "access_flags_to_str",
    "be64toh",
    "gid_str",
    "gid_str_to_array",
    "mig_state_to_str",
    "mtu_to_str",
    "name_of",
    "names_of",
    "qp_state_to_str",
    "qp_type_to_str",
    "rereg_error_to_str",
]


def name_of(enumeration: str, prefix: str, number: int) -> str:
    """The rest of the name of an enumeration's member, or what says that there is none."""
    kind: Any = getattr(enums, enumeration)
    try:
        return str(kind(number).name).removeprefix(prefix)
    except ValueError:
        return f"Unknown ({number})"


def names_of(enumeration: str, prefix: str, flags: int) -> str:
    """The names of the flags that are set."""
    kind: Any = getattr(enums, enumeration)
    return " ".join(one.name.removeprefix(prefix) for one in kind if flags & one)


def qp_type_to_str(qp_type: int) -> str:
    """RC, UD and the like."""
    return name_of("ibv_qp_type", "IBV_QPT_", qp_type)


def qp_state_to_str(qp_state: int) -> str:
    """RESET, INIT, RTR and the like."""
    return name_of("ibv_qp_state", "IBV_QPS_", qp_state)


def mtu_to_str(mtu: int) -> str:
    """Bytes of payload."""
    return name_of("ibv_mtu", "IBV_MTU_", mtu)


def mig_state_to_str(mig: int) -> str:
    """State of path migration."""
    return name_of("ibv_mig_state", "IBV_MIG_", mig).capitalize()


def access_flags_to_str(flags: int) -> str:
    """The names of rights."""
    kind: Any = enums.ibv_access_flags
    names = [one.name.removeprefix("IBV_ACCESS_") for one in kind if flags & one]
    return "".join(f"{name.replace('_', ' ').capitalize()} " for name in names)


def rereg_error_to_str(code: int) -> str:
    """What a failed re-registration says."""
    return name_of("ibv_rereg_mr_err_code", "IBV_REREG_MR_ERR_", code)


def be64toh(val: int) -> int:
    """A number of 64 bits with its bytes the other way round."""
    return int.from_bytes(val.to_bytes(8, "big"), "little")


def gid_text(raw: bytes) -> str:
    """A GID in eight groups of four digits."""
    return ":".join(raw[i : i + 2].hex() for i in range(0, 16, 2))


def gid_str(subnet_prefix: int, interface_id: int) -> str:
    """The text of a GID from its halves, which are in network order."""
    return gid_text(subnet_prefix.to_bytes(8, "little") + interface_id.to_bytes(8, "little"))


def gid_str_to_array(val: str) -> list[str]:
    """The bytes of a GID's text, each as two digits."""
    digits = val.replace(":", "")
    return [digits[i : i + 2] for i in range(0, len(digits), 2)]
