"""The releases of Debian that a guest can be, and what it is made from."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "LIBRARY_PACKAGES",
    "MODULES",
    "NEEDED_MODULES",
    "PROGRAM_PACKAGES",
    "RELEASES",
    "Release",
]


@dataclass(frozen=True)
class Release:
    """One release. ``number`` as users say it, ``suite`` as its package sources do."""

    number: str
    suite: str


RELEASES = {one.number: one for one in (Release("12", "bookworm"), Release("13", "trixie"))}

#: Packages whose programs and files a guest has. Libraries that they need come along.
PROGRAM_PACKAGES = (
    *("bash", "busybox-static", "kmod"),
    *("ibverbs-providers", "ibverbs-utils", "perftest", "rdmacm-utils", "python3-pyverbs"),
    *("ethtool", "iperf3", "iproute2", "iputils-ping", "netcat-openbsd", "nvme-cli", "pciutils"),
    "tcpdump",
)
#: Packages that come along whole, by the beginning of their names.
LIBRARY_PACKAGES = (
    "libpython3.",
    "python3.",
    "python3-minimal",
    "pci.ids",
    "libibverbs1",
    "libc-bin",
    "libgcc-s1_",  # loaded when a thread ends (pthread_exit)
)
#: Modules of the guest's kernel, loaded or at hand for modprobe, with all that they need.
MODULES = (
    *("virtio_pci", "virtio_net", "qemu_fw_cfg", "ib_uverbs", "rdma_ucm", "ib_umad", "rdma_rxe"),
    *("crc32_generic", "crc32c_intel", "crc32c_generic", "8021q", "dummy", "veth", "null_blk"),
    *("nvme_rdma", "nvmet_rdma", "rpcrdma", "ib_iser", "ib_isert", "ib_srp", "rds_rdma"),
)
#: A kernel without one of these cannot be such a guest; the others may be built in, or not exist.
NEEDED_MODULES = ("ib_uverbs", "rdma_ucm", "virtio_net")
