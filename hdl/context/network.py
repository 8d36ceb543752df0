"""The network function's registers: what the card shows there, and what it is told there."""

from amaranth.hdl import Cat
from amaranth.lib.wiring import connect, flipped

from hdl.abi.virtio_net import HASH_KEY_BYTES, RSS_TABLE
from hdl.config import NET_ADDRESSES
from hdl.csr.network import NET_ENTRIES, NET_MODES
from hdl.ports.counter_names import HIGH, LOW, NET_COUNTERS

__all__ = ["connect_network"]


def connect_network(m, management, bank, tables) -> None:
    """Connect the blocks ``network`` and ``network_mailbox`` of ``management``, and the counters in
    ``bank``, to the members of ``tables`` for the network function."""
    block, status = management.network, tables.network_status
    _mailbox(m, management.network_mailbox, tables.network_mailbox)
    connect(m, management.network_counted, bank.program)
    settings, counts = tables.network.settings, tables.network.counts
    own_mac = Cat(block.mac_low, block.mac_high)
    shown = {
        "resets": status.reset_count,
        "status_device": status.status,
        "status_resetting": status.resetting,
        "status_waits": status.reset_request,
        "features": status.features[:32],
        "features_high": status.features[32:],
        "needs_reset_queue": status.needs_reset_queue,
        "needs_reset_cause": status.needs_reset_cause,
        "needs_reset_active": status.needs_reset,
    }
    m.d.comb += [getattr(block, name).eq(value) for name, value in shown.items()]
    m.d.comb += [getattr(settings, name).eq(getattr(block, f"mode_{name}")) for name in NET_MODES]
    for n in range(NET_ADDRESSES):
        low, high = getattr(block, f"address{n}_low"), getattr(block, f"address{n}_high")
        m.d.comb += [
            settings.table[n].address.eq(Cat(low, high)),
            settings.table[n].valid.eq(getattr(block, f"address{n}_high_valid")),
        ]
    m.d.comb += [
        settings.mac.eq(tables.mac_address),
        settings.running.eq(status.driver_ok & ~status.needs_reset),
        status.mac.eq(settings.mac),
        status.link.eq(tables.link_up),
        status.mtu.eq(block.mtu),
        status.reset_done.eq(block.control_reset_done),
    ]
    if hasattr(block, "steering_types"):
        _steering(m, block, settings.steering)
    with m.If(block.mode_own_mac):
        m.d.comb += settings.mac.eq(own_mac)
    for place, name in enumerate(NET_COUNTERS):
        if name.endswith(HIGH):
            m.d.comb += bank.values[place].eq(0)
        else:
            m.d.comb += bank.values[place].eq(counts[name.removesuffix(LOW)])


def _steering(m, block, steering) -> None:
    """How frames are spread over several pairs, of whose registers each entry has four bits."""
    bits = 32 // NET_ENTRIES
    words = [getattr(block, f"entries{n}") for n in range(RSS_TABLE // NET_ENTRIES)]
    entries = [word[at : at + bits] for word in words for at in range(0, 32, bits)]
    m.d.comb += [
        *(
            getattr(steering, name).eq(getattr(block, f"steering_{name}"))
            for name in ("types", "mask", "other")
        ),
        steering.key.eq(Cat(getattr(block, f"key{n}") for n in range(HASH_KEY_BYTES // 4))),
        *(pair.eq(entry) for pair, entry in zip(steering.table, entries, strict=True)),
    ]


def _mailbox(m, mailbox, engine) -> None:
    """Connect a mailbox without events to its control engine."""
    connect(m, flipped(engine.request), mailbox.request)
    connect(m, flipped(engine.response), mailbox.response)
    m.d.comb += [
        mailbox.pending.eq(engine.pending),
        mailbox.function.eq(engine.function),
        mailbox.request_length.eq(engine.request_length),
        mailbox.writable_length.eq(engine.writable_length),
        engine.response_length.eq(mailbox.response_length),
        engine.done.eq(mailbox.done),
    ]
