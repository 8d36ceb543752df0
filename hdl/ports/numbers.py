"""The card's numbers of objects, and their numbers in the function that owns them.

A function numbers its QPs, CQs, memory regions and virtqueues from 0, as if it had a card of its
own (``NicConfig.guest``). The card's number is ``{ordinal of the function, number in it}``, so a
function can name nobody else's object. With one function both numbers are the same.
"""

from amaranth.hdl import Cat, Const, Mux, Value, unsigned

from hdl.config import CQ_BITS, FUNCTION_NET, FUNCTION_RDMA, QP_BITS, NicConfig

__all__ = [
    "CqNumber",
    "QpNumber",
    "card_number",
    "completion_queue",
    "function_of",
    "number_in",
    "of_function",
    "ordinal_in",
    "ordinal_of",
    "receive_queue",
    "send_queue",
]

#: The card's number of a QP (its pair index) and of a CQ.
QpNumber, CqNumber = unsigned(QP_BITS), unsigned(CQ_BITS)


def ordinal_of(config: NicConfig, function: Value) -> Value:
    """The ordinal of a guest function by its PCI number."""
    return (function - FUNCTION_RDMA)[: config.ordinal_bits]


def function_of(ordinal: Value) -> Value:
    """The PCI number of the guest function with this ordinal."""
    return (ordinal + FUNCTION_RDMA)[:8]


def of_function(config: NicConfig, bits: Value, function: Value) -> Value:
    """Of ``bits``, one for each guest function and perhaps the network function's behind them, that
    of ``function``."""
    if len(bits) > config.functions:
        guests = of_function(config, bits[: config.functions], function)
        return Mux(function == FUNCTION_NET, bits[config.functions], guests)
    if config.functions == 1:
        return bits
    return bits.bit_select(ordinal_of(config, function), 1)


def card_number(config: NicConfig, kind: str, ordinal: Value, number: Value) -> Value:
    """The card's number of an object. ``kind`` is a key of ``NicConfig.number_bits``; higher bits
    of ``number`` mean nothing."""
    bits = config.number_bits[kind]
    low = number[:bits]
    return Cat(low, Const(0, bits - len(low)), ordinal[: config.ordinal_bits])


def number_in(config: NicConfig, kind: str, number: Value) -> Value:
    """The number in its function of the object with the card's ``number``."""
    return number[: config.number_bits[kind]]


def ordinal_in(config: NicConfig, kind: str, number: Value) -> Value:
    """The ordinal of the function of the object with the card's ``number``."""
    first = config.number_bits[kind]
    return number[first : first + config.ordinal_bits]


def _queue_of(config: NicConfig, kind: str, number: Value, queue: Value) -> Value:
    card = card_number(config, "queues", ordinal_in(config, kind, number), queue)
    return Cat(card, Const(0, 16 - len(card)))


def completion_queue(config: NicConfig, cq: Value) -> Value:
    """The card's number of the virtqueue of a CQ (VR-3.11)."""
    return _queue_of(config, "cqs", cq, config.cq_queue(0) + number_in(config, "cqs", cq))


def send_queue(config: NicConfig, qp: Value) -> Value:
    """The card's number of the send queue of a pair (VR-3.22)."""
    own = number_in(config, "qps", qp)
    return _queue_of(config, "qps", qp, config.sq_queue(0) + (own << 1))


def receive_queue(config: NicConfig, qp: Value) -> Value:
    """The card's number of the receive queue of a pair (VR-3.22)."""
    own = number_in(config, "qps", qp)
    return _queue_of(config, "qps", qp, config.rq_queue(0) + (own << 1))
