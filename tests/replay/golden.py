"""The captures in tests/data/golden, by what a card can do with them."""

from sim.rtl.env import REPO

GOLDEN = REPO / "tests" / "data" / "golden"
#: Those that tests put into one capture: other QP numbers, but for one of each IP version.
MERGED = [
    "agent_rc_all_m1024",
    "agent_uc",
    "agent_ud",
    "agent_unsignaled",
    "ib_send_bw_s4096",
    "ib_write_lat_s64",
    "ipv6_rc_all",
    "mtu4096_rc_all",
    "rc_pingpong_s4096_m1024",
    "rc_pingpong_s4096_m256",
    "rping",
    "uc_pingpong_s4096",
    "ud_pingpong_s1000",
]
#: Those without loss.
REPLAYED = [
    "agent_psn_wrap",
    "agent_rc_all_m1024",
    "agent_read_64k",
    "agent_uc",
    "agent_ud",
    "agent_unsignaled",
    "agent_write_64k",
    "ib_atomic_bw_cswap",
    "ib_atomic_bw_fadd",
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
    "uc_pingpong_s4096",
    "ud_pingpong_s1000",
]
#: Has a key that fits into no card, so that it is replayed from one side only.
ONE_SIDED = "agent_send_inv"
#: The same with losses, duplicates, RNR NAKs and errors.
RETRIED = [
    "drop2nd_write",
    "drop_ack_write",
    "drop_read_req",
    "dup_all",
    "err_bad_rkey_write",
    "err_range_read",
    "err_recv_too_small",
    "loss7_rc_pingpong",
    "rnr_exceeded",
    "rnr_then_ok",
]
#: Those of both that a beat's width may change: lengths that end anywhere in a beat, each
#: operation, and each way to begin anew.
WIDE = {
    "agent_psn_wrap",
    "agent_rc_all_m1024",
    "agent_read_64k",
    "agent_unsignaled",
    "ib_atomic_bw_fadd",
    "ib_read_bw_s20000o2",
    "ib_write_lat_s64",
    "mtu4096_rc_all",
    "rc_pingpong_s4096_m256",
    "uc_pingpong_s4096",
    "ud_pingpong_s1000",
    "drop2nd_write",
    "drop_read_req",
    "dup_all",
    "err_range_read",
}
#: Takes half a minute at 512 bits: 23 pauses of 10 ms.
LONG = "rnr_then_ok"


def table() -> list[str]:
    """What becomes of each golden capture: the lines of tests/data/golden/replayed.txt."""
    from sim.replay.plan import Plan

    rows = []
    for path in sorted(GOLDEN.glob("*.pcap")):
        plan = Plan(path)
        config = plan.config(64)
        refused = {letter: plan.runs(letter, config)[1] for letter in "AB"}
        replayed = [str(len(one.packets)) for one in plan.suitable]
        sides = [letter for letter in "AB" if plan.runs(letter, config)[0]]
        reasons = [one.reason for one in plan.connections if one.reason]
        reasons += [str(note) for one in plan.suitable for note in one.notes]
        reasons += [f"side {letter}: {why[1]}" for letter, why in refused.items() if 1 in why]
        reasons += [str(one) for one in plan.left_out]
        taken = f"{' + '.join(replayed)} packets, {' and '.join(sides)}" if sides else "nothing"
        left = f"; left out: {'; '.join(reasons)}" if reasons else ""
        rows.append(f"{path.stem}: {taken}{left}")
    return rows
