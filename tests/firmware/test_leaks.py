"""Nothing is lost: objects come and go thousands of times, run out, and are named when gone."""

import random
from itertools import pairwise

import pytest

from firmware.device import Request
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import QpState as S
from hdl.abi.enums import QpType as T
from hdl.wire.constants import mapped_gid
from tests.firmware.fake_hardware import CONFIG, Bench, finish
from tests.firmware.test_commands import region
from tests.firmware.test_qp import ATTRS
from tests.firmware.transition_table import TABLE, TYPES

TURNS = 10_000
ALL = {"pd": CONFIG.mrs, "cq": CONFIG.cqs, "mr": CONFIG.mrs, "qp": CONFIG.qps - 2}
CREATE = {
    "pd": (C.CREATE_PD, "pdn"),
    "cq": (C.CREATE_CQ, "cqn"),
    "mr": (C.REG_USER_MR, "mrn"),
    "qp": (C.CREATE_QP, "qpn"),
}
DESTROY = {"pd": C.DESTROY_PD, "cq": C.DESTROY_CQ, "mr": C.DEREG_MR, "qp": C.DESTROY_QP}
BODIES = {
    "pd": {},
    "cq": dict(cqe=8),
    "mr": region(),
    "qp": dict(pdn=0, qp_type=T.RC, max_send_wr=4, max_recv_wr=4),
}
WAY = (S.RESET, S.INIT, S.RTR, S.RTS)
ERR = {"qp_state": S.ERR}


class Quick(Bench):
    """The answer's values, or None for ERR; without a look at the log."""

    def ask(self, command, /, **fields):
        asked, answered = abi.COMMANDS[command]
        data = bytes([command]) + asked.pack(fields)
        self.hardware.inbox.append(
            Request(self.function.number, data, len(data), 1 + answered.size)
        )
        assert finish(self.firmware.step())
        self.hardware.log.clear()
        response = self.hardware.outbox.pop()
        return None if response == b"\1" else answered.unpack(response[1:])

    def create(self, kind, **changes):
        """The new object's number, or None."""
        command, name = CREATE[kind]
        answer = self.ask(command, **BODIES[kind] | changes)
        return None if answer is None else answer[name]

    def destroy(self, kind, number):
        """Whether the object was there and could go."""
        asked, _ = abi.COMMANDS[DESTROY[kind]]
        return self.ask(DESTROY[kind], **{asked.fields[0].name: number}) is not None

    def go(self, qpn, type_, end):
        """Brings a new QP into the state ``end``."""
        for before, after in pairwise(WAY[: WAY.index(end) + 1]):
            mask = 1 | TABLE[type_, before, after][0]
            attrs = ATTRS | {"qp_state": after}
            assert self.ask(C.MODIFY_QP, qpn=qpn, attr_mask=mask, attrs=attrs) is not None

    def left(self):
        """What must be as it was: handles, users, READ resources; rows that are not 0."""
        rows = {key: words for key, words in self.hardware.state().items() if any(words)}
        return rows, self.snapshot()[1:]


def sizes(objects):
    """How much the firmware remembers."""
    handles = (objects.pds, objects.cqs, objects.mrs, objects.qps)
    known = [len(h._objects) + len(h._free) for h in handles]
    return [*known, len(objects.gids), len(objects.slices._taken)]


def test_everything_10000_times():
    """Made, used and destroyed; a QP is destroyed in each of its states in turn."""

    bench = Quick()
    objects, gid = bench.function.commands.objects, mapped_gid(b"\x0a\0\0\1")
    empty, at_first = bench.left(), sizes(objects)
    for turn in range(TURNS):
        type_, end = TYPES[turn % 4], WAY[turn // 4 % 4]
        bench.ask(C.ADD_GID, gid=gid, gid_type=2, index=1, port_num=1)
        assert bench.create("pd") == 0
        cqs = [bench.create("cq") for _ in range(2)]
        mr, dma = bench.create("mr"), bench.ask(C.GET_DMA_MR, access_flags=1)
        qpn = bench.create("qp", qp_type=type_, recv_cqn=1)
        assert (cqs, mr, dma.mrn) == ([0, 1], 0, 1)
        bench.go(qpn, type_, end)
        for kind, number in (("pd", 0), ("cq", 0), ("cq", 1)):
            assert not bench.destroy(kind, number), "it is in use"
        assert bench.destroy("qp", qpn)
        for kind, number in (("mr", 1), ("cq", 1), ("mr", 0), ("pd", 0), ("cq", 0)):
            assert bench.destroy(kind, number)
            assert not bench.destroy(kind, number), "it has gone"
        assert bench.ask(C.DEL_GID, index=1, port=1) is not None
        if turn % 100 == 99:
            assert (bench.left(), sizes(objects)) == (empty, at_first), turn


@pytest.mark.parametrize("kind", ALL)
def test_all_of_a_kind(kind):
    """All handles are used up and given back in any order, again and again."""

    bench, rng = Quick(), random.Random(1)
    needed = ("pd", "cq") if kind in ("mr", "qp") else ()
    for other in needed:
        assert bench.create(other) == 0
    empty = bench.left()
    for _ in range(5):
        numbers = [bench.create(kind) for _ in range(ALL[kind])]
        full = bench.left()
        for _ in range(3):
            assert bench.create(kind) is None
        assert bench.left() == full and len(set(numbers)) == ALL[kind] and None not in numbers
        rng.shuffle(numbers)
        for number in numbers[: ALL[kind] // 2]:  # some come again before all have gone
            assert bench.destroy(kind, number)
        again = [bench.create(kind) for _ in range(ALL[kind] // 2)]
        assert None not in again and bench.create(kind) is None
        for number in again + numbers[ALL[kind] // 2 :]:
            assert bench.destroy(kind, number)
        assert bench.left() == empty


class Model:
    """Which objects there are and who uses them; says what the answer must be."""

    def __init__(self):
        self.users = {"pd": {}, "cq": {}, "mr": {}, "qp": {}}
        self.uses = {}

    def created(self, kind, number, uses):
        assert number not in self.users[kind]
        self.users[kind][number] = 0
        self.uses[kind, number] = uses
        for other, used in uses:
            self.users[other][used] += 1

    def can_create(self, kind, uses):
        there = all(number in self.users[other] for other, number in uses)
        return there and len(self.users[kind]) < ALL[kind]

    def destroyed(self, kind, number):
        """Whether it can go; then it has."""
        if self.users[kind].get(number, 1):
            return False
        del self.users[kind][number]
        for other, used in self.uses.pop((kind, number)):
            self.users[other][used] -= 1
        return True


@pytest.mark.parametrize("seed", range(4))
def test_commands_in_any_order(seed):
    """Several clients create and destroy at once: handles that others use, that have just gone,
    that came again. Each answer is what the model says, and nothing is left."""

    bench, rng, model = Quick(), random.Random(seed), Model()
    empty, gone = bench.left(), {kind: [99] for kind in ALL}

    def some(kind):
        return rng.choice(gone[kind][-3:] + list(model.users[kind]) * 3)

    for _ in range(4000):
        kind = rng.choice(list(ALL))
        number = some(kind)
        match rng.randrange(4):
            case 0 | 1:
                uses = {"mr": [("pd", some("pd"))], "qp": [("pd", some("pd"))]}.get(kind, [])
                changes = {"pdn": uses[0][1]} if uses else {}
                if kind == "qp":
                    uses += [("cq", some("cq")), ("cq", some("cq"))]
                    changes |= dict(send_cqn=uses[1][1], recv_cqn=uses[2][1])
                made = bench.create(kind, **changes)
                assert (made is not None) == model.can_create(kind, uses)
                if made is not None:
                    model.created(kind, made, uses)
            case 2:
                went = bench.destroy(kind, number)
                assert went == model.destroyed(kind, number), (kind, number)
                gone[kind] += [number] * went
            case 3:
                qpn, cqn = some("qp"), some("cq")
                answer = bench.ask(C.QUERY_QP, qpn=qpn)
                assert (answer is not None) == (qpn in model.users["qp"])
                answer = bench.ask(C.MODIFY_QP, qpn=qpn, attr_mask=1, attrs=ERR)
                assert (answer is not None) == (qpn in model.users["qp"])
                answer = bench.ask(C.REQ_NOTIFY_CQ, cqn=cqn, flags=2)
                assert (answer is not None) == (cqn in model.users["cq"])
    for kind in ("qp", "mr", "cq", "pd"):
        for number in list(model.users[kind]):
            assert bench.destroy(kind, number) and model.destroyed(kind, number)
    assert bench.left() == empty
