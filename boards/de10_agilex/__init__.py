"""Terasic DE10-Agilex: PCI Express by P-Tile, 100 Gb/s by E-tile."""
