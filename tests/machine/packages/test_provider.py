"""The package of the provider: its contents, its dependencies, and that it can be loaded."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from hdl.config import VERSION
from sim.machine import image
from sim.machine.packages import dependencies
from sim.machine.releases import RELEASES
from sim.rtl.env import ToolError
from tests.machine.packages.chroot import chroot, install

LIBRARY = "usr/lib/x86_64-linux-gnu/libibverbs/librocinante-rdmav34.so"


def written(folder, release="12"):
    """The package, or no test where its parts cannot be fetched or compiled."""
    tools = ("dpkg-deb", "make", "gcc", "objdump", "strip")
    if missing := [tool for tool in tools if shutil.which(tool) is None]:
        pytest.skip(f"there is no {missing[0]}")
    try:
        return image.write_provider(folder, RELEASES[release])
    except ToolError as error:
        reasons = ("E: ", "package sources")
        if not any(reason in str(error) for reason in reasons):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return written(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def unpacked(package, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked") / "root"
    subprocess.run(["dpkg-deb", "--raw-extract", package, folder], check=True)
    return folder


def test_control(package, unpacked):
    assert package.name == f"librocinante-rdmav34_{VERSION}_amd64.deb"
    fields = (unpacked / "DEBIAN/control").read_text()
    (wants,) = re.findall(r"^Depends: (.*)$", fields, re.MULTILINE)
    assert re.fullmatch(r"libc6 \(>= 2\.\d+\), libibverbs1 \(>= 34\)", wants), wants
    assert (unpacked / "DEBIAN/conffiles").read_text() == "/etc/libibverbs.d/rocinante.driver\n"


def test_files_are_where_libibverbs_looks(unpacked):
    assert (unpacked / "etc/libibverbs.d/rocinante.driver").read_text() == "driver rocinante\n"
    shown = subprocess.run(
        ["objdump", "-T", unpacked / LIBRARY], capture_output=True, text=True, check=True
    ).stdout
    assert re.search(r"\(IBVERBS_PRIVATE_34\)\s+verbs_register_driver_34$", shown, re.MULTILINE)


def test_no_path_of_this_machine_is_in_it(unpacked):
    data = (unpacked / LIBRARY).read_bytes()
    assert b"rocinante.h" not in data and b"/rdma-core" not in data


def test_the_same_sources_make_the_same_package(package, tmp_path):
    """In another folder, and linked with the libraries of the other release."""
    for release in ("12", "13"):
        assert written(tmp_path / release, release).read_bytes() == package.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("release", ["12", "13"])
def test_the_loader_finds_all_that_it_needs(package, release):
    """Each symbol in its version, with the libraries of that release."""
    debian = chroot(release)
    install(debian, [package])

    def loaded(path: str) -> subprocess.CompletedProcess[str]:
        return debian.run("env", "LD_BIND_NOW=1", f"LD_PRELOAD={path}", "ibv_devices")

    shown = loaded(f"/{LIBRARY}")  # without a device it ends with a line of its own
    assert shown.stderr == "Failed to get IB devices list: Function not implemented\n"
    assert "cannot be preloaded" in loaded("/usr/lib/none.so").stderr


# What a library depends on ----------------------------------------------------------------------

SYMBOLS = """\
libone.so.1 libone1 #MINVER#
| libone1 (= 5), libextra
* Build-Depends-Package: libone-dev
 first@Base 2.0
 second@ONE_1 2.10
 private@ONE_PRIVATE 1 1
libtwo.so.0 libtwo0
 other@Base 0
"""


@pytest.fixture
def wants(tmp_path):
    """A function: the field Depends of a library that calls some functions of the two."""
    if shutil.which("gcc") is None or shutil.which("objdump") is None:
        pytest.skip("there is no compiler")
    (tmp_path / "symbols").write_text(SYMBOLS)
    script = "ONE_1 { global: second; }; ONE_PRIVATE { global: private; };"
    (tmp_path / "one.map").write_text(script)

    def compiled(name: str, text: str, *options: str):
        (tmp_path / "text.c").write_text(text)
        shared = (
            "gcc",
            "-shared",
            "-fPIC",
            "-nostdlib",
            "-w",
            "-Wl,--as-needed",
            "-o",
            tmp_path / name,
        )
        subprocess.run([*shared, tmp_path / "text.c", *options], check=True)
        return tmp_path / name

    one = "int first(void) { return 1; } int second(void) { return 2; } int private(void) {}"
    versions = f"-Wl,--version-script={tmp_path / 'one.map'}"
    libraries = [
        compiled("libone.so.1", one, "-Wl,-soname,libone.so.1", versions),
        compiled("libtwo.so.0", "int other(void) {}", "-Wl,-soname,libtwo.so.0"),
    ]

    def run(*calls: str) -> str:
        body = "".join(f"extern int {name}(void); " for name in calls)
        body += "int mine(void) { return " + " + ".join(f"{name}()" for name in calls) + "; }"
        return dependencies.depends(compiled("mine.so", body, *map(str, libraries)), [tmp_path])

    return run


def test_the_newest_symbol_counts(wants):
    assert wants("first") == "libone1 (>= 2.0)"
    assert wants("first", "second", "other") == "libone1 (>= 2.10), libtwo0"  # no text: 10 > 2


def test_a_symbol_may_have_a_dependency_of_its_own(wants):
    assert wants("private") == "libone1, libone1 (= 5), libextra"


def test_what_no_package_has(wants):
    with pytest.raises(ToolError, match="needs strange"):
        wants("strange")
