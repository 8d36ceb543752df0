"""Every counter of the rooms, to where software reads it."""

from hdl.csr.counter_names import COUNTERS, PORT_COUNTERS
from hdl.ingress.counters import IngressCounters
from hdl.transport.receive_types import COUNTERS as RECEIVE_COUNTERS

__all__ = ["connect_counters"]


def connect_counters(m, management, virtio, ingress, receive, others) -> None:
    """Every counter of the rooms to the register of its name, and to the guest's driver."""
    port = {}
    for name in IngressCounters.as_shape().members:
        value = getattr(ingress, name)
        if len(value) > 32:
            port[f"rx_{name}_low"], port[f"rx_{name}_high"] = value[:32], value[32:]
        else:
            port[f"rx_{name}"] = value
    port["tx_packets"] = others.pop("tx_packets")
    sent = others.pop("tx_bytes")
    port["tx_bytes_low"], port["tx_bytes_high"] = sent[:32], sent[32:]
    rooms = {name: receive[name] for name in RECEIVE_COUNTERS} | others
    for members, values, names in (
        (management.port, port, PORT_COUNTERS),
        (management.counters, rooms, COUNTERS),
    ):
        if set(values) != set(names):
            raise ValueError(
                f"Counters without a register or source: {sorted(set(values) ^ set(names))}"
            )
        for name, value in values.items():
            place = (PORT_COUNTERS + COUNTERS).index(name)
            m.d.comb += [getattr(members, name).eq(value), virtio.counters[place].eq(value)]
