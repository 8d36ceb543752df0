"""Guest driver for virtio over PCI and virtio-rdma, on the abstract services of ``platform``.

Pure async Python: it awaits nothing but the platform's own methods, so it runs under any event
loop (cocotb, asyncio or a plain loop around ``send``).
"""
