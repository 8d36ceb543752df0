"""What devices can pass for."""

from __future__ import annotations

__all__ = ["VENDORS"]

#: Numbers of a vendor and of its part, by the library for its devices. Programs look at them before
#: they use the library's calls beyond verbs.
VENDORS = {"mlx5": (0x02C9, 0x101E)}
