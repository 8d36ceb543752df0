"""Every counter of the boxes and of the network side, to where it is added up."""

from hdl.context.tables import NAMES
from hdl.ingress.counters import IngressCounters
from hdl.mac.border import LOOPBACK_COUNTERS
from hdl.ports.counter_names import AROUND

__all__ = ["connect_counters"]


def connect_counters(m, tables, *, ingress, egress, border, boxes, around) -> None:
    """Every counter to the place of its name in ``tables.values``.

    ``boxes``: components whose ``counts`` are named as the counters are; ``around``: counts of the
    adapters that the card has, by their names; those of others stay 0.
    """
    values = {f"rx_{name}": getattr(ingress, name) for name in IngressCounters.as_shape().members}
    values |= {"tx_packets": egress.packets, "tx_bytes": egress.bytes}
    values |= {name: getattr(border, name) for name in LOOPBACK_COUNTERS}
    values |= dict.fromkeys(AROUND, 0) | around
    for side in ("rx", "tx"):
        values[f"{side}_bytes_low"], values[f"{side}_bytes_high"] = values.pop(f"{side}_bytes"), 0
    for box in boxes:
        values |= {name: box.counts[name] for name in box.counts.shape().members}
    if set(values) != set(NAMES):
        raise ValueError(f"Counters without a name or source: {sorted(set(values) ^ set(NAMES))}")
    for place, name in enumerate(NAMES):
        m.d.comb += tables.values[place].eq(values[name])
