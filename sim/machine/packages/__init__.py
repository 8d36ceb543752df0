"""Debian packages of the driver: the kernel module's sources, and the provider for rdma-core."""
