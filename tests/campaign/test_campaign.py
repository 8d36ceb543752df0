"""A campaign on a Dask cluster: a sample of it, lost workers, what the file and the summary say."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from distributed import Client, get_worker

from sim.bench import testbench
from sim.bench.scenario.draw import draw
from sim.bench.scenario.play import card
from sim.campaign import work
from sim.campaign.cluster import connected, spread
from sim.campaign.command import campaign
from sim.campaign.store import Result, Store
from sim.campaign.work import Batch, Shipment, simulate, simulate_batch, version
from sim.rtl import env
from sim.rtl.build import Rtl, build_model, model_sources
from tests.sim.parts import Echo

#: Of the whole campaign ``mixed``: what every run of the test suite plays.
SAMPLE = range(8)
#: Of the campaigns that ``mixed`` takes nothing of: a few seeds that hold much.
OTHERS = {
    "operations": (17,),
    "services": (0, 48),
    "shared": (7,),
    "mkeys": (5,),
    "xrc": (14, 21),
    "pieces": (3, 5),
    "dynamic": (2,),
    "functions": (0, 1),
    "heavy": (2, 3),
}


#: A small model, and the tests that it passes.
ECHO, ECHO_BENCH = Rtl(Echo, {"width": 24}), "tests.sim.bench_echo"
#: Opens a cluster by hand: the build folder of its workers, to its address.
Opener = Callable[[Path], str]


def sources(name: str = "mixed"):
    """The model of a campaign, which other tests of two such cards use, too."""
    return testbench.sources(config=card(name))


def result(seed: int, **more) -> Result:
    """A result that nobody has worked for."""
    plain = Result("mixed", seed, "1", "passed", "", 5e5, 2.5, "here", "text")
    return replace(plain, **more)


def test_sample_while_a_worker_is_killed(tmp_path: Path) -> None:
    """Each seed passes and is in the file once, though a process is killed in its simulation."""
    made = sources()
    killed = 0
    with closing(Store(tmp_path / "db")) as store, connected(None, workers=2) as client:
        with closing(spread(client, made, "mixed", SAMPLE)) as batches:
            for results in batches:
                store.add(results)
                if not killed:
                    killed = client.run(os.getpid).popitem()[1]
                    os.kill(killed, signal.SIGKILL)
        found = store.all()
        assert [one.seed for one in found] == list(SAMPLE)
    assert killed and not [one.failure for one in found if not one.passed]
    assert {one.version for one in found} == {version(made)}
    for one in found:
        assert one.scenario == draw("mixed", one.seed).text()
        assert one.simulated_ns > 50_000 and one.wall_seconds > 0 and one.host


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name == "heavy" else name for name in OTHERS],
)
def test_sample_of_another_campaign(name: str) -> None:
    """Each seed passes."""
    found = simulate(sources(name).build(), name, OTHERS[name], "1")
    assert [one.seed for one in found] == list(OTHERS[name])
    assert not [one.failure for one in found if not one.passed]


def test_seed_repeats_alone(tmp_path: Path) -> None:
    """What others do in the same simulation changes nothing; the packets are kept."""
    model = sources().build()
    together = simulate(model, "lifecycle", [5, 6], "1")
    alone = simulate(model, "lifecycle", [6], "1", keep=tmp_path)
    assert alone[0].simulated_ns == pytest.approx(together[1].simulated_ns, abs=1)
    assert (tmp_path / "lifecycle-6.pcap").stat().st_size > 1000


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opener]:
    """A scheduler and two workers as docs/campaign.md starts them, here on the loopback."""
    dask = [Path(sys.executable).parent / "dask"]
    found = tmp_path / "scheduler.json"
    with ExitStack() as stack:

        def start(*words: str, build: Path) -> subprocess.Popen[bytes]:
            process = subprocess.Popen(
                [*dask, *words, "--host", "127.0.0.1", "--no-dashboard"],
                cwd=tmp_path,
                env={**os.environ, "ROCINANTE_BUILD_DIR": str(build)},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait, 30)
            stack.callback(process.terminate)
            return process

        def open_cluster(build: Path) -> str:
            scheduler = start(
                "scheduler", "--port", "0", "--scheduler-file", str(found), build=build
            )
            while not found.exists():
                assert scheduler.poll() is None, "the scheduler has ended"
                time.sleep(0.05)
            for _ in range(2):
                start("worker", "--scheduler-file", str(found), "--nthreads", "1", build=build)
            with Client(scheduler_file=str(found)) as client:
                client.wait_for_workers(2, timeout=60)
                return str(client.scheduler.address)

        yield open_cluster


def test_cluster_by_address(tmp_path: Path, opened: Opener) -> None:
    """The command plays seeds on workers that somebody else has started."""
    sources().build()
    address, db = opened(env.build_root()), tmp_path / "db"
    network = ["--impair", "loss=5%,seed=3"]
    where = ["--cluster", address, "--db", str(db)]
    played = CliRunner().invoke(campaign, ["network", "--seeds", "2", *network, *where])
    assert played.exit_code == 0, played.output
    with closing(Store(db)) as store:
        assert [(one.seed, one.outcome) for one in store.all()] == [(0, "passed"), (1, "passed")]
        for one in store.all():
            assert one.scenario.count("loss=0.05") == 2  # both ways


def build_shipped(name: str) -> tuple[int, Path, int]:
    """Build a shipment on the worker that this runs on: its process, the program, its inode."""
    shipment = get_worker().plugins[name]
    assert isinstance(shipment, Shipment)
    made = shipment.sources.build().executable
    return os.getpid(), made, made.stat().st_ino


def test_model_is_built_once_on_a_machine(tmp_path: Path, opened: Opener) -> None:
    """Two workers get its sources and want it at the same time; one of them compiles it."""
    runtime = env.build_root() / "runtime"
    runtime.mkdir(exist_ok=True)
    (tmp_path / "build").mkdir()
    (tmp_path / "build" / "runtime").symlink_to(runtime)  # Verilator's own, not the model's
    with Client(opened(tmp_path / "build")) as client:
        shipment = Shipment(model_sources(ECHO))
        client.register_plugin(shipment)
        built = [
            client.submit(build_shipped, shipment.name, workers=[worker], pure=False)
            for worker in client.nthreads()
        ]
        (first, *one), (second, *other) = client.gather(built)
    assert first != second and one == other
    assert len(list((tmp_path / "build" / "models").glob("*/build.log"))) == 1


def test_waves_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the packets; a simulation that did not begin has left none, and says so."""
    try:
        env.require_waves()
    except env.ToolError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(work, "BENCH", ECHO_BENCH)
    model = build_model(ECHO, waves=True, fast=False)
    simulate(model, "mixed", [3], "1", keep=tmp_path)
    assert (tmp_path / "mixed-3.fst").stat().st_size > 100
    shutil.rmtree(tmp_path)
    tmp_path.mkdir()
    (found,) = simulate(replace(model, top="nothing"), "mixed", [3], "1", keep=tmp_path)
    assert "ended without results" in found.failure and not list(tmp_path.iterdir())


def test_simulation_that_ends_before_its_seeds(monkeypatch) -> None:
    """Seeds without a result are run again alone; one that ends its simulation has failed."""
    model = replace(sources().build(), top="nothing")
    found = simulate(model, "mixed", [1, 2], "1")
    assert [(one.seed, one.outcome) for one in found] == [(1, "failed"), (2, "failed")]
    assert all("ended without results" in one.failure for one in found)


def test_worker_with_other_code_is_refused() -> None:
    with pytest.raises(RuntimeError, match="is not the same version as the client's"):
        simulate_batch(Batch("mixed", (1,), "model", "other", "1"))


def test_store(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "db")) as store:
        store.add([result(3), result(1), result(1, version="2")])
        store.add([result(3, outcome="failed", failure="why")])
    with closing(Store(tmp_path / "db")) as store:  # as another run finds it
        assert list(store.results("mixed", "1")) == [1, 3]
        assert store.results("mixed", "1")[3] == result(3, outcome="failed", failure="why")
        assert list(store.results("mixed", "2")) == [1] and not store.results("network", "1")
        assert len(store.all()) == 3
    (tmp_path / "text").write_text("no database" * 100)
    with pytest.raises(ValueError, match="text holds no results of a campaign"):
        Store(tmp_path / "text")


def test_command_goes_on_where_it_was(tmp_path: Path, monkeypatch) -> None:
    """Only seeds that are not in the file run; a failure prints the one command that repeats it."""
    ran: list[int] = []

    def played(client, sources, name, seeds, impair, batch):
        for seed in seeds:
            ran.append(seed)
            bad = {"outcome": "failed", "failure": "it broke"} if seed in (4, 6) else {}
            yield [result(seed, version=version(sources, impair), **bad)]

    monkeypatch.setattr("sim.campaign.cluster.spread", played)
    db = ["--db", str(tmp_path / "db"), "--workers", "1"]
    good = CliRunner().invoke(campaign, ["--seeds", "3", *db])
    assert good.exit_code == 0 and "Repeat" not in good.output and ran == [0, 1, 2]
    more = CliRunner().invoke(campaign, ["--seeds", "8", *db])
    assert more.exit_code == 1 and ran == list(range(8))
    assert "Seed 4: it broke" in more.output and "Seed 6: it broke" in more.output
    assert re.findall("Repeat: (.*)", more.output) == [
        "./rocinante campaign mixed --seed 4 --waves"
    ]
    again = CliRunner().invoke(campaign, ["--seeds", "8", *db])  # nothing to do, and still failed
    assert again.exit_code == 1 and ran == list(range(8))
    first = CliRunner().invoke(campaign, ["--first", "4", "--seeds", "9", "--stop", *db])
    assert first.exit_code == 1 and ran == list(range(8))
    # Of another network nothing is known.
    other = CliRunner().invoke(campaign, ["--seeds", "5", "--impair", "loss=2%", *db])
    assert other.exit_code == 1 and ran == [*range(8), *range(5)]
    assert re.findall("Repeat: (.*)", other.output) == [
        "./rocinante campaign mixed --seed 4 --impair loss=2% --waves"
    ]


def test_command_refuses(tmp_path: Path) -> None:
    for arguments, said in (
        (["--waves"], "--waves records one scenario: it needs --seed"),
        (["nothing"], "'nothing' is not one of 'mixed', 'network'"),
        (["--impair", "luck=1%"], "No impairment 'luck=1%'"),
        (["--db", str(tmp_path / "none" / "db")], "there is no folder"),
    ):
        refused = CliRunner().invoke(campaign, arguments)
        assert refused.exit_code == 2 and said in refused.output


def test_command_plays_one_seed(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    played = CliRunner().invoke(campaign, ["peers", "--seed", "3"])
    assert played.exit_code == 0, played.output
    assert "peers 3 (peers)" in played.output and "passed after" in played.output
    assert (tmp_path / "peers-3.pcap").exists()
