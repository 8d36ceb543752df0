"""No device reset of one function holds another function, or the firmware."""

import pytest

from firmware.device import HardwareError, Request
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import RdmaFeature
from hdl.config import NicConfig
from tests.firmware.fake_hardware import Bench, FakeHardware, finish
from tests.firmware.test_takeover import SCRIPT, SRQN

CONFIG = NicConfig(qps=32, cqs=16, mrs=64, gids=8, queue_size=64, read_resources=64, functions=2)
#: Operations on the hardware that may lie between a request and its answer, whatever another
#: function does meanwhile: about a tenth of a millisecond on PCI Express.
MOST_OPERATIONS = 120
FIRST, SECOND = 1, 2


class Counted:
    """The hardware, which calls ``at`` in front of operation ``left`` and counts all of them."""

    def __init__(self, hardware, left=-1, at=None):
        self._hardware, self.left, self.at, self.count = hardware, left, at, 0

    def __getattr__(self, name):
        operation = getattr(self._hardware, name)

        async def counted(*where, **how):
            if self.left == 0:
                self.at()
            self.left -= 1
            self.count += 1
            return await operation(*where, **how)

        return counted


def asked(function, command, fields=None):
    """The request of a command."""
    body, answer = abi.structures(command)
    data = bytes([command]) + body.pack(fields or {})
    return Request(function, data, len(data), 1 + answer.size)


class Guests(Bench):
    """Two functions of a card, of which the first plays the script of ``test_takeover``."""

    def __init__(self, config=CONFIG):
        super().__init__(config=config)
        self.hardware.features = 0xFFFF & ~RdmaFeature.EVENTS.mask
        self.hardware.available[config.rq_queue(SRQN)] = 100
        self.counted = self.hardware
        finish(self.firmware.step())

    def count(self, left=-1, at=None):
        """Counts the firmware's operations from here on."""
        self.counted = Counted(self.hardware, left, at)
        self.firmware.hardware = self.counted
        for function in self.firmware.functions:
            function.commands.hardware._hardware = self.counted

    def play(self, script):
        """The first function's commands, one after the other."""
        for command, fields in script:
            self.hardware.inbox.append(asked(FIRST, command, fields))
            assert finish(self.firmware.step())
        self.hardware.outbox.clear()

    def until_answered(self, function, command, **fields):
        """The firmware's operations between a request and its answer."""
        self.hardware.inbox.append(asked(function, command, fields))
        self.hardware.outbox.clear()
        before = self.counted.count
        for _ in range(100):
            finish(self.firmware.step())
            if self.hardware.outbox:
                (response,) = self.hardware.outbox
                assert response[0] == 0, self.firmware.refusal
                return self.counted.count - before
        raise AssertionError("No answer")


def test_a_reset_as_soon_as_one_has_ended():
    """Each reset is seen to, and the firmware does not wait for the end of any."""
    bench = Guests()
    bench.count()
    bench.hardware.restless.add(FIRST)
    bench.hardware.begin_reset(FIRST)
    bench.hardware.log.clear()
    for _ in range(200):
        finish(bench.firmware.step())
    assert bench.hardware.log.count(("reset_done", FIRST)) >= 10
    assert bench.counted.count < 200 * MOST_OPERATIONS
    bench.hardware.restless.clear()
    while bench.hardware.waiting:
        finish(bench.firmware.step())
    assert bench.until_answered(FIRST, C.CREATE_PD) < MOST_OPERATIONS


@pytest.mark.parametrize("number", range(len(SCRIPT)))
def test_resets_in_a_loop_in_the_middle_of_a_command(number):
    """A driver resets in front of each operation of its command, and then again and again: the
    requests of the other function are answered as soon as ever, and it loses nothing."""
    command, fields = SCRIPT[number]
    life = 0
    while True:
        guests = Guests()
        guests.play(SCRIPT[:number])
        hardware = guests.hardware
        hardware.restless.add(FIRST)
        guests.count(life, lambda hardware=hardware: hardware.begin_reset(FIRST))
        hardware.inbox.append(asked(FIRST, command, fields))
        finish(guests.firmware.step())
        if guests.counted.left >= 0:
            break  # the command has ended before
        for _ in range(4):
            assert guests.until_answered(SECOND, C.CREATE_PD) < MOST_OPERATIONS
        hardware.restless.clear()
        for _ in range(100):
            finish(guests.firmware.step())
        assert not hardware.waiting
        objects = [one.commands.objects for one in guests.firmware.functions]
        assert not objects[0].pds.all() and not objects[0].qps.all() and not objects[0].mrs.all()
        assert [one.number for one in objects[1].pds.all()] == list(range(4))
        guest = CONFIG.guest
        for table, count in (("qp_cfg", guest.qps), ("mr", guest.mrs), ("gid", guest.gids)):
            assert not any(hardware.row(table, index) for index in range(count)), table
        life += 1
    assert life > 3


def test_a_function_with_all_that_there_can_be():
    """What a function has is taken away piece by piece: the other one's requests come between."""
    config = NicConfig(qps=512, cqs=16, mrs=512, gids=8, queue_size=64, functions=2)
    bench = Guests(config)
    for command in (C.CREATE_PD, C.CREATE_CQ):
        bench.ok(command, **({"cqe": 8} if command is C.CREATE_CQ else {}))
    for _ in range(config.guest.qps - 2):
        bench.ok(C.CREATE_QP, qp_type=2, max_send_wr=4, max_recv_wr=4)
    for _ in range(config.guest.mrs):
        bench.ok(C.CREATE_MR, max_num_sg=1)
    for queue in range(config.guest.queues):
        finish(bench.hardware.write_row("queue", queue, {"enabled": 1}))
    bench.count()
    bench.hardware.begin_reset(FIRST)
    answered = 0
    while bench.hardware.waiting:
        assert bench.until_answered(SECOND, C.QUERY_PORT, port=1) < MOST_OPERATIONS
        answered += 1
    assert answered > 20
    assert not any(bench.hardware.row("qp_cfg", index) for index in range(config.guest.qps))


def test_a_request_that_a_reset_has_left():
    """The control queue is dropped when the request is answered, and the other's is not touched."""
    bench = Guests()
    finish(bench.hardware.write_row("queue", 0, {"enabled": 1}))
    for function in (FIRST, SECOND):
        bench.hardware.inbox.append(asked(function, C.CREATE_PD))
        bench.hardware.begin_reset(FIRST)
        bench.settle()
        assert not bench.hardware.waiting
        assert bench.hardware.outbox.pop() == (b"" if function == FIRST else bytes(5))


def test_a_reset_of_the_only_function_that_never_ends(monkeypatch):
    """That breaks the card, and no other function is there: the firmware says so and ends."""
    monkeypatch.setattr("firmware.service.PATIENCE", 10)
    bench = Bench()
    bench.hardware.resets_seen, bench.hardware.resetting = 1, 1000
    for _ in range(10):
        assert finish(bench.firmware.step())
    with pytest.raises(HardwareError, match="reset does not end"):
        finish(bench.firmware.step())


def test_resets_of_the_only_function_in_a_loop(monkeypatch):
    """Each is another one, and none of them is stuck."""
    monkeypatch.setattr("firmware.service.PATIENCE", 10)
    bench = Bench()
    bench.hardware.resetting = 1000
    for _ in range(100):
        bench.hardware.resets_seen += 1
        finish(bench.firmware.step())
    bench.hardware.resetting = 0
    assert finish(bench.firmware.step())
    assert bench.ok(C.CREATE_PD).pdn == 0


def test_the_fake_hardware_refuses_what_the_card_never_ends():
    hardware = FakeHardware()
    hardware.inbox.append(asked(FIRST, C.CREATE_PD))
    with pytest.raises(AssertionError, match="before its request"):
        finish(hardware.drop_queue(0))
