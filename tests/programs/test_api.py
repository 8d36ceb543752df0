"""The package by itself: numbers of libibverbs, texts, and what stands for what is not there."""

from __future__ import annotations

import errno
import importlib.machinery
import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from sim.machine.releases import RELEASES
from sim.machine.sources import Apt
from sim.programs.pyverbs import cm_enums, enums, mp_wr, utils
from sim.programs.pyverbs.absent import namespace
from sim.programs.pyverbs.addr import GID, AHAttr, GlobalRoute
from sim.programs.pyverbs.base import inc_rkey
from sim.programs.pyverbs.device import guid_format, phys_state_to_str, speed_to_str, width_to_str
from sim.programs.pyverbs.providers.mlx5 import mlx5_enums
from sim.programs.pyverbs.pyverbs_error import PyverbsError, PyverbsRDMAError
from sim.programs.pyverbs.qp_attr import QPCap, QPInitAttrEx
from sim.rtl.env import ToolError, build_root


def numbers(module: Any) -> dict[str, int]:
    """All names of a module that are numbers."""
    return {name: int(value) for name, value in vars(module).items() if isinstance(value, int)}


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="Debian 12's Python is 3.11")
def test_numbers_are_those_of_debians_package(tmp_path: Path) -> None:
    """Its module of enumerations needs nothing but Python, and so can be loaded."""
    release = RELEASES["12"]
    try:
        apt = Apt(build_root() / "programs/apt" / release.suite, [release.suite])
        apt.fetch_alone("python3-pyverbs", tmp_path / "package")
    except ToolError as error:
        pytest.skip(str(error))
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    folder = tmp_path / "package/usr/lib/python3/dist-packages"
    for ours in (enums, cm_enums, mlx5_enums):
        name = ours.__name__.removeprefix("sim.programs.")
        place = f"{folder / name.replace('.', '/')}{suffix}"
        loader = importlib.machinery.ExtensionFileLoader(name, place)
        spec = importlib.util.spec_from_loader(name, loader)
        assert spec is not None
        theirs = importlib.util.module_from_spec(spec)
        loader.exec_module(theirs)
        wanted = {k: v for k, v in numbers(theirs).items() if not k.startswith("__")}
        assert len(wanted) > 20
        if ours is mlx5_enums:  # it has those of what this card can do
            wanted = {name: wanted[name] for name in numbers(ours)}
            assert len(wanted) > 40
        assert wanted.items() <= numbers(ours).items()


def test_enumerations_can_be_gone_through() -> None:
    flags = list(enums.ibv_access_flags)
    assert flags[0] is enums.IBV_ACCESS_LOCAL_WRITE and flags[0].value == 1
    assert enums.ibv_qp_type(2) is enums.IBV_QPT_RC
    with pytest.raises(AttributeError, match="IBV_NOTHING"):
        _ = enums.IBV_NOTHING


def test_numbers_of_requests_for_several_packets() -> None:
    """None of them is another one's in libibverbs."""
    for ours, theirs in (
        (mp_wr.IBV_WC_EX_WITH_MP_WR, enums.ibv_create_cq_wc_flags),
        (mp_wr.IBV_QP_INIT_ATTR_MP_WR, enums.ibv_qp_init_attr_mask),
        (mp_wr.IBV_SRQ_INIT_ATTR_MP_WR, enums.ibv_srq_init_attr_mask),
        (mp_wr.IBV_WC_RECV_NOP, enums.ibv_wc_opcode),
        (mp_wr.IBV_WC_MP_WR_MORE_IN_MSG, enums.ibv_wc_flags),
        (mp_wr.IBV_WC_MP_WR_CONSUMED, enums.ibv_wc_flags),
        (mp_wr.IBV_WC_MP_WR_BROKEN, enums.ibv_wc_flags),
    ):
        assert ours not in {int(one) for one in theirs}, theirs
    assert (mp_wr.IBV_WC_EX_WITH_MP_WR, mp_wr.IBV_QP_INIT_ATTR_MP_WR) == (1 << 12, 1 << 7)
    assert (mp_wr.IBV_SRQ_INIT_ATTR_MP_WR, mp_wr.IBV_WC_RECV_NOP) == (1 << 5, 138)


def test_errors() -> None:
    error = PyverbsRDMAError("Failed to dance", errno.EINVAL)
    assert str(error) == "Failed to dance. Errno: 22, Invalid argument"
    assert error.error_code == 22 and isinstance(error, PyverbsError)
    assert PyverbsRDMAError("Failed", -22).error_code == -22
    assert str(PyverbsRDMAError("Failed")) == "Failed" and PyverbsRDMAError("x").error_code == -1


def test_what_is_not_there_refuses() -> None:
    mlx5 = namespace("pyverbs.providers.mlx5.mlx5dv")
    with pytest.raises(PyverbsRDMAError, match="Mlx5QP is not supported") as refused:
        mlx5.Mlx5QP(1, two=2)
    assert refused.value.error_code == errno.EOPNOTSUPP
    assert mlx5.Mlx5DVContextAttr(flags=3).flags == 3
    assert mlx5.MLX5DV_CONTEXT_FLAGS_DEVX == 0
    assert isinstance(mlx5.Mlx5QP, type) and mlx5.Mlx5QP is mlx5.Mlx5QP
    with pytest.raises(AttributeError):
        _ = mlx5.__wrapped__


def test_the_name_finds_this_package_once() -> None:
    """In a process of its own: ``pyverbs`` stays found in the one that has asked for it."""
    program = """
from sim.programs import importing
importing.install()
import pyverbs.wr, pyverbs.providers.efa.efadv as efa
from pyverbs.wr import SGE
import sim.programs.pyverbs.wr as real
assert pyverbs.wr is real and SGE is real.SGE and real.__spec__.name == real.__name__
try:
    import pyverbs.nothing
except ModuleNotFoundError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and "pyverbs.nothing" in done.stdout, done.stderr


def test_addresses() -> None:
    text = "0000:0000:0000:0000:0000:ffff:0a00:0001"
    assert GID("::ffff:10.0.0.1").gid == text and str(GID(text)) == text
    attr = AHAttr(is_global=1, gr=GlobalRoute(dgid=GID(text), sgid_index=3, traffic_class=7))
    assert (attr.dgid, attr.sgid_index, attr.traffic_class) == (text, 3, 7)
    attr.hop_limit, attr.dgid = 9, "fd00::1"
    assert attr.gr.hop_limit == 9 and attr.gr.dgid.gid.startswith("fd00:0000")
    with pytest.raises(PyverbsError, match="nowhere"):
        GID("nowhere")
    assert utils.gid_str(0x80FE, 0x0100000000000000) == "fe80" + ":0000" * 6 + ":0001"
    assert utils.gid_str_to_array(text)[-3:] == ["00", "00", "01"]


def test_attributes_of_a_queue_pair() -> None:
    init = QPInitAttrEx(2, None, "scq", "rcq", cap=QPCap(5, 6, 7, 8, 9), pd="pd")
    assert (init.qp_type, init.send_cq, init.recv_cq, init.pd) == (2, "scq", "rcq", "pd")
    assert (init.max_send_wr, init.cap.max_inline_data, init.refused) == (5, 9, False)
    init.max_send_wr = 4
    assert init.cap.max_send_wr == 4
    init.cap.max_send_wr = 3  # of a copy, as pyverbs has it
    assert init.max_send_wr == 4
    init.create_flags = 2
    assert init.refused
    with pytest.raises(TypeError, match="colour"):
        QPInitAttrEx(colour="blue")


def test_names_of_numbers() -> None:
    assert inc_rkey(0x12FF) == 0x1200 and inc_rkey(0x1234) == 0x1235
    assert utils.qp_state_to_str(3) == "RTS" and utils.qp_type_to_str(4) == "UD"
    assert utils.access_flags_to_str(5) == "Local write Remote read "
    assert utils.mtu_to_str(77) == "Unknown (77)"
    guid = int.from_bytes(bytes.fromhex("020000fffe000001"), sys.byteorder)
    assert guid_format(guid) == "0200:00ff:fe00:0001"
    assert "Invalid" in speed_to_str(3) and "Invalid" in width_to_str(3)
    assert "Link up" in phys_state_to_str(5)
