"""Every counter of the rooms, to where software reads it."""

from hdl.csr.counter_names import COUNTERS, PORT_COUNTERS
from hdl.ingress.counters import IngressCounters
from hdl.transport.receive_types import COUNTERS as RECEIVE_COUNTERS

__all__ = ["connect_counters"]


def connect_counters(m, management, virtio, **rooms) -> None:
    """Every counter of the ``rooms`` to the register of its name, and to the guest's driver."""
    ingress, egress = rooms["ingress"].counters, rooms["egress"].counters
    gather, scatter = rooms["gather"], rooms["scatter"]
    port = {}
    for name in IngressCounters.as_shape().members:
        value = getattr(ingress, name)
        if len(value) > 32:
            port[f"rx_{name}_low"], port[f"rx_{name}_high"] = value[:32], value[32:]
        else:
            port[f"rx_{name}"] = value
    port["tx_packets"] = egress.packets
    port["tx_bytes_low"], port["tx_bytes_high"] = egress.bytes[:32], egress.bytes[32:]
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
    for members, values, names in (
        (management.port, port, PORT_COUNTERS),
        (management.counters, others, COUNTERS),
    ):
        if set(values) != set(names):
            raise ValueError(
                f"Counters without a register or source: {sorted(set(values) ^ set(names))}"
            )
        for name, value in values.items():
            place = (PORT_COUNTERS + COUNTERS).index(name)
            m.d.comb += [getattr(members, name).eq(value), virtio.counters[place].eq(value)]
