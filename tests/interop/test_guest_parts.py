"""The guest's parts that need no guest: archive, modules, agent's lines, client, relay."""

from __future__ import annotations

import gzip
import lzma
import os
import shutil
import socket
import stat
import struct
import subprocess
import threading
import time
import tty
from pathlib import Path

import pytest

from sim.endpoint.frames import framed
from sim.interop import kernel, packages
from sim.interop.client import AgentError, GuestClient, ProtocolError, encode, parse
from sim.interop.cpio import Node, archive, listing
from sim.interop.frames import icrc_faults, is_roce, tshark_faults
from sim.interop.relay import Relay
from sim.rtl.env import ToolError
from sim.wire.packets import build, gid_bytes
from sim.wire.pcap import read_pcap, write_pcap

SOURCES = Path(kernel.__file__).parent / "guest"


# First file system ------------------------------------------------------------------------------


def test_archive_holds_files_folders_and_links() -> None:
    nodes = {
        "/init": Node.file(b"#!/bin/sh\n", executable=True),
        "/a/b/c.ko": Node.file(b"12345"),
        "/proc": Node.folder(),
        "/bin/sh": Node.link("busybox"),
    }
    found = dict(listing(archive(nodes)))
    assert list(found) == ["/a", "/a/b", "/a/b/c.ko", "/bin", "/bin/sh", "/init", "/proc"]
    assert found["/a/b/c.ko"].data == b"12345"
    assert stat.S_ISDIR(found["/a/b"].mode) and stat.S_ISLNK(found["/bin/sh"].mode)
    assert found["/init"].mode == stat.S_IFREG | 0o755
    assert archive(nodes) == archive(dict(reversed(nodes.items())))


@pytest.mark.skipif(shutil.which("cpio") is None, reason="no cpio to compare with")
def test_archive_is_one_for_cpio(tmp_path: Path) -> None:
    data = archive({"/a/b": Node.file(b"x" * 1001), "/c": Node.link("a/b")})
    subprocess.run(["cpio", "-idm"], cwd=tmp_path, input=data, check=True)
    assert (tmp_path / "c").read_bytes() == b"x" * 1001


@pytest.mark.parametrize("path", ["relative", "/", "/a/../b"])
def test_archive_refuses_other_paths(path: str) -> None:
    with pytest.raises(ValueError, match="plain absolute path"):
        archive({path: Node.folder()})


def test_cut_archive_is_noticed() -> None:
    with pytest.raises(ValueError, match="header|cut"):
        list(listing(archive({"/a": Node.file(b"12345678")})[:120]))


# Kernel -----------------------------------------------------------------------------------------


def module(depends: str) -> bytes:
    return b"\x7fELF...\0license=GPL\0depends=" + depends.encode() + b"\0name=x\0"


def test_modules_come_behind_what_they_need(tmp_path: Path) -> None:
    folder = tmp_path / "lib/modules/6.1/kernel/drivers"
    folder.mkdir(parents=True)
    (folder / "rdma-rxe.ko").write_bytes(module("ib_core,udp-tunnel,builtin"))
    (folder / "ib_core.ko.xz").write_bytes(lzma.compress(module("")))
    (folder / "udp_tunnel.ko.gz").write_bytes(gzip.compress(module("ib_core")))
    files = kernel.module_files(tmp_path)
    assert kernel.loading_order(["rdma_rxe"], files) == ["ib_core", "udp_tunnel", "rdma_rxe"]
    assert kernel.read_module(files["ib_core"]) == module("")


@pytest.mark.parametrize("compress", [lzma.compress, gzip.compress])
def test_kernel_is_taken_out_of_its_wrapping(compress) -> None:
    inner = (
        compress(b"\x7fELF" + bytes(1000)) + b"\0\4\0\0"[: 4 if compress is lzma.compress else 0]
    )
    packaged = bytearray(3 * 512)
    packaged[0x1F1] = 2
    packaged[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", packaged, 0x248, 0, len(inner))
    assert kernel.image(bytes(packaged) + inner) == b"\x7fELF" + bytes(1000)
    unknown = bytes(packaged) + b"?" * len(inner)
    assert kernel.image(unknown) == unknown


def test_what_is_no_kernel_is_refused() -> None:
    with pytest.raises(ToolError, match="Not a Linux kernel"):
        kernel.image(bytes(2000))


def test_missing_tools_name_the_line_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    packages.require_commands({"sh": "dash"})  # at hand
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    real = subprocess.run

    def refuse_sudo(command, **options):
        return real(["false"] if command[0] == "sudo" else command, **options)

    monkeypatch.setattr(subprocess, "run", refuse_sudo)
    with pytest.raises(ToolError, match="apt-get install package-a package-b$"):
        packages.require_commands({"no-such-tool": "package-b package-a"})


# The agent's lines ------------------------------------------------------------------------------

HARNESS = r"""
#include "line.h"
#include <string.h>
static const struct name names[] = {{"A", 1}, {"B", 2}, {0, 0}};
static int seconds;
static void idle(void)
{
    seconds++;
}
static void serve(const char *operation)
{
    uint8_t bytes[4] = {0};
    uint64_t value;
    int found;

    if (!strcmp(operation, "hex")) {
        take_hex("data", bytes, 4);
        fputs("ok data=", answer);
        put_hex(bytes, 4);
        return;
    }
    if (!strcmp(operation, "idle")) {
        fprintf(answer, "ok seconds=%d", seconds);
        return;
    }
    value = number("value", 1000);
    found = flags(names, "flags");
    fprintf(answer, "ok value=%d flags=%d", (int)value, found);
}
int main(int argc, char **argv)
{
    (void)argc;
    line_open(argv[1]);
    line_serve(serve, idle);
    return 0;
}
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory):
    """Asks the agent's parser of lines, compiled with small operations."""
    folder = tmp_path_factory.mktemp("lines")
    (folder / "harness.c").write_text(HARNESS)
    command = ["gcc", "-std=gnu17", "-Wall", "-Wextra", "-Werror", f"-I{SOURCES}"]
    command += [str(folder / "harness.c"), str(SOURCES / "line.c"), "-o", str(folder / "harness")]
    subprocess.run(command, check=True)
    ours, theirs = os.openpty()
    tty.setraw(theirs)
    process = subprocess.Popen([folder / "harness", os.ttyname(theirs)])
    with open(ours, "r+b", buffering=0) as port:

        def ask(line: bytes) -> str:
            port.write(line + b"\n")
            answer = b""
            while not answer.endswith(b"\n"):
                answer += port.read(1000)
            return answer.decode().strip()

        yield ask
        process.kill()
        process.wait()
    os.close(theirs)


@pytest.mark.parametrize(
    "line, answer",
    [
        ("hex data=00ff1234", "ok data=00ff1234"),
        ("set value=7 flags=A,B", "ok value=7 flags=3"),
        ("set value=0x10", "ok value=16 flags=0"),
        ("set value=1001", "error 22 1001 is above 1000"),
        ("set value=-1", "error 22 '-1' is not a number"),
        ("set value=7x", "error 22 '7x' is not a number"),
        ("set value=99999999999999999999", "error 22 '99999999999999999999' is not a number"),
        ("set", "error 22 value is missing"),
        ("set value=1 flags=C", "error 22 'C' is not known"),
        ("set loose", "error 22 'loose' is not KEY=VALUE"),
        ("", "error 22 empty line"),
        ("hex data=00ff12", "error 22 data does not hold 4 bytes"),
        ("hex data=00ff12zz", "error 22 data is not hexadecimal (lower case)"),
        ("set " + "a=1 " * 33, "error 7 more than 32 words"),
    ],
)
def test_agent_answers_each_line(lines, line: str, answer: str) -> None:
    assert lines(line.encode()) == answer
    assert lines(b"set value=1") == "ok value=1 flags=0", "and goes on"


def test_agent_notices_a_second_without_a_request(lines) -> None:
    before = lines(b"idle")
    time.sleep(1.2)
    assert lines(b"idle") != before


def test_requests_are_words() -> None:
    fields = {
        "sge": [[1, 2, 3], [4, 5, 6]],
        "access": ["A", "B"],
        "sq_sig_all": True,
        "data": b"\1",
        "ah": {"dest_gid": "fd00::1", "qkey": 3},
    }
    line = b"op sge=1:2:3,4:5:6 access=A,B sq_sig_all=1 data=01 ah.dest_gid=fd00::1 ah.qkey=3\n"
    assert encode("op", fields) == line
    with pytest.raises(ValueError, match="Not a word"):
        encode("op", {"name": "two words"})


def test_answers_have_the_endpoints_shape() -> None:
    assert parse("ok mr=1 addr=0x10 mac=02:00 gids=fe80::1,::ffff:10.0.0.1 wc=") == {
        "mr": 1,
        "addr": 16,
        "mac": "02:00",
        "gids": ["fe80::1", "::ffff:10.0.0.1"],
        "wc": [],
    }
    (wc,) = parse("ok wc=9:SUCCESS:RECV:12:5:7:17:18:GRH+WITH_IMM")["wc"]
    assert wc == {
        "wr_id": 9,
        "status": "SUCCESS",
        "opcode": "RECV",
        "byte_len": 12,
        "imm": 5,
        "invalidated_rkey": 7,
        "qp_num": 17,
        "src_qp": 18,
        "flags": ["GRH", "WITH_IMM"],
    }
    with pytest.raises(AgentError, match="no MR 7") as refused:
        parse("error 22 no MR 7")
    assert refused.value.errno == 22
    for bad in ("", "okay", "error x", "ok word"):
        with pytest.raises(ProtocolError):
            parse(bad)


def test_client_waits_no_longer_than_it_should() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        client = GuestClient(ours, patience=0.1)
        with pytest.raises(ProtocolError, match="info: no answer"):
            client.call("info")
        theirs.sendall(b"ok data=0102\nok mr=")
        assert client.read(0, 2) == b"\1\2"
        theirs.sendall(b"3\n")
        assert client.call("reg_mr") == {"mr": 3}
        theirs.close()
        with pytest.raises(ProtocolError, match="info: "):
            client.call("info")


# The wire ---------------------------------------------------------------------------------------


def test_relay_passes_and_records_all_frames(tmp_path: Path) -> None:
    (a, one), (b, other) = socket.socketpair(), socket.socketpair()
    with a, b, one, other:
        relay = Relay(one, other)
        there = [bytes([i % 251]) * (14 + i * 7 % 9000) for i in range(500)]
        back = [bytes([i % 13]) * (60 + i) for i in range(100)]

        def send(end, frames) -> threading.Thread:
            data = b"".join(map(framed, frames))
            thread = threading.Thread(target=end.sendall, args=(data,))
            thread.start()
            return thread

        def take(end, frames) -> bytes:
            wanted = sum(4 + len(frame) for frame in frames)
            return b"".join(iter(lambda: read(end, wanted), b""))

        def read(end, wanted) -> bytes:
            nonlocal count
            data = end.recv(min(4096, wanted - count)) if wanted > count else b""
            count += len(data)
            return data

        with relay.capture(tmp_path / "x.pcap") as frames:
            threads = [send(a, there), send(b, back)]
            for end, sent in ((b, there), (a, back)):
                count = 0
                assert take(end, sent) == b"".join(map(framed, sent))
            for thread in threads:
                thread.join()
        assert sorted(frame for _, frame in frames) == sorted(there + back)
        assert [frame for _, frame in read_pcap(tmp_path / "x.pcap")] == [f for _, f in frames]
        assert not relay.ended
        a.sendall(struct.pack(">I", 1 << 31))
        deadline = time.monotonic() + 10
        while not relay.ended and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "2147483648" in relay.ended
        relay.close()


# Captures ---------------------------------------------------------------------------------------


def frames_of(ipv6: bool) -> list[bytes]:
    gids = [
        gid_bytes(one) for one in (("fd00::1", "fd00::2") if ipv6 else ("10.0.0.1", "10.0.0.2"))
    ]
    return [
        build(0x04, src_gid=gids[0], dst_gid=gids[1], payload=bytes(range(size)), dest_qp=17, psn=5)
        for size in (0, 1, 64)
    ]


@pytest.mark.parametrize("ipv6", [False, True])
def test_each_wrong_bit_of_a_frame_is_noticed(ipv6: bool) -> None:
    frames = frames_of(ipv6)
    assert all(map(is_roce, frames)) and not icrc_faults(frames)
    bth = 62 if ipv6 else 42
    for place in (bth + 2, bth + 11, bth + 12, len(frames[2]) - 1):
        spoilt = bytearray(frames[2])
        spoilt[place] ^= 1
        assert icrc_faults([frames[0], bytes(spoilt)]) == [
            "frame 2: wrong ICRC or IPv4 checksum"
        ], place


@pytest.mark.skipif(shutil.which("tshark") is None, reason="no tshark here")
def test_tshark_finds_what_is_malformed(tmp_path: Path) -> None:
    path = tmp_path / "x.pcap"
    good = frames_of(False) + frames_of(True)
    write_pcap(path, [(i, frame) for i, frame in enumerate(good)])
    assert tshark_faults(path) == []
    write_pcap(path, [(0, good[0]), (1, good[1][:50])])
    (fault,) = tshark_faults(path) or []
    assert fault.startswith("frame 2: ")
