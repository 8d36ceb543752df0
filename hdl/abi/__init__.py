"""The virtio and virtio-rdma ABI: the only place where one of its offsets or numbers is written.

``layout`` is the mechanism, ``virtio_pci`` and ``virtio_rdma`` hold the structures, ``enums`` the
numbers. Pure data: gateware, firmware, driver, tests and documentation all read it.
"""

from hdl.abi.virtio_rdma import ABI_VERSION

__all__ = ["ABI_VERSION"]
