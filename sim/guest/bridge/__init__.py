"""The host of a board without a bus: registers and memory through the bridge's UART.

Gives driver and firmware the same services as a simulated host (``sim.guest.driver.platform``).
Gateware: ``hdl/bridge``; the protocol: docs/bridge.md.
"""
