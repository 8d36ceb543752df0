"""Dynamic connections between two endpoints."""

import errno

import pytest

from tests.endpoint.test_endpoint import PATIENCE_MS
from tests.endpoint.two import endpoint, refuses

KEY = 0x1122334455667788
DATA = bytes(n * 7 & 0xFF for n in range(6000))


class Two:
    """An initiator's side ``a``, and ``b``, that of ``targets``, each with a receive queue."""

    def __init__(self, path):
        self.a = endpoint(path, "--listen", "--ip", "10.0.0.1")
        self.b = endpoint(path, "--mac", "02:00:00:00:00:02", "--ip", "10.0.0.2")
        self.a.write(0, DATA)
        self.targets = [self.target() for _ in range(2)]
        self.ways = [self.way(target) for target, _ in self.targets]

    def target(self, **more):
        call = self.b.client.call
        srq = call("create_srq", max_wr=16)["srq"]
        made = self.b.qp(type="DCT", srq=srq, dc_key=KEY)
        call("dc_ready", qp=made["qp"], **self.to(self.b), min_rnr_timer=1, **more)
        return made, srq

    @staticmethod
    def to(side):
        return {"dest_gid": side.info["gid"], "dest_mac": side.info["mac"]}

    def way(self, target, key=KEY):
        asked = dict(dctn=target["qpn"], dc_key=key, **self.to(self.b))
        return self.a.client.call("dc_destination", **asked)["destination"]

    def initiator(self, **more):
        made = self.a.qp(type="DCI", **more)
        self.a.client.call("dc_ready", qp=made["qp"], **self.to(self.b), timeout=5)
        return made

    def receive(self, n, wr_id, at):
        sge = [[self.b.mr["mr"], at, 1000]]
        self.b.client.call("post_recv", srq=self.targets[n][1], wr_id=wr_id, sge=sge)

    def contexts(self, n):
        """Connections of a target that are left once nothing is sent any more."""
        for _ in range(50):
            found = self.b.client.call("dc_query", qp=self.targets[n][0]["qp"])
            if not found["contexts"]:
                break
            self.a.client.call("poll", timeout_ms=10)
        return found


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    both = Two(tmp_path_factory.mktemp("two") / "wire")
    yield both
    assert [side.client.close() for side in (both.a, both.b)] == [0, 0]


def test_two_targets_in_turn(two):
    """SENDs to either target, then a WRITE and a READ; each connection is counted, and gone when
    nothing is sent any more."""
    a, b = two.a, two.b
    source = two.initiator()
    for n in range(6):
        two.receive(n % 2, n, 1000 * n)
    for n in range(6):
        a.post(source, "SEND", [(10 * n, 300)], wr_id=n, destination=two.ways[n % 2])
    assert [wc["wr_id"] for wc in a.good(6)] == list(range(6))
    found = b.good(6)
    assert [wc["wr_id"] for wc in found] == list(range(6))
    assert [wc["qp_num"] for wc in found] == 3 * [one["qpn"] for one, _ in two.targets]
    for n in range(6):
        assert b.read(1000 * n, 300) == DATA[10 * n : 10 * n + 300]
    a.post(source, "RDMA_WRITE", [(0, 6000)], b, at=20_000, destination=two.ways[0])
    a.post(source, "RDMA_READ", [(10_000, 6000)], b, at=20_000, destination=two.ways[1])
    a.good(2)
    assert b.read(20_000, 6000) == a.read(10_000, 6000) == DATA
    for n in range(2):
        found = two.contexts(n)
        assert (found["state"], found["contexts"], found["key_violations"]) == (1, 0, 0)
        assert found["connects"] >= 3
    a.client.call("destroy_qp", qp=source["qp"])


@pytest.mark.slow
def test_lost_packets_of_connections(two):
    """A network that loses frames in both directions: what opens and closes connections is sent
    again, though no timer of the card runs for it."""
    a, b = two.a, two.b
    source = two.initiator()
    for n in range(8):
        two.receive(n % 2, n, 1000 * n)
    a.client.call("impair", what="loss=25%")
    for n in range(8):
        a.post(source, "SEND", [(10 * n, 300)], wr_id=n, destination=two.ways[n % 2])
    assert [wc["wr_id"] for wc in a.good(8)] == list(range(8))
    a.client.call("impair", what="")
    assert [wc["wr_id"] for wc in b.good(8)] == list(range(8))
    assert two.contexts(0)["contexts"] == two.contexts(1)["contexts"] == 0
    a.client.call("destroy_qp", qp=source["qp"])


def test_a_stream_fails(two):
    """A wrong key ends the requests of one stream; the other one goes on, and so does the first
    one when it is reset."""
    a, b = two.a, two.b
    source = two.initiator(streams={"log_streams": 1, "log_errored": 2})
    wrong = two.way(two.targets[0][0], KEY + 1)
    two.receive(0, 5, 0)
    a.post(source, "SEND", [(0, 8)], wr_id=0, destination=wrong, stream_id=3)
    a.post(source, "SEND", [(0, 8)], wr_id=1, destination=wrong, stream_id=3)
    a.post(source, "SEND", [(0, 8)], wr_id=2, destination=two.ways[0], stream_id=4)
    found = a.client.wait(3, PATIENCE_MS)
    assert [wc["status"] for wc in found] == ["REM_ACCESS_ERR", "WR_FLUSH_ERR", "SUCCESS"]
    assert b.good()[0]["wr_id"] == 5
    assert two.contexts(0)["key_violations"] >= 1  # a CONNECT may have been sent again
    a.client.call("dc_reset_stream", qp=source["qp"], stream_id=3)
    refuses(a, errno.EINVAL, "has not failed", "dc_reset_stream", qp=source["qp"], stream_id=3)
    two.receive(0, 6, 0)
    a.post(source, "SEND", [(0, 8)], destination=two.ways[0], stream_id=3)
    a.good()
    b.good()
    a.client.call("dc_forget", destination=wrong)
    refuses(a, errno.EINVAL, f"no destination {wrong}", "dc_forget", destination=wrong)


def test_refused(two):
    a, source, plain = two.a, two.initiator(), two.a.qp()
    target = two.targets[0][0]["qp"]
    post = dict(opcode="SEND", qp=source["qp"])
    refuses(a, errno.EINVAL, "destination is for DCI", "post_send", **post)
    refuses(a, errno.EINVAL, "no destination 99", "post_send", **post, destination=99)
    refuses(two.b, errno.EINVAL, "no send queue", "post_send", opcode="SEND", qp=target)
    refuses(two.b, errno.EINVAL, "no receive queue", "post_recv", qp=target)
    refuses(a, errno.EINVAL, "the QP is RC", "dc_ready", qp=plain["qp"], **two.to(two.b))
    refuses(a, errno.EINVAL, "no target", "dc_query", qp=source["qp"])
    refuses(a, errno.EINVAL, "SRQ", "create_qp", type="DCT")
