"""The space of cards: its points, its front, what is measured of a card."""
