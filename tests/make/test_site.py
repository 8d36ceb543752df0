"""The documentation's site as a browser shows it, without a network."""

from __future__ import annotations

import re
import tarfile
from html import unescape
from pathlib import Path

import pytest

from sim.make import site
from sim.rtl import env
from tests.browser import document, served

#: Material draws each diagram in a closed part of the page; this copies it to where we can look.
_OPEN = """<script>
const attach = Element.prototype.attachShadow;
Element.prototype.attachShadow = function (options) {
  const root = attach.call(this, options), host = this;
  new MutationObserver(() => { host.dataset.drawn = root.innerHTML; })
    .observe(root, {childList: true, subtree: true});
  return root;
};
</script>"""
#: What a page loads, as far as it is not a link that a reader follows.
_LOADED = re.compile(r'<(?:script|img|iframe)[^>]*\ssrc="([^"]+)"|<link[^>]*\shref="([^"]+)"')


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    site.build(folder)
    return folder


def test_pages_load_nothing_from_elsewhere(built: Path) -> None:
    """All scripts, styles and pictures of all pages are files of the site."""
    for page in built.rglob("*.html"):
        for found in _LOADED.findall(page.read_text()):
            link = next(filter(None, found))
            assert not re.match(r"\w+:|//", link), f"{page.name}: {link}"


# Flow charts; a chart of states.
@pytest.mark.parametrize("name", ["overview", "cm"])
def test_diagrams_are_drawn(built: Path, name: str, tmp_path: Path) -> None:
    """Where there was a diagram's source there is an SVG, with the texts of its boxes."""
    source = (built / f"{name}.html").read_text()
    page = built / f"{name}-opened.html"
    page.write_text(source.replace("<head>", f"<head>{_OPEN}", 1))
    shown = document(page, tmp_path)
    page.unlink()
    drawn = [unescape(one) for one in re.findall(r'data-drawn="([^"]*)"', shown)]
    assert len(drawn) == source.count('<pre class="mermaid">') > 0
    for one in drawn:
        assert "<svg" in one
        assert "Syntax error" not in one
        assert len(re.findall(r"<(?:rect|polygon|path)\b", one)) > 4


def test_all_diagrams_have_a_right_source(built: Path, tmp_path: Path) -> None:
    """Mermaid reads each diagram of all pages."""
    sources = {
        f"{page.stem} {number}": unescape(code)
        for page in sorted(built.glob("*.html"))
        for number, code in enumerate(
            re.findall(r'<pre class="mermaid"><code>(.*?)</code></pre>', page.read_text(), re.S)
        )
    }
    assert len(sources) > 50
    assert wrong(sources, built, tmp_path) == []
    assert wrong({"broken": "flowchart LR\n  a -> -> b"}, built, tmp_path) == ["broken"]


def wrong(sources: dict[str, str], built: Path, home: Path) -> list[str]:
    """The names of those diagrams that Mermaid refuses."""
    blocks = "".join(
        f'<pre id="{name}">{code.replace("&", "&amp;").replace("<", "&lt;")}</pre>'
        for name, code in sources.items()
    )
    page = built / "all-diagrams.html"
    page.write_text(
        f'<!doctype html><meta charset="utf-8">{blocks}<script src="{site.MERMAID}"></script>'
        "<script>(async () => { for (const one of document.querySelectorAll('pre'))"
        "  one.title = await mermaid.parse(one.textContent, {suppressErrors: true})"
        "    ? 'good' : 'bad'; })();</script>"
    )
    shown = document(page, home)
    page.unlink()
    told = dict(re.findall(r'<pre id="([^"]+)" title="(good|bad)"', shown))
    assert told.keys() == sources.keys()
    return [name for name, word in told.items() if word == "bad"]


def test_registers_are_shown(built: Path, tmp_path: Path) -> None:
    """The page of the registers opens a register, and no script of it fails."""
    page = built / "registers" / "opened.html"
    note = "<script>onerror = text => { document.title = text; };"
    note += "onunhandledrejection = event => { document.title = event.reason; };</script>"
    source = (built / "registers" / "index.html").read_text()
    page.write_text(source.replace("<head>", f"<head>{note}", 1))
    with served(built / "registers") as address:
        shown = document(f"{address}/opened.html", tmp_path)
    page.unlink()
    assert re.search(r"<title>(.*?)</title>", shown)[1].endswith("Registers")
    assert "Absolute Address" in shown


def test_the_interfaces_have_their_text(built: Path) -> None:
    """Each name of docs/api.md has become the text of its docstring."""
    source = (env.REPO / "docs" / "api.md").read_text()
    page = (built / "api.html").read_text()
    names = re.findall(r"^::: ([\w.]+)$", source, re.MULTILINE)
    assert len(names) > 30
    assert not [name for name in names if f'id="{name}"' not in page]
    assert "One request; its reply" in page


def test_another_script_than_the_pinned_one_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "mermaid.tgz"
    with tarfile.open(other, "w:gz") as archive:
        archive.add(__file__, "package/dist/mermaid.tiny.js")
    with pytest.raises(ValueError, match=r"mermaid\.tgz is not @mermaid-js/tiny"):
        site.mermaid(other)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("abi", ["cmd_create_qp", "virtio_rdma_cq_req", "REG_USER_MR", "WrOpcode"]),
        ("wire", ["RC_WRITE_ONLY", "AtomicETH", "FFh"]),
        ("cm", ["SIDR_REP", "initiator_depth", "224 bytes"]),
        ("timing", ["clock to out", "ECP5-5G, speed grade 8", "CLK to O5, O6"]),
        ("testplan", ["VR-5.21", "not built", "tests/test_config.py::test_limits_hold"]),
    ],
)
def test_tables_are_made_with_the_site(built: Path, name: str, shown: list[str]) -> None:
    """They stand in the site and not in the page's source, which says where they come."""
    source = (env.FILES / "docs" / f"{name}.md").read_text()
    assert source.count("<!-- tables: ") == 1
    page = unescape((built / f"{name}.html").read_text())
    for word in shown:
        assert word in page and word not in source.partition("<!-- tables")[2]
    assert "<!-- tables" not in page and page.count("<table>") > 3
