"""The register blocks by which a running card is watched; they are there with their switches."""

from __future__ import annotations

from hdl.config import TRACE_BYTES, NicConfig
from hdl.ports.counter_names import DROP_REASONS, LATENCY_BUCKETS, PUSH_COUNTS

from .describe import Access, Block, Register, Window, pulse, ro, rw, w1c, words
from .kinds import Kind

__all__ = [
    "PARITY_TABLES",
    "latency",
    "parity",
    "push",
    "trace",
    "watching",
]

#: Tables whose rows have parity, in the order of the bits of `parity.tables`.
PARITY_TABLES = (
    "qp_cfg",
    "qp_fetch",
    "qp_tx",
    "qp_ack",
    "qp_rx",
    "qp_rx_ahead",
    "qp_reply",
    "resources",
    "mrs",
    "qp_sent",
)


def trace(config: NicConfig) -> Block:
    """The headers of the last frames of each direction."""
    index = (config.trace_frames - 1).bit_length()
    ring = (
        ro("next", index, "slot of the next frame"),
        ro("full", 1, "all slots have been used; the oldest frame is behind `next`"),
    )
    return Block(
        "trace",
        Kind.TRACE,
        (
            Register(
                "control",
                (
                    pulse("start", 1, "empties both rings; frames that begin are recorded"),
                    pulse("stop", 1, "frames that begin are not recorded any more"),
                ),
                "starts and stops the trace",
            ),
            Register(
                "snap",
                (rw("value", 8, "bytes of a frame that are stored at least", reset=TRACE_BYTES),),
            ),
            Register(
                "stop_reasons",
                (rw("value", len(DROP_REASONS), "as `facts.reason`: bit 0 is reason 1"),),
                "a received frame that is dropped for one of these reasons stops the trace",
            ),
            Register(
                "status",
                (
                    ro("running", 1, "frames that begin are recorded"),
                    ro("dropped", 1, "one of `stop_reasons` has stopped it"),
                ),
                "whether the trace runs",
            ),
            Register("sent", ring, "ring of the frames that the card has sent"),
            Register("received", ring, "ring of the frames that have come"),
            Register("now_low", (ro("value", 32, "cycles of the core's clock"),)),
            Register("now_high", (ro("value", 16, "upper bits of `now_low`"),)),
            Register(
                "select",
                (
                    rw("frame", index, "slot of the frame"),
                    rw("received", 1, "it is one of the frames that have come"),
                ),
                "the frame that is read below",
            ),
            Register("time_low", (ro("value", 32, "when its first beat has passed, in cycles"),)),
            Register("time_high", (ro("value", 16, "upper bits of `time_low`"),)),
            Register(
                "facts",
                (
                    ro("length", 16, "bytes without FCS"),
                    ro("reason", 5, "0: not dropped; n: by the n-th counter that is a drop"),
                    ro("error", 1, "the frame was marked as bad"),
                ),
                "what is known of the frame",
            ),
            Window("data", TRACE_BYTES // 4, Access.RO, "its first bytes, little-endian", slow=1),
        ),
        "headers of the last frames",
    )


def latency() -> Block:
    """The histograms of latencies."""

    def histogram(name: str, what: str) -> tuple[Register | Window, ...]:
        return (
            Register(f"{name}_sum_low", (ro("value", 32),), f"{what}: sum of all samples, cycles"),
            Register(f"{name}_sum_high", (ro("value", 16),), f"upper bits of `{name}_sum_low`"),
            Window(
                f"{name}_counts",
                LATENCY_BUCKETS,
                Access.RO,
                f"{what}: word n counts samples below 2**n cycles that no word before has",
            ),
        )

    return Block(
        "latency",
        Kind.LATENCY,
        (*histogram("send", "from doorbell to wire"), *histogram("receive", "from wire to host")),
        "histograms of latencies",
    )


def parity() -> Block:
    """What has been found wrong in the tables."""
    return Block(
        "parity",
        Kind.PARITY,
        (
            Register(
                "errors",
                (ro("value", 16, "reads of rows with a wrong bit, until the card stood still"),),
            ),
            Register(
                "tables",
                (w1c("value", len(PARITY_TABLES), ", ".join(PARITY_TABLES)),),
                "tables in which there was such a row",
            ),
            Register("status", (ro("broken", 1, "the rooms stand still until a device reset"),)),
            Register(
                "control",
                (rw("spoil", 1, "rows that the firmware commits get a wrong bit 0, for a test"),),
            ),
        ),
        "wrong bits in the tables",
    )


def push() -> Block:
    """What has become of pushes."""
    return Block(
        "push",
        Kind.PUSH,
        words(tuple(PUSH_COUNTS), PUSH_COUNTS),
        "WQEs that came with their doorbell; the counts wrap at 2**32",
    )


def watching(config: NicConfig) -> dict[str, Block]:
    """The blocks that a card of this configuration has, by name."""
    found = {"trace": trace(config)} if config.trace_frames else {}
    found |= {"latency": latency()} if config.latency else {}
    found |= {"push": push()} if config.push else {}
    return found | ({"parity": parity()} if config.parity else {})
