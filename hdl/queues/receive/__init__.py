"""The receive WQEs of all sources, fetched ahead."""
