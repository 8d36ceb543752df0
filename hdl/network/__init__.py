"""Room ``network``: the data path of a virtio-net function."""
