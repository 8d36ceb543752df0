"""XRC, and receive requests that take several packets, between two endpoints."""

import errno
import subprocess

import pytest

from tests.endpoint.test_endpoint import COMMAND
from tests.endpoint.two import DATA, joined, refuses

two = pytest.fixture(joined, scope="module")


def connected(sides, first, second, **more):
    sides[0].connect(first, sides[1], second, **more)
    sides[1].connect(second, sides[0], first, **more)


def pieces(side, count):
    """Offset, bytes and flags of so many good completions."""
    return [(wc["mp_wr_offset"], wc["byte_len"], wc["flags"]) for wc in side.good(count)]


def test_requests_name_queues_of_a_domain(two):
    """One queue takes a message for each request, the other one a packet for each of its segments;
    both are of the domain of one target."""
    a, b = two
    call = b.client.call
    xrcd = call("create_xrcd")["xrcd"]
    whole = call("create_srq", max_wr=8, xrcd=xrcd)
    cut = call("create_srq", max_wr=4, xrcd=xrcd, mp_wr={"buffer": 5000, "align": 100})
    assert cut["mp_wr"] == {"buffer": 5120, "align": 128}
    target, source = b.qp(type="XRC_TGT", xrcd=xrcd), a.qp(type="XRC_INI")
    connected(two, source, target)

    call("post_recv", srq=whole["srq"], wr_id=5, sge=[[b.mr["mr"], 0, 4096]])
    call("post_recv", srq=cut["srq"], wr_id=6, sge=[[b.mr["mr"], 8192, 5120]])
    a.post(source, "SEND", [(10, 300)], srq_num=whole["srq_num"])
    a.good()
    (wc,) = b.good()
    assert (wc["wr_id"], wc["byte_len"], wc["qp_num"]) == (5, 300, target["qpn"])
    assert wc["flags"] == [] and wc["mp_wr_offset"] == wc["vendor_err"] == 0
    assert b.read(0, 300) == DATA[10:310]

    a.post(source, "SEND", [(20, 2100)], srq_num=cut["srq_num"])
    a.post(source, "SEND", [(3000, 1)], srq_num=cut["srq_num"])
    a.good(2)
    more = ["MP_WR_MORE_IN_MSG"]
    assert pieces(b, 4) == [(0, 1024, more), (1024, 1024, more), (2048, 52, []), (2176, 1, [])]
    assert b.read(8192, 2100) == DATA[20:2120] and b.read(8192 + 2176, 1) == DATA[3000:3001]

    a.post(source, "RDMA_WRITE", [(0, 6000)], b, at=20_000, srq_num=whole["srq_num"])
    a.good()
    assert b.read(20_000, 6000) == DATA

    refuses(b, errno.EINVAL, "domain", "destroy_xrcd", xrcd=xrcd)
    refuses(b, errno.EINVAL, "no receive queue", "post_recv", qp=target["qp"])
    refuses(b, errno.EINVAL, "no send queue", "post_send", qp=target["qp"], opcode="SEND")
    refuses(a, errno.EINVAL, "srq_num is for XRC_INI", "post_send", qp=source["qp"], opcode="SEND")
    a.post(source, "SEND", [(0, 8)], srq_num=whole["srq_num"] ^ 1 << 20)
    (wc,) = a.client.wait(1)
    assert wc["status"] == "REM_ACCESS_ERR"
    a.client.call("destroy_qp", qp=source["qp"])
    call("destroy_qp", qp=target["qp"])
    for srq in (whole, cut):
        call("destroy_srq", srq=srq["srq"])
    assert call("destroy_xrcd", xrcd=xrcd) == {}
    refuses(b, errno.EINVAL, f"There is no xrcd {xrcd}", "destroy_xrcd", xrcd=xrcd)


def test_requests_of_several_packets(two):
    """A receive queue of a queue pair's own: a message is longer than what is left of a request,
    and goes on in the next one."""
    a, b = two
    source, target = a.qp(), b.qp(mp_wr={"buffer": 4096, "align": 1024})
    connected(two, source, target)
    for number in (1, 2):
        place = [[b.mr["mr"], 4096 * number, 4096]]
        b.client.call("post_recv", qp=target["qp"], wr_id=number, sge=place)
    a.post(source, "SEND", [(0, 6000)])
    a.good()
    found = b.good(6)
    assert [wc["wr_id"] for wc in found] == [1, 1, 1, 1, 2, 2]
    assert [wc["mp_wr_offset"] for wc in found] == [0, 1024, 2048, 3072, 0, 1024]
    assert found[3]["flags"] == ["MP_WR_MORE_IN_MSG", "MP_WR_CONSUMED"]
    assert found[5]["flags"] == [] and found[5]["byte_len"] == 6000 - 5 * 1024
    assert b.read(4096, 6000) == DATA


def test_a_shared_queue_has_one_completion_queue(two):
    """Two queue pairs take from it, and their pieces lie side by side."""
    a, b = two
    shared = b.client.call("create_srq", max_wr=4, mp_wr={"buffer": 4096, "align": 256})
    place = [[b.mr["mr"], 0, 4096]]
    b.client.call("post_recv", srq=shared["srq"], wr_id=9, sge=place)
    targets = []
    for n in range(2):
        source, target = a.qp(), b.qp(srq=shared["srq"])
        connected(two, source, target)
        a.post(source, "SEND", [(100 * n, 100)])
        a.good()
        (wc,) = b.good()
        assert (wc["wr_id"], wc["mp_wr_offset"]) == (9, 256 * n)
        assert wc["qp_num"] == target["qpn"]
        targets.append(target)
    assert b.read(0, 100) == DATA[:100] and b.read(256, 100) == DATA[100:200]
    refuses(b, errno.EINVAL, "SRQ", "create_qp", srq=shared["srq"],
            mp_wr={"buffer": 4096, "align": 256})  # fmt: skip
    for target in targets:
        b.client.call("destroy_qp", qp=target["qp"])
    assert b.client.call("destroy_srq", srq=shared["srq"]) == {}


def test_an_unknown_feature_is_refused():
    asked = [*COMMAND, "endpoint", "--wire", "unix:nowhere", "--with", "xrc", "--with", "nothing"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and "'nothing' is not one of" in done.stderr
