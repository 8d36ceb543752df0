"""How messages are made and compared, without a card."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import SendFlags, WcOpcode, WcStatus, WrOpcode
from sim.guest.verbs import WC, SendWR
from sim.measure.flow import OPEN, Flow, Lane, Shape, Traffic, compare, finished, good

SHAPE = Shape(size=8, depth=4, batch=2, signal=2, slots=4, stride=64, warm=0, timed=4)


class Region:
    """Bytes where a region would be."""

    rkey, iova, lkey = 7, 0x1000, 9

    def __init__(self, octets: np.ndarray):
        self.octets, self.length = octets.copy(), octets.size

    def sge(self, offset: int, length: int) -> Any:
        return SimpleNamespace(addr=self.iova + offset, length=length, lkey=self.lkey)

    def read(self, length: int, offset: int = 0) -> np.ndarray:
        return self.octets[offset : offset + length].copy()

    def write(self, octets: np.ndarray, offset: int = 0) -> None:
        self.octets[offset : offset + octets.size] = octets


class Queue:
    """Keeps what is posted."""

    qp_num = 5

    def __init__(self) -> None:
        self.sends: list[SendWR] = []

    async def post_send(self, requests: list[SendWR]) -> None:
        self.sends += requests


def flow(opcode: WrOpcode, **more: Any) -> Flow:
    """Messages between two sides that nobody carries."""
    data = np.random.default_rng(1).integers(0, 256, 256, np.uint8)
    queue: Any = Queue()
    source: Any = Region(data)
    sink: Any = Region(~data)
    lane = Lane(3, 0, queue, queue, source=source, sink=sink, receives=queue)
    traffic = Traffic("x", opcode, range(0, 256, 64), **more)
    return Flow(lane, traffic, SHAPE, data, OPEN)


def carry(one: Flow, sequence: int) -> None:
    """What the cards would do with a message that reads or writes."""
    at = one.place(sequence)
    one.sink.write(one.source.read(SHAPE.size, at), at)


def run(coroutine: Any) -> None:
    with pytest.raises(StopIteration):
        coroutine.send(None)


@pytest.mark.parametrize("opcode", WrOpcode)
def test_remote_memory_is_as_the_opcode_has_it(opcode: WrOpcode) -> None:
    request = SendWR(opcode=opcode)
    request.set_remote(0x11, 0x2233, 0x44, 0x55)
    if opcode in (WrOpcode.ATOMIC_CMP_AND_SWP, WrOpcode.ATOMIC_FETCH_AND_ADD):
        assert request.wr == abi.WR_ATOMIC.codec().pack(0x2233, 0x44, 0x55, 0x11)
    elif "RDMA" in opcode.name:
        assert request.wr == abi.WR_RDMA.codec().pack(0x2233, 0x11)
    else:
        assert request.wr == b""


def test_a_place_is_used_again_when_its_message_was_compared() -> None:
    """Four places: the fifth request compares the first message, and wipes its place."""
    one = flow(WrOpcode.RDMA_WRITE)
    run(one.post(4))
    for sequence in range(4):
        carry(one, sequence)
    assert one.checked == 0
    run(one.post(1))
    assert one.checked == 1 and one.verified == SHAPE.size
    assert (one.sink.read(SHAPE.size) == ~one.data[: SHAPE.size]).all()
    assert [wr.wr_id for wr in one.qp.sends] == [3 << 32 | n for n in range(5)]  # type: ignore[attr-defined]


def test_a_message_that_changes_nothing_is_noticed() -> None:
    one = flow(WrOpcode.RDMA_WRITE)
    run(one.post(1))
    with pytest.raises(AssertionError, match="8 bytes of message 0 differ, the first at 0"):
        one.check(0)


def test_messages_are_compared_in_order() -> None:
    with pytest.raises(AssertionError, match="message 1 before 0"):
        flow(WrOpcode.RDMA_WRITE).check(1)


def test_each_message_invalidates_a_key_of_its_own() -> None:
    one = flow(WrOpcode.SEND_WITH_INV, keys=(0x10, 0x20))
    run(one.post(2))
    assert [wr.invalidate_rkey for wr in one.qp.sends] == [0x10, 0x20]  # type: ignore[attr-defined]
    assert one.traffic.sends and not one.traffic.fetches


@pytest.mark.parametrize("opcode", [WrOpcode.ATOMIC_FETCH_AND_ADD, WrOpcode.ATOMIC_CMP_AND_SWP])
def test_an_atomic_changes_what_the_next_one_finds(opcode: WrOpcode) -> None:
    one = flow(opcode)
    before = one.data.copy()
    run(one.post(1))
    carry(one, 0)
    one.check(0)
    assert (one.data[:8] != before[:8]).all() and (one.data[8:] == before[8:]).all()


def test_a_flush_is_behind_the_write_of_its_bytes() -> None:
    """Two requests a message, of which the FLUSH completes; then memory must have it at once."""
    one = flow(WrOpcode.FLUSH)
    run(one.post(2))
    sends = one.qp.sends  # type: ignore[attr-defined]
    assert [wr.opcode for wr in sends] == [WrOpcode.RDMA_WRITE, WrOpcode.FLUSH] * 2
    assert [bool(wr.send_flags & SendFlags.SIGNALED) for wr in sends] == [False, False, False, True]
    assert [len(wr.sg) for wr in sends] == [1, 0, 1, 0]
    assert sends[3].wr == abi.WR_FLUSH.codec().pack(0x1000 + 64, 7, SHAPE.size, 1, 0)
    carry(one, 0)
    one.completed = 1
    one.show()
    assert one.checked == 1
    one.completed = 2
    with pytest.raises(AssertionError, match="8 bytes of message 1 differ"):
        one.show()


def test_an_atomic_write_carries_its_word() -> None:
    one = flow(WrOpcode.ATOMIC_WRITE)
    run(one.post(2))
    sends = one.qp.sends  # type: ignore[attr-defined]
    pack = abi.WR_ATOMIC_WRITE.codec().pack
    words = [pack(0x1000 + at, 7, one.data[at : at + 8].tobytes()) for at in (0, 64)]
    assert [wr.wr for wr in sends] == words and not any(wr.sg for wr in sends)
    one.completed = 2
    one.show()  # its completion does not say that memory has it
    assert one.checked == 0 and not one.traffic.fetches


def wc(status: WcStatus = WcStatus.SUCCESS, **more: Any) -> WC:
    return WC(3 << 32 | 2, status, **{"opcode": WcOpcode.SEND, "byte_len": 8, "qp_num": 5, **more})


def test_completions() -> None:
    assert list(good([wc(), wc(opcode=WcOpcode.RECV)], 8)) == [(3, 2, None), (3, 2, 5)]
    with pytest.raises(AssertionError, match="A receive of 9 bytes, not 8"):
        list(good([wc(opcode=WcOpcode.RECV, byte_len=9)], 8))
    with pytest.raises(AssertionError, match="A completion in error"):
        list(good([wc(WcStatus.RETRY_EXC_ERR)], 8))
    finished([wc()])
    with pytest.raises(AssertionError, match="1 of 2 completions in error"):
        finished([wc(), wc(WcStatus.RETRY_EXC_ERR)])


def test_compare() -> None:
    some = np.arange(9, dtype=np.uint8)
    compare("x", "y", some, some.copy())
    other = some.copy()
    other[[3, 5]] ^= 1
    with pytest.raises(AssertionError, match="^x: 2 bytes of y differ, the first at 3$"):
        compare("x", "y", other, some)
