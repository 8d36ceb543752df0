"""Intel's P-Tile as the host port's bus: the framing of its Avalon streams."""
