"""The whole board as its user has it: ``bridge`` on the PC, the board in Verilator, a peer."""

import os
import pty
import tty

import pytest
from click.testing import CliRunner

from boards.ecpix5.card import CONFIG
from sim.board.bridge.command import bridge
from sim.endpoint.client import EndpointClient
from sim.wire.packets import dissect
from sim.wire.pcap import read_pcap
from tests.boards.software_peer import READ_REQUEST, SEND_LAST, WRITE_ONLY, SoftwarePeer

CARD_IP, CARD_MAC, PEER_IP, PEER_MAC = (
    "10.0.0.1",
    "02:00:00:00:00:01",
    "10.0.0.2",
    "02:00:00:00:00:02",
)
CARD_PSN = 0xFFFFFF
#: Seconds for the model to be built, and for anything that the simulated board does.
BUILD_S, PATIENCE_S = 1500, 600
RIGHTS = ["LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ"]
LONG = 2500


def exchange(nic, peer):
    """SEND, WRITE and READ both ways, of one packet and of several."""
    data = os.urandom(3 * LONG)
    mr = nic.call("reg_mr", length=4 * LONG, access=RIGHTS)
    qp = nic.call("create_qp", max_send_wr=8, max_recv_wr=8)
    peer.join(ip=CARD_IP, mac=CARD_MAC, qpn=qp["qpn"], psn=CARD_PSN)
    nic.call(
        "connect",
        qp=qp["qp"],
        dest_qpn=peer.QPN,
        dest_gid=f"::ffff:{PEER_IP}",
        dest_mac=PEER_MAC,
        rq_psn=peer.PSN,
        sq_psn=CARD_PSN,
        path_mtu=CONFIG.mtu,
        timeout=0,
        max_rd_atomic=2,
        max_dest_rd_atomic=2,
    )
    # From the card, all at once: a doorbell that is not rung leaves some of them where they are.
    nic.write(mr["mr"], data[:LONG])
    peer.memory[:1500] = data[-1500:]
    requests = (
        ("SEND", LONG, 0, 0),
        ("RDMA_WRITE", 100, 0, 3000),
        ("RDMA_READ", 1500, 3 * LONG, 0),
    )
    for n, (opcode, size, here, there) in enumerate(requests):
        nic.call(
            "post_send",
            qp=qp["qp"],
            wr_id=n,
            opcode=opcode,
            sge=[[mr["mr"], here, size]],
            remote_addr=peer.BASE + there,
            rkey=peer.RKEY,
        )
    done = nic.wait(len(requests), 1000 * PATIENCE_S)
    assert [(one["wr_id"], one["status"]) for one in done] == [
        (n, "SUCCESS") for n in range(len(requests))
    ]
    assert bytes(peer.memory[3000:3100]) == data[:100]
    assert peer.received.get(timeout=PATIENCE_S) == data[:LONG]
    assert nic.read(mr["mr"], 1500, 3 * LONG) == data[-1500:]
    # To the card.
    nic.call("post_recv", qp=qp["qp"], wr_id=9, sge=[[mr["mr"], LONG, LONG]])
    peer.send(data[LONG : 2 * LONG])
    (done,) = nic.wait(1, 1000 * PATIENCE_S)
    assert (done["wr_id"], done["status"], done["byte_len"]) == (9, "SUCCESS", LONG), done
    assert nic.read(mr["mr"], LONG, LONG) == data[LONG : 2 * LONG]
    peer.write(mr["addr"] + 2 * LONG, mr["rkey"], data[2 * LONG :])
    assert nic.read(mr["mr"], LONG, 2 * LONG) == data[2 * LONG :]
    assert peer.read(mr["addr"], mr["rkey"], LONG) == data[:LONG]


@pytest.mark.slow  # a model of the whole board, and minutes of UART
def test_rdma_between_a_pc_and_a_peer(tmp_path):
    wire, pcap = tmp_path / "wire", tmp_path / "board.pcap"
    with EndpointClient(
        "--wire", f"unix:{wire}", "--listen", "--pcap", str(pcap), command="board", timeout=BUILD_S
    ) as board:
        uart = board.reply()["uart"]
        peer = SoftwarePeer(
            str(wire), ip=PEER_IP, mac=PEER_MAC, mtu=CONFIG.mtu, patience=PATIENCE_S
        )
        with EndpointClient(
            "--port", uart, "--fresh", "--timeout", "60", command="bridge", timeout=PATIENCE_S
        ) as nic:
            assert nic.call("info")["gids"] == [f"::ffff:{CARD_IP}"]
            exchange(nic, peer)
            counters = nic.call("counters")["counters"]
            nic.call("quit")
            assert nic.close() == 0, nic.messages
        peer.close()
        assert not peer.faults
        assert {SEND_LAST, WRITE_ONLY, READ_REQUEST} <= set(peer.opcodes)
        assert board.close(PATIENCE_S) == 0, board.messages
    packets = [dissect(frame) for _, frame in read_pcap(pcap)]
    assert all(packet.icrc_good for packet in packets)
    assert counters["tx_packets"] + counters["rx_packets"] == len(packets)


def test_a_port_that_is_not_there():
    result = CliRunner().invoke(bridge, ["--port", "/dev/no-such-port"])
    assert result.exit_code == 2 and "/dev/no-such-port" in result.output


def test_too_many_addresses():
    many = [word for n in range(CONFIG.gids + 1) for word in ("--ip", f"10.0.0.{n + 1}")]
    result = CliRunner().invoke(bridge, ["--port", "/dev/null", *many])
    assert result.exit_code == 2 and f"the board has {CONFIG.gids}" in result.output


def test_a_board_that_says_nothing():
    ours, theirs = pty.openpty()
    tty.setraw(theirs)
    port = os.ttyname(theirs)
    result = CliRunner().invoke(bridge, ["--port", port, "--fresh", "--timeout", "0.05"])
    os.close(theirs)
    os.close(ours)
    assert result.exit_code == 1 and f"{port}: " in result.output
    assert "no answer" in result.output
