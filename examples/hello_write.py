"""Two simulated cards and one RDMA WRITE. Run it with ``.venv/bin/python examples/hello_write.py``.

Each ``EndpointClient`` is a process with one card, its driver and its firmware. A unix socket is
the wire between them. The first run builds the card's model, which takes a minute or two. With
``--waves`` the first card records its signals too (a model of its own).
"""

import sys
import tempfile
from pathlib import Path

from sim.endpoint.client import EndpointClient

TEXT = b"Hello, remote memory!"

with tempfile.TemporaryDirectory() as folder:
    wire = f"unix:{folder}/wire"
    capture = Path("hello_write.pcap")
    card = ["--wire", wire, "--width", "64"]
    with (
        EndpointClient(*card, "--listen", "--pcap", str(capture), *sys.argv[1:]) as a,
        EndpointClient(*card, "--mac", "02:00:00:00:00:02", "--ip", "10.0.0.2") as b,
    ):
        # A region of memory and a queue pair on each card; b's region may be written by peers.
        source = a.call("reg_mr", length=4096)
        target = b.call("reg_mr", length=4096, access=["LOCAL_WRITE", "REMOTE_WRITE"])
        qp_a, qp_b = a.call("create_qp"), b.call("create_qp")
        a.call("connect", qp=qp_a["qp"], dest_qpn=qp_b["qpn"],
               dest_gid="10.0.0.2", dest_mac="02:00:00:00:00:02")  # fmt: skip
        b.call("connect", qp=qp_b["qp"], dest_qpn=qp_a["qpn"],
               dest_gid="10.0.0.1", dest_mac="02:00:00:00:00:01")  # fmt: skip

        a.write(source["mr"], TEXT)
        a.call("post_send", qp=qp_a["qp"], wr_id=1, opcode="RDMA_WRITE",
               sge=[[source["mr"], 0, len(TEXT)]],
               remote_addr=target["addr"], rkey=target["rkey"])  # fmt: skip
        (completion,) = a.wait(1)
        print("completion:", completion["status"])
        print("memory of b:", b.read(target["mr"], len(TEXT)).decode())
        print("simulated time:", a.call("info")["time_ns"], "ns")
print("packets:", capture)
if "--waves" in sys.argv:
    print("waves:", capture.with_suffix(".fst"))
