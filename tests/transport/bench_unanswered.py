"""cocotb side of test_receive.py: services whose requests nobody answers.

What is wrong is dropped, counted and forgotten; the QP goes on (IBTA vol 1, 9.8.2.2).
"""

from __future__ import annotations

import os
import random

import cocotb

from .bench_receive import PSN, QP, completions, flags, start
from .model_receive import FAIL, FINISH, FLUSHED, GSI, SENT_BY_POKE, UC, UD, Row
from .model_unanswered import FINISH_AND_FLUSH
from .receive_harness import Harness, Seen
from .receive_overlap import Overlap
from .receive_traffic import BUFFER, KEY_READ_ONLY, QKEY, Peer, Traffic, make_qp

IS_UC = {"type": UC, "timeout": 0}


class Unjudged(Overlap):
    """Packets without a pause, which are not compared with the model."""

    def _finish(self) -> None:
        assert self._seen is not None
        self.done.append(self._seen)
        self._seen = None


async def packets(h: Harness, peer: Peer, *rows: Row) -> list[Seen]:
    """Feed packets one by one; none of them may ask for an answer."""
    found = []
    for row in rows:
        found.append(await h.packet(peer.packet(**({"ack_request": 1} | row))))
        assert flags(found[-1]) == set() and not found[-1].repokes
    return found


FIRST: Row = {"opcode": 0x00, "length": 256}
MIDDLE: Row = {"opcode": 0x01, "length": 256}
LAST: Row = {"opcode": 0x02, "length": 9}
ONLY: Row = {"opcode": 0x04, "length": 7}
WRITE_FIRST: Row = {"opcode": 0x06, "length": 256, "dma_length": 300}
WRITE_LAST_IMM: Row = {"opcode": 0x09, "length": 44, "imm": 5}


@cocotb.test()
async def uc_messages(dut):
    """SEND and WRITE of one packet and of several, with immediate; no ACK, although asked for."""
    h, peer = await start(dut, qp={**IS_UC, "psn": PSN - 2})
    for _ in range(3):
        peer.post_recv(600)
    seen = await packets(h, peer, FIRST, MIDDLE, LAST, WRITE_FIRST, WRITE_LAST_IMM)
    (done,) = completions(seen[2])
    assert (done["status"], done["byte_len"], done["opcode"]) == (0, 521, 128)
    (done,) = completions(seen[4])
    assert (done["byte_len"], done["opcode"], done["imm"], done["flags"]) == (300, 129, 5, 2)
    (seen_only,) = await packets(h, peer, {"opcode": 0x05, "length": 0, "imm": 9})
    (done,) = completions(seen_only)
    assert (done["wr_id"] & 0xFFFF, done["src_qp"], done["imm"]) == (2, 0xABC003, 9)
    assert (h.rx[QP]["psn"], h.rx[QP]["message"], h.rx[QP]["held"]) == (4, 0, 0)
    count = h.counters()
    assert (count["rx_send_requests"], count["rx_write_requests"]) == (2, 1)
    assert not count["out_of_sequence"]


@cocotb.test()
async def uc_broken_messages(dut):
    """Behind a gap all up to the next beginning is dropped; its WQE takes the next message."""
    h, peer = await start(dut, qp=IS_UC)
    peer.post_recv(600)
    peer.post_recv(600)
    # The middle is missing; then even the rest that has the right PSNs belongs to nothing.
    await packets(h, peer, FIRST, LAST | {"ahead": 1}, LAST)
    assert (h.rx[QP]["held"], h.rx[QP]["message"], h.next[QP]) == (1, 0, 1)
    # A WRITE needs no WQE, and leaves it.
    seen = await packets(h, peer, {"opcode": 0x0A, "length": 3, "dma_length": 3}, ONLY)
    (done,) = completions(seen[-1])
    assert (done["wr_id"] & 0xFFFF, done["byte_len"]) == (0, 7) and not h.rx[QP]["held"]
    assert h.counters()["out_of_sequence"] == 2
    # A beginning breaks off what is not finished, whatever its PSN; it is counted when that shows
    # that packets are missing.
    for beginning, ahead in ((ONLY, 0), (ONLY, 3), (ONLY, -2), (FIRST, 5)):
        before = h.counters()["out_of_sequence"]
        await packets(h, peer, FIRST)
        (seen,) = await packets(h, peer, beginning | {"ahead": ahead})
        missing = h.counters()["out_of_sequence"] - before
        assert missing == (ahead != 0)
        if beginning is ONLY:
            (done,) = completions(seen)
            assert done["wr_id"] & 0xFFFF == h.next[QP] - 1
            peer.post_recv(600)
    # A WRITE that breaks off a SEND takes its WQE with its immediate.
    await packets(h, peer, WRITE_FIRST)
    assert h.rx[QP]["held"] and h.rx[QP]["message"] == 2
    (seen,) = await packets(h, peer, WRITE_LAST_IMM)
    (done,) = completions(seen)
    assert done["wr_id"] & 0xFFFF == h.next[QP] - 1 and not h.rx[QP]["held"]
    assert not h.rx[QP]["error"]


@cocotb.test()
async def uc_drops(dut):
    """No receive WQE, a bad request, a key that does not allow it: dropped, and the QP goes on."""
    h, peer = await start(dut, qp=IS_UC)
    write: Row = {"opcode": 0x0A, "length": 8, "dma_length": 8}
    cases: list[tuple[str, list[Row], int]] = [
        ("out_of_buffer", [ONLY], 0),
        ("out_of_buffer", [write | {"opcode": 0x0B}], 0),
        ("resp_remote_invalid_request", [FIRST, LAST | {"length": 0}], 1),
        ("resp_remote_invalid_request", [FIRST | {"length": 255}], 0),
        ("resp_remote_invalid_request", [ONLY | {"length": 257}], 0),
        ("resp_remote_invalid_request", [write | {"dma_length": 9}], 0),
        ("resp_remote_invalid_request", [WRITE_FIRST, {"opcode": 0x07, "length": 256}], 0),
    ]
    for number, (cause, case, takes) in enumerate(cases):
        before = h.counters()[cause]
        if takes:
            peer.post_recv(600)
        await packets(h, peer, *case)
        assert h.counters()[cause] == before + 1, number
        assert (h.rx[QP]["held"], h.rx[QP]["message"], h.rx[QP]["error"]) == (takes, 0, 0), number
        if takes:
            (seen,) = await packets(h, peer, ONLY)
            assert len(completions(seen)) == 1
    assert h.rx[QP]["psn"] == 0x100 + 10
    make_qp(h.world, QP, **IS_UC, remote_write=0)
    h.sync()
    await packets(h, peer, write)
    assert h.counters()["resp_remote_invalid_request"] == 6 and not h.rx[QP]["error"]


@cocotb.test()
async def uc_bad_keys(dut):
    """A WRITE with a bad key or range writes nothing; a WQE that it took is held for the next."""
    h, peer = await start(dut, qp=IS_UC)
    outside = BUFFER + (1 << 20) - 250
    write: Row = {"opcode": 0x0A, "length": 8, "dma_length": 8, "rkey": 7}
    for number, bad in enumerate(
        (write, write | {"opcode": 0x0B}, WRITE_FIRST | {"va": outside}, write | {"opcode": 0x0B}),
        1,
    ):
        taken = h.rx[QP]["held"]
        if bad["opcode"] == 0x0B and not taken:
            peer.post_recv(600)
        seen = await h.packet(peer.packet(**bad))
        assert not completions(seen) and flags(seen) == set()
        assert seen.effects[-1]["discard"] and not h.rx[QP]["error"]
        assert h.counters()["resp_remote_access_errors"] == number
        assert h.rx[QP]["held"] == (number > 1)
    # The rest of the message belongs to nothing.
    await packets(h, peer, {"opcode": 0x08, "length": 44, "ahead": 1})
    (seen,) = await packets(h, peer, ONLY)
    (done,) = completions(seen)
    assert (done["wr_id"] & 0xFFFF, done["status"], h.next[QP]) == (0, 0, 1)


@cocotb.test()
async def uc_own_faults(dut):
    """A receive WQE that is no good ends in error and stops the QP, without a NAK."""
    h, peer = await start(dut, qp=IS_UC)
    for wqe, status in (
        ({"length": 6}, 1),
        ({"length": 600, "check": 4}, 4),
        ({"length": 600, "status": 2, "error": 2}, 2),
    ):
        make_qp(h.world, QP, **IS_UC)
        peer.post_recv(**wqe)
        peer.post_recv(50)
        h.sync()
        seen = await h.packet(peer.packet(**ONLY))
        (done,) = completions(seen)
        assert (done["status"], flags(seen), h.rx[QP]["error"]) == (status, set(), 1)
    assert h.counters()["resp_cqe_flush_error"] == 3


@cocotb.test()
async def uc_sent(dut):
    """A poke finishes what has been sent, up to what is not, or to an error."""
    h, peer = await start(dut, qp=IS_UC)
    for number in range(SENT_BY_POKE + 5):
        peer.post_send(2, 10, complete=int(number <= SENT_BY_POKE), signaled=number % 2)
    h.sync()
    h.poke(QP, FINISH)
    await h.drain()
    assert [seen.pops for seen in h.done] == [SENT_BY_POKE, 1]
    assert [seen.repokes for seen in h.done] == [[FINISH], []]
    done = [one for seen in h.done for one in completions(seen)]
    assert {one["status"] for one in done} == {0} and len(done) == SENT_BY_POKE + 1
    h.world.outstanding[QP][0].update(complete=1)
    h.world.outstanding[QP][1].update(complete=1, status=4)
    h.sync()
    h.poke(QP, FINISH)
    found = await h.drain()
    assert [one["status"] for seen in found for one in completions(seen)] == [0, 4]
    assert h.ack[QP]["error"]
    # What had been handed over behind it has gone out, and is flushed all the same.
    for entry in h.world.outstanding[QP][:2]:
        entry.update(complete=1, status=0)
    h.sync()
    h.poke(QP, FINISH)
    h.poke(QP, FINISH)
    found = await h.drain()
    assert [one["status"] for seen in found for one in completions(seen)] == [FLUSHED, FLUSHED]
    assert not any(seen.timers for seen in h.done)


@cocotb.test()
@cocotb.parametrize(kind=[UC, UD, GSI])
async def receives_behind_a_send_error(dut, kind):
    """A WQE that fails stops the send side, which is flushed; messages are received as before, and
    receive WQEs stay. An error of the receive side then flushes them."""
    h, peer = await start(dut, qp={"type": kind, "timeout": 0, "qkey": QKEY})
    only: Row = {"opcode": 0x04, "length": 50}
    for _ in range(3):
        peer.post_recv(60)
    await packets(h, peer, only)
    for status in (4, 5, 5):  # as the requester appends those behind it
        peer.post_send(1, 10, complete=1, status=status)
    h.sync()
    h.poke(QP, FINISH_AND_FLUSH)
    found = await h.drain()
    assert [one["status"] for seen in found for one in completions(seen)] == [4, 5, 5]
    assert (h.ack[QP]["error"], h.rx[QP]["error"], h.next[QP]) == (1, 0, 1)
    (seen,) = await packets(h, peer, only)
    (done,) = completions(seen)
    assert (done["wr_id"] & 0xFFFF, done["status"]) == (1, 0)
    assert not h.counters()["qp_state"]
    h.poke(QP, FAIL)
    flushed = [one for seen in await h.drain() for one in completions(seen)]
    assert [(one["wr_id"] & 0xFFFF, one["status"]) for one in flushed] == [(2, 5)]
    h.poke(QP, FAIL)  # it has stopped: nothing is to be done
    (seen,) = await h.drain()
    assert not (seen.effects or seen.repokes or seen.pops)


@cocotb.test()
@cocotb.parametrize(kind=[UD, GSI])
async def datagrams(dut, kind):
    """From anybody with the Q_Key, whatever the PSN; the CQE says who, and that there is a GRH."""
    h, peer = await start(dut, qp={"type": kind, "timeout": 0, "qkey": QKEY})
    before = h.counters()
    for number, fields in enumerate(
        (
            {"opcode": 0x04, "length": 40, "psn": 7},
            {"opcode": 0x05, "length": 41, "psn": 7, "imm": 0xAABBCCDD, "solicited": 1},
            {"opcode": 0x04, "length": 4136, "src_gid": 5, "gid_index": 0},
        )
    ):
        peer.post_recv(fields["length"])
        (seen,) = await packets(h, peer, fields | {"src_qp": 0xABCDE0 + number})
        (done,) = completions(seen)
        assert (done["status"], done["byte_len"], done["opcode"]) == (0, fields["length"], 128)
        assert (done["src_qp"], done["qp_num"]) == (0xABCDE0 + number, 0x5A1503)
        assert done["flags"] == 1 | 2 * (fields["opcode"] == 5)
        assert seen.jobs[0]["offset"] == 0 and seen.jobs[0]["length"] == fields["length"]
    after = h.counters()
    assert {k: after[k] - before[k] for k in after if after[k] != before[k]} == {
        "rx_send_requests": 3
    }


@cocotb.test()
async def general_services_in_all_partitions(dut):
    """QP1 takes what is of any partition of its function; UD of its own only. The CQE says which
    entry of the table that was, and the priority."""
    h, peer = await start(dut, qp={"type": GSI, "timeout": 0, "qkey": QKEY, "pkey": 0x8001})
    some: Row = {"opcode": 0x04, "length": 48}
    for fields in ({"pkey": 0x8002, "pkey_index": 9, "priority": 5}, {"pkey_index": 6}):
        peer.post_recv(48)
        (seen,) = await packets(h, peer, some | fields)
        (done,) = completions(seen)
        assert (done["status"], done["pkey_index"]) == (0, fields["pkey_index"])
        assert done["sl"] == fields.get("priority", 0)
    before = h.counters()
    (seen,) = await packets(h, peer, some | {"pkey": 0x8001, "pkey_hit": 0})
    assert not completions(seen)
    assert h.counters() == before | {"bad_pkey": before["bad_pkey"] + 1}
    h, peer = await start(dut, qp={"type": UD, "timeout": 0, "qkey": QKEY, "pkey": 0x8001})
    before = h.counters()
    (seen,) = await packets(h, peer, some | {"pkey": 0x8002, "pkey_hit": 1})
    assert not completions(seen)
    assert h.counters() == before | {"bad_pkey": before["bad_pkey"] + 1}


@cocotb.test()
async def datagrams_that_are_dropped(dut):
    """A wrong Q_Key, no receive WQE, one that is too small: counted; the QP and its WQE stay."""
    h, peer = await start(dut, qp={"type": UD, "timeout": 0, "qkey": QKEY})
    some: Row = {"opcode": 0x04, "length": 48}
    for cause, fields in (
        ("bad_qkey", some | {"qkey": QKEY ^ 1}),
        ("bad_qkey", some | {"qkey": 0}),
        ("bad_pkey", some | {"pkey": 0x1234}),
        ("wrong_function", some | {"function": 2}),
        ("unknown_qp", some | {"dest_qp": 0x5A1503 ^ 1 << 20}),
        ("out_of_buffer", some),
    ):
        before = h.counters()
        (seen,) = await packets(h, peer, fields)
        assert not completions(seen)
        assert h.counters() == before | {cause: before[cause] + 1}, fields
    for opcode in (0x04, 0x0A, 0x11, 0x24):
        before = h.counters()
        await h.packet(peer.packet(0x04, length=48) | {"opcode": opcode})
        assert h.counters() == before | {"wrong_transport": before["wrong_transport"] + 1}
    peer.post_recv(48)
    before = h.counters()
    for _ in range(2):
        (seen,) = await packets(h, peer, some | {"length": 49})
        assert not completions(seen) and h.rx[QP]["held"]
    assert h.counters()["resp_local_length_error"] == before["resp_local_length_error"] + 2
    (seen,) = await packets(h, peer, some)
    (done,) = completions(seen)
    assert (done["wr_id"] & 0xFFFF, done["status"], h.next[QP]) == (0, 0, 1)
    assert not h.rx[QP]["held"] and not h.rx[QP]["error"]
    # It is held, and then its own check is not good: it has ended, so no flush ends it again.
    peer.post_recv(48, check=4)
    await packets(h, peer, some | {"length": 49})
    assert h.rx[QP]["held"]
    seen = await h.packet(peer.packet(0x04, length=48))
    (done,) = completions(seen)
    assert done["status"] == 4 and h.rx[QP]["error"] and not h.rx[QP]["held"]


@cocotb.test()
async def datagram_random(dut):
    """UD and GSI among RC and UC, with errors; every packet as the model has it."""
    seed, counted = int(os.environ.get("RECEIVE_SEED", "1")), set()
    for round_, (errors, delays) in enumerate(((0.0, False), (0.1, True))):
        h = Harness(dut, seed=seed + round_, delays=delays, limit=200_000)
        types = (GSI, UD, UC, 2)
        traffic = Traffic(
            h.world, [1, 3, 6, 9], seed=seed * 5 + round_, left=1000, errors=errors, types=types
        )
        h.sync()
        await h.start(clock=round_ == 0)
        await h.feed(traffic)
        counted |= {name for name, value in h.counters().items() if value}
    assert {"bad_qkey", "resp_local_length_error", "out_of_buffer"} <= counted


@cocotb.test()
async def uc_random(dut):
    """UC among RC, with gaps, repeats and errors; every packet as the model has it."""
    seed, counted = int(os.environ.get("RECEIVE_SEED", "1")), set()
    for round_, (errors, delays) in enumerate(((0.0, False), (0.05, True))):
        h = Harness(dut, seed=seed + round_, delays=delays, limit=200_000)
        traffic = Traffic(
            h.world, [2, 3, 6], seed=seed * 9 + round_, left=1200, errors=errors, types=(UC, 2, UC)
        )
        h.sync()
        await h.start(clock=round_ == 0)
        rng = random.Random(seed)

        def packet_or_poke(h=h, traffic=traffic, rng=rng):
            if rng.random() < 0.2:
                h.poke(rng.choice((2, 6)), FINISH)
            return traffic()

        await h.feed(packet_or_poke)
        counted |= {name for name, value in h.counters().items() if value}
    assert {"out_of_sequence", "out_of_buffer", "resp_remote_access_errors"} <= counted


@cocotb.test()
async def uc_bursts(dut):
    """Bursts of UC and RC with many checks awaited: the same as one by one."""
    h = Overlap(dut, limit=200_000)
    h.check_cycles = 30
    traffic = Traffic(h.world, [2, 3, 6], seed=5, left=0, errors=0.0, types=(UC, UC, 2))
    h.sync()
    await h.start()
    for _ in range(120):
        traffic.prepare()
        await h.burst(traffic.any, 12)
    assert h.ahead_most >= 4
    assert h.counters()["out_of_sequence"]


@cocotb.test()
async def uc_refused_in_a_burst(dut):
    """A WRITE whose key is bad, with others on their way behind it: those are lost, no WQE is, and
    what comes next is executed; what the QP sends is not touched."""
    for imm in (0, 1):
        h = Unjudged(dut)
        make_qp(h.world, QP, **IS_UC)
        peer = Peer(h.world, QP)
        peer.post_recv(500)
        peer.post_recv(500)
        peer.post_send(2, 10)
        h.sync()
        await h.start(clock=not imm)
        h.check_cycles = 60
        only: Row = {"opcode": 0x0A, "length": 9, "dma_length": 9}
        rows = [
            peer.packet(**(only | {"opcode": 0x0A + imm, "rkey": KEY_READ_ONLY})),
            *(peer.packet(**only, ahead=1 + n) for n in range(3)),
            peer.packet(**ONLY, ahead=4),
        ]
        for row in rows:
            h.offer(row)
            while h._header:
                await h.step()
            h.poke(QP, FINISH)
        seen = (await h.drain())[-1]
        pairs = list(zip(seen.jobs, seen.effects, strict=True))
        written = [job["kind"] for job, effect in pairs if job["kind"] and not effect["discard"]]
        assert written == [2], "only the SEND is executed"
        done = [effect["completion"] for _, effect in pairs if effect["complete"]]
        assert sorted((one["wr_id"] >> 48, one["status"]) for one in done) == [
            (0xBEEF, 0),
            (0xFEED, 0),
        ]
        assert (h.next[QP], h.rx[QP]["held"], h.rx[QP]["error"]) == (1, 0, 0)
        assert h.rx[QP] == h.ahead[QP]
