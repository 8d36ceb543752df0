"""A whole board in Verilator: its UART as a pseudo terminal, its Ethernet as a unix socket."""
