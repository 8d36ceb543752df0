"""ATTACH_MCAST and DETACH_MCAST, and what a membership refuses (docs/extensions.md)."""

import ipaddress

import pytest

from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import ExtensionCommand as X
from hdl.abi.enums import QpAttrMask as M
from hdl.abi.enums import QpState as S
from hdl.abi.enums import QpType as T
from hdl.abi.enums import RdmaFeature
from hdl.abi.limits import GROUP_MEMBERS
from tests.firmware.fake_hardware import CONFIG
from tests.firmware.test_qp import QpBench


def gid(text: str) -> bytes:
    address = ipaddress.ip_address(text)
    return address.packed if address.version == 6 else bytes(10) + b"\xff\xff" + address.packed


GROUP, OTHER = gid("239.1.2.3"), gid("ff02::1")


class McastBench(QpBench):
    """A PD, CQs and UD QPs."""

    def __init__(self, **more):
        super().__init__(T.UD, **more)
        self.hardware.features = RdmaFeature.MCAST.mask

    def attach(self, qpn, group=GROUP):
        return self.ok(X.ATTACH_MCAST, qpn=qpn, gid=group)

    def members(self, row=0):
        found = self.hardware.row("group", row)
        assert bool(found) == found.get("valid", 0)
        return [found[f"member{n}"] for n in range(GROUP_MEMBERS) if f"member{n}" in found]


def test_a_group_is_there_while_it_has_members():
    bench = McastBench()
    first, second = bench.qpn, bench.create(T.UD)
    bench.attach(first)
    assert bench.hardware.row("group", 0)["gid"] == int.from_bytes(GROUP, "little")
    bench.attach(second, OTHER)
    bench.attach(second)
    assert (bench.members(), bench.members(1)) == ([first, second], [second])
    bench.ok(X.DETACH_MCAST, qpn=first, gid=GROUP)
    assert bench.members() == [second]
    bench.ok(X.DETACH_MCAST, qpn=second, gid=GROUP)
    assert bench.hardware.row("group", 0) == {}
    bench.attach(first, gid("ff02::2"))  # the lowest free row
    assert bench.members() == [first] and bench.members(1) == [second]


def test_attached_twice():
    """As ibv_attach_mcast in Linux: the second one changes nothing, and one detach undoes both."""
    bench = McastBench()
    bench.attach(bench.qpn)
    before = bench.hardware.state()
    bench.attach(bench.qpn)
    assert bench.hardware.state() == before and not bench.hardware.log
    bench.ok(X.DETACH_MCAST, qpn=bench.qpn, gid=GROUP)
    assert "is not a member" in bench.err(X.DETACH_MCAST, qpn=bench.qpn, gid=GROUP)


@pytest.mark.parametrize("kind", [T.RC, T.UC, T.GSI])
def test_datagram_queue_pairs_alone(kind):
    bench = McastBench()
    qpn = bench.create(kind)
    assert f"type {kind.name}" in bench.err(X.ATTACH_MCAST, qpn=qpn, gid=GROUP)


@pytest.mark.parametrize(
    "address", ["10.0.0.1", "240.0.0.1", "223.255.255.255", "fe80::1", "::", "::ef01:203"]
)
def test_addresses_of_no_group(address):
    bench = McastBench()
    assert "not the address" in bench.err(X.ATTACH_MCAST, qpn=bench.qpn, gid=gid(address))


def test_addresses_of_groups():
    bench = McastBench()
    for address in ("224.0.0.0", "239.255.255.255", "ff00::", "ffff::1"):
        bench.attach(bench.qpn, gid(address))


def test_no_such_queue_pair():
    bench = McastBench()
    for command in (X.ATTACH_MCAST, X.DETACH_MCAST):
        for qpn in (bench.qpn + CONFIG.qps, 99, 0xFFFFFF):
            assert "No QP" in bench.err(command, qpn=qpn, gid=GROUP)


def test_not_a_member():
    bench = McastBench()
    other = bench.create(T.UD)
    assert "is not a member" in bench.err(X.DETACH_MCAST, qpn=bench.qpn, gid=GROUP)
    bench.attach(other)
    assert "is not a member" in bench.err(X.DETACH_MCAST, qpn=bench.qpn, gid=GROUP)
    assert "is not a member" in bench.err(X.DETACH_MCAST, qpn=other, gid=OTHER)


def test_full():
    bench = McastBench()
    qpns = [bench.create(T.UD) for _ in range(GROUP_MEMBERS)]
    for qpn in qpns:
        bench.attach(qpn)
    assert bench.members() == qpns
    assert f"{GROUP_MEMBERS} members already" in bench.err(X.ATTACH_MCAST, qpn=bench.qpn, gid=GROUP)
    for number in range(1, CONFIG.groups):
        bench.attach(bench.qpn, gid(f"ff02::{number:x}"))
    full = bench.err(X.ATTACH_MCAST, qpn=bench.qpn, gid=gid("ff02::99"))
    assert f"All {CONFIG.groups} multicast groups" in full
    bench.ok(X.DETACH_MCAST, qpn=qpns[3], gid=GROUP)
    bench.attach(bench.qpn)
    assert set(bench.members()) == {*qpns, bench.qpn} - {qpns[3]}


def test_a_member_is_not_destroyed():
    """As the verbs of Linux: EBUSY. MODIFY_QP to RESET leaves the membership alone."""
    bench = McastBench()
    bench.attach(bench.qpn)
    bench.ok(C.MODIFY_QP, qpn=bench.qpn, attr_mask=M.STATE, attrs={"qp_state": S.RESET})
    assert bench.members() == [bench.qpn]
    assert "is a member of the group" in bench.err(C.DESTROY_QP, qpn=bench.qpn)
    bench.ok(X.DETACH_MCAST, qpn=bench.qpn, gid=GROUP)
    bench.ok(C.DESTROY_QP, qpn=bench.qpn)


def test_a_device_reset_ends_all_groups():
    bench = McastBench()
    bench.attach(bench.qpn)
    bench.function.commands.forget()
    assert not bench.function.commands.objects.groups.all()


def test_without_the_feature():
    bench = McastBench()
    bench.hardware.features = ~RdmaFeature.MCAST.mask & 0xFFFF
    for command in (X.ATTACH_MCAST, X.DETACH_MCAST):
        assert "unknown command" in bench.err(command)
