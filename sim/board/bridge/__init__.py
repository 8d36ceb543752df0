"""Firmware and driver on a PC, for a board behind a UART; verbs as JSON lines."""
