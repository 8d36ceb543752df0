"""A part of rdma-core's own tests, which are fetched: each passes, or is skipped for a reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.programs.running import command

#: Cases of XRC beside the two of ``test_atomic``: each sends 4,000 messages one by one, which takes
#: a minute or more.
XRC = (
    "test_relaxed_ordering.RoTestCase.test_ro_xrc_traffic",
    "test_qpex.QpExTestCase.test_qp_ex_xrc_send",
    "test_qpex.QpExTestCase.test_qp_ex_xrc_send_imm",
    "test_cqex.CqExTestCase.test_xrc_traffic_cq_ex",
)
ATOMICS = ("fetch_and_add", "cmp_and_swap")
#: Files whose tests take a minute in all, and how many of each pass.
QUICK = {
    "test_pd": 4,
    "test_addr": 3,
    "test_device": 13,
    "test_cq": 4,
    "test_qp": 21,
    "test_parent_domain": 5,
    "test_shared_pd": 1,
}


def run(folder: Path, *names: str, status: int = 0) -> dict[str, list[dict]]:
    """How the tests of each file have ended; skips without packages."""
    kept = folder / "ended.json"
    done = command("verbs-tests", "--json", str(kept), *names, folder=folder)
    if done.returncode == 2 and "E: " in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == status, done.stdout[-6000:] + done.stderr[-2000:]
    found: dict[str, list[dict]] = {}
    for one in json.loads(kept.read_text()):
        found.setdefault(one["name"].split(".")[0], []).append(one)
    return found


def test_most_of_the_control_path(tmp_path: Path) -> None:
    found = run(tmp_path, *QUICK)
    passed = {name: sum(one["how"] == "passed" for one in ended) for name, ended in found.items()}
    assert passed == QUICK
    assert all(one["why"] for ended in found.values() for one in ended if one["how"] == "skipped")


def test_a_part_of_the_data_path(tmp_path: Path) -> None:
    case = "test_qpex.QpExTestCase.test_qp_ex_"
    kinds = ("rc_atomic_write", "rc_rdma_read_zero_size", "rc_bind_mw", "ud_zero_size")
    region = "test_mr.MRTest.test_mr_rereg_"
    changes = [region + what for what in ("access", "addr", "pd")]
    found = run(tmp_path, *(case + kind for kind in kinds), "test_mr.MWTest", *changes)
    assert {one["how"] for ended in found.values() for one in ended} == {"passed"}
    assert len(found["test_qpex"]) == len(kinds) and len(found["test_mr"]) == 10


@pytest.mark.slow
def test_a_part_of_a_newer_suite(tmp_path: Path) -> None:
    found = run(tmp_path, "--release", "13", "test_srq", "test_device")
    passed = {name: sum(one["how"] == "passed" for one in ended) for name, ended in found.items()}
    assert passed == {"test_srq": 3, "test_device": 14}


@pytest.mark.slow
def test_traffic_of_xrc(tmp_path: Path) -> None:
    """Two connections and two receive queues of one domain, both ways."""
    ((ended,),) = run(tmp_path, XRC[0]).values()
    assert ended["how"] == "passed"


@pytest.mark.slow
@pytest.mark.parametrize("release", ["12", "13"])
def test_all_of_xrc(tmp_path: Path, release: str) -> None:
    """Each case of either suite; that of paging on demand is skipped."""
    atomics = [f"test_atomic.AtomicTest.test_xrc_atomic_{what}" for what in ATOMICS]
    skipped = "test_odp.OdpTestCase.test_odp_xrc_traffic"
    found = run(tmp_path, "--release", release, *XRC, *atomics, skipped)
    how = {one["name"]: one["how"] for ended in found.values() for one in ended}
    assert how.pop(skipped) == "skipped"
    assert set(how.values()) == {"passed"} and len(how) == len(XRC) + len(ATOMICS)


def test_a_test_that_fails_is_told(tmp_path: Path) -> None:
    """One that takes longer than it may: it is given up wherever it is, and has failed whatever it
    makes of that."""
    name = "test_mr.MRTest.test_mr_rereg_access"
    (ended,) = run(tmp_path, "--limit", "0.05", name, status=1)["test_mr"]
    assert ended["how"] == "failed" and "no end within 0.05 s" in ended["why"]


@pytest.mark.slow
@pytest.mark.parametrize("release, passes", [("12", 103), ("13", 110)])
def test_the_whole_suite(release: str, passes: int, tmp_path: Path) -> None:
    found = [one for ended in run(tmp_path, "--release", release).values() for one in ended]
    assert not [one["name"] for one in found if one["how"] == "failed"]
    assert sum(one["how"] == "passed" for one in found) == passes


@pytest.mark.slow
def test_all_of_the_calls_of_libmlx5(tmp_path: Path) -> None:
    """Requests of its own layout, copies, indirect keys and dynamic connections."""
    names = ("raw_wqe", "dma_memcpy", "mkey", "dc")
    found = run(tmp_path, "--as", "mlx5", *(f"test_mlx5_{name}" for name in names))
    passes = {name: sum(one["how"] == "passed" for one in ended) for name, ended in found.items()}
    assert passes == dict(zip((f"test_mlx5_{name}" for name in names), (1, 4, 6, 6), strict=True))
    assert not [one for ended in found.values() for one in ended if one["how"] == "failed"]


def test_an_unknown_name_is_refused(tmp_path: Path) -> None:
    done = command("verbs-tests", "test_nothing", folder=tmp_path)
    if "E: " in done.stderr:
        pytest.skip(done.stderr.splitlines()[-1])
    assert done.returncode == 2 and "test_nothing" in done.stderr
