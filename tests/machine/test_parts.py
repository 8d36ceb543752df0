"""Parts of a guest that need no guest: packages, files, what is kept, options of QEMU."""

from __future__ import annotations

import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from sim.endpoint.frames import Deframer, framed
from sim.interop.cpio import Node
from sim.machine import image, lab, sources, toolchain, tree
from sim.machine.qemu import Qemu
from sim.machine.switch import Switch
from sim.rtl.env import ToolError
from tests.machine.test_command import TARGETS, fake

# Packages ---------------------------------------------------------------------------------------


def test_apt_has_folders_of_its_own(tmp_path, monkeypatch):
    """Its configuration names no folder of the machine's, and the machine's own source."""
    log = tmp_path / "log"
    script = f'{TARGETS}echo "$APT_CONFIG $*" >>{log}'
    monkeypatch.setenv("PATH", fake(tmp_path / "bin", apt_get=script))
    apt = sources.Apt(tmp_path / "apt", ["trixie", "trixie-backports"])
    for _ in range(2):
        apt.update()
    (line,) = log.read_text().splitlines()  # the lists are fetched once
    assert line.startswith(f"{tmp_path}/apt/apt.conf ") and " update" in line
    settings = (tmp_path / "apt/apt.conf").read_text()
    folders = [one.split('"')[1] for one in settings.splitlines() if one.startswith("Dir::")]
    assert all(one == "-" or one.startswith(f"{tmp_path}/apt/") for one in folders)
    listed = (tmp_path / "apt/sources.list").read_text().splitlines()
    assert [line.split("]")[-1].split()[-3:] for line in listed] == [
        ["file:/srv/packages", "trixie", "main"],
        ["file:/srv/packages", "trixie-backports", "main"],
        ["file:/srv/packages", "trixie", "main"],
    ]


def test_a_source_is_its_archive(tmp_path, monkeypatch):
    """apt fails when the archive's description is missing; the archive is what is wanted."""
    script = f'{TARGETS}case "$*" in *source*) touch x_1.orig.tar.xz; echo E: 404 >&2; exit 1; esac'
    monkeypatch.setenv("PATH", fake(tmp_path / "bin", apt_get=script))
    apt = sources.Apt(tmp_path / "apt", ["trixie"])
    assert apt.source("x", tmp_path / "target").name == "x_1.orig.tar.xz"
    with pytest.raises(ToolError, match="E: 404"):
        apt.source("y", tmp_path / "other")


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no packages here")
def test_files_of_a_package_are_known(tmp_path, monkeypatch):
    package = tmp_path / "package"
    (package / "DEBIAN").mkdir(parents=True)
    (package / "bin").mkdir()
    (package / "bin/tool").write_text("x")
    text = "Package: x\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n"
    (package / "DEBIAN/control").write_text(text)
    subprocess.run(["dpkg-deb", "-b", package, tmp_path / "x_1_all.deb"], check=True)
    place = tmp_path / "apt/cache/target"
    script = f'{TARGETS}case "$*" in *install*) cp {tmp_path}/x_1_all.deb {place};; esac'
    monkeypatch.setenv("PATH", fake(tmp_path / "bin", apt_get=script))
    apt = sources.Apt(tmp_path / "apt", ["trixie"])
    found = apt.fetch(["x"], tmp_path / "target", suite="trixie")
    assert found == {"x_1_all.deb": ["./bin/tool"]}
    assert (tmp_path / "target/bin/tool").read_text() == "x" and not place.exists()


# Files ------------------------------------------------------------------------------------------


def test_files_are_where_a_merged_system_has_them(tmp_path):
    assert tree.placed("./bin/ip") == "/usr/bin/ip"
    assert tree.placed("./lib64/ld.so") == "/usr/lib64/ld.so"
    assert tree.placed("./usr/sbin/rdma") == "/usr/sbin/rdma"
    assert tree.placed("./etc/x") == "/etc/x"
    for name in ("bin/tool", "usr/share/doc/tool/readme", "usr/lib/python3/a.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "bin/tool").chmod(0o755)
    (tmp_path / "bin/link").symlink_to("tool")
    (tmp_path / "usr/lib/python3/__pycache__").mkdir()
    (tmp_path / "usr/lib/python3/__pycache__/a.cpython-311.pyc").write_bytes(b"code")
    names = ("bin/tool", "bin/link", "usr/share/doc/tool/readme", "usr/lib/python3/a.py")
    found = tree.nodes_of(tmp_path, [f"./{name}" for name in names])
    assert set(found) == {
        *("/usr/bin/tool", "/usr/bin/link", "/usr/lib/python3/a.py"),
        "/usr/lib/python3/__pycache__/a.cpython-311.pyc",
    }
    assert found["/usr/bin/tool"].mode & 0o111 and stat.S_ISLNK(found["/usr/bin/link"].mode)


def test_libraries_come_with_a_program(tmp_path):
    """Those of the guest's release; a library of this machine is none."""
    libraries = tmp_path / "lib/x86_64-linux-gnu"
    libraries.mkdir(parents=True)
    (tmp_path / "lib64").mkdir()
    loader = tmp_path / "lib64" / toolchain.LOADER
    loader.write_text(f"#!/bin/sh\necho ' a.so => {libraries}/a.so (0x0)'\necho 'b => /b (0x1)'\n")
    loader.chmod(0o755)
    (libraries / "a.so").write_bytes(b"library")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/tool").write_bytes(b"\x7fELF")
    found = tree.libraries_of(tmp_path, {"/usr/bin/tool": Node.file(b"\x7fELF")})
    assert set(found) == {f"/usr/lib64/{toolchain.LOADER}", "/usr/lib/x86_64-linux-gnu/a.so"}


def test_a_module_loses_its_signature():
    body, signature = b"\x7fELF module", b"s" * 77
    signed = body + signature + bytes(8) + (77).to_bytes(4, "big") + image._SIGNED
    assert image._unsigned(signed) == body
    assert image._unsigned(body) == body


def test_what_has_been_made_is_kept(tmp_path, monkeypatch):
    """Once; and nothing is left of what could not be made."""
    monkeypatch.setenv("ROCINANTE_BUILD_DIR", str(tmp_path))
    calls = []

    def make(target: Path) -> None:
        calls.append(target)
        (target / "file").write_text("x")
        if len(calls) == 1:
            raise ToolError("broken")

    with pytest.raises(ToolError, match="broken"):
        image._kept("thing-1", make)
    assert not (tmp_path / "machine/thing-1").exists()
    folders = {image._kept("thing-1", make) for _ in range(3)}
    assert folders == {tmp_path / "machine/thing-1"} and len(calls) == 2
    assert [path.name for path in (tmp_path / "machine").iterdir() if path.is_dir()] == ["thing-1"]
    image._kept("thing-2", make, instead="thing-")
    assert not (tmp_path / "machine/thing-1").exists()


def test_programs_of_a_kernels_build_run_by_their_own_loader(tmp_path):
    program = tmp_path / "usr/lib/linux-kbuild-9/scripts/tool"
    program.parent.mkdir(parents=True)
    program.write_bytes(b"\x7fELF")
    program.chmod(0o755)
    script = program.with_name("script")
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    (tmp_path / "lib64").mkdir()
    loader = tmp_path / "lib64" / toolchain.LOADER
    loader.write_text('#!/bin/sh\necho "$@"\n')
    loader.chmod(0o755)
    for _ in range(2):
        toolchain._wrap_programs(tmp_path)
    done = subprocess.run([program, "a b"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [
        *("--argv0", str(program), "--library-path"),
        f"{tmp_path}/lib/x86_64-linux-gnu:{tmp_path}/usr/lib/x86_64-linux-gnu",
        *(f"{program}.packaged", "a", "b"),
    ]
    assert script.read_text() == "#!/bin/sh\n"


def test_scripts_pass_shellcheck():
    shellcheck = Path(sys.executable).parent / "shellcheck"
    scripts = sorted((Path(image.__file__).parent / "guest").iterdir())
    scripts += sorted(Path(__file__).parent.glob("*.sh"))
    scripts += [toolchain.SOURCES / "dkms" / name for name in ("postinst", "prerm")]
    done = subprocess.run(
        [shellcheck, "-s", "bash", *scripts], capture_output=True, text=True, check=False
    )
    assert not done.stdout


# Cards and QEMU ---------------------------------------------------------------------------------


def test_functions_differ_in_their_addresses():
    chosen = {"mac": "02:00:00:00:00:01", "functions": 2, "network": None}
    first, second = (lab.cards_of(index, chosen, Path("/s")) for index in (0, 1))
    assert [card.mac[-2:] for card in (*first, *second)] == ["01", "01", "02", "02"]
    addresses = [address for card in (*first, *second) for address in card.addresses]
    assert len(addresses) == len(set(addresses))
    assert str(second[1].socket) == "/s/card1-function2"
    assert all(card.network is None for card in (*first, *second))
    chosen |= {"functions": None, "network": 2}
    (card,) = lab.cards_of(1, chosen, Path("/s"))
    assert str(card.network) == "/s/card1-function0"


def test_qemu_is_started_by_its_own_loader(tmp_path):
    words = Qemu(tmp_path).command(Path("k"), Path("i"), memory_mib=64, sleep=True)
    assert words[0].startswith(str(tmp_path)) and "shift=3,sleep=on" in words
    assert any("memory-backend-memfd" in word and "share=on" in word for word in words)


def test_frames_of_a_peer_go_where_they_belong():
    """RoCE to the card, all else to the interface beside it; from both to the peer."""
    pairs = [socket.socketpair() for _ in range(3)]
    ends = [ours for ours, _ in pairs]
    for end in ends:
        end.settimeout(10)
    switch = Switch(*(theirs for _, theirs in pairs))
    card, beside, peer = ends
    roce = _roce()
    arp = bytes(12) + b"\x08\x06" + bytes(46)

    def arrived(end):
        frames = []
        deframer = Deframer()
        while not frames:
            frames += deframer.feed(end.recv(65536))
        return frames

    peer.sendall(framed(roce) + framed(arp))
    assert arrived(card) == [roce] and arrived(beside) == [arp]
    card.sendall(framed(roce))
    assert arrived(peer) == [roce]
    beside.sendall(framed(arp))
    assert arrived(peer) == [arp]
    switch.close()
    for end in ends:
        assert not end.recv(1)
        end.close()


def _roce() -> bytes:
    """As much of a RoCE v2 frame over IPv4 as a switch looks at."""
    frame = bytearray(90)
    frame[12:14] = b"\x08\x00"
    frame[14], frame[23] = 0x45, 17
    frame[36:38] = (4791).to_bytes(2, "big")
    return bytes(frame)
