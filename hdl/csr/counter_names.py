"""Names of the counters and of the report words, in the order of their registers.

The gateware's members and the firmware's map both come from these tuples; ``hdl/counters.py``
connects each count with the place of its name.
"""

from __future__ import annotations

__all__ = [
    "COUNTERS",
    "COUNTER_INDEX",
    "DEBUG",
    "PORT_COUNTERS",
    "QP_COUNTERS",
    "QP_COUNTER_INDEX",
    "QP_COUNTER_SLOTS",
    "RDMA_CORE_NAMES",
    "merge_halves",
]

#: Of the port: what ingress, egress and loopback count.
PORT_COUNTERS: tuple[str, ...] = (
    "rx_packets",
    "rx_bytes_low",
    "rx_bytes_high",
    "rx_drops_frame",
    "rx_drops_short",
    "rx_drops_mac",
    "rx_drops_ethertype",
    "rx_drops_ip_header",
    "rx_drops_ipv4_checksum",
    "rx_drops_ip_length",
    "rx_drops_not_roce",
    "rx_drops_udp_length",
    "rx_drops_udp_checksum",
    "rx_drops_length",
    "rx_drops_tver",
    "rx_drops_opcode",
    "rx_drops_oversize",
    "rx_drops_pkey",
    "rx_drops_address",
    "rx_drops_icrc",
    "rx_drops_cnp",
    "rx_drops_buffer",
    "tx_packets",
    "tx_bytes_low",
    "tx_bytes_high",
    "loopback_packets",
)
#: Of the rooms behind them.
COUNTERS: tuple[str, ...] = (
    "unknown_qp",
    "wrong_function",
    "wrong_transport",
    "qp_state",
    "address_mismatch",
    "bad_pkey",
    "rx_send_requests",
    "rx_write_requests",
    "rx_read_requests",
    "duplicate_request",
    "duplicate_read_lost",
    "out_of_sequence",
    "out_of_buffer",
    "resp_remote_invalid_request",
    "resp_remote_access_errors",
    "resp_remote_operational_errors",
    "resp_local_length_error",
    "resp_cqe_error",
    "resp_cqe_flush_error",
    "packet_seq_err",
    "rnr_nak",
    "req_remote_invalid_request",
    "req_remote_access_errors",
    "req_remote_operational_errors",
    "implied_nak_seq_err",
    "unexpected_response",
    "bad_response",
    "local_ack_timeout_err",
    "req_transport_retries_exceeded",
    "req_rnr_retries_exceeded",
    "req_cqe_error",
    "req_cqe_flush_error",
    "requests_sent",
    "acks_sent",
    "naks_sent",
    "read_responses_sent",
    "gather_hits",
    "gather_misses",
    "gather_key_errors",
    "gather_read_errors",
    "gather_stale",
    "scatter_hits",
    "scatter_misses",
    "scatter_key_errors",
    "completions",
    "cq_overflows",
    "interrupts",
    "control_requests",
    "doorbell_drops",
    "merged_acks",
    "bad_qkey",
)
#: Bits of a counter's number: those of the port first, then the others.
COUNTER_INDEX = (len(PORT_COUNTERS + COUNTERS) - 1).bit_length()
#: Of these, what each QP counts for itself: all that the receive side says of a known QP.
QP_COUNTERS: tuple[str, ...] = COUNTERS[
    COUNTERS.index("wrong_transport") : COUNTERS.index("req_cqe_flush_error") + 1
]
#: Words of a QP in the table of its counters; those behind the last counter are free.
QP_COUNTER_SLOTS = 32
#: Bits of an index into that table: pair (14), then counter.
QP_COUNTER_INDEX = 14 + (QP_COUNTER_SLOTS - 1).bit_length()
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
        if name.endswith("_high"):
            merged[name.removesuffix("_high")] |= value << 32
        else:
            merged[name.removesuffix("_low")] = value
    return merged
