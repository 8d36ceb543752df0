"""AXI on both sides of the card: memory and registers on the host's, frames on the MAC's."""
