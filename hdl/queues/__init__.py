"""Room ``queues``: virtqueue engines; descriptor and WQE fetch, completion write."""
