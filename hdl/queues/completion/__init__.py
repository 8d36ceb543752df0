"""Used elements, CQEs and interrupts."""
