"""The main loop: resets of the function, requests one after the other, signs of life."""

import asyncio

import pytest

from firmware.device import Request
from firmware.service import Firmware
from hdl.abi import virtio_rdma as abi
from hdl.abi.enums import ControlCommand as C
from hdl.abi.enums import QpType
from hdl.config import NicConfig
from tests.firmware.fake_hardware import CONFIG, Bench, FakeHardware
from tests.firmware.test_qp import QpBench, S


class StopLoopError(Exception):
    pass


def test_run():
    """Requests are served in order; with nothing to do the loop idles, and it always beats."""

    async def main():
        hardware = FakeHardware()
        firmware = Firmware(hardware, CONFIG)
        for number in (C.CREATE_PD, 77, C.CREATE_PD):
            hardware.inbox.append(Request(1, bytes([number]), 1, 200))
        idled = 0

        async def idle():
            nonlocal idled
            idled += 1
            if idled == 3:
                raise StopLoopError

        with pytest.raises(StopLoopError):
            await firmware.run(idle)
        assert hardware.outbox == [bytes(5), b"\1", b"\0\1\0\0\0"]
        assert firmware.served == 3 and hardware.beats == 6

    asyncio.run(main())


def test_reset_forgets_everything():
    bench = QpBench(state=S.RTS)
    bench.ok(C.REG_USER_MR, start=0, length=1, npages=1)
    hardware = bench.hardware
    hardware.rows.clear()
    hardware.resets_seen, hardware.resetting = 1, 5
    hardware.log.clear()
    assert bench.settle()
    assert hardware.resetting == 0 and hardware.log == []
    assert "No PD" in bench.err(C.DESTROY_PD, pdn=0)
    assert "No QP" in bench.err(C.QUERY_QP, qpn=bench.qpn)
    assert bench.ok(C.CREATE_PD).pdn == 0
    assert bench.ok(C.CREATE_CQ, cqe=1).cqn == 0
    objects = bench.function.commands.objects
    assert not objects.gids and not objects.slices._taken
    assert bench.create(recv_cqn=0) != bench.qpn, "late packets of before do not fit"


def test_reset_during_a_command():
    """The answer is for nobody, and rows written while the tables were cleared go away."""
    bench = Bench()
    bench.ok(C.CREATE_PD)
    bench.ok(C.CREATE_CQ, cqe=4)
    hardware = bench.hardware
    write = hardware.write_row

    async def write_late(table, index, row):
        if not hardware.resets_seen:
            hardware.resets_seen, hardware.resetting = 1, 3
            hardware.rows.clear()
            hardware.inbox.clear()
        await write(table, index, row)

    hardware.write_row = write_late
    data = bytes([C.CREATE_QP]) + bytes(4) + bytes([QpType.RC]) + bytes(61)
    hardware.inbox.append(Request(1, data, len(data), 5))
    assert bench.settle()
    assert hardware.outbox == []
    assert not hardware.row("qp_cfg", 2)
    assert bench.firmware.served == 2


def test_reset_before_the_first_look_is_no_event():
    hardware = FakeHardware()
    hardware.resets_seen = 9
    firmware = Firmware(hardware, CONFIG)
    assert not asyncio.run(firmware.step())


def test_no_subnet_management():
    with pytest.raises(ValueError, match="no subnet management"):
        Firmware(FakeHardware(), NicConfig(), qp_types=frozenset({QpType.SMI}))


def test_vlans_of_gids():
    """The next ADD_GID of an index carries its VLAN, until it has none."""

    async def add(firmware, index):
        body = abi.COMMANDS[C.ADD_GID][0].pack(gid=b"\1" * 16, gid_type=2, index=index, port_num=1)
        assert (
            await firmware.functions[0].commands.serve(
                Request(1, bytes([C.ADD_GID]) + body, 1, 200)
            )
        )[0] == 0

    async def main():
        hardware = FakeHardware()
        firmware = Firmware(hardware, CONFIG)
        plain = {"valid": 1, "function": 1, "gid": int.from_bytes(b"\1" * 16, "little")}
        tags = {0: {"vlan_valid": 1}, 4094: {"vlan_valid": 1, "vlan_id": 4094}, None: {}}
        for vlan, tag in tags.items():
            firmware.functions[0].set_vlan(2, vlan)
            for index in (1, 2):
                await add(firmware, index)
            assert hardware.row("gid", 1) == plain
            assert hardware.row("gid", 2) == plain | tag
        for index, vlan in ((-1, 0), (CONFIG.gids, 0), (0, 4095), (0, -1)):
            with pytest.raises(ValueError, match="No GID|A VLAN must be"):
                firmware.functions[0].set_vlan(index, vlan)

    asyncio.run(main())
