"""Names of the counters and of the report words, in the order of their registers.

The gateware's members and the firmware's map both come from these tuples; ``hdl/counters.py``
connects each count with the place of its name.
"""

from __future__ import annotations

from hdl.config import QP_BITS

__all__ = [
    "AROUND",
    "COUNTERS",
    "COUNTER_INDEX",
    "COUNTER_TEXTS",
    "HIGH",
    "LATENCY_BUCKETS",
    "LOW",
    "NET_COUNTERS",
    "NET_COUNTER_TEXTS",
    "DEBUG",
    "DROP_REASONS",
    "PORT_COUNTERS",
    "PUSH_COUNTS",
    "QP_COUNTERS",
    "QP_COUNTER_INDEX",
    "QP_COUNTER_SLOTS",
    "RDMA_CORE_NAMES",
    "merge_halves",
]

_RX_BYTES = "bytes of the packets that have passed, from the Ethernet header to the ICRC"
_TX_BYTES = "bytes of the frames built without an error, without their FCS"
#: Of the port: what ingress and egress count, and of what.
_PORT = {
    "rx_packets": "packets that have passed all checks",
    "rx_bytes_low": _RX_BYTES + ": the low half",
    "rx_bytes_high": _RX_BYTES + ": the high half",
    "rx_drops_frame": "dropped: the MAC has marked the frame (FCS, cut off)",
    "rx_drops_short": "dropped: ends before its IP header does, or before the IP length says",
    "rx_drops_mac": "dropped: another destination MAC address than the card's",
    "rx_drops_ethertype": "dropped: neither IPv4 nor IPv6, with at most one VLAN tag",
    "rx_drops_ip_header": "dropped: IP version, IPv4 header length other than 20, fragment",
    "rx_drops_ipv4_checksum": "dropped: wrong checksum of the IPv4 header",
    "rx_drops_ip_length": "dropped: IPv4 total length less than the header",
    "rx_drops_not_roce": "dropped: not UDP, or another destination port than 4791",
    "rx_drops_udp_length": "dropped: UDP length is not what the IP length says",
    "rx_drops_udp_checksum": "dropped: UDP checksum not zero and wrong",
    "rx_drops_length": "dropped: no room for the headers, no multiple of four, "
    "payload where none may be",
    "rx_drops_tver": "dropped: transport version not 0",
    "rx_drops_opcode": "dropped: opcode reserved, or of a transport that is not served",
    "rx_drops_oversize": "dropped: payload of more than 4096 bytes",
    "rx_drops_pkey": "dropped: P_Key of no partition",
    "rx_drops_address": "dropped: the destination address is not in the GID table",
    "rx_drops_icrc": "dropped: wrong ICRC",
    "rx_drops_cnp": "good congestion notifications, which go no further",
    "rx_drops_buffer": "dropped: good, but there was no room",
    "tx_packets": "frames built without an error",
    "tx_bytes_low": _TX_BYTES + ": the low half",
    "tx_bytes_high": _TX_BYTES + ": the high half",
}
#: Of the rooms behind them. Names as in rdma-core where it has one.
_ROOMS = {
    "unknown_qp": "no such QP number",
    "wrong_function": "the QP belongs to another function than the destination address",
    "wrong_transport": "opcode of another transport than the QP's, or a transport not served",
    "qp_state": "QP in RESET, INIT or in error, or a response before RTS",
    "address_mismatch": "addresses are not those of the QP's address vector",
    "bad_pkey": "P_Key does not match",
    "rx_send_requests": "SEND messages begun",
    "rx_write_requests": "WRITE messages begun",
    "rx_read_requests": "READ requests accepted",
    "duplicate_request": "request packets behind the expected PSN",
    "duplicate_read_lost": "of these, READs that match no READ held: dropped",
    "out_of_sequence": "request packets ahead of the expected PSN; UC: any other, or in no message",
    "out_of_buffer": "requests without a receive WQE: RNR NAK asked for; UC, UD: dropped",
    "resp_remote_invalid_request": "invalid requests: NAK 61h asked for; UC, UD: dropped",
    "resp_remote_access_errors": "requests with a bad key: NAK 62h asked for; UC: dropped",
    "resp_remote_operational_errors": "requests that a receive WQE failed: NAK 63h asked for, but "
    "of UC and UD",
    "resp_local_length_error": "receive WQEs too small for the message",
    "resp_cqe_error": "receive CQEs with an error, flushed ones too",
    "resp_cqe_flush_error": "of these, flushed ones",
    "packet_seq_err": "NAK 60h received",
    "rnr_nak": "RNR NAKs received",
    "req_remote_invalid_request": "NAK 61h received",
    "req_remote_access_errors": "NAK 62h received",
    "req_remote_operational_errors": "NAK 63h received",
    "implied_nak_seq_err": "responses that show an earlier READ response to be lost",
    "unexpected_response": "responses that answer nothing outstanding: dropped",
    "bad_response": "READ responses of a wrong length or opcode order",
    "local_ack_timeout_err": "answers that did not come in time",
    "req_transport_retries_exceeded": "WQEs that ended because they were sent again too often",
    "req_rnr_retries_exceeded": "WQEs that ended because the peer was not ready too often",
    "req_cqe_error": "send CQEs with an error, flushed ones too",
    "req_cqe_flush_error": "of these, flushed ones",
    "requests_sent": "request packets sent",
    "acks_sent": "ACKs sent",
    "naks_sent": "NAKs sent, RNR NAKs too",
    "read_responses_sent": "packets of READ responses sent, results of atomics too",
    "gather_hits": "page addresses of payload to send that the cache had",
    "gather_misses": "page addresses of payload to send that were read from page lists",
    "gather_key_errors": "keys of payload to send that were bad, or their ranges",
    "gather_read_errors": "host reads of payload to send that failed",
    "gather_stale": "packets dropped before they were sent, as their QP had gone back meanwhile",
    "scatter_hits": "page addresses of received payload that the cache had",
    "scatter_misses": "page addresses of received payload that were read from page lists",
    "scatter_key_errors": "keys of received payload that were bad, or their ranges",
    "completions": "CQEs written",
    "cq_overflows": "CQEs lost",
    "interrupts": "interrupts of completion queues",
    "control_requests": "control requests given to the firmware",
    "doorbell_drops": "doorbells of queues that do not exist, or of pair 0",
    "merged_acks": "ACKs received that a later one has replaced while they waited",
    "bad_qkey": "Q_Key of a datagram is not the QP's",
    "loopback_packets": "frames that the card has sent to itself: they count as sent and received",
    "rx_drops_multicast": "dropped: to the multicast address of no group with members",
    "rx_drops_unclaimed": "dropped: the members of its multicast group had all left meanwhile",
    "rx_multicast_copies": "copies of multicast datagrams, one for each member of a group",
    "loopback_copies": "frames to groups that have gone to the wire and to the card itself",
    "loopback_drops": "frames to groups that had no room to go to the card itself too",
    "queue_errors": "errors found in rings of virtqueues, each time that one is found",
}
#: Of what is between the card's core and its bus and MAC; 0 where nothing there counts so.
_AROUND = {
    "mac_tx_drops": "frames dropped on their way to the MAC, as there was no link, or cut off",
    "mac_rx_drops": "received frames that found no room on their way from the MAC, or too long",
    "bus_resets": "function-level resets of guest functions",
    "bus_refused_requests": "accesses of the host that are none of a register",
    "bus_lost_writes": "writes to host memory that were dropped, or that memory refused",
    "bus_refused": "reads of host memory that were refused",
    "bus_poisoned": "reads of host memory whose data were marked as bad",
    "bus_timeouts": "reads of host memory that did not end in time",
    "bus_malformed": "reads of host memory with an answer that is broken or at a wrong place",
    "bus_unexpected": "answers to no read of host memory: dropped",
    "bus_denials": "reads of host memory that could not be asked for, as no tag was left or the "
    "function is no bus master",
    "bus_tags_quarantined": "tags of reads of host memory that were put aside, as an answer may "
    "still come",
    "bus_tags_returned": "of these, those that are in use again",
}
_NET_RX_BYTES = "bytes of the frames written to buffers of the network function's driver"
_NET_TX_BYTES = "bytes of the frames sent for the network function's driver"
#: Of the network function, in the block of its registers on a card that has one.
NET_COUNTER_TEXTS = {
    "net_rx_frames": "frames written to buffers of the network function's driver",
    "net_rx_bytes_low": _NET_RX_BYTES + ": the low half",
    "net_rx_bytes_high": _NET_RX_BYTES + ": the high half",
    "net_rx_drops_buffer": "frames for the network function that found no room on the card",
    "net_rx_drops_queue": "frames for which the network function's driver had no buffer",
    "net_rx_filtered": "frames that the network function's driver does not want",
    "net_tx_frames": "frames sent for the network function's driver",
    "net_tx_bytes_low": _NET_TX_BYTES + ": the low half",
    "net_tx_bytes_high": _NET_TX_BYTES + ": the high half",
    "net_tx_errors": "chains of the network function's driver that are no frame: bad, too long, "
    "too short, or not to be read",
}
NET_COUNTERS: tuple[str, ...] = tuple(NET_COUNTER_TEXTS)
#: End the names of the halves of a counter of 64 bits.
LOW, HIGH = "_low", "_high"
PORT_COUNTERS: tuple[str, ...] = tuple(_PORT)
#: Those of the adapters around the core, the last ones.
AROUND: tuple[str, ...] = tuple(_AROUND)
COUNTERS: tuple[str, ...] = (*_ROOMS, *AROUND)
#: Counter -> what it counts; those of 64 bits also by the name of both halves together.
COUNTER_TEXTS: dict[str, str] = (
    _PORT | _ROOMS | _AROUND | {"rx_bytes": _RX_BYTES, "tx_bytes": _TX_BYTES}
)
#: Why the ingress drops a frame: the names of the counters, in their order.
DROP_REASONS: tuple[str, ...] = tuple(name for name in COUNTER_TEXTS if "rx_drops_" in name)
#: Bits of a counter's number: those of the port first, then the others.
COUNTER_INDEX = (len(PORT_COUNTERS + COUNTERS) - 1).bit_length()
#: Of these, what each QP counts for itself: all that the receive side says of a known QP.
QP_COUNTERS: tuple[str, ...] = COUNTERS[
    COUNTERS.index("wrong_transport") : COUNTERS.index("req_cqe_flush_error") + 1
]
#: Words of a QP in the table of its counters; those behind the last counter are free.
QP_COUNTER_SLOTS = 32
#: Bits of an index into that table: pair (14), then counter.
QP_COUNTER_INDEX = QP_BITS + (QP_COUNTER_SLOTS - 1).bit_length()
#: What becomes of pushes (extension PUSH), each by its count.
PUSH_COUNTS = {
    "taken": "WQEs that came with their doorbell and were not read from host memory",
    "torn": "pieces that were not written whole, or whose mark cannot be",
    "incomplete": "pushes of which a piece did not come in time",
    "replaced": "pushes whose place a later one has taken",
    "late": "pushes of another position than the one that was asked for next",
    "behind": "pushes that found WQEs on their way from host memory, which go first",
    "unfit": "pushes with a head that no descriptor has, or of a queue that is not enabled",
    "refused": "pieces of a function that may not push, or for pair 0",
}
#: Counts of a histogram: number n is of 2**(n - 1) cycles up to below 2**n, number 0 of none.
LATENCY_BUCKETS = 23
#: State of the rooms, for reports about a stall.
DEBUG: tuple[str, ...] = ()

#: Ours to rdma-core's name (as the port's counters and ``rdma statistic`` show it) where the two
#: differ. Bytes become words of four there.
RDMA_CORE_NAMES: dict[str, str] = {
    "rx_packets": "port_rcv_packets",
    "rx_bytes": "port_rcv_data",
    "tx_packets": "port_xmit_packets",
    "tx_bytes": "port_xmit_data",
    "rx_drops_icrc": "rx_icrc_encapsulated",
    "rnr_nak": "rnr_nak_retry_err",
}


def merge_halves(words: dict[str, int]) -> dict[str, int]:
    """Counters of 64 bits in one: ``<name>_low`` and ``<name>_high`` become ``<name>``."""
    merged: dict[str, int] = {}
    for name, value in words.items():
        if name.endswith(HIGH):
            merged[name.removesuffix(HIGH)] |= value << 32
        else:
            merged[name.removesuffix(LOW)] = value
    return merged
