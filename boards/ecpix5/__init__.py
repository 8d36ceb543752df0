"""LambdaConcept ECPIX-5 with an LFE5UM5G-85F: gigabit Ethernet, and a PC behind a UART as host."""
