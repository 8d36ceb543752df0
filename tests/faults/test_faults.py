"""The list of deliberate faults fits the sources, and the script tells caught from missed."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Fragment, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.sim import Simulator
from click.testing import CliRunner

from sim.rtl.env import REPO
from tests.faults.campaign import CHOICE, put_in
from tests.faults.catalogue import FAULTS, INTEROP, TABLES, campaign_faults, live, of_room
from tests.faults.command import faults, markdown
from tests.faults.fault import Fault
from tests.faults.workshop import FaultError, Workshop, check, workshop
from tests.force import Force, ForceError, applied, chosen, of, stuck

BY_NAME = {one.name: one for one in FAULTS}
#: Told by its text, caught within seconds in Amaranth's simulator.
CHEAP = Fault(
    name="told-by-its-text",
    what="an ACK is left out because another QP will be answered",
    file="hdl/transport/receive/ack_coalescer.py",
    old="same = known & answers & (newest_qp == qp)",
    new="same = known & answers",
    tests=("tests/transport/test_ack_coalescer.py",),
)


def test_names_differ() -> None:
    assert len(BY_NAME) == len(FAULTS) >= 15


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fits_the_source(fault) -> None:
    source = (REPO / fault.place).read_text()
    compile(fault.apply(source), fault.place, "exec")
    if fault.force is not None:  # the class and its signal are there; elaboration tells the rest
        part = inspect.getsource(fault.force.find())
        name = fault.force.signal.split(".")[0]
        beside = (path.read_text() for path in (REPO / fault.place).parent.glob("*.py"))
        assert re.search(rf"\b{name}\b", part) or any(f'name="{name}"' in text for text in beside)
    assert (fault.force is None) == bool(fault.because)


def test_named_tests_are_there() -> None:
    """pytest finds each test that a fault names: a file, a test or one of its cases."""
    named = {test for fault in (*FAULTS, CHEAP) for test in fault.tests} | {INTEROP}
    files = sorted({test.partition("::")[0] for test in named})
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", *files],
        cwd=REPO, capture_output=True, text=True, check=True,
    )  # fmt: skip
    cases = {line for line in done.stdout.splitlines() if "::" in line}
    found = cases | {one.partition("[")[0] for one in cases} | set(files)
    assert not named - found


def test_text_that_is_not_there_is_named() -> None:
    with pytest.raises(
        ValueError, match="Fault told-by-its-text: .* hdl/transport/receive/ack_coalescer.py, not 0"
    ):
        CHEAP.apply("")


@pytest.mark.parametrize("table", TABLES)
def test_each_fault_stands_in_the_table_of_its_room(table: str) -> None:
    """Of hdl/ the room, or ``room_part`` for a folder of it; of others their folder."""
    room, _, part = table.partition("_")
    top = {
        "firmware": "firmware",
        "boards": "boards",
        "guest": "sim/guest",
        "card": "sim/host",
    }.get(room, f"hdl/{room}")
    beside = {name.partition("_")[2] for name in TABLES if name.startswith(f"{room}_")}
    for fault in TABLES[table]:
        path = fault.place.removeprefix(f"{top}/")
        assert path != fault.place, f"{fault.name} is in {fault.place}"
        folder = path.partition("/")[0]
        assert part == (folder if folder in beside else ""), f"{fault.name} is in {fault.place}"


class Successor(wiring.Component):
    """One more than what comes in; what is worked out has a name of its own."""

    def __init__(self):
        super().__init__({"i": In(8), "o": Out(8)})

    def elaborate(self, platform):
        m = Module()
        m.d.comb += self.o.eq(self._raised(m))
        return m

    def _raised(self, m):
        raised = Signal(8, name="one_more")
        m.d.comb += raised.eq(self.i + 1)
        return raised


@pytest.mark.parametrize(
    "signal,change,shown",
    [
        ("raised", of(lambda true, see: true ^ see("i")), 5 ^ 6),  # by its name in a method
        ("one_more", stuck(9), 9),  # by its own
        ("i", of(lambda true, see: true + see("i")), 11),
    ],
)
def test_force_is_a_function_of_signals(signal, change, shown) -> None:
    async def bench(ctx):
        ctx.set(dut.i, 5)
        await ctx.delay(1e-9)
        assert ctx.get(dut.o) == shown

    for having in ("", "o"):
        dut = Successor()
        with applied(Force(f"{__name__}:Successor", signal, change, having)):
            simulator = Simulator(Fragment.get(dut, None))
        simulator.add_testbench(bench)
        simulator.run()


def test_forces_of_one_component_are_chosen_in_the_simulation() -> None:
    """Both find their signals, and each has its number; without one nothing is changed."""
    choices = (("raised", stuck(9), 1), ("i", stuck(7), 2))
    forces = [Force(f"{__name__}:Successor", name, chosen(to, n)) for name, to, n in choices]
    with applied(*forces):
        dut = Successor()
        text = rtlil.convert(dut, ports=[dut.i, dut.o])
    assert text.count("cell \\fault_choice") == 2
    for number in (1, 2):
        assert len(re.findall(rf"cell \$eq .*?connect \\B \d'0*{number:b}\n", text, re.S)) == 1


def test_faults_of_a_campaign_are_put_in(tmp_path: Path) -> None:
    """Each file with one of them installs its own, and the sources have what chooses."""
    shop = SimpleNamespace(folder=tmp_path)
    places = {one.place for one in campaign_faults().values()}
    for place in {*places, CHOICE}:
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPO / place, tmp_path / place)
    put_in(cast(Workshop, shop))
    for place in places:
        assert f"install_chosen({place!r})" in (tmp_path / place).read_text()
    assert (tmp_path / "hdl" / Path(CHOICE).name).exists()
    assert all(one.force is not None for one in campaign_faults().values())


def test_force_leaves_other_instances_alone_and_names_what_is_not_there() -> None:
    with applied(Force(f"{__name__}:Successor", "nothing", stuck(0), having="nothing")):
        Fragment.get(Successor(), None)
    with applied(Force(f"{__name__}:Successor", "nothing", stuck(0))):
        with pytest.raises(ForceError, match="Successor has no signal nothing; it has"):
            Fragment.get(Successor(), None)


def test_one_fault_from_end_to_end() -> None:
    """Caught; a change that does no harm is missed; one that cannot be run is neither."""
    source = (REPO / CHEAP.file).read_text()
    with workshop() as shop:
        assert check(shop, CHEAP).caught
        assert Path(shop.folder, CHEAP.file).read_text() == source
        assert not check(shop, replace(CHEAP, new=CHEAP.old + "  # harmless")).caught
        other = "tests/tools/test_cli.py::test_help_names_every_command"
        outcome = check(shop, replace(CHEAP, tests=(*CHEAP.tests, other)))  # each must fail
        assert outcome.by and outcome.unmoved == (other,) and not outcome.caught
        with pytest.raises(FaultError, match="no test failed properly"):
            check(shop, replace(CHEAP, new="same = nothing"))
        assert (REPO / CHEAP.file).read_text() == source
        assert check(shop, BY_NAME["drain-before-fronts"]).caught  # one that names a signal


def test_command() -> None:
    run = CliRunner().invoke
    assert run(faults, ["--list"]).output == markdown()
    egress = run(faults, ["--list", "--room", "egress"]).output
    assert "`icrc-wrong`" in egress and len(egress.splitlines()) == 2 + len(of_room("egress"))
    elsewhere = run(faults, ["--room", "egress", "icrc-unchecked"])
    assert elsewhere.exit_code == 2 and "in the room egress" in elsewhere.output
    without = run(faults, ["--room", "egress", "--mutants"])
    assert without.exit_code == 2 and "No mutants are made of egress" in without.output
    assert {one.name for one in live()} == {
        "msn-not-advanced",
        "pkey-wrong",
        "data-byte-wrong",
        "icrc-wrong",
    }
    unknown = run(faults, ["--interop", "psn-plus-1"])
    assert unknown.exit_code == 2 and "No fault that --interop tries is called" in unknown.output
    unknown = run(faults, ["nothing"])
    assert unknown.exit_code == 2 and "'nothing'" in unknown.output


@pytest.mark.slow
def test_all_faults_are_caught() -> None:
    with workshop() as shop:
        missed = [fault.name for fault in FAULTS if not check(shop, fault).caught]
    assert not missed
