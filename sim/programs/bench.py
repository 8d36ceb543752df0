"""A program inside the simulation: ``sim.programs.command`` starts it.

Its job (``sim.bench.job``): ``config``, ``cards``, ``mac``, ``impair``, ``timer_scale``, ``pcap``
(path or null), ``terminal`` (path of a socket, see ``Terminal``),
``folder`` (where the program runs), ``vendor`` (what the cards pass for, or ""), ``program``
(module of this package that runs it), ``spec`` (what that is told). ``status`` is kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any

import cocotb
from cocotb.triggers import Timer

from hdl.abi.enums import RdmaFeature
from hdl.config import NicConfig
from sim.bench.job import Job
from sim.bench.system import Node
from sim.bench.testbench import Testbench
from sim.guest.driver.device import ALL_FEATURES, DriverOptions
from sim.guest.verbs import CommandError
from sim.models.impairments import Impairments
from sim.models.platform import Wire
from sim.programs import cards, importing, sysfs
from sim.programs.cards import Card
from sim.programs.errand import Errands
from sim.programs.vendors import VENDORS

__all__ = ["program"]

#: Memory of each card's driver, bytes. Regions of the program are its own memory.
MEMORY = 512 << 20
#: In which a card's firmware tells all events of its bringing up.
SETTLED_US = 100
_OPTIONS = DriverOptions(features=ALL_FEATURES | RdmaFeature.EVENTS.mask, vectors=18)


class Terminal:
    """What the command lends the program: standard input, output and error; and Ctrl-C.

    The process ends at once when the command is gone.
    """

    def __init__(self, path: str):
        self._door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._door.connect(path)
        _, self._given, _, _ = socket.recv_fds(self._door, 1, 3)
        self._own: list[int] = []

    def __enter__(self) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        self._own = [os.dup(number) for number in range(3)]
        for number, given in enumerate(self._given):
            os.dup2(given, number)
        sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)
        sys.stderr = open(2, "w", buffering=1, closefd=False)

    def __exit__(self, *_: object) -> None:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        for number, own in enumerate(self._own):
            os.dup2(own, number)

    def listen(self, stop: Callable[[], None]) -> None:
        """From now on call ``stop`` at each Ctrl-C."""

        def listen() -> None:
            while self._door.recv(1):
                stop()
            os._exit(1)

        threading.Thread(target=listen, daemon=True).start()


async def start(dut: Any, spec: dict[str, Any]) -> tuple[Testbench, list[Node]]:
    """Bring the cards up."""
    config, count = NicConfig(**spec["config"]), spec["cards"]
    testbench = Testbench(
        dut, config=config, memory=MEMORY, jump="rest", cards=count, connect=count > 1
    )
    await testbench.start()
    nodes = []
    for index in range(count):
        mac = (spec["mac"] + index).to_bytes(6, "big")
        node = Node(testbench, index, address=f"10.0.0.{index + 1}", mac=mac)
        node.timer_scale = spec["timer_scale"]
        await node.start(_OPTIONS)
        with contextlib.suppress(CommandError):  # of a card without IPv6
            await node.context.add_gid(1, f"fd00::{index + 1}")
        await settle(node)
        testbench.wires[index].impair(*[Impairments.parse(spec["impair"])] * 2)
        nodes.append(node)
    return testbench, nodes


async def settle(node: Node) -> None:
    """Take the events that bringing up makes: no program has asked for them."""
    await Timer(SETTLED_US, "us")
    if node.context.events is not None:
        while await node.context.events.poll() is not None:
            pass


@cocotb.test()
async def program(dut: Any) -> None:
    """Run one program to its end."""
    job = Job()
    spec = job.spec
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the command has it as well, and tells
    terminal = Terminal(spec["terminal"])
    if spec["pcap"]:
        Wire.capture(spec["pcap"])
    testbench, nodes = await start(dut, spec)
    errands = Errands(testbench, nodes)
    vendor = VENDORS.get(spec["vendor"])
    cards.offer([Card(f"rocinante{i}", node, errands, vendor) for i, node in enumerate(nodes)])
    errands.looks += [card.look for card in cards.cards()]
    importing.install()
    status = [1]

    def run() -> None:
        try:
            sysfs.show(cards.cards(), job.folder / "sys")
            with contextlib.chdir(spec["folder"]):
                module = importlib.import_module(f"sim.programs.{spec['program']}")
                status[0] = module.run(**spec["spec"])
        finally:
            errands.end()

    thread = threading.Thread(target=run, name="MainThread", daemon=True)

    def stop() -> None:
        if thread.ident is not None and not errands.fail(KeyboardInterrupt(), thread.ident):
            ident = ctypes.c_ulong(thread.ident)
            raising = ctypes.py_object(KeyboardInterrupt)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, raising)

    terminal.listen(stop)
    with terminal:
        thread.start()
        await errands.run()
        thread.join()
    Wire.end_capture()
    job.keep(status=status[0], time_ns=nodes[0].host.now())
