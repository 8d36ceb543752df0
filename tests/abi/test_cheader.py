"""The C header compiles, and its structures and numbers are those of the specification's tables."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from hdl.abi import enums, virtio_rdma
from hdl.abi.cheader import c_header, c_name
from hdl.abi.layout import Field, Kind, Struct
from hdl.ports.counter_names import COUNTERS, PORT_COUNTERS
from sim.make.header import header, text
from tests.abi.test_offsets import EXTENSION_FIELDS

TABLE = json.loads((Path(__file__).parents[1] / "data" / "abi_offsets.json").read_text())
STRUCTS = {struct.name: struct for struct in (*virtio_rdma.STRUCTS, *virtio_rdma.ADDITIONS)}
COMPILERS = {
    "gcc": ["-x", "c", "-std=c11", "-Wpedantic"],
    "clang": ["-x", "c", "-std=c11", "-Wpedantic"],
    "g++": ["-x", "c++", "-std=c++11"],
    "clang++": ["-x", "c++", "-std=c++11"],
}
KERNEL_TYPES = {16: "short", 32: "int", 64: "long long"}
NUMBERS = {
    "CONTROL_COMMAND_REQ_NOTIFY_CQ": 18,
    "DEVICE_CAP_SG_GAPS_REG": 1 << 32,
    "QP_ATTR_MASK_RATE_LIMIT": 1 << 25,
    "WR_OPCODE_REG_MR": 0x20,
    "WC_OPCODE_RECV_RDMA_WITH_IMM": 129,
    "WC_FLAGS_WITH_INV": 8,
    "ACCESS_RELAXED_ORDERING": 1 << 20,
    "CQ_QUEUE(3)": 4,
    "SQ_QUEUE(2, 64)": 69,
    "RQ_QUEUE(2, 64)": 70,
}


def checks() -> list[str]:
    """Assertions for every size and offset: of the specification's table, and of our additions."""
    found = []
    for name, struct in STRUCTS.items():
        places = [(place.path, place.offset, place.size) for place in struct.places()]
        size = struct.size
        if name in TABLE:
            size = TABLE[name]["size"]
            places = [(path, at, octets) for path, _kind, at, octets in TABLE[name]["fields"]]
        word = f"struct {c_name(struct)}"
        found.append(f"sizeof({word}) == {size}")
        if own := EXTENSION_FIELDS.get(name):  # they are in front of what is still reserved
            path, offset, octets = places.pop()
            found.append(f"offsetof({word}, {own[0]}) == {offset}")
            rest = f"offsetof({word}, {path}) + sizeof((({word} *)0)->{path})"
            found.append(f"{rest} == {offset + octets}")
        for path, offset, octets in places:
            found.append(f"offsetof({word}, {path}) == {offset}")
            found.append(f"sizeof((({word} *)0)->{path}) == {octets}")
    return found + [f"VIRTIO_RDMA_{name} == {value}" for name, value in NUMBERS.items()]


@pytest.mark.parametrize("compiler", COMPILERS)
def test_compiles_to_the_offsets_of_the_table(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler} here")
    (tmp_path / "virtio_rdma.h").write_text(c_header())
    asserts = checks()
    assert len(asserts) > 500

    def run(lines: list[str]) -> subprocess.CompletedProcess[str]:
        word = "static_assert" if compiler.endswith("++") else "_Static_assert"
        source = tmp_path / "check.c"
        text = [f'{word}({line}, "{line}");' for line in lines]
        source.write_text(
            "\n".join(['#include "virtio_rdma.h"', '#include "virtio_rdma.h"', *text])
        )
        command = [compiler, *COMPILERS[compiler], "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
        return subprocess.run([*command, source], capture_output=True, text=True, check=False)

    good = run(asserts)
    assert good.returncode == 0, good.stderr
    bad = run(["sizeof(struct virtio_rdma_cq_req) == 40"])
    assert bad.returncode != 0 and "virtio_rdma_cq_req" in bad.stderr


def test_every_number_is_there() -> None:
    found = re.findall(r"^#define VIRTIO_RDMA_(\w+) (\w+)$", c_header(), re.MULTILINE)
    values = {name: int(value.rstrip("ul"), 0) for name, value in found}
    for prefix, cls in (
        ("CONTROL_COMMAND", enums.ControlCommand),
        ("DEVICE_CAP", enums.DeviceCap),
        ("QP_ATTR_MASK", enums.QpAttrMask),
        ("QP_STATE", enums.QpState),
        ("WC_STATUS", enums.WcStatus),
        ("WR_OPCODE", enums.WrOpcode),
    ):
        for item in cls:
            assert values[f"{prefix}_{item.name}"] == item.value
    assert values["COUNTER_MAGIC"] == virtio_rdma.COUNTER_MAGIC


def test_unknown_kinds_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Strange(Kind):
        size, type_name = 3, "le24"

    odd = Struct("odd", Field("psn", Strange()))
    monkeypatch.setattr(virtio_rdma, "ADDITIONS", (odd,))
    with pytest.raises(ValueError, match="psn: a le24 has no type in C"):
        c_header()


def test_command(tmp_path: Path) -> None:
    path = tmp_path / "virtio_rdma.h"
    result = CliRunner().invoke(header, ["-o", str(path)])
    assert result.exit_code == 0 and path.read_text() == text()
    assert CliRunner().invoke(header).output == text()


def test_kernel_code_can_include_it(tmp_path: Path) -> None:
    """In the kernel there is no stdint.h, and fields have its little-endian types."""
    compiler = shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("there is no compiler of C here")
    (tmp_path / "linux").mkdir()
    kinds = [f"typedef unsigned {kind} __le{bits};" for bits, kind in KERNEL_TYPES.items()]
    (tmp_path / "linux/types.h").write_text("\n".join([*kinds, "typedef unsigned char uint8_t;"]))
    (tmp_path / "virtio_rdma.h").write_text(text())
    source = tmp_path / "check.c"
    asserts = [f'_Static_assert({line}, "{line}");' for line in checks() if "offset" not in line]
    source.write_text("\n".join(['#include "virtio_rdma.h"', *asserts]))
    command = [compiler, "-std=gnu11", "-nostdinc", f"-I{tmp_path}", "-D__KERNEL__", "-Werror"]
    done = subprocess.run(
        [*command, "-fsyntax-only", source], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_counters_have_the_order_of_their_words() -> None:
    """A list with a name missing, or with halves as two counters, shows a driver wrong numbers."""
    rows = re.findall(r"^\tX\((\w+), (\d)\)", text(), re.MULTILINE)
    assert sum(int(words) for _name, words in rows) == len(PORT_COUNTERS + COUNTERS)
    names = [name for name, _words in rows]
    assert names[:2] == ["port_rcv_packets", "port_rcv_data"] and rows[1][1] == "2"
    assert names[-1] == COUNTERS[-1] and len(set(names)) == len(names)
