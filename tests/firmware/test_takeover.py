"""A firmware goes on where another was killed: wherever that was, and whatever was under way."""

from copy import deepcopy

import pytest

from firmware.device import HardwareError, Request
from firmware.journal import Journal, JournalError
from firmware.service import Firmware
from firmware.takeover import JournalKeeper
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import Access, EventType, MwType, NotifyFlags, ReregFlags, SrqAttrMask
from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import ExtensionCommand as X
from hdl.abi.enums import QpAttrMask as M
from hdl.abi.enums import QpState as S
from hdl.abi.enums import QpType as T
from hdl.config import NicConfig
from tests.firmware.fake_hardware import ALL_TYPES, CONFIG, Bench, finish
from tests.firmware.test_commands import region
from tests.firmware.test_qp import ATTRS
from tests.firmware.transition_table import TABLE

#: The pair of the QP that walks, and of one that takes from a shared receive queue.
WALKS, SHARES = 2, 3
SRQN = CONFIG.qps - 1
#: A QP that follows it in the same pair, and its groups.
MEMBER = CONFIG.qps + SHARES
GROUP, OTHER = bytes(10) + b"\xff\xff\xe0\1\2\3", b"\xff\x02" + bytes(14)
BOUND = Access.LOCAL_WRITE | Access.REMOTE_WRITE | Access.MW_BIND


def step(qpn, kind, before, after):
    """MODIFY_QP with what this transition needs."""
    mask = M.STATE | TABLE[kind, before, after][0]
    return C.MODIFY_QP, dict(qpn=qpn, attr_mask=mask, attrs=ATTRS | {"qp_state": after})


def create_qp(**more):
    sizes = dict(max_send_wr=4, max_recv_wr=4, max_send_sge=1, max_recv_sge=1)
    return C.CREATE_QP, dict(pdn=0, send_cqn=0, recv_cqn=1, qp_type=T.RC) | sizes | more


#: A life of everything.
SCRIPT = [
    (C.CREATE_PD, {}),
    (C.CREATE_PD, {}),
    (C.CREATE_CQ, dict(cqe=8)),
    (C.CREATE_CQ, dict(cqe=8)),
    (C.ADD_GID, dict(gid=bytes(10) + b"\xff\xff\x0a\0\0\1", gid_type=2, index=1, port_num=1)),
    (C.ADD_GID, dict(gid=bytes(15) + b"\1", gid_type=2, index=0, port_num=1)),
    (C.DEL_GID, dict(index=0, port=1)),
    (C.GET_DMA_MR, dict(pdn=0, access_flags=1)),
    (C.REG_USER_MR, region(access_flags=BOUND)),
    (C.CREATE_MR, dict(pdn=1, max_num_sg=8)),
    (C.MAP_MR_SG, dict(mrn=2, start=0x1000, length=8000, pages=0x4000, npages=2)),
    (X.REREG_MR, dict(mrn=1, flags=ReregFlags.PD | ReregFlags.ACCESS, pdn=1, access_flags=BOUND)),
    (X.ALLOC_MW, dict(pdn=1, type=MwType.TYPE_1)),
    (X.REREG_MR, dict(mrn=1, flags=ReregFlags.PD, pdn=0)),
    (create_qp()),
    step(WALKS, T.RC, S.RESET, S.INIT),
    step(WALKS, T.RC, S.INIT, S.RTR),
    step(WALKS, T.RC, S.RTR, S.RTS),
    (C.QUERY_QP, dict(qpn=WALKS)),
    step(WALKS, T.RC, S.RTS, S.SQD),
    step(WALKS, T.RC, S.SQD, S.RTS),
    (X.RESIZE_QP, dict(qpn=WALKS, max_send_wr=8, max_recv_wr=4)),
    (C.REQ_NOTIFY_CQ, dict(cqn=0, flags=NotifyFlags.NEXT_COMPLETION)),
    (X.CREATE_SRQ, dict(pdn=0, max_wr=16, max_sge=1, srq_limit=3)),
    (X.MODIFY_SRQ, dict(srqn=SRQN, attr_mask=SrqAttrMask.LIMIT, srq_limit=5)),
    (create_qp(srqn=SRQN, max_recv_wr=0)),
    step(SHARES, T.RC, S.RESET, S.INIT),
    step(SHARES, T.RC, S.INIT, S.ERR),
    (C.DESTROY_QP, dict(qpn=SHARES)),
    (X.DESTROY_SRQ, dict(srqn=SRQN)),
    step(WALKS, T.RC, S.RTS, S.ERR),
    step(WALKS, T.RC, S.ERR, S.RESET),
    step(WALKS, T.RC, S.RESET, S.INIT),
    (C.DESTROY_QP, dict(qpn=WALKS)),
    (create_qp()),
    (C.MODIFY_QP, dict(qpn=99, attr_mask=M.STATE, attrs=ATTRS)),  # refused
    (create_qp(qp_type=T.UD)),
    (X.ATTACH_MCAST, dict(qpn=MEMBER, gid=GROUP)),
    (X.ATTACH_MCAST, dict(qpn=MEMBER, gid=OTHER)),
    (X.DETACH_MCAST, dict(qpn=MEMBER, gid=GROUP)),
    (C.DESTROY_QP, dict(qpn=MEMBER)),  # refused: it is a member
    (X.DEALLOC_MW, dict(mwn=3)),
    (C.DEREG_MR, dict(mrn=1)),
    (C.DEREG_MR, dict(mrn=2)),
    (C.DESTROY_CQ, dict(cqn=0)),  # refused: it is in use
    (C.DESTROY_PD, dict(pdn=1)),
]


class Killed(BaseException):
    """The firmware's process ends here."""


class Mortal:
    """The hardware for a firmware that is killed before its operation ``life``."""

    def __init__(self, hardware, life):
        self._hardware, self.left = hardware, life

    def __getattr__(self, name):
        operation = getattr(self._hardware, name)

        async def counted(*where, **how):
            if self.left == 0:
                raise Killed
            self.left -= 1
            return await operation(*where, **how)

        return counted


class Kept(Bench):
    """A bench whose firmware keeps a journal; ``again`` starts another one in its place."""

    journal = None

    def __init__(self, path, **more):
        super().__init__(**more)
        self.path, self.config = path, more.get("config", CONFIG)
        self.hardware.features = 0xFFFF
        self.hardware.available[self.config.rq_queue(SRQN)] = 100  # its limit is not reached
        assert not self.again()

    def again(self, life=-1):
        """Whether it has taken over."""
        self.firmware = Firmware(Mortal(self.hardware, life), self.config, qp_types=ALL_TYPES)
        self.function = self.firmware.functions[0]
        self.close()
        self.journal = Journal(self.path)
        taken = finish(JournalKeeper(self.firmware, self.journal, self.config).begin())
        if not self.hardware.inbox:
            finish(self.firmware.step())
        return taken

    def close(self):
        """The process has ended, and its files are closed."""
        if self.journal is not None:
            self.journal.close()

    def copy(self, path):
        """A card like this one, with a firmware that has just taken it over."""
        other = object.__new__(Kept)
        other.path, other.config, other.hardware = path, self.config, deepcopy(self.hardware)
        path.write_bytes(self.path.read_bytes())
        assert other.again()
        return other

    def answer(self, command, fields, life=-1):
        """The answer; None when the firmware was killed at its work."""
        asked, answered = abi.structures(command)
        self.firmware.hardware.left = life
        try:
            return self.raw(bytes([command]) + asked.pack(fields), 1 + answered.size)
        except Killed:
            return None

    def seen(self):
        """All that must not depend on who has served."""
        objects = self.function.commands.objects
        users = [(one.number, one.users) for one in (*objects.pds.all(), *objects.cqs.all())]
        attrs = [abi.QP_ATTR.pack(qp.attrs) for qp in objects.qps.all()]
        *others, qps, gids, slices = self.snapshot()
        qps = [(qpn, part) for qpn, _, part in qps]
        return (*others, qps, gids, slices, attrs, users, objects.tags, objects.generations)


def test_killed_anywhere(tmp_path):
    """At each operation of each command: the next firmware gives the same answer, and objects and
    rows end as if nothing had happened."""
    whole = Kept(tmp_path / "whole")
    killed, refused = 0, 0
    for number, (command, fields) in enumerate(SCRIPT):
        before = whole.copy(tmp_path / f"{number}")
        expected = whole.answer(command, fields)
        refused += expected == b"\1"
        after = whole.seen()
        for life in range(1000):
            bench = before.copy(tmp_path / f"{number}-{life}")
            found = bench.answer(command, fields, life)
            whole_life = found is not None
            assert bench.again()
            if not whole_life:
                killed += 1
                found = bench.hardware.outbox.pop()
            assert found == expected, (command, life)
            assert bench.seen() == after, (command, life)
            assert not bench.hardware.inbox
            bench.close()
            if whole_life:
                break
        else:
            raise AssertionError(f"{command} has no end")
    assert refused == 3
    assert killed > 300


def test_one_command_after_the_other(tmp_path):
    """A new firmware for each command."""
    whole, bench = Kept(tmp_path / "whole"), Kept(tmp_path / "journal")
    for command, fields in SCRIPT:
        assert bench.answer(command, fields) == whole.answer(command, fields), command
        assert bench.again()
        assert bench.seen() == whole.seen(), command


def test_what_has_gone_on_stays(tmp_path):
    """A queue pair that was committed receives and sends, although nobody has been told: the next
    firmware does not set it back."""
    for after, moved in ((S.RTR, {"qp_rx": ("psn", 5)}), (S.RTS, {"qp_tx": ("psn", 7)})):
        before = SCRIPT.index(step(WALKS, T.RC, after - 1, after))
        went_on = 0
        for life in range(100):
            bench = Kept(tmp_path / f"{after}-{life}")
            for past in SCRIPT[:before]:
                bench.answer(*past)
            if bench.answer(*SCRIPT[before], life) is not None:
                break
            if bench.hardware.row("qp_cfg", WALKS)["state"] == after:
                went_on += 1
                for table, (field, count) in moved.items():
                    row = bench.hardware.row(table, WALKS)
                    expected = row[field] + count
                    finish(bench.hardware.write_row(table, WALKS, row | {field: expected}))
            assert bench.again()
            assert bench.hardware.outbox.pop()[0] == 0
            if went_on:
                assert bench.hardware.row(table, WALKS)[field] == expected
                assert bench.hardware.row("qp_cfg", WALKS)["state"] == after
        assert went_on > 1


def lived(path, count=18):
    """A bench with a queue pair in RTS, whose firmware has gone."""
    bench = Kept(path)
    for past in SCRIPT[:count]:
        bench.answer(*past)
    return bench


def test_reset_while_nobody_is_there(tmp_path):
    """The card has cleared its tables. A command was under way, which may have written a row."""
    bench = lived(tmp_path / "journal")
    gone = list(bench.hardware.rows)
    for table in gone:
        if table != "pkey":
            bench.hardware.rows[table].clear()
    finish(bench.hardware.write_row("qp_cfg", 5, {"type": T.RC, "qpn": 5}))
    bench.hardware.resets_seen += 1
    assert bench.again()
    assert not any(any(words) for _, words in bench.hardware.state().items() if _[0] != "pkey")
    assert bench.ok(C.CREATE_PD).pdn == 0
    assert bench.again()
    assert bench.ok(C.CREATE_PD).pdn == 1


def test_events_that_wait(tmp_path):
    """None is told twice; one that may be lost is counted as lost."""
    bench = lived(tmp_path / "journal", 4)
    bench.hardware.slow = 1000
    for past in SCRIPT[4:7]:  # three events
        bench.answer(*past)
    bench.hardware.events.clear()
    bench.hardware.posting, bench.hardware.slow = None, 0
    assert bench.again()
    for _ in range(20):
        finish(bench.firmware.step())
    found = [(one.event, one.index, one.lost) for _, one in bench.hardware.events]
    assert found == [(EventType.GID_CHANGE, 0, 1), (EventType.GID_CHANGE, 0, 0)]  # without GID 1's


def test_settings_that_stay(tmp_path):
    """P_Keys are known from before; one that is set anew reaches the queue pairs."""
    bench = lived(tmp_path / "journal")
    bench.function.set_pkey(0, 0x8123)
    finish(bench.firmware.step())
    assert bench.hardware.row("qp_cfg", WALKS)["pkey"] == 0x8123
    assert bench.again()
    bench.hardware.log.clear()
    bench.function.set_pkey(0, 0x8123)
    finish(bench.firmware.step())
    assert ("write", "qp_cfg", WALKS) not in bench.hardware.log
    bench.function.set_pkey(0, 0x8124)
    finish(bench.firmware.step())
    assert bench.hardware.row("qp_cfg", WALKS)["pkey"] == 0x8124


def test_without_a_journal(tmp_path):
    """A card in use is left alone; one whose objects are gone is not."""
    bench = lived(tmp_path / "journal")
    bench.path.unlink()
    before = bench.hardware.state()
    with pytest.raises(HardwareError, match="has 1 queue pairs and 4 regions of a firmware before"):
        bench.again()
    assert bench.hardware.state() == before
    assert not bench.path.exists()
    bench.hardware.status = 0  # nothing is looked at
    assert not bench.again()
    bench.path.unlink()
    bench.hardware.status = 15
    for rows in bench.hardware.rows.values():
        rows.clear()
    assert not bench.again()


def test_the_card_has_lost_its_power(tmp_path):
    """The journal is of another life of the card."""
    bench = lived(tmp_path / "journal")
    bench.hardware.marked = 0
    with pytest.raises(HardwareError, match="there is no journal of them"):
        bench.again()
    for rows in bench.hardware.rows.values():
        rows.clear()
    assert not bench.again()
    assert bench.ok(C.CREATE_PD).pdn == 0


def test_a_group_that_does_not_fit(tmp_path):
    """The card has other members than the journal tells."""
    attached = SCRIPT.index((X.ATTACH_MCAST, dict(qpn=MEMBER, gid=GROUP)))
    bench = lived(tmp_path / "journal", attached + 1)
    assert bench.again()
    row = bench.hardware.row("group", 0)
    finish(bench.hardware.write_row("group", 0, row | {"member1": 7}))
    with pytest.raises(JournalError, match="group row 0 of the card is"):
        bench.again()


def test_journals_that_do_not_fit(tmp_path):
    bench = lived(tmp_path / "journal")
    text = bench.path.read_text()
    lines = text.splitlines()

    def refused(changed, why):
        bench.path.write_text(changed)
        with pytest.raises(JournalError, match=why):
            bench.again()

    refused("", "journal:1: IndexError")
    refused(text.replace('"version":1', '"version":9'), "version 9, not 1")
    refused(text.replace('"qps":16', '"qps":32'), "another configuration")
    refused("\n".join([*lines[:4], "{", *lines[4:]]), "journal:5: JSONDecodeError")
    refused(lines[0] + "\n", "nothing is told of function 1")
    bench.path.write_text(text)
    row = bench.hardware.row("qp_cfg", WALKS)
    finish(bench.hardware.write_row("qp_cfg", WALKS, row | {"qpn": 0x777}))
    with pytest.raises(JournalError, match="qp_cfg row 2 of the card is"):
        bench.again()
    finish(bench.hardware.write_row("qp_cfg", WALKS, row))
    region_row = bench.hardware.row("mr", 1)
    finish(bench.hardware.write_row("mr", 1, {}))
    with pytest.raises(JournalError, match="mr row 1 of the card is"):
        bench.again()
    finish(bench.hardware.write_row("mr", 1, region_row))
    bench.path.write_text(text + '{"function":1,"res')  # the host has lost its power in a write
    assert bench.again()


def test_a_journal_that_grows_is_written_anew(tmp_path):
    bench = Kept(tmp_path / "journal")
    for _ in range(2600):
        bench.ok(C.CREATE_PD)
        bench.ok(C.DESTROY_PD, pdn=0)
    assert len(bench.path.read_text().splitlines()) < 1100
    assert not bench.path.with_name("journal.new").exists()
    assert bench.again()


def test_a_journal_that_cannot_be_written(tmp_path):
    bench = lived(tmp_path / "journal")
    journal = Journal(tmp_path)
    with pytest.raises(JournalError, match="Is a directory"):
        journal.read()
    journal = Journal(tmp_path / "none" / "journal")
    keeper = JournalKeeper(bench.firmware, journal, CONFIG)
    for rows in bench.hardware.rows.values():
        rows.clear()
    with pytest.raises(JournalError, match="No such file"):
        finish(keeper.begin())


def test_functions_one_by_one(tmp_path):
    """Each function has what it had; one whose reset waits loses what it has."""
    config = NicConfig(qps=32, cqs=16, mrs=64, gids=8, functions=2)
    bench = Kept(tmp_path / "journal", config=config)
    for number in (0, 1):
        bench.function = bench.firmware.functions[number]
        for command, fields in SCRIPT[:18]:
            mine = {"gid": fields["gid"][:-1] + bytes([number + 1])} if "gid" in fields else {}
            assert bench.answer(command, fields | mine)[0] == 0
    bench.hardware.waiting.add(2)
    kept = bench.firmware.functions[0].commands.objects
    bench.again()
    first, second = bench.firmware.functions
    bench.settle()
    assert not bench.hardware.waiting
    assert [len(one.commands.objects.qps) for one in (first, second)] == [1, 0]
    assert first.commands.objects.tags == kept.tags
    guest = config.guest
    assert bench.hardware.row("qp_cfg", WALKS) and not bench.hardware.row(
        "qp_cfg", guest.qps + WALKS
    )
    # Without the journal: the function whose driver has gone can be given up.
    bench.path.unlink()
    bench.hardware.waiting |= {1}
    assert not bench.again()
    assert not bench.hardware.row("qp_cfg", WALKS)
    assert not any(any(words) for _, words in bench.hardware.state().items() if _[0] != "pkey")


def test_a_request_of_a_function_in_reset(tmp_path):
    """The firmware was killed with a request in the mailbox, and the function's driver has reset
    since: the control queue is not dropped while the request waits, so it gets no answer first."""
    config = NicConfig(qps=32, cqs=16, mrs=64, gids=8, functions=2)
    for journal in (True, False):
        bench = Kept(tmp_path / "journal", config=config)
        for command, fields in SCRIPT[:18]:
            assert bench.answer(command, fields)[0] == 0
        finish(bench.hardware.write_row("queue", 0, {"enabled": 1}))
        bench.hardware.inbox.append(Request(1, bytes([C.CREATE_PD]), 1, 200))
        bench.hardware.begin_reset(1)
        bench.hardware.outbox.clear()
        if not journal:
            bench.path.unlink()
        assert bench.again() == journal
        bench.settle()
        assert bench.hardware.outbox == [b""] and not bench.hardware.waiting
        assert not bench.firmware.functions[0].commands.objects.pds.all()
        assert not bench.hardware.row("qp_cfg", WALKS)
        bench.path.unlink()


def test_killed_at_a_broken_queue(tmp_path):
    """At each operation: the next firmware begins with the same virtqueue again. All queue pairs
    that use it end in ERR, and none of the events is told twice, whatever of them is lost."""
    whole = Kept(tmp_path / "whole")
    for past in SCRIPT[:18]:
        whole.answer(*past)
    for command in (create_qp(), step(SHARES, T.RC, S.RESET, S.INIT)):
        whole.answer(*command)
    whole.hardware.events.clear()
    for life in range(1000):
        bench = whole.copy(tmp_path / f"{life}")
        bench.hardware.broken.append(CONFIG.cq_queue(1))
        bench.firmware.hardware.left = life
        try:
            while finish(bench.firmware.step()):
                pass
            whole_life = True
        except Killed:
            whole_life = False
        bench.hardware.posting = None  # it may be lost with the firmware
        assert bench.again()
        for _ in range(20):
            finish(bench.firmware.step())
        assert not bench.hardware.broken
        for pair in (WALKS, SHARES):
            assert bench.hardware.row("qp_cfg", pair)["state"] == S.ERR, life
            assert bench.function.commands.objects.qps.get(pair).state == S.ERR
        found = [(one.event, one.number) for _, one in bench.hardware.events]
        lost = sum(one.lost for _, one in bench.hardware.events)
        wanted = [(EventType.CQ_ERR, 1), (EventType.QP_FATAL, WALKS), (EventType.QP_FATAL, SHARES)]
        assert len(found) == len(set(found)) and set(found) <= set(wanted), (life, found)
        assert len(found) + max(lost, 1) >= len(wanted), life
        bench.close()
        if whole_life:
            break
    assert life > 10
