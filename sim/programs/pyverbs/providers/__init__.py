"""What rdma-core's pyverbs has for single vendors' devices, as far as this card can do it."""
