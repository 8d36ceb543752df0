"""The numbers of the register blocks."""

__all__ = ["Kind"]


class Kind:
    """Block numbers, as in the ``id`` register."""

    CORE = 1
    PORT = 2
    MAILBOX = 3
    COMMAND = 4
    COUNTERS = 5
    DEBUG = 6
    TABLE = 7
    TRACE = 8
    LATENCY = 9
    PARITY = 10
    CONTEXT = 11
    NETWORK = 12
    PUSH = 13
    CONNECTIONS = 14
