"""Indirect keys between two endpoints."""

import errno

import pytest

from tests.endpoint.two import DATA, joined, refuses

RIGHTS = ["LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ"]


two = pytest.fixture(joined, scope="module")


def connected(sides):
    qps = [side.qp() for side in sides]
    for i, side in enumerate(sides):
        side.connect(qps[i], sides[1 - i], qps[1 - i])
    return qps


def lay(side, qp, mkey, opcode, parts, **more):
    """Gives an indirect key a layout of parts of the side's region."""
    sge = [[side.mr["mr"], offset, length] for offset, length in parts]
    more = {"access": RIGHTS, "flags": ["SIGNALED"]} | more
    side.client.call("post_send", qp=qp["qp"], opcode=opcode, mr=mkey["mr"], sge=sge, **more)


def test_a_list_is_source_sink_and_goal(two):
    """A SEND from a list into a list, and a WRITE of a peer at an offset in one."""
    a, b = two
    source, target = connected(two)
    keys = [side.client.call("create_mkey", max_entries=4) for side in two]
    for side, qp, key in zip(two, (source, target), keys, strict=True):
        assert key["lkey"] == key["rkey"] and key["max_entries"] == 4
        lay(side, qp, key, "MKEY_LIST", [(100, 10), (3000, 0), (50, 30)], wr_id=8)
        (wc,) = side.good()
        assert (wc["wr_id"], wc["opcode"]) == (8, "MKEY")

    b.write(0, bytes(6000))
    b.client.call("post_recv", qp=target["qp"], sge=[[keys[1]["mr"], 5, 35]])
    sge = [[keys[0]["mr"], 0, 35]]
    a.client.call("post_send", qp=source["qp"], opcode="SEND", sge=sge)
    a.good()
    assert b.good()[0]["byte_len"] == 35
    sent = DATA[100:110] + DATA[50:75]
    assert b.read(105, 5) == sent[:5] and b.read(50, 30) == sent[5:]
    assert not any(b.read(80, 25)) and not any(b.read(110, 100))

    more = {"rkey": keys[1]["rkey"], "remote_addr": 8}
    a.post(source, "RDMA_WRITE", [(1000, 6)], **more)
    a.good()
    assert b.read(108, 2) + b.read(50, 4) == DATA[1000:1006]

    b.client.call("post_send", qp=target["qp"], opcode="LOCAL_INV",
                  invalidate_rkey=keys[1]["rkey"])  # fmt: skip
    b.good()
    a.post(source, "RDMA_WRITE", [(1000, 6)], **more)
    (wc,) = a.client.wait(1)
    assert wc["status"] == "REM_ACCESS_ERR"
    for side, key in zip(two, keys, strict=True):
        assert side.client.call("dereg_mr", mr=key["mr"]) == {}
        refuses(side, errno.EINVAL, "There is no mr", "dereg_mr", mr=key["mr"])


def test_columns_are_read_as_rows(two):
    """Two columns of 8 bytes with gaps of 2, three rows: the peer reads them in one request."""
    a, b = two
    source, target = connected(two)
    mkey = a.client.call("create_mkey", max_entries=2, remote_invalidate=True)
    lay(a, source, mkey, "MKEY_INTERLEAVED", [(0, 8), (64, 8)], skip=[2, 2], repeat=3)
    a.good()
    b.post(target, "RDMA_READ", [(2000, 40)], rkey=mkey["rkey"], remote_addr=8)
    b.good()
    rows = b"".join(DATA[10 * n : 10 * n + 8] + DATA[64 + 10 * n : 72 + 10 * n] for n in range(3))
    assert b.read(2000, 40) == rows[8:]

    # The key was made so that a peer may take its layout away.
    a.receive(source, 4000, 8)
    b.post(target, "SEND_WITH_INV", [(0, 8)], invalidate_rkey=mkey["rkey"])
    b.good()
    a.good()
    lay(a, source, mkey, "MKEY_LIST", [(0, 8)], check_free=True)
    a.good()
    lay(a, source, mkey, "MKEY_LIST", [(0, 8)], check_free=True)
    (wc,) = a.client.wait(1)
    assert wc["status"] == "MW_BIND_ERR"


def test_what_is_no_request(two):
    a, _b = two
    source, _target = connected(two)
    mkey = a.client.call("create_mkey", max_entries=2)
    post = {"op": "post_send", "qp": source["qp"]}
    refuses(a, errno.EINVAL, "a skip for each", **post, opcode="MKEY_INTERLEAVED",
            mr=mkey["mr"], sge=[[a.mr["mr"], 0, 8]])  # fmt: skip
    for wrong in ({}, {"mr": a.mr["mr"]}):
        refuses(a, errno.EINVAL, "needs mr, one of create_mkey", **post, opcode="MKEY_LIST",
                **wrong)  # fmt: skip
    refuses(a, errno.EINVAL, "needs mr, a region", **post, opcode="REG_MR", mr=mkey["mr"])
    refuses(a, errno.ENOMEM, "", **post, opcode="MKEY_LIST", mr=mkey["mr"],
            sge=[[a.mr["mr"], 0, 8]] * 33)  # fmt: skip
    refuses(a, errno.EINVAL, "an indirect key", "read_mem", mr=mkey["mr"], length=1)
    refuses(a, errno.EINVAL, "", "create_mkey", max_entries=33)
