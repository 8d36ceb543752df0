"""What the control engine knows of its queues, and of the chain at hand."""

from amaranth.lib import data

from hdl.ports.jobs import QueueErrorCause

__all__ = ["ControlChain", "ControlJob", "ControlQueue"]


class ControlQueue(data.Struct):
    """How far a function's control queue has been served."""

    position: 16  # of the next chain
    known: 16  # avail index
    used_index: 16
    wake: 1  # there may be something at ``position``
    stopped: 1  # the ring is broken


class ControlJob(data.Struct):
    """The queue at hand, and where it is."""

    post: 1  # the firmware's, not a request
    function: 8
    queue: 16
    position: 16
    known: 16
    used_index: 16
    length: 16  # of the response


class ControlChain(data.Struct):
    """The chain at hand."""

    head: 16
    cause: QueueErrorCause  # what is wrong with it
    reading: 1  # its readable buffers are not at their end
    ended: 1  # all of its buffers have come,
    done: 1  # and the writer's total is there
    element_done: 1  # all words of the request have been written
    upper: 1  # next is the upper half of the element's word,
    place: 5  # and this word of the request
