"""A live Linux guest with Soft-RoCE and the whole board in Verilator, from the PC's Python on."""

import contextlib

import pytest

from boards.ecpix5.card import CONFIG
from sim.endpoint import peer
from sim.endpoint.client import EndpointClient
from sim.interop import image
from sim.interop.client import GuestClient
from sim.interop.frames import icrc_faults, is_roce, msn_faults
from sim.interop.guest import BOOT_SECONDS, Guest
from sim.interop.operations import Message
from sim.interop.parties import Connection, ConnectionOptions, Party
from sim.interop.relay import Relay
from sim.interop.traffic import Tally, exchange
from tests.interop.qemu import need_qemu

CARD_MAC, GUEST_MAC = "02:00:00:00:00:01", "02:00:00:00:00:02"
RIGHTS = ("LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ")
#: Seconds for the model to be built, and for anything that the simulated board does.
BUILD_S, PATIENCE_S = 1500, 600
MTU = 1024
SIZES = (0, 1, 3, MTU - 1, MTU, MTU + 1, 3 * MTU + 5)
OPCODES = ("SEND", "RDMA_WRITE", "RDMA_READ")


@pytest.mark.slow  # a guest, a model of the whole board, and minutes of UART
def test_a_live_linux(tmp_path):
    need_qemu()
    wire = tmp_path / "wire"
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(peer.listen(str(wire)))
        board = stack.enter_context(
            EndpointClient("--wire", f"unix:{wire}", command="board", timeout=BUILD_S)
        )
        uart = board.reply()["uart"]
        nic = stack.enter_context(
            EndpointClient(
                *("--port", uart, "--fresh", "--timeout", "60", "--mac", CARD_MAC),
                command="bridge",
                timeout=PATIENCE_S,
            )
        )
        guest = stack.enter_context(
            Guest(image.build(), tmp_path, mac=GUEST_MAC, addresses=("10.0.0.2/24",))
        )
        client = GuestClient(guest.control)
        client.call("info", patience=BOOT_SECONDS)
        connection, _ = listener.accept()
        stack.callback(connection.close)
        relay = Relay(connection, guest.wire)
        stack.callback(relay.close)
        parties = (
            Party("board", nic, depth=CONFIG.queue_size, sges=CONFIG.max_sge, rights=RIGHTS),
            Party("guest", client, tells_state=True, linux=True),
        )
        tally = Tally()
        options = ConnectionOptions(mtu=MTU, access=RIGHTS, max_rd_atomic=CONFIG.max_rd_atomic)
        with relay.capture(tmp_path / "board.pcap") as frames:
            joined = Connection.open(parties, options)
            for source in (0, 1):
                for opcode in OPCODES:
                    messages = [Message(opcode, size, source) for size in SIZES]
                    exchange([joined], messages, seed=source, tally=tally)
        seen = [frame for _, frame in frames]
        faults = icrc_faults(seen) + msn_faults(seen, bytes.fromhex(CARD_MAC.replace(":", "")))
        assert not faults and sum(map(is_roce, seen)) > len(SIZES) * 6
        assert tally.messages == 6 * len(SIZES)
