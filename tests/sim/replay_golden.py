"""The captures in tests/data/golden, by what a card can do with them."""

from sim.env import REPO

GOLDEN = REPO / "tests" / "data" / "golden"
#: Captures with the addresses and the QP number of another one.
TWICE = ["rc_pingpong_s64_m1024"]
#: RC SEND, WRITE and READ without loss, wholly or up to the first other operation.
REPLAYED = [
    "agent_psn_wrap",
    "agent_rc_all_m1024",
    "agent_read_64k",
    "agent_unsignaled",
    "agent_write_64k",
    "ib_read_bw_s20000o2",
    "ib_send_bw_s4096",
    "ib_write_bw_s20000",
    "ib_write_lat_s64",
    "ipv6_rc_all",
    "mtu4096_rc_all",
    "rc_pingpong_s4096_m1024",
    "rc_pingpong_s4096_m256",
    "rc_pingpong_s64_m1024",
    "rc_pingpong_s65536_m1024",
    "rping",
]
