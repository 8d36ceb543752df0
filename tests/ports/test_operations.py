"""The tables of operations: written out by hand, and an imaginary operation on its way."""

import dataclasses

import pytest
from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

from hdl.abi.enums import Access, QpType, WcOpcode
from hdl.abi.operations import WORK_REQUESTS, WorkRequest
from hdl.config import CardFeature, NicConfig
from hdl.ports.jobs import FetchStatus, ScatterKind
from hdl.ports.operations import PacketOperation, decode_packet, decode_request
from hdl.ports.rows import QpState
from hdl.transport.receive.receive import Receive
from hdl.wire.headers import RETH
from hdl.wire.opcodes import (
    OPCODES,
    Answer,
    Kind,
    Opcode,
    Payload,
    Position,
    Psns,
    Transport,
)
from tests.simulate import simulate
from tests.transport.send_side import SendSide, World, wqe

RIGHTS = {"S": 0, "W": 2, "R": 4, "A": 8}

#: RC requests by hand: class, position (f m l o), RETH or AtomicETH, immediate, invalidate,
#: receive WQE, answered with data, PSNs by length, built.
REQUESTS = {
    0x00: "Sf-----b", 0x01: "Sm-----b", 0x02: "Sl-----b", 0x03: "Sl-i---b",
    0x04: "So-----b", 0x05: "So-i---b", 0x06: "Wfa----b", 0x07: "Wm-----b",
    0x08: "Wl-----b", 0x09: "Wl-i---b", 0x0A: "Woa----b", 0x0B: "Woai---b",
    0x0C: "Roa--dnb", 0x13: "Aoa--d-b", 0x14: "Aoa--d-b", 0x16: "Sl--v--b", 0x17: "So--v--b",
}  # fmt: skip


#: What follows is of a card with RC alone, and of one with the other services beside it.
CONFIG = NicConfig(uc=False, ud=False)  # RC alone
SERVICES = {"uc": (1, range(0x0C)), "ud": (3, (0x04, 0x05))}


def decoded(function, code, fields, config=CONFIG):
    """The fields of the structure that ``function`` makes of an opcode."""
    m, opcode, found = Module(), Signal(8), {}
    view = function(m, config, opcode)

    async def bench(ctx):
        for one in code:
            ctx.set(opcode, one)
            await ctx.delay(1e-9)
            row = ctx.get(view)
            found[one] = {name: int(getattr(row, name)) for name in fields}

    simulator = Simulator(m)
    simulator.add_testbench(bench)
    simulator.run()
    return found


def test_packets_are_decoded_as_written_out_by_hand():
    fields = PacketOperation.as_shape().members
    found = decoded(decode_packet, range(256), fields)
    for code, row in found.items():
        text = REQUESTS.get(code)
        response = 0x0D <= code <= 0x12
        assert row["served"] == bool(text or response)
        assert row["response"] == response
        if response:
            assert row["built"]
            assert row["data"] == (code != 0x11)
            kind = {0x11: Kind.ACKNOWLEDGE, 0x12: Kind.ATOMIC_RESPONSE}
            assert row["kind"] == kind.get(code, Kind.READ_RESPONSE)
            assert row["first"] == (code not in (0x0E, 0x0F))
            assert row["last"] == (code not in (0x0D, 0x0E))
            assert not row["rights"] | row["receive"] | row["by_length"]
        elif text:
            kinds = {"S": Kind.SEND, "W": Kind.WRITE, "R": Kind.READ, "A": Kind.ATOMIC}
            assert row["kind"] == kinds[text[0]] and row["rights"] == RIGHTS[text[0]]
            assert row["first"] == (text[1] in "fo") and row["last"] == (text[1] in "lo")
            names = ("address", "immediate", "invalidate", "data", "by_length", "built")
            assert [row[name] for name in names] == [one != "-" for one in text[2:]], hex(code)
            assert row["receive"] == (text[0] == "S" or text[3] == "i")
            assert row["payload"] == (text[0] in "SW")
            assert row["compares"] == (code == 0x13)
        else:
            assert not any(row.values())


@pytest.mark.parametrize("name", SERVICES)
def test_services_without_answers_have_some_of_these_packets(name):
    """The same but for the service, and that nothing answers them."""
    service, codes = SERVICES[name]
    fields = PacketOperation.as_shape().members
    config = dataclasses.replace(CONFIG, **{name: True})
    base = decoded(decode_packet, range(256), fields)
    found = decoded(decode_packet, range(256), fields, config)
    for low in codes:
        assert base[low]["acknowledged"] and not base[low]["service"]
        wanted = base[low] | {"service": service, "acknowledged": 0}
        assert found[service << 5 | low] == wanted, hex(low)
        found[service << 5 | low] = base[service << 5 | low]
    assert found == base


def test_a_card_without_a_feature_refuses_its_packets():
    without = dataclasses.replace(CONFIG, fast_registration=False)
    found = decoded(decode_packet, (0x04, 0x16, 0x17), ("served", "built"), without)
    assert [row["built"] for row in found.values()] == [1, 0, 0]
    assert all(row["served"] for row in found.values())


def test_work_requests_are_decoded_as_written_out_by_hand():
    names = "services kind data by_length receive invalidate completion compares bind"
    found = decoded(decode_request, range(256), names.split())
    built = {
        0: (1, Kind.WRITE, 0, 0, 0, 0, 1, 0, 0),
        1: (1, Kind.WRITE, 0, 0, 1, 0, 1, 0, 0),
        2: (1, Kind.SEND, 0, 0, 1, 0, 0, 0, 0),
        3: (1, Kind.SEND, 0, 0, 1, 0, 0, 0, 0),
        4: (1, Kind.READ, 1, 1, 0, 0, 2, 0, 0),
        5: (1, Kind.ATOMIC, 1, 0, 0, 0, 3, 1, 0),
        6: (1, Kind.ATOMIC, 1, 0, 0, 0, 4, 0, 0),
        7: (1, Kind.LOCAL, 0, 0, 0, 1, 6, 0, 0),
        8: (1, Kind.LOCAL, 0, 0, 0, 0, 5, 0, 1),
        9: (1, Kind.SEND, 0, 0, 1, 0, 0, 0, 0),
        11: (1, Kind.READ, 1, 1, 0, 1, 2, 0, 0),
        0x20: (1, Kind.LOCAL, 0, 0, 0, 0, 10, 0, 0),
    }
    for code, row in found.items():
        assert tuple(row.values()) == built.get(code, (0,) * 9), code


def test_work_requests_of_uc():
    """WRITE and SEND, and those without a packet: no other service of the card has these."""
    found = decoded(decode_request, range(256), ["services"], NicConfig())
    assert [code for code, row in found.items() if row["services"] & 2] == [0, 1, 2, 3, 7, 8, 0x20]
    assert [code for code, row in found.items() if row["services"] & 4] == [2, 3]


def test_a_card_without_atomics_knows_none():
    """It refuses the packets, and takes answers to atomics for no data."""
    card = NicConfig(atomics=False)
    found = decoded(decode_packet, (0x12, 0x13, 0x14), ("served", "built"), card)
    assert all(row == {"served": 1, "built": 0} for row in found.values())
    assert not decoded(decode_packet, (0x12,), ("data",), card)[0x12]["data"]
    assert not any(decoded(decode_request, (5, 6), ("services", "data"), card)[5].values())


def test_every_packet_of_a_work_request_is_one_of_its_class():
    for request in WORK_REQUESTS.values():
        for service in request.services:
            for position, low in request.packets.items():
                packet = OPCODES.get(service << 5 | low)
                if packet is None:  # UD has messages of one packet only
                    assert service is Transport.UD and position is not Position.ONLY
                else:
                    assert packet.kind is request.kind and packet.position is position
        if request.feature is CardFeature.BASE:
            assert all(OPCODES[low].feature is CardFeature.BASE for low in request.packets.values())


#: A WRITE of one packet that tells the other side with a receive WQE, and carries nothing for it.
CODE, REQUEST = 0x1A, 0x30
PACKET = Opcode(
    code=CODE,
    name="RC_WRITE_ONLY_NOTIFY",
    transport=Transport.RC,
    kind=Kind.WRITE,
    position=Position.ONLY,
    headers=(RETH,),
    payload=Payload.ONLY,
    psns=Psns.ONE,
    answer=Answer.ACK,
    rights=Access.REMOTE_WRITE,
    receive=True,
    feature=CardFeature.BASE,
)


@pytest.fixture
def imaginary(monkeypatch):
    """Declares the operation: these two rows, and nothing else."""
    monkeypatch.setitem(OPCODES, CODE, PACKET)
    row = WorkRequest(
        REQUEST,
        "RDMA_WRITE_NOTIFY",
        Kind.WRITE,
        WcOpcode.RDMA_WRITE,
        services=(Transport.RC,),
        packets={Position.ONLY: CODE},
    )
    monkeypatch.setitem(WORK_REQUESTS, REQUEST, row)
    return monkeypatch


def test_imaginary_operation_reaches_the_requester(imaginary):
    side = SendSide()
    world = World(side)

    async def bench(ctx):
        await world.start(ctx)
        await world.connect(ctx, 2)
        world.queues[2] = [wqe(REQUEST, 60, solicited=1, rkey=7), wqe(REQUEST + 1, 60)]
        await world.ring(ctx, 2)
        await world.until(ctx, lambda: len(world.pokes) == 1)
        header = world.jobs[0].header
        assert (header.opcode, header.length, header.dma_length, header.rkey) == (CODE, 60, 60, 7)
        assert header.solicited and header.ack_request
        assert len(world.jobs) == 1  # the opcode behind it is in no table
        assert (await world.oldest(ctx, 2)).completion == WcOpcode.RDMA_WRITE

    simulate(side, bench, background=world.models)


def received(*, atomics=True, **cfg):
    """What Receive makes of the imaginary packet: its fetch, its job, and the reply's flags."""
    sizes = {"width": 64, "qps": 8, "cqs": 4, "mrs": 16, "gids": 2, "outstanding": 8}
    receive = Receive(config=NicConfig(**sizes, atomics=atomics))
    seen = {}

    async def bench(ctx):
        row = {"state": QpState.RTS, "type": QpType.RC, "qpn": 3, "path_mtu": 1, "pkey": 0xFFFF}
        ctx.set(receive.context.rows.cfg, row | {"remote_write": 1} | cfg)
        for look in (receive.context, receive.committed):
            ctx.set(look.valid, 1)
        ctx.set(receive.header.payload.opcode, CODE)
        ctx.set(receive.header.payload.dest_qp, 3)
        ctx.set(receive.header.payload.pkey, 0xFFFF)
        ctx.set(receive.header.payload.length, 60)
        ctx.set(receive.header.payload.dma_length, 60)
        ctx.set(receive.header.payload.ack_request, 1)
        ctx.set(receive.header.valid, 1)
        await ctx.tick().until(receive.header.ready)
        ctx.set(receive.header.valid, 0)
        for port in ("fetch_req", "scatter_job", "effects", "repoke"):
            ctx.set(getattr(receive, port).ready, 1)
        ctx.set(receive.fetch_rsp.valid, 1)
        ctx.set(receive.fetch_rsp.payload, {"status": FetchStatus.OK, "wqe": {"wr_id": 5}})
        ctx.set(receive.scatter_checked.valid, 1)
        for _ in range(60):
            for port in ("fetch_req", "scatter_job", "effects"):
                if ctx.get(getattr(receive, port).valid):
                    seen[port] = ctx.get(getattr(receive, port).payload)
            await ctx.tick()

    simulate(receive, bench, deadline=1000)
    return seen


@pytest.mark.usefixtures("imaginary")
def test_imaginary_operation_reaches_the_responder():
    seen = received()
    assert "fetch_req" in seen, "it takes a receive WQE"
    assert seen["scatter_job"].kind == ScatterKind.KEY and seen["scatter_job"].length == 60
    assert seen["effects"].complete and seen["effects"].flags.ack
    assert seen["effects"].completion.opcode == WcOpcode.RECV_RDMA_WITH_IMM


@pytest.mark.usefixtures("imaginary")
def test_imaginary_operation_needs_its_rights():
    seen = received(remote_write=0)
    assert seen["scatter_job"].kind == ScatterKind.DISCARD and seen["effects"].flags.nak


def test_imaginary_operation_of_a_feature_that_is_off_is_refused(imaginary):
    imaginary.setitem(OPCODES, CODE, dataclasses.replace(PACKET, feature=CardFeature.ATOMICS))
    seen = received(atomics=False)
    assert seen["scatter_job"].kind == ScatterKind.DISCARD and seen["effects"].flags.nak


def test_opcode_in_no_table_is_dropped():
    seen = received()
    assert seen["scatter_job"].kind == ScatterKind.DISCARD and not seen["effects"].reply
