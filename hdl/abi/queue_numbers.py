"""The numbers of the virtqueues (VR-1.2), which ``hdl.abi.virtio_rdma`` shows as its own."""

__all__ = ["cq_queue", "event_queue", "qp_index", "queue_count", "rq_queue", "sq_queue"]


def queue_count(max_cq: int, max_qp: int) -> int:
    """Number of virtqueues without extensions: control, completion queues, send and receive pairs
    (VR-1.2)."""
    return 1 + max_cq + 2 * max_qp


def cq_queue(cqn: int) -> int:
    """Virtqueue of completion queue ``cqn`` (VR-3.11)."""
    return 1 + cqn


def qp_index(qpn: int, max_qp: int) -> int:
    """Index of the queue pair behind ``qpn``: its low bits, enough to count ``max_qp`` pairs.

    The upper bits of the 24 are the firmware's choice (VR-3.22).
    """
    return qpn & ((1 << (max_qp - 1).bit_length()) - 1)


def sq_queue(pair: int, max_cq: int) -> int:
    """Virtqueue of the send queue of pair ``pair`` (VR-3.22)."""
    return 1 + max_cq + 2 * pair


def rq_queue(pair: int, max_cq: int) -> int:
    """Virtqueue of the receive queue of pair ``pair`` (VR-3.22)."""
    return sq_queue(pair, max_cq) + 1


def event_queue(max_cq: int, max_qp: int) -> int:
    """Virtqueue of events, behind the last pair (E-20); extension EVENTS."""
    return queue_count(max_cq, max_qp)
