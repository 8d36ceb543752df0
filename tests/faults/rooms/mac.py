"""Deliberate faults of hdl/mac."""

from tests.faults.fault import Fault
from tests.force import Force, plus, stuck

__all__ = ["FAULTS"]

GUARDS = ("tests/mac/test_guards.py",)
LOOPBACK = "tests/mac/test_loopback.py::"
TRACE = "tests/mac/test_trace.py::"
LATENCY = "tests/mac/test_latency.py::"
CMAC = ("tests/mac/test_cmac.py",)
GMII = ("tests/mac/test_gmii.py",)
RGMII = "tests/mac/test_rgmii.py::"

FAULTS = (
    Fault(
        name="cut-frame-delivered",
        what="the rest of a frame that a reset has cut goes on into the card",
        force=Force("hdl.mac.guards:RxGuard", "inside", stuck(1)),
        tests=GUARDS,
    ),
    # Frames of the card to itself.
    Fault(
        name="own-frames-leave",
        what="frames to the card's own address go to the wire",
        force=Force("hdl.mac.guards:TxGuard", "local", stuck(0)),
        tests=(f"{LOOPBACK}test_each_frame_goes_where_its_address_says[idle0-stall0]",),
    ),
    Fault(
        name="turned-into-a-frame",
        what="a frame that turns round goes into the middle of one from the wire",
        force=Force("hdl.mac.loopback:Loopback", "inside", stuck(0)),
        tests=(f"{LOOPBACK}test_each_frame_goes_where_its_address_says[idle1-stall1]",),
    ),
    Fault(
        name="held-beats-forgotten",
        what="what the wire brings while a frame turns round does not go into the card",
        force=Force("hdl.mac.loopback:Loopback", "waits", stuck(0)),
        tests=(f"{LOOPBACK}test_each_frame_goes_where_its_address_says[idle4-stall4]",),
    ),
    # The trace of frames.
    Fault(
        name="trace-slots-stay",
        what="all frames that are traced go into the same slot",
        force=Force("hdl.mac.recorder:FrameRecorder", "takes", stuck(0)),
        tests=(f"{TRACE}test_a_frame_in_each_cycle[64]",),
    ),
    Fault(
        name="trace-of-another-run",
        what="frames that wait for their verdict at a start of the trace are in it",
        force=Force("hdl.mac.trace:Trace", "era", stuck(0)),
        tests=(f"{TRACE}test_start_in_mid_frame",),
    ),
    # Latencies.
    Fault(
        name="latency-of-another-packet",
        what="from doorbell to wire, the frames in front of the packet are not waited for",
        force=Force("hdl.mac.latency:SendProbe", "left", stuck(1)),
        tests=(f"{LATENCY}test_from_doorbell_to_wire",),
    ),
    Fault(
        name="latency-of-the-packet-in-front",
        what="from wire to host, the packets in front are not waited for",
        force=Force("hdl.mac.latency:ReceiveProbe", "ahead", stuck(1)),
        tests=(f"{LATENCY}test_from_wire_to_host",),
    ),
    Fault(
        name="copy-without-room",
        what="a frame to a group turns round although there is no room for it",
        force=Force("hdl.mac.loopback:Loopback", "room", stuck(1)),
        tests=(f"{LOOPBACK}test_a_copy_never_stops_the_wire",),
    ),
    Fault(
        name="no-copy-of-ones-own",
        what="frames to groups go to the wire alone",
        force=Force("hdl.mac.guards:TxGuard", "group", stuck(0)),
        tests=(f"{LOOPBACK}test_frames_to_groups_go_both_ways",),
    ),
    # Gigabit Ethernet.
    Fault(
        name="late-frame-goes-on",
        what="the rest of a frame whose bytes came too late is sent as a frame of its own",
        force=Force("hdl.mac.gmii:GmiiTx", "late", stuck(0)),
        tests=GMII,
    ),
    Fault(
        name="phy-error-ignored",
        what="a frame that the PHY could not read is good when its check sequence is",
        force=Force("hdl.mac.gmii:GmiiRx", "bad", stuck(0)),
        tests=GMII,
    ),
    Fault(
        name="frame-with-gaps",
        what="a frame leaves the MAC's store before all of it is there",
        force=Force("hdl.mac.frame_fifo:FrameFifo", "leaves", stuck(1)),
        tests=(f"{RGMII}test_a_frame_leaves_the_fifo_whole[0.5]",),
    ),
    Fault(
        name="frame-with-a-hole",
        what="a received frame goes on behind a beat that has found no room",
        force=Force("hdl.mac.gigabit:Widen", "losing", stuck(0)),
        tests=(f"{RGMII}test_what_finds_no_room_is_marked[refused1]",),
    ),
    Fault(
        name="wrong-nibble",
        what="RGMII sends another low nibble",
        force=Force("hdl.mac.rgmii:Rgmii", "low", plus(1)),
        tests=(f"{RGMII}test_frames_pass_the_pins_both_ways",),
    ),
    # 100 Gb/s Ethernet.
    Fault(
        name="frame-without-room",
        what="a received frame passes into the FIFO to the core whether there is room or not",
        force=Force("hdl.mac.cmac:FrameGate", "room", stuck(1)),
        tests=CMAC,
    ),
    Fault(
        name="link-down-unseen",
        what="frames go to a MAC whose link is down, and wait there",
        force=Force("hdl.mac.cmac:FrameGate", "closed", stuck(0)),
        tests=CMAC,
    ),
    Fault(
        name="long-frame-uncut",
        what="a frame that is longer than the room that was kept for it goes on",
        force=Force("hdl.mac.cmac:FrameGate", "fits", stuck(1)),
        tests=CMAC,
    ),
    Fault(
        name="lost-alignment-unseen",
        what="a frame that the MAC does not finish goes on with the next one",
        force=Force("hdl.mac.cmac:CmacCrossing", "rx_up", stuck(1)),
        tests=(*CMAC, "tests/boards/test_top.py"),
    ),
)
