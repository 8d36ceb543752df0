"""Receive queues whose requests take several packets: what the library refuses or rounds. T-M9."""

import errno
import json
from pathlib import Path

import pytest

from hdl.abi.enums import ControlCommand, RdmaFeature, WcFlags, WcOpcode
from sim.guest.driver.device import DriverOptions
from sim.guest.verbs import CQ, PD, QP, SRQ, WC, Context, MpWr, QPCap, QPInitAttr, RdmaError
from tests.mp_wr_source import Completed, Source
from tests.sim.fake_device import FakeRdma
from tests.sim.fake_pci import FakePlatform
from tests.sim.test_verbs import run

VECTORS = json.loads((Path(__file__).parents[1] / "data" / "mp_wr.json").read_text())
OPTIONS = DriverOptions(timeout_ns=50_000)
CAP = QPCap(8, 8, 2, 2)


async def opened(*, offers=True):
    """A context, a PD, and CQs with and without offsets; of a device in Python that ``offers``
    them and only keeps what it was asked for."""
    device = FakeRdma(FakePlatform())
    ctx = await Context.open(device.platform, 1, OPTIONS)
    ctx.device.features &= ~RdmaFeature.MP_WR.mask
    if offers:
        ctx.device.features |= RdmaFeature.MP_WR.mask
        ctx.device.config |= {"max_mp_wr_buffer": 1 << 20, "max_mp_wr_align": 4096}
    pd = await PD.create(ctx)
    return ctx, pd, await CQ.create(ctx, 8, with_mp_wr=True), await CQ.create(ctx, 8)


def refused(code, coroutine_of, **options):
    async def main():
        with pytest.raises(RdmaError) as error:
            await coroutine_of(*await opened(**options))
        assert error.value.errno == code

    run(main())


def test_t_m9_cq_without_offsets():
    """T-M9: the CQ of such a queue pair, and of one that takes from such an SRQ, shows offsets."""

    async def own(ctx, pd, cq, plain):
        await QP.create(pd, QPInitAttr(scq=cq, rcq=plain, cap=CAP, mp_wr=MpWr(8192, 64)))

    async def shared(ctx, pd, cq, plain):
        srq = await SRQ.create(pd, mp_wr=MpWr(8192, 64))
        await QP.create(pd, QPInitAttr(scq=cq, rcq=plain, cap=CAP, srq=srq))

    refused(errno.EINVAL, own)
    refused(errno.EINVAL, shared)


def test_t_m9_with_an_srq():
    """T-M9, M-1: a queue pair with an SRQ has no requests of its own."""

    async def main(ctx, pd, cq, plain):
        srq = await SRQ.create(pd)
        init = QPInitAttr(scq=cq, rcq=cq, cap=CAP, srq=srq, mp_wr=MpWr(8192, 64))
        await QP.create(pd, init)

    refused(errno.EINVAL, main)


def test_not_offered():
    async def main(ctx, pd, cq, plain):
        await QP.create(pd, QPInitAttr(scq=cq, rcq=cq, cap=CAP, mp_wr=MpWr(8192, 64)))

    refused(errno.EOPNOTSUPP, main, offers=False)


@pytest.mark.parametrize("asked", [MpWr((1 << 20) + 1, 64), MpWr(8192, 4097)])
def test_beyond_the_limits(asked):
    async def main(ctx, pd, cq, plain):
        await QP.create(pd, QPInitAttr(scq=cq, rcq=cq, cap=CAP, mp_wr=asked))

    refused(errno.EINVAL, main)


def test_rounded_and_told():
    """The example of the specification, and what the device is asked for."""

    async def main():
        ctx, pd, cq, _ = await opened()
        asked = []
        command = ctx.device.command

        async def listen(number, fields):
            asked.append((number, fields))
            return await command(number, fields)

        ctx.device.command = listen
        qp = await QP.create(pd, QPInitAttr(scq=cq, rcq=cq, cap=CAP, mp_wr=MpWr(10_000, 100)))
        assert qp.mp_wr == MpWr(10_112, 128)
        (fields,) = (fields for number, fields in asked if number == ControlCommand.CREATE_QP)
        assert (fields["mp_wr_buffer"], fields["mp_wr_align_log2"]) == (10_112, 7)
        srq = await SRQ.create(pd, mp_wr=MpWr(65536, 1))
        assert srq.mp_wr == MpWr(65536, 64)

    run(main())


@pytest.mark.parametrize(
    ("name", "buffer", "align", "lengths", "first"),
    [
        ("a", 65536, 512, [512] * 128, 0xA0),
        ("b", 65536, 512, [12000], 0xA0),
        ("c", 65536, 512, [12000] * 6, 0xA0),
        ("d", 65536, 512, [700] * 65, 0xA0),
        ("e", 65536, 512, [4096] * 15 + [3500, 1024], 0xA0),
        ("B, one message", 1 << 20, 4096, [1 << 20], 0xB0),
        ("B, bytes", 1 << 20, 4096, [1] * 256, 0xB0),
        ("datagrams", 4224, 64, [140] * 23, 0xC0),
    ],
)
def test_model_and_vectors(name, buffer, align, lengths, first):
    """The model that the whole cards are compared with gives the completions of the specification,
    which the driver reads."""
    source = Source(buffer, align, [first, first + 1])
    for length in lengths:
        source.message(bytes(length), 4096, 0x14 if name == "datagrams" else 0x12)
    for place, octets in VECTORS[name].items():
        assert source.done[int(place)] == Completed.of(WC.unpack(bytes.fromhex(octets))), place


def test_flags_and_opcode():
    wc = WC.unpack(bytes.fromhex(VECTORS["e"]["16"]))
    assert (wc.opcode, wc.wc_flags) == (WcOpcode.RECV_NOP, WcFlags.MP_WR_CONSUMED)
