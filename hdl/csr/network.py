"""The register blocks of a card that has a network function."""

from __future__ import annotations

from hdl.abi.virtio_net import HASH_KEY_BYTES, HASH_TYPES, MTU, RSS_TABLE, TYPE_FEATURES
from hdl.config import NET_ADDRESSES, NicConfig
from hdl.ports.counter_names import NET_COUNTER_TEXTS, NET_COUNTERS

from .describe import Block, Register, const, pulse, ro, rw, wo, words
from .kinds import Kind
from .mailbox_block import MAILBOX_WORDS, mailbox

__all__ = [
    "NET_ENTRIES",
    "NET_MODES",
    "NET_REQUEST_WORDS",
    "network",
    "network_blocks",
]

#: Entries of the table of queues in a register.
NET_ENTRIES = 8
#: Words of a request in its mailbox: the longest says how frames are spread.
NET_REQUEST_WORDS = 2 * MAILBOX_WORDS
#: Fields of `mode`, which are the switches of ``NetworkSettings``.
NET_MODES = {
    "promiscuous": "all frames are received",
    "all_multicast": "all frames to groups are received",
    "all_unicast": "all frames to one station are received",
    "no_multicast": "no frames to groups are received",
    "no_unicast": "no frames to one station are received",
    "no_broadcast": "no frames to all stations are received",
}


def _steering() -> tuple[Register, ...]:
    """How frames are spread over several pairs of queues."""
    keys = range(HASH_KEY_BYTES // 4)
    return (
        Register(
            "steering",
            (
                rw("types", HASH_TYPES, "HashType: which packets have a hash"),
                rw("mask", (RSS_TABLE - 1).bit_length(), "bits of a hash that choose an entry"),
                rw("other", 3, "pair of frames without a hash"),
            ),
            "which pair of queues a frame goes to",
        ),
        *(
            Register(f"key{n}", (wo("value", 32, "key of the hash, its first byte in bits 7:0"),))
            for n in keys
        ),
        *(
            Register(
                f"entries{n}",
                (wo("value", 32, f"pair of hash {NET_ENTRIES * n} in bits 3:0, and so on"),),
            )
            for n in range(RSS_TABLE // NET_ENTRIES)
        ),
    )


def network(config: NicConfig) -> Block:
    """State of the network function, and what firmware and operator have set of it."""
    address = "bytes 0 to 3, first wire byte in bits 7:0"
    return Block(
        "network",
        Kind.NETWORK,
        (
            Register("pairs", (const("value", 32, config.network, "pairs of queues"),)),
            Register("resets", (ro("value", 32, "device resets, counted as they begin"),)),
            Register(
                "status",
                (
                    ro("device", 8, "virtio device status"),
                    ro("resetting", 1, "a device reset has begun and is not complete"),
                    ro("waits", 1, "the reset waits for `reset_done`"),
                ),
                "state of the function as its driver and the firmware have set it",
            ),
            Register(
                "features",
                (ro("value", 32, "negotiated, the first"),),
            ),
            Register("features_high", (ro("value", TYPE_FEATURES - 32, "negotiated, the others"),)),
            Register(
                "needs_reset",
                (
                    ro("queue", 16, "virtqueue that was stopped first"),
                    ro("cause", 4, "QueueErrorCause: why it was stopped"),
                    ro("active", 1, "DEVICE_NEEDS_RESET is set"),
                ),
                "why the function needs a device reset",
            ),
            Register(
                "control",
                (pulse("reset_done", 1, "the settings are as after reset: the reset may end"),),
            ),
            Register("mtu", (rw("value", 16, "MTU that the driver is told, bytes", reset=MTU),)),
            Register(
                "mode",
                (
                    *(rw(name, 1, text) for name, text in NET_MODES.items()),
                    rw("own_mac", 1, "the address is `mac_low`, `mac_high`; else it is the port's"),
                ),
                "which frames are received",
            ),
            Register("mac_low", (rw("value", 32, f"MAC address: {address}"),)),
            Register("mac_high", (rw("value", 16, "MAC address: bytes 4 and 5"),)),
            *(
                register
                for n in range(NET_ADDRESSES)
                for register in (
                    Register(f"address{n}_low", (rw("value", 32, f"received: {address}"),)),
                    Register(
                        f"address{n}_high",
                        (
                            rw("value", 16, "bytes 4 and 5"),
                            rw("valid", 1, "frames to this address are received"),
                        ),
                        "the rest of the address",
                    ),
                )
            ),
            *(_steering() if config.network > 1 else ()),
            *words(NET_COUNTERS, NET_COUNTER_TEXTS, remote=True),
        ),
        "network function",
    )


def network_blocks(config: NicConfig) -> dict[str, Block]:
    """The blocks that a card has with a network function, by name."""
    if not config.network:
        return {}
    return {
        "network": network(config),
        "network_mailbox": mailbox(config, "network_mailbox", posts=False, words=NET_REQUEST_WORDS),
    }
