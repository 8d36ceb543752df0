"""What passes between cards, guests and the user, with guests that are sockets of the test."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from types import SimpleNamespace

import pytest

from sim.machine.cards import SERVED, SO_FAR, Cards
from sim.machine.session import Failure, Run, Session


class FakeCards:
    """Cards whose lines a script of the shell says."""

    def __init__(self, script):
        self.lines = []
        self._rest = b""
        self.process = subprocess.Popen(["sh", "-c", script], stderr=subprocess.PIPE)
        self._errors = self.process.stderr
        os.set_blocking(self._errors.fileno(), False)

    fileno, read, served, _take = Cards.fileno, Cards.read, Cards.served, Cards._take

    def ask(self, stall):
        self.lines += ["Card 0"] * stall + ["card 0: nothing", f"1{SO_FAR}"]

    def close(self):
        self.process.kill()
        self.process.wait()
        self._errors.close()


class FakeGuest:
    """A guest that answers as ``answers`` says: what it is told -> what it tells, in bytes."""

    def __init__(self, name, answers):
        self.plan = SimpleNamespace(name=name)
        self.process = subprocess.Popen(["sleep", "1000"])
        self.ended = "it is dead"
        self.control, self._control = socket.socketpair()
        pairs = {end: socket.socketpair() for end in (1, 3)}
        self.lines = {end: pair[0] for end, pair in pairs.items()}
        self._far = {end: pair[1] for end, pair in pairs.items()}
        self._answers = answers
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self):
        self._control.sendall(self._answers.get("", b"up\n"))
        while data := self._control.recv(100):
            for line in data.decode().splitlines():
                for end, text in self._answers.get(line, {}).items():
                    if end == 0:
                        self._control.sendall(text)
                    elif end < 0:
                        self.process.kill()
                        self.process.wait()
                    else:
                        self._far[end].sendall(text)

    def last_lines(self):
        return ["its last line"]

    def close(self):
        self.process.kill()
        self.process.wait()
        for end in (self.control, *self.lines.values()):
            end.shutdown(socket.SHUT_RDWR)
            end.close()


@pytest.fixture
def start():
    """Starts a session of cards and guests, which end with the test."""
    made = []

    def begin(*guests, script=f"echo '{SERVED}' >&2; exec sleep 1000", limit=30.0):
        made.extend(guests)
        made.append(FakeCards(script))
        return Session(made[-1], guests, limit=limit)

    yield begin
    for one in made:
        one.close()


def test_a_command_alone(start, capfdbinary):
    """Its bytes as they are, and its status."""
    guest = FakeGuest("guest", {"run 1": {1: b"a\0b\r\nc", 0: b"listening 1\nstatus 1 5\n"}})
    session = start(guest)
    session.await_cards()
    session.await_guests()
    session.runs = [Run(guest, 1)]
    assert session.command() == 5
    assert capfdbinary.readouterr().out == b"a\0b\r\nc"


def test_two_sides(start, capfdbinary):
    """The client begins when the server listens; whole lines have the names of their sides."""
    server = FakeGuest("server", {"run 1": {1: b"wait", 0: b"listening 1\n"}})
    client = FakeGuest("client", {"run 1": {1: b"x\ny\n", 0: b"status 1 0\n"}})
    session = start(server, client)
    session.await_guests()
    session.runs = [Run(server, 1, "server"), Run(client, 1, "client")]
    threading.Timer(1.0, server._control.sendall, [b"status 1 3\n"]).start()
    assert session.command() == 3
    out = capfdbinary.readouterr().out
    assert out == b"client: x\nclient: y\nserver: wait\n"


def test_a_server_that_fails_gets_no_client(start, capfdbinary):
    guest = FakeGuest("guest", {"run 1": {1: b"no\n", 0: b"status 1 4\n"}, "run 3": {0: b"x"}})
    session = start(guest)
    session.await_guests()
    session.runs = [Run(guest, 1, "server"), Run(guest, 3, "client")]
    assert session.command() == 4 and session.runs[1].status is None
    assert capfdbinary.readouterr().out == b"server: no\n"


def test_a_command_has_its_time(start):
    guest = FakeGuest("guest", {})
    session = start(guest, limit=0.5)
    session.await_guests()
    session.runs = [Run(guest, 1)]
    with pytest.raises(TimeoutError):
        session.command()
    found = session.account(stall=True)
    assert found[0] == "Card 0" and found[-2:] == ["guest's console:", "its last line"]
    assert session.account() == ["card 0: nothing", f"1{SO_FAR}"]


@pytest.mark.parametrize(
    "answers, reason",
    [
        ({"run 1": {-1: b""}}, "guest: it is dead\n  | its last line"),
        ({"run 1": {0: b"trouble no wire\n"}}, "guest: no wire"),
    ],
)
def test_a_guest_that_dies(start, answers, reason):
    guest = FakeGuest("guest", answers)
    session = start(guest)
    session.await_guests()
    session.runs = [Run(guest, 1)]
    with pytest.raises(Failure) as failure:
        session.command()
    assert str(failure.value) == reason


def test_cards_that_are_never_served(start):
    session = start(script="echo 'Error: no card' >&2; exit 2")
    with pytest.raises(Failure, match="ended with status 2\n  | Error: no card"):
        session.await_cards()


@pytest.mark.parametrize("garbage", [b"status 1 x\n", b"status\n", b"\xff\xfe\n", b"run 1 2 3\n\n"])
def test_garbage_of_a_guest_is_nothing(start, garbage, capfdbinary):
    guest = FakeGuest("guest", {"": b"up\n" + garbage, "run 1": {0: garbage + b"status 1 0\n"}})
    session = start(guest)
    session.await_guests()
    session.runs = [Run(guest, 1)]
    assert session.command() == 0


def test_cards_are_a_process_of_this_ones(tmp_path):
    """Options that are wrong end it with its own words."""
    cards = Cards(tmp_path, ["--width", "65"])
    session = Session(cards)
    with pytest.raises(Failure, match="--width"):
        session.await_cards()
    cards.close()
