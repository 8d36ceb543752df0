"""What ``sequences`` tells of two cards is what is recorded, and how it is made."""

from __future__ import annotations

import json

from click.testing import CliRunner

from sim.measure.sequences.command import FILE, lines, play, text
from sim.measure.sequences.story import Names, Step, of_frame, of_port, steps
from sim.models.port_log import Access, AccessKind
from sim.tools import cli
from sim.wire import packets as pk


def test_the_cards_do_what_is_recorded() -> None:
    """Each step of each scene, to the nanosecond."""
    found = play()
    assert text(found) == FILE.read_text(), "run: ./rocinante sequences --record"


def test_recorded_scenes_are_whole() -> None:
    """From what is posted to what is taken, in the order of time."""
    recorded = json.loads(FILE.read_text())
    scenes = recorded["scenes"]
    assert list(scenes) == [
        *("WRITE", "SEND", "READ", "retry after a NAK", "retry after a time-out", "connect")
    ]
    for name, found in scenes.items():
        times = [step["ns"] for step in found]
        assert times == sorted(times) and times[0] == 0
        told = "\n".join(lines(found))
        if name == "connect":
            for word in ("REQ", "REP", "RTU", "is connected"):
                assert word in told
            continue
        for word in ("posts", "doorbell: send queue", "reads WQE", "writes CQE", "interrupt"):
            assert word in told, (name, word)
        assert ("lost" in told) == name.startswith("retry")
        assert ("NAK: PSN sequence error" in told) == (name == "retry after a NAK")


def test_equal_steps_are_one() -> None:
    found = steps(
        [
            Step(30.0, 2, 1, "writes payload, 256 B"),
            Step(10.0, 0, 0, "posts"),
            Step(20.0, 2, 1, "writes payload, 256 B"),
            Step(40.0, 2, 3, "ACK", until=50.0),
            Step(60.0, 2, 3, "ACK", until=70.0, lost=True),
        ]
    )
    assert found == [
        {"ns": 0.0, "from": 0, "to": 0, "text": "posts"},
        {"ns": 10.0, "from": 2, "to": 1, "text": "writes payload, 256 B", "times": 2, "last": 20.0},
        {"ns": 30.0, "from": 2, "to": 3, "text": "ACK", "until": 40.0},
        {"ns": 50.0, "from": 2, "to": 3, "text": "ACK", "until": 60.0, "lost": True},
    ]
    assert [line.split("  ")[-1].strip() for line in lines(found)] == [
        "posts",
        "writes payload, 256 B, 2 times",
        "ACK",
        "ACK, lost",
    ]


def test_accesses_have_the_names_of_what_they_touch() -> None:
    names = Names()
    names.area(0x1000, 64, "CQE")
    names.queues[7] = "send queue"
    kind = AccessKind
    accesses = [
        Access(kind.REGISTER, 1, 0x3000, 5 << 16 | 7, 1000),
        Access(kind.REGISTER, 2, 0x3000, 7, 2000),  # the firmware's
        Access(kind.READ, 1, 0x1000 + 63, 1, 3000),
        Access(kind.WRITE, 1, 0x1000 + 64, 2, 4000),
        Access(kind.WRITE, 1, 0xFEE00004, 4, 5000),
    ]
    assert of_port(1, accesses, names, management=2) == [
        Step(1.0, 5, 3, "doorbell: send queue"),
        Step(3.0, 3, 4, "reads CQE, 1 B"),
        Step(4.0, 3, 4, "writes memory, 2 B"),
        Step(5.0, 3, 5, "interrupt"),
    ]


def test_frames_say_opcode_and_psn() -> None:
    route = {"src_mac": bytes((2, 0, 0, 0, 0, 2))}
    frame = pk.build(0x0A, payload=bytes(64), dest_qp=5, psn=0x77, **route)
    step = of_frame(100.0, frame, 100, 50)
    assert (step.source, step.target, step.text) == (3, 2, "WRITE ONLY, PSN 0x77, 64 B")
    assert step.until == 100 + 8 * (len(frame) + 4) / 100 + 50


def test_nothing_is_recorded_without_being_asked() -> None:
    done = CliRunner().invoke(cli.rocinante, ["sequences", "--help"])
    assert done.exit_code == 0 and "--record" in done.output
