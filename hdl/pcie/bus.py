"""The block's user streams, by the names of their pins (PG213, "Port Descriptions")."""

from amaranth.hdl import Module
from amaranth.lib import data, stream
from amaranth.lib.wiring import In, Member, Out, Signature

from .descriptors import WIDTH, cc_user, cq_user, rc_user, rq_user
from .settings import mgmt_pins

__all__ = ["WORDS", "UserStream", "block_pins", "from_pins", "packet_beat", "to_pins"]

#: Words of a beat.
WORDS = WIDTH // 32


class UserStream(Signature):
    """An AXI4-Stream of the block, seen from its sender; ``user``: the layout of ``tuser``."""

    def __init__(self, user: data.StructLayout):
        super().__init__(
            {
                "tdata": Out(WIDTH),
                "tkeep": Out(WORDS),
                "tuser": Out(user.size),
                "tlast": Out(1),
                "tvalid": Out(1),
                "tready": In(1),
            }
        )


def block_pins() -> dict[str, Member]:
    """Members for what joins the block's user interface: its streams, the sequence numbers of
    requests that it has taken, the host's settings, the link partner's credits for reads, and the
    card's for those of the host."""
    return {
        "cq": In(UserStream(cq_user())),
        "cc": Out(UserStream(cc_user())),
        "rq": Out(UserStream(rq_user())),
        "rc": In(UserStream(rc_user())),
        **{f"rq_seq_num{n}": In(6) for n in range(2)},
        **{f"rq_seq_num_vld{n}": In(1) for n in range(2)},
        "max_payload": In(2),
        "max_read": In(3),
        "tfc_nph_av": In(4),
        "cq_np_req": Out(2),
        **mgmt_pins(),
    }


def packet_beat(user: data.StructLayout) -> data.StructLayout:
    """A beat of packets; ``keep`` marks the words of 32 bits that are valid."""
    return data.StructLayout({"data": WIDTH, "keep": WORDS, "user": user, "last": 1})


def to_pins(m: Module, beats: stream.Interface, pins) -> None:
    """Drive the block's input ``pins`` by a stream of ``packet_beat``."""
    m.d.comb += [
        pins.tdata.eq(beats.p.data),
        pins.tkeep.eq(beats.p.keep),
        pins.tuser.eq(beats.p.user),
        pins.tlast.eq(beats.p.last),
        pins.tvalid.eq(beats.valid),
        beats.ready.eq(pins.tready),
    ]


def from_pins(m: Module, pins, beats: stream.Interface) -> None:
    """Make a stream of ``packet_beat`` of the block's output ``pins``."""
    m.d.comb += [
        beats.p.data.eq(pins.tdata),
        beats.p.keep.eq(pins.tkeep),
        beats.p.user.eq(pins.tuser),
        beats.p.last.eq(pins.tlast),
        beats.valid.eq(pins.tvalid),
        pins.tready.eq(beats.ready),
    ]
