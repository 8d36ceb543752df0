"""Room ``host``: host port arbiters and adapters, virtio capabilities, interrupts."""
