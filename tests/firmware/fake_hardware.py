"""Tables, mailbox and commands in memory, with a log of what the firmware did."""

from collections import Counter, defaultdict

from firmware.device import FunctionState, Posted, Request
from firmware.service import Firmware
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import QpType
from hdl.config import NicConfig
from hdl.csr.map import row_map
from hdl.ports.counter_names import COUNTERS, PORT_COUNTERS

CONFIG = NicConfig(qps=16, cqs=8, mrs=32, gids=4, queue_size=64, read_resources=64)
ALL_TYPES = frozenset({QpType.RC, QpType.UC, QpType.UD, QpType.GSI})


def finish(coroutine):
    """The result of a coroutine that never waits, as nothing of the fake hardware does."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("It waits")


def without_generation(table, words):
    """The words of a row; of those with a generation, with 0 in its place."""
    row = row_map(table)
    if "generation" not in row.fields:
        return words
    return row.pack(row.unpack(words) | {"generation": 0})


class FakeHardware:
    """Implements ``firmware.device.Hardware``; rows pass through the real row layouts."""

    network = None
    connections = None

    def __init__(self):
        self.rows = defaultdict(dict)
        self.log = []
        self.inbox, self.outbox = [], []
        self.resets_seen, self.resetting, self.features = 0, 0, 0
        self.on_flush = []  # what the hardware would do
        self.waiting = set()  # functions whose device reset waits for the firmware
        self.begun = Counter()  # device resets of each function, beside ``resets_seen`` of all
        self.restless = set()  # functions whose driver resets again as soon as a reset has ended
        self.queue_bits = 16  # of a virtqueue's number in its function
        self.link = True
        self.posting, self.slow = None, 0  # an event on its way, and steps that it takes
        self.buffers, self.events = 100, []  # of the event queue; what was written to them
        self.available = defaultdict(int)  # avail index of each queue
        self.broken, self.looked = [], False  # virtqueues; a request was looked for since
        self.beats, self.marked = 0, 0
        self.status = 15  # a driver is there
        self.counted = defaultdict(int)

    def row(self, table, index):
        """A row's fields that are not 0."""
        words = self.rows[table].get(index)
        if words is None:
            return {}
        return {name: value for name, value in row_map(table).unpack(words).items() if value}

    def state(self):
        """Everything that a refused command must not change, and that lives through no object: a
        QP's generation counts on from one that has the same number to the next."""
        return {
            (table, i): tuple(without_generation(table, words))
            for table, rows in self.rows.items()
            for i, words in rows.items()
        }

    async def function_state(self, function):
        waits = function in self.waiting
        resetting, self.resetting = self.resetting, max(0, self.resetting - 1)
        begun = bool(resetting) or waits
        resets = await self.resets(function)
        return FunctionState(resets, begun, waits, self.features, self.status)

    async def resets(self, function):
        return self.resets_seen + self.begun[function]

    def begin_reset(self, function):
        """The function's driver writes 0 to the status; during a reset that is lost."""
        if function not in self.waiting:
            self.waiting.add(function)
            self.begun[function] += 1

    async def reset_done(self, function):
        self.waiting.remove(function)
        self.log.append(("reset_done", function))
        if function in self.restless:
            self.begin_reset(function)

    async def request(self):
        self.looked = bool(self.broken)
        return self.inbox[0] if self.inbox else None

    async def respond(self, response):
        self.outbox.append(response)
        self.inbox.pop(0)

    async def broken_queue(self):
        return self.broken[0] if self.looked and self.broken else None

    async def broken_queue_done(self):
        self.broken.pop(0)

    async def mark(self):
        return self.marked

    async def set_mark(self, number):
        self.marked = number

    async def beat(self):
        self.beats += 1

    async def link_up(self):
        return self.link

    async def counter(self, name):
        assert name in COUNTERS + PORT_COUNTERS
        return self.counted[name]

    async def read_row(self, table, index):
        layout = row_map(table)
        return layout.unpack(self.rows[table].get(index, [0] * layout.words))

    async def read_fields(self, table, index, *names):
        row = await self.read_row(table, index)
        return {name: row[name] for name in names}

    async def write_row(self, table, index, row):
        self.rows[table][index] = row_map(table).pack(row)
        self.log.append(("write", table, index))

    async def arm_cq(self, cqn, flags):
        self.log.append(("arm_cq", cqn, flags))

    async def wake(self, pair):
        self.log.append(("wake", pair))

    async def flush(self, pair):
        self.log.append(("flush", pair))
        for action in self.on_flush:
            action(pair)

    async def drop(self, pair):
        self.log.append(("drop", pair))

    async def drop_queue(self, queue, *, restart=False):
        owner, number = queue >> self.queue_bits, queue % (1 << self.queue_bits)
        if number == abi.CONTROL_QUEUE:  # the card would never end it
            waiting = [one for one in self.inbox if one.function == owner + 1]
            assert not waiting, "A control queue is dropped before its request is answered"
        self.log.append(("restart_queue" if restart else "drop_queue", queue))

    async def clear_counters(self, pair):
        self.log.append(("clear_counters", pair))

    async def drain(self):
        self.log.append(("drain",))

    async def begin_post(self, queue, *, record=None, position=0):
        if self.posting is not None:
            return False
        self.posting = (queue, record)
        return True

    async def post_result(self):
        """An event needs a buffer; the avail index of a queue is what the test says."""
        if self.slow:
            self.slow -= 1
            return None
        (queue, record), self.posting = self.posting, None
        if record is None:
            return Posted(True, self.available[queue])
        found = self.buffers > 0
        self.buffers -= found
        if found:
            self.events.append((queue, abi.EVENT.unpack(record)))
        return Posted(found, 0)

    async def invalidate(self, mrn):
        self.log.append(("invalidate", mrn))


class Bench:
    """A firmware on a fake hardware; ``ok`` and ``err`` send one command of ``function``."""

    def __init__(self, *, config=CONFIG, qp_types=ALL_TYPES, machine=None):
        self.hardware = FakeHardware()
        self.hardware.queue_bits = config.number_bits["queues"]
        self.firmware = Firmware(self.hardware, config, qp_types=qp_types, machine=machine)
        self.function = self.firmware.functions[0]
        finish(self.firmware.step())

    def settle(self):
        """Steps until there is nothing to do; whether there was something."""
        acted = False
        while finish(self.firmware.step()):
            acted = True
        return acted

    def raw(self, data, writable=256):
        """The response to any bytes."""
        self.hardware.log.clear()
        self.hardware.inbox.append(Request(self.function.number, data, len(data), writable))
        self.hardware.counted["control_requests"] += 1
        assert finish(self.firmware.step())
        return self.hardware.outbox.pop()

    def ok(self, command, /, **fields):
        asked, answered = abi.structures(command)
        response = self.raw(bytes([command]) + asked.pack(fields), 1 + answered.size)
        assert response[0] == 0, self.firmware.refusal
        assert len(response) == 1 + answered.size
        return answered.unpack(response[1:])

    def err(self, command, /, **fields):
        """The reason of a refusal; checks that nothing changed."""
        asked, answered = abi.structures(command)
        before = self.snapshot()
        response = self.raw(bytes([command]) + asked.pack(fields), 1 + answered.size)
        assert response == b"\1"
        assert self.snapshot() == before
        assert not [entry for entry in self.hardware.log if entry[0] != "read"]
        return self.firmware.refusal

    def snapshot(self):
        objects = self.function.commands.objects
        handles = (objects.pds, objects.cqs, objects.mrs, objects.qps, objects.srqs)
        return (
            self.hardware.state(),
            [(sorted(h._objects), sorted(h._free), sorted(h._lent)) for h in handles],
            [(pd.number, pd.users) for pd in objects.pds._objects.values()],
            [(cq.number, cq.users) for cq in objects.cqs._objects.values()],
            [repr(srq) for srq in objects.srqs._objects.values()],
            [(qp.qpn, repr(qp.attrs), qp.slice) for qp in objects.qps._objects.values()],
            sorted(objects.gids.items()),
            sorted(objects.slices._taken, key=lambda s: s.base),
        )
