"""The SystemRDL, read back by systemrdl-compiler, says what the description says."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from systemrdl.node import AddrmapNode, FieldNode, MemNode, RegNode
from systemrdl.rdltypes import AccessType, OnWriteType

from hdl.config import NicConfig
from hdl.csr.blocks import PAGES, TABLES, all_blocks
from hdl.csr.describe import Access, Block, Register, Window, pulse
from hdl.csr.map import row_map
from hdl.csr.rdl import _field, described, sentence, system_rdl
from sim.make import registers

CONFIGS = {
    "default": registers.described(),
    "narrow": NicConfig(width=64, qps=1024, network=8, dc=True),
}


def access(field: FieldNode) -> Access:
    """What software sees of a compiled field."""
    software, hardware = field.get_property("sw"), field.get_property("hw")
    if field.get_property("singlepulse"):
        assert software is AccessType.w
        return Access.PULSE
    if field.get_property("onwrite") is OnWriteType.woclr:
        assert software is AccessType.rw
        assert hardware is AccessType.w
        assert field.get_property("stickybit")
        return Access.W1C
    return {
        (AccessType.r, AccessType.na): Access.CONST,
        (AccessType.r, AccessType.w): Access.RO,
        (AccessType.rw, AccessType.r): Access.RW,
        (AccessType.w, AccessType.r): Access.WO,
    }[software, hardware]


def said_of(register: Register) -> dict[str, tuple]:
    """Name -> lowest bit, width, access, reset, description of each described field."""
    return {
        field.name: (
            field.low,
            field.width,
            field.access,
            None if field.access is Access.RO else field.reset,
            sentence(field.description),
            register.strobe and field.writable,
        )
        for field in register.fields
    }


def compiled(register: RegNode) -> dict[str, tuple]:
    return {
        field.inst_name: (
            field.low,
            field.width,
            access(field),
            field.get_property("reset"),
            field.get_property("desc"),
            field.get_property("swmod"),
        )
        for field in register.fields()
    }


def check_row(node: RegNode, window: Window, table: str) -> None:
    row = row_map(table)
    assert node.get_property("accesswidth") == 32
    assert node.size == 4 << (window.words - 1).bit_length()
    assert all(access(field) is window.access for field in node.fields())
    assert {field.inst_name: (field.low, field.width) for field in node.fields()} == {
        field.path.replace(".", "_"): (field.low, field.width) for field in row.fields.values()
    }


def check_block(node: AddrmapNode, block: Block) -> None:
    assert node.absolute_address == PAGES[block.name] * 4096
    assert node.get_property("desc") == sentence(block.description)
    children = {child.inst_name: child for child in node.children()}
    assert list(children) == [item.name for item in block.items]
    for offset, item in block.places():
        child = children[item.name]
        assert child.raw_address_offset == offset, f"{block.name}.{item.name}"
        if isinstance(item, Register):
            assert isinstance(child, RegNode)
            assert (child.size, child.get_property("regwidth")) == (4, 32)
            assert compiled(child) == said_of(described(block, item)), f"{block.name}.{item.name}"
        elif block.name in TABLES:
            check_row(child, item, block.name)
        else:
            assert isinstance(child, RegNode)
            assert (child.array_dimensions, child.array_stride) == ([item.words], 4)
            assert [access(field) for field in child.fields()] == [item.access]


@pytest.fixture(scope="module", params=CONFIGS)
def exported(request, tmp_path_factory):
    """A configuration and the compiled root of its SystemRDL."""
    path = tmp_path_factory.mktemp("rdl") / "rocinante.rdl"
    registers.write_rdl(path, CONFIGS[request.param])
    return CONFIGS[request.param], registers.compile_rdl(path)


def test_rdl_says_what_the_description_says(exported):
    config, root = exported
    blocks = all_blocks(config)
    nodes = {node.inst_name: node for node in root.top.children()}
    assert list(nodes) == list(blocks)
    for name, block in blocks.items():
        check_block(nodes[name], block)


def test_everything_is_described(exported):
    """Each block, register, memory and field has one plain sentence, and a name for lists."""
    _, root = exported
    bare, said = [], dict[str, str]()
    for node in root.top.descendants():
        text, name = node.get_property("desc"), node.get_property("name")
        said[node.get_path()] = text
        if not (text and name) or text[0] != text[0].upper() or not text.endswith("."):
            bare.append(node.get_path())
        elif name == node.inst_name or not text.replace("`", "").startswith(name):
            bare.append(f"{node.get_path()}: {name}")
    assert not bare
    assert said["rocinante.core.config_mtu"] == "Largest path MTU, bytes of payload."
    assert said["rocinante.core.config_packed"] == "Packed virtqueues, beside split ones."
    assert said["rocinante.qp_cfg.row.av_dmac"] == "Destination MAC address."


def test_windows_are_no_memories(exported):
    """IP-XACT exporters leave out a memory among registers; the words of a window are registers."""
    _, root = exported
    assert not [node for node in root.top.descendants() if isinstance(node, MemNode)]


def test_wide_pulse_is_refused():
    with pytest.raises(ValueError, match="'go' has 2"):
        _field(pulse("go", 2), strobe=False)


def test_other_counter_names():
    assert "} only @ 0x4;" in system_rdl(counter_names=("only",))


def test_c_header(exported, tmp_path: Path):
    """The header compiles, and its structs put each block and register at its offset."""
    config, root = exported
    header = tmp_path / "rocinante.h"
    registers.write_header(root, header)
    text = header.read_text()
    for line in (
        "#define ROCINANTE__CORE__MAGIC__VALUE_reset 0x524f4349",
        "#define ROCINANTE__COMMAND__ARM_CQ__CQ_bm 0x3fff",
        "#define ROCINANTE__COMMAND__ARM_CQ__FLAGS_bp 14",
        "#define ROCINANTE__QUEUE__ROW__FRESH_bw 1",
    ):
        assert line in text.splitlines()
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        return
    checks = [
        f"_Static_assert(offsetof(rocinante_t, {name}.{item.name}) =="
        f' {PAGES[name] * 4096 + offset}, "{name}.{item.name}");'
        for name, block in all_blocks(config).items()
        for offset, item in block.places()
    ]
    source = tmp_path / "check.c"
    source.write_text("\n".join(["#include <stddef.h>", '#include "rocinante.h"', *checks]))
    subprocess.run([compiler, "-std=c11", "-Wall", "-Werror", "-fsyntax-only", source], check=True)


def test_pages(exported, tmp_path: Path):
    """The pages hold a page for each block and need nothing from elsewhere."""
    config, root = exported
    registers.write_html(root, tmp_path, home="../index.html")
    index = (tmp_path / "index.html").read_text()
    assert "Registers" in index
    nodes = (tmp_path / "data" / "ral-data-0.json").read_text()
    assert all(f'"{name}"' in nodes for name in all_blocks(config))
