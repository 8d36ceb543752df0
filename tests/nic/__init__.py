"""Tests of the whole NIC: driver, firmware and gateware."""
