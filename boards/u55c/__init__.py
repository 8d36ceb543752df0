"""AMD Alveo U55C: an UltraScale+ card on PCI Express 3.0 with 16 lanes, QSFP28 at 100 Gb/s."""
