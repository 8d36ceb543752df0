"""The receive WQEs of all sources, fetched ahead, and the sinks of READs."""
