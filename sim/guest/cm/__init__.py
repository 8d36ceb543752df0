"""A connection manager on the driver's side (docs/cm.md)."""
