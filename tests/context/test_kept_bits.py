"""Rows of which a card keeps a part."""

from amaranth.hdl import Shape
from amaranth.lib import data

from hdl.config import NicConfig
from hdl.context.table import Table
from hdl.ports.headers import AddressVector
from hdl.ports.rows import MrRow, QpCfg, QpRx, QpTx, QueueRow, ReadResource, kept_bits
from tests.simulate import simulate

ROWS = {
    "mrs": MrRow,
    "qp_cfg": QpCfg,
    "qp_tx": QpTx,
    "qp_rx": QpRx,
    "qp_rx_ahead": QpRx,
    "queues": QueueRow,
    "resources": ReadResource,
}


def left_out(config):
    """Table -> the bits of its rows that a card does not keep."""
    wide = {name: (1 << Shape.cast(row).width) - 1 for name, row in ROWS.items()}
    # The rules of a ring are its function's: no queue's row keeps them.
    rules = data.Layout.cast(QueueRow)["rules"]
    wide["queues"] &= ~(((1 << rules.width) - 1) << rules.offset)
    return {name: ~kept & wide[name] for name, kept in kept_bits(config).items()}


def test_a_card_with_everything_keeps_all():
    card = NicConfig(
        page_sizes=True, two_level=True, mw=True, placement=True, memcpy=True, xrc=True
    )
    assert set(left_out(card).values()) == {0}


def test_of_a_short_address_the_bits_that_can_be_set():
    out = left_out(NicConfig(address_bits=24, placement=True, memcpy=True, xrc=True))
    va = data.Layout.cast(QpRx)["va"]
    assert out["qp_rx"] == out["qp_rx_ahead"] == ((1 << 64) - (1 << 25)) << va.offset
    assert out["queues"].bit_count() == 3 * 40
    assert out["mrs"] and not out["qp_cfg"]


def test_without_ipv6_the_address_alone():
    """What the GIDs of all IPv4 addresses begin with, and a label that no header carries."""
    out = (
        left_out(NicConfig(ipv6=False, placement=True, memcpy=True))["qp_cfg"]
        >> data.Layout.cast(QpCfg)["av"].offset
    )
    vector = data.Layout.cast(AddressVector)
    gone = AddressVector.from_bits(out)
    assert gone.dgid == (1 << 96) - 1 and gone.flow_label == (1 << vector["flow_label"].width) - 1
    assert out.bit_count() == 96 + 20


def test_without_placement_the_rights_of_flush():
    out = left_out(NicConfig(memcpy=True))
    assert out["qp_cfg"] == 7 << Shape.cast(QpCfg).width - 4
    assert out["mrs"] == 3 << Shape.cast(MrRow).width - 2
    assert not out["queues"]


def test_without_copies_the_bits_of_a_qp_that_copies():
    out = left_out(NicConfig(placement=True))
    assert out["qp_cfg"] == 1 << Shape.cast(QpCfg).width - 1
    assert out["qp_tx"] == 1 << data.Layout.cast(QpTx)["copying"].offset
    assert not out["queues"]


def test_without_xrc_what_messages_name():
    out = left_out(NicConfig(placement=True, memcpy=True))
    assert out["qp_rx"] == out["qp_rx_ahead"] == (1 << 24) - 1 << Shape.cast(QpRx).width - 24
    assert out["resources"] == (1 << 16) - 1 << Shape.cast(ReadResource).width - 16
    assert not out["qp_cfg"] and not out["queues"]


def test_neither_the_owner_nor_the_firmware_sets_the_others():
    kept = 0xFF00_F0F0
    dut = Table(row=32, depth=8, index_width=8, kept=kept)

    async def bench(ctx):
        def drive(port, **members):
            for name, value in members.items():
                ctx.set(getattr(port, name), value)

        await ctx.tick().until(dut.ready)
        drive(dut.write, index=1, row=0xFFFF_FFFF, enable=1)
        await ctx.tick()
        drive(dut.write, enable=0)
        drive(dut.program, index=2, row=0x1234_5678, write=1)
        await ctx.tick().until(dut.program.done)
        drive(dut.program, write=0)
        for index, row in ((1, kept), (2, 0x1234_5678 & kept), (3, 0)):
            drive(dut.read0, index=index, enable=1)
            await ctx.tick()
            assert ctx.get(dut.read0.row) == row

    simulate(dut, bench, deadline=200)
