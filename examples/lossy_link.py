"""Two cards, and two faults: a network that loses packets, then a key that is wrong.

Run it with ``.venv/bin/python examples/lossy_link.py``. The cards make up for the first fault, and
report the second one.
"""

import random
import tempfile

from sim.endpoint.client import EndpointClient

SIZE = 100_000
ADDRESSES = ("10.0.0.1", "02:00:00:00:00:01"), ("10.0.0.2", "02:00:00:00:00:02")


def start(wire: str, number: int, *more: str) -> EndpointClient:
    """A card with its address."""
    ip, mac = ADDRESSES[number]
    return EndpointClient("--wire", wire, "--width", "64", "--ip", ip, "--mac", mac, *more)


def write(card: EndpointClient, qp: int, source: dict, target: dict, rkey: int) -> str:
    """Write the whole region ``source`` into ``target``; returns the completion's status."""
    card.call("post_send", qp=qp, opcode="RDMA_WRITE", sge=[[source["mr"], 0, SIZE]],
              remote_addr=target["addr"], rkey=rkey)  # fmt: skip
    return card.wait(1)[0]["status"]


with tempfile.TemporaryDirectory() as folder:
    wire = f"unix:{folder}/wire"
    with start(wire, 0, "--listen", "--impair", "loss=5%,seed=3") as a, start(wire, 1) as b:
        source = a.call("reg_mr", length=SIZE)
        target = b.call("reg_mr", length=SIZE, access=["LOCAL_WRITE", "REMOTE_WRITE"])
        qps = [card.call("create_qp") for card in (a, b)]
        for i, card in enumerate((a, b)):
            gid, mac = ADDRESSES[1 - i]
            card.call("connect", qp=qps[i]["qp"], dest_qpn=qps[1 - i]["qpn"],
                      dest_gid=gid, dest_mac=mac, timeout=10)  # fmt: skip
        data = random.Random(1).randbytes(SIZE)
        a.write(source["mr"], data)

        print("WRITE on a network that loses packets:",
              write(a, qps[0]["qp"], source, target, target["rkey"]))  # fmt: skip
        print("all bytes are there:", b.read(target["mr"], SIZE) == data)
        counters = a.call("counters")["counters"]
        lost = counters["wire_gone_out"] + counters["wire_gone_in"]
        print("frames lost:", lost)

        a.call("impair", what="")  # a loss of the one NAK would end in RETRY_EXC_ERR instead
        print("WRITE with a wrong key:",
              write(a, qps[0]["qp"], source, target, target["rkey"] ^ 0x100))  # fmt: skip
        print("the next one on that queue pair:",
              write(a, qps[0]["qp"], source, target, target["rkey"]))  # fmt: skip
