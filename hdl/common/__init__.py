"""Room ``common``: skid buffers, queues, RAM wrapper, arbiters, CRC, clock crossing."""
