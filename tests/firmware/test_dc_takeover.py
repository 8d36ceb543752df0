"""A firmware takes over a card with connections of DC: whatever the one before was about to do."""

from firmware.dc.packets import Connect, Disconnect, DisconnectAck, EndStatus, Reply, ReplyStatus
from firmware.journal import Journal
from firmware.machine import Machine
from firmware.service import Firmware
from firmware.takeover import JournalKeeper
from hdl.abi.enums import ExtensionCommand as X
from hdl.abi.enums import QpState as S
from hdl.csr.map import row_map
from tests.firmware.fake_hardware import ALL_TYPES, CONFIG, finish
from tests.firmware.test_dc import DC, WAY, Initiator
from tests.firmware.test_takeover import Killed
from tests.firmware.transition_table import DC_TYPES

SECOND = 1_000_000_000
#: Operations that no action here takes.
MANY = 500


class Mortal:
    """What a firmware uses, until it is killed when ``left`` operations have been done."""

    def __init__(self, used, left):
        self._used, self._left = used, left

    def __getattr__(self, name):
        found = getattr(self._used, name)
        if name == "connections":
            return Mortal(found, self._left)
        if not callable(found):
            return found

        async def counted(*where, **how):
            if self._left[0] == 0:
                raise Killed
            self._left[0] -= 1
            return await found(*where, **how)

        return counted


class Kept(Initiator):
    """An initiator, whose first request waits, and a target, of a firmware with a journal, which
    has taken over once when nothing was connected."""

    def __init__(self, path):
        super().__init__()
        self.ok(X.CREATE_DC_DESTINATION, **WAY, dctn=0x44)
        self.hardware.connections = self.net
        self.path, self.left = path, [-1]
        self.journal = Journal(path)
        keeper = JournalKeeper(self.firmware, self.journal, DC)
        keeper._mark = self.hardware.marked = 7
        keeper._keep()
        self.net.waits.clear()
        self.again()
        self.net.time += SECOND  # rows of before have rested
        self.step()
        self.unused = self.free
        self.card_asks()

    def again(self):
        """Another firmware takes over."""
        self.journal.close()
        self.journal = Journal(self.path)
        self.left[0] = -1
        self.firmware = Firmware(
            Mortal(self.hardware, self.left),
            DC,
            qp_types=ALL_TYPES | {*DC_TYPES},
            machine=Machine(clock=lambda: self.net.time),
        )
        self.function = self.firmware.functions[0]
        assert finish(JournalKeeper(self.firmware, self.journal, DC).begin())

    def killed(self, life, act):
        """Whether the firmware was killed in ``act``. Another one has taken over then, and what the
        one before had sent is returned."""
        self.left[0] = life
        try:
            act()
        except Killed:
            killed, sent = True, list(self.net.sent)
        else:
            killed, sent = False, []
        self.net.sent.clear()
        self.again()
        return killed, sent

    @property
    def free(self):
        return len(self.function.commands.objects.qps._free)

    @property
    def row(self):
        """Of the initiator."""
        return self.pair_row(self.pair)

    @property
    def connected(self):
        """Whether the card sends requests of the initiator."""
        return self.row.get("recv_pd", 0) != 0 and self.row["state"] == S.RTS

    def card_asks(self):
        """The request that waits is held again, as the initiator was woken."""
        self.net.waits[self.pair] = 1, 0

    def settles(self):
        """All connections end, and rows are free again; no packet of another one is sent."""
        for _ in range(20):
            for packet in self.step():
                if isinstance(packet, Disconnect):
                    answer = (packet.number, packet.psn, packet.dest, packet.nonce)
                    self.receive(DisconnectAck(*answer, EndStatus.CLOSED))
            self.net.time += SECOND
        self.step(3)
        assert self.free == self.unused and not self.function.commands.objects.contexts


def everywhere(tmp_path, case):
    """Plays ``case`` with a firmware that is killed before its first operation, its second one, and
    so on until it is killed no more; how often it was."""
    for life in range(MANY):
        bench = Kept(tmp_path / f"{life}")
        if not case(bench, life):
            return life
        bench.settles()
    raise AssertionError("it has no end")


def test_killed_while_it_connects(tmp_path):
    """Before the CONNECT, or between that and an open row: the next firmware connects anew. With an
    open row it does not touch what the requester has, and closes that connection first."""
    seen = set()

    def case(bench, life):
        connects = []

        def act():
            connects.extend(bench.step())
            (connect,) = connects
            granted = {"depth": 2, "context": 0x77, "keep": 20}
            reply = Reply(connect.channel, connect.psn, connect.nonce, **granted)
            assert bench.receive(reply) == []

        def psns():
            rows = [bench.hardware.row(name, bench.pair) for name in ("qp_tx", "qp_ack")]
            return [row.get("psn") for row in rows]

        killed, sent = bench.killed(life, act)
        connect, before = next(iter(connects + sent), None), psns()
        was_open = "dest_qpn" in bench.row
        bench.card_asks()
        (first,) = bench.step(2)
        seen.add(type(first))
        if isinstance(first, Disconnect):
            assert first == Disconnect(0x77, first.psn, connect.channel, connect.nonce)
            assert psns() == before and not bench.connected
            answer = DisconnectAck(connect.channel, first.psn, 0x77, connect.nonce)
            assert [one.dest for one in bench.receive(answer)] == [0x33]
        else:
            assert not was_open and first.dest == 0x33
            assert connect is None or first.nonce != connect.nonce
        bench.net.waits.clear()
        return killed

    assert everywhere(tmp_path, case) > 20 and seen == {Connect, Disconnect}


def test_killed_while_it_closes(tmp_path):
    """A connection ends with all that is under way answered, also by a firmware that has come when
    a request was; what waits is for the next connection."""

    def case(bench, life):
        connect = bench.open()
        rows, psn = bench.hardware.rows, connect.psn + 2
        rows["qp_tx"][bench.pair] = row_map("qp_tx").pack({"high": 2, "psn": psn})
        bench.net.waits[bench.pair] = 2, 0

        def answered():
            rows["qp_ack"][bench.pair] = row_map("qp_ack").pack({"position": 2, "psn": psn})

        def act():
            assert bench.step(3) == []
            answered()
            (goodbye,) = bench.step()
            bench.receive(DisconnectAck(connect.channel, goodbye.psn, 0x77, connect.nonce))

        killed, _ = bench.killed(life, act)
        ended = bench.hardware.row("qp_ack", bench.pair).get("position") == 2
        bench.net.waits[bench.pair] = 2, 0
        found = bench.step(2)
        assert found == [] or ended, "a DISCONNECT before all was answered"
        answered()
        found += bench.step(2)
        assert not bench.connected
        if isinstance(found[0], Disconnect):
            assert found == [Disconnect(0x77, psn, connect.channel, connect.nonce)]
            found = bench.receive(DisconnectAck(connect.channel, psn, 0x77, connect.nonce))
        assert [one.dest for one in found] == [0x44]
        bench.net.waits.clear()
        return killed

    assert everywhere(tmp_path, case) > 20


def test_killed_while_it_accepts(tmp_path):
    """A context that somebody was told of is there for its keep time; no row is lost."""
    told = []

    def case(bench, life):
        bench.net.waits.clear()
        asks = bench.asks(nonce=5)
        killed, sent = bench.killed(life, lambda: bench.receive(asks))
        waiting, bench.net.inbox[:] = len(bench.net.inbox), []
        (reply,) = bench.receive(asks)
        if sent:
            told.append(waiting)
            assert reply == sent[0] and reply.status == ReplyStatus.ACCEPTED
            row = bench.pair_row(reply.context % CONFIG.qps)
            assert (row["state"], row["qpn"]) == (S.RTR, reply.context)
            goodbye = Disconnect(reply.context, 0, asks.channel, 5)
            assert bench.receive(goodbye)[0].status == EndStatus.CLOSED
        else:
            assert reply.status in (ReplyStatus.ACCEPTED, ReplyStatus.BUSY)
        return killed

    assert everywhere(tmp_path, case) > 10 and told


def test_killed_while_an_end_goes(tmp_path):
    """The end of a connection is answered, and its row is free in the end."""

    def case(bench, life):
        bench.net.waits.clear()
        (reply,) = bench.receive(bench.asks(nonce=5))
        goodbye = Disconnect(reply.context, 0, bench.asks().channel, 5)
        killed, _ = bench.killed(life, lambda: bench.receive(goodbye))
        bench.net.inbox.clear()
        assert [one.dest for one in bench.receive(goodbye)] == [goodbye.number]
        assert bench.pair_row(reply.context % CONFIG.qps) == {}
        return killed

    assert everywhere(tmp_path, case) > 10


def test_what_a_firmware_before_has_granted(tmp_path):
    """The part of the READ requests that an end has is not another one's; a new connection has to
    wait until rows that may be resting have rested."""
    bench = Kept(tmp_path / "journal")
    bench.net.waits.clear()
    (reply,) = bench.receive(bench.asks(nonce=5))
    taken = bench.function.commands.objects.slices._taken
    bench.again()
    assert bench.function.commands.objects.slices._taken == taken
    assert bench.receive(bench.asks(nonce=6))[0].status == ReplyStatus.BUSY
    bench.net.time += 17_000_000
    (other,) = bench.receive(bench.asks(nonce=6))
    assert other.status == ReplyStatus.ACCEPTED and other.context != reply.context
    assert bench.ok(X.QUERY_DCT, qpn=bench.dct).contexts == 2
