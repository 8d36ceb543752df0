"""Every counter of the rooms, to where it is added up."""

from hdl.csr.counter_names import COUNTERS, PORT_COUNTERS
from hdl.ingress.counters import IngressCounters
from hdl.transport.receive_types import COUNTERS as RECEIVE_COUNTERS

__all__ = ["NAMES", "connect_counters"]

#: In the order of their numbers.
NAMES = PORT_COUNTERS + COUNTERS


def connect_counters(m, bank, **rooms) -> None:
    """Every counter of the ``rooms`` to the place of its name in ``bank`` (``CounterBank``)."""
    ingress, egress = rooms["ingress"].counters, rooms["egress"].counters
    gather, scatter = rooms["gather"], rooms["scatter"]
    port = {}
    for name in IngressCounters.as_shape().members:
        port[f"rx_{name}"] = getattr(ingress, name)
    port["tx_packets"], port["tx_bytes"] = egress.packets, egress.bytes
    for side in ("rx", "tx"):
        port[f"{side}_bytes_low"], port[f"{side}_bytes_high"] = port.pop(f"{side}_bytes"), 0
    others = {
        "requests_sent": rooms["requester"].packets,
        "acks_sent": rooms["replier"].acks,
        "naks_sent": rooms["replier"].naks,
        "read_responses_sent": rooms["replier"].read_packets,
        "gather_hits": gather.hits,
        "gather_misses": gather.misses,
        "gather_key_errors": gather.key_errors,
        "gather_read_errors": gather.read_errors,
        "scatter_hits": scatter.hits,
        "scatter_misses": scatter.misses,
        "scatter_key_errors": scatter.key_errors,
        "completions": rooms["completion"].completions,
        "cq_overflows": rooms["completion"].overflows,
        "interrupts": rooms["completion"].interrupts,
        "control_requests": rooms["control"].requests,
        "doorbell_drops": rooms["doorbells"].drops,
        "merged_acks": rooms["receive"].merged_acks,
    }
    others |= {name: rooms["receive"].counters[name] for name in RECEIVE_COUNTERS}
    values = port | others
    if set(values) != set(NAMES):
        raise ValueError(f"Counters without a name or source: {sorted(set(values) ^ set(NAMES))}")
    for place, name in enumerate(NAMES):
        m.d.comb += bank.values[place].eq(values[name])
