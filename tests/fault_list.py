"""The deliberate faults: what is put into which source file, and which tests must fail then."""

from __future__ import annotations

from dataclasses import dataclass, replace

from amaranth.hdl import Mux

from hdl.wire.constants import SYNDROME_ACK_NO_LIMIT
from tests.force import Force, chosen, inverted, like, masked, of, plus, rotated, stuck

__all__ = ["FAULTS", "INTEROP", "Fault", "campaign_faults", "install", "install_chosen"]


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault: each of ``tests`` must fail with it. ``live``: so must an exchange with the Linux
    guest (``rocinante faults --interop``). ``campaign``: the random scenarios that must find
    it too (``rocinante faults --campaign``).

    It is told by its meaning: ``force`` names a component, a signal and what becomes of that
    (tests/force.py). What cannot be told so is told by its text: ``old``, which occurs once in
    ``file``, becomes ``new``; ``because`` says what keeps it from being a force.
    """

    name: str
    what: str
    force: Force | None = None
    file: str = ""
    old: str = ""
    new: str = ""
    because: str = ""
    tests: tuple[str, ...]
    live: bool = False
    campaign: str = ""

    @property
    def place(self) -> str:
        """Return the file that the fault is in."""
        if self.force is None:
            return self.file
        return self.force.part.partition(":")[0].replace(".", "/") + ".py"

    @property
    def where(self) -> str:
        """Return the component and the signal, or the file, for a reader."""
        if self.force is None:
            return self.file
        return f"{self.force.part.partition(':')[2]}.{self.force.signal}"

    def apply(self, source: str) -> str:
        """Return ``source`` with the fault; raises ValueError unless ``old`` is in it once.

        A force is installed at the end of the component's file, when the class is there. The cache
        of Verilog knows a file by its contents, so it knows the fault too.
        """
        if self.force is not None:
            return (
                f"{source}\n\nfrom tests import fault_list\n\nfault_list.install({self.name!r})\n"
            )
        if (count := source.count(self.old)) != 1:
            raise ValueError(
                f"Fault {self.name}: its text must occur once in {self.file}, not {count} times"
            )
        return source.replace(self.old, self.new)


def install(name: str) -> None:
    """Install the force of the fault of that name in this process."""
    for one in FAULTS:
        if one.name == name and one.force is not None:
            one.force.install()


def campaign_faults() -> dict[int, Fault]:
    """Return the faults that a campaign must find, by their number in ``+fault=N``."""
    return dict(enumerate((one for one in FAULTS if one.campaign), 1))


def install_chosen(place: str) -> None:
    """Install those of a campaign that are in the file ``place``; a simulation chooses one."""
    for number, one in campaign_faults().items():
        if one.place == place and one.force is not None:
            replace(one.force, change=chosen(one.force.change, number)).install()


INGRESS = ("tests/ingress/test_ingress.py::test_ingress[64]",)
FUNCTIONS = ("tests/nic/test_functions.py::test_two_functions",)
REPLICATOR = ("tests/ingress/test_replicator.py",)
MATCH = ("tests/ingress/test_match.py",)
BUFFER = ("tests/ingress/test_buffer.py",)
EGRESS = ("tests/egress/test_egress.py::test_egress[64-256]",)
KEYS = ("tests/memory/test_translate.py",)
INDIRECT = "tests/memory/test_indirect_keys.py"
GATHER = ("tests/memory/test_memory.py::test_room[64-gather]",)
SCATTER = ("tests/memory/test_memory.py::test_room[64-scatter]",)
ATOMIC = ("tests/memory/test_atomic.py",)
IN_TURN = ("tests/memory/test_atomics_and_writes.py",)
SEND = ("tests/transport/test_send.py",)
RECEIVE = ("tests/transport/test_receive.py::test_receive[receive]",)
RECEIVE_UNANSWERED = ("tests/transport/test_receive.py::test_receive[unanswered]",)
LATE_ROWS = (
    "tests/transport/test_late.py::test_machines_wait_for_their_rows"
    "[resend-each_restart_begins_a_generation_of_the_qp]",
)
LATE_ROWS_RECEIVE = (
    "tests/transport/test_late.py::test_the_receive_side_waits_for_its_rows[unanswered]",
)
UNANSWERED = ("tests/transport/test_unanswered.py",)
DRAINED = ("tests/transport/test_drained_qp.py",)
WINDOW = ("tests/memory/test_read_window.py",)
RESEND = ("tests/transport/test_resend.py",)
TIMERS = ("tests/transport/test_qp_timers.py",)
OUTSTANDING = ("tests/transport/test_outstanding.py",)
REPLY = ("tests/transport/test_replier.py",)
FETCH = ("tests/queues/test_queues.py::test_engine[send-64]",)
FETCH_MIXED = ("tests/queues/test_queues.py::test_engine[send_mixed-64]",)
COMPLETION = ("tests/queues/test_queues.py::test_engine[completion-64]",)
IN_ORDER = ("tests/queues/test_queues.py::test_engine[in_order-64]",)
PACKED = ("tests/queues/test_queues.py::test_packed_rings[512]",)
RECV = ("tests/queues/test_queues.py::test_engine[recv-64]",)
RECV_AHEAD = ("tests/queues/test_queues.py::test_receive_ahead",)
GIDS = ("tests/common/test_ram.py::test_gids_and_none_beyond_the_table",)
COUNTERS = ("tests/transport/test_qp_counters.py",)
READ = ("tests/host/test_read.py::test_read_engine[64]",)
VIRTIO = ("tests/host/test_virtio.py::test_small_card[setup]",)
FLR = ("tests/host/test_virtio.py::test_small_card[flr]",)
FENCE = ("tests/host/test_fence.py",)
WRITE = ("tests/host/test_write.py::test_write_engine[64]",)
PACK = ("tests/common/test_pack.py",)
REPLAY = ("tests/replay/test_command.py::test_capture_with_every_operation",)
GUARDS = ("tests/mac/test_guards.py",)
LOOPBACK = "tests/mac/test_loopback.py::"
TRACE = "tests/mac/test_trace.py::"
LATENCY = "tests/mac/test_latency.py::"
PARITY = ("tests/context/test_parity.py",)
CMAC = ("tests/mac/test_cmac.py",)
GMII = ("tests/mac/test_gmii.py",)
RGMII = "tests/mac/test_rgmii.py::"
REGION_KEYS = ("tests/context/test_region_keys.py",)
REQUEST_KEYS = ("tests/transport/test_request_keys.py",)
CROSSING = ("tests/common/test_crossing.py",)
AXI = ("tests/axi/test_axi.py::test_adapter[64]",)
ORDER = ("tests/axi/test_order.py",)
COMPLETER = ("tests/pcie/test_completer.py",)
BARRIER = ("tests/common/test_barrier.py",)
POSTED = ("tests/pcie/test_posted.py",)
CONTROL = ("tests/pcie/test_control.py",)
PCIE = ("tests/pcie/test_pcie.py::test_adapter[pcie4]",)
LATE = ("tests/pcie/test_pcie.py::test_late_completions[pcie4]",)
PTILE_LATE = ("tests/pcie/test_pcie.py::test_late_completions[ptile]",)
POOL = ("tests/pcie/test_tag_pool.py",)
ANSWERS = ("tests/pcie/test_answers.py",)
SETTINGS = ("tests/pcie/test_settings.py",)
STRADDLE = ("tests/pcie/test_straddle.py",)
REQUESTER = ("tests/pcie/test_requester.py",)
PTILE = ("tests/pcie/test_ptile.py",)
STREAMS = ("tests/pcie/test_ptile_streams.py",)
PTILE_DMA = ("tests/pcie/test_pcie.py::test_adapter[ptile]",)

#: Why a fault of the firmware is told by its text.
FIRMWARE = "it is in the firmware, which has no signals"

#: One WRITE each way between the whole NIC and Linux, nothing changed on the way.
INTEROP = "tests/interop/test_interop.py::test_what_a_faulty_card_sends_is_noticed"

FAULTS = (
    # What comes off the wire.
    Fault(
        name="icrc-unchecked",
        what="packets with a wrong ICRC are delivered",
        force=Force("hdl.ingress.checks:IcrcCheck", "ok", stuck(1)),
        tests=INGRESS,
    ),
    Fault(
        name="ipv4-checksum-unchecked",
        what="packets with a wrong IPv4 header checksum are delivered",
        force=Force("hdl.ingress.parser:HeaderParser", "checks.ipv4_checksum", stuck(0)),
        tests=INGRESS,
    ),
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
    Fault(
        name="trace-is-not-told",
        what="the trace does not learn that the card has dropped a frame that the MAC has marked",
        force=Force("hdl.ingress.ingress:Ingress", "verdict.reasons", masked(~1)),
        tests=INGRESS,
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
    # Parity of the tables' rows.
    Fault(
        name="wrong-bit-unseen",
        what="a row with a wrong bit is used",
        force=Force("hdl.context.parity:RowParity", "bad", stuck(0)),
        tests=PARITY,
    ),
    Fault(
        name="broken-card-runs-on",
        what="a card that has broken starts its rooms again by itself",
        force=Force("hdl.host.reset:ResetSequence", "request", stuck(1)),
        tests=("tests/host/test_reset.py",),
    ),
    # Function-level resets, and requests of several words.
    Fault(
        name="reset-function-configured",
        what="a function-level reset leaves the configuration space as it is",
        force=Force("hdl.host.config_space:ConfigSpace", "flr", stuck(0)),
        tests=FLR,
    ),
    Fault(
        name="reset-function-shows-queues",
        what="a driver reads the queues of the one before while the firmware does not come",
        force=Force("hdl.host.virtio_queues:VirtioQueues", "hidden", stuck(0)),
        tests=FLR,
    ),
    Fault(
        name="reset-function-interrupts",
        what="a driver gets interrupts for the one before, until the firmware has come",
        force=Force("hdl.host.virtio:VirtioFunction", "asks", like("interrupt.valid")),
        tests=FLR,
    ),
    Fault(
        name="reset-function-reads",
        what="reads of a function's previous owner reach the host",
        force=Force("hdl.host.fence:Fence", "fails", stuck(0)),
        tests=FENCE,
    ),
    Fault(
        name="reset-function-writes",
        what="writes of a function's previous owner reach the host",
        force=Force("hdl.host.fence:Fence", "drops", stuck(0)),
        tests=FENCE,
    ),
    Fault(
        name="reset-function-burst-cut",
        what="a burst that the host has been shown is dropped when its function is reset",
        force=Force("hdl.host.fence:Fence", "inside", stuck(0)),
        tests=FENCE,
    ),
    Fault(
        name="reset-function-endless",
        what="a function-level reset waits for the firmware for ever",
        force=Force("hdl.pcie.control:FunctionControl", "waits", like("flr")),
        tests=CONTROL,
    ),
    Fault(
        name="register-request-cut",
        what="of a register request of several words the first is the last",
        force=Force("hdl.pcie.completer:Completer", "last", stuck(1)),
        tests=COMPLETER,
    ),
    Fault(
        name="register-last-enables",
        what="the last word of a register request is accessed whole",
        force=Force("hdl.pcie.completer:Completer", "last_be", stuck(15)),
        tests=COMPLETER,
    ),
    # Multicast groups.
    Fault(
        name="group-mac-unchecked",
        what="a frame to a group may have any multicast MAC address",
        force=Force("hdl.ingress.groups:MacOfGroup", "mapped", stuck(1)),
        tests=MATCH,
    ),
    Fault(
        name="copies-for-nobody",
        what="frames to groups turn round when nobody on the card is a member of a group",
        force=Force("hdl.context.groups:GroupTable", "any", stuck(1)),
        tests=("tests/context/test_groups.py",),
    ),
    Fault(
        name="group-takes-any-packet",
        what="a packet to a group need not be a datagram to QP FFFFFFh",
        force=Force("hdl.ingress.parser:HeaderParser", "fits", stuck(1)),
        tests=("tests/ingress/test_parser.py",),
    ),
    Fault(
        name="copy-for-another",
        what="a copy of a multicast datagram has another QP number than its member's",
        force=Force("hdl.ingress.replicator:Replicator", "member", plus(1)),
        tests=REPLICATOR,
    ),
    Fault(
        name="copies-of-one-function",
        what="of the functions with a group only the first one's members get copies",
        force=Force(
            "hdl.ingress.replicator:Replicator",
            "served",
            of(lambda true, see: true.any().replicate(2)),
        ),
        tests=REPLICATOR,
    ),
    Fault(
        name="payload-read-once",
        what="the second copy of a multicast datagram has the payload of the packet behind it",
        file="hdl/ingress/buffer.py",
        old="            with m.Elif(last):\n                m.d.sync += at.eq(start)\n",
        new="",
        because="it is one of several assignments of a register",
        tests=BUFFER,
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
    # From one clock to another.
    Fault(
        name="full-crossing-written",
        what="the FIFO between two clocks is written when it is full",
        force=Force("hdl.common.crossing:AsyncStreamFifo", "i.ready", stuck(1)),
        tests=CROSSING,
    ),
    Fault(
        name="reset-ends-alone",
        what="a clock domain runs again while the others' clocks may not have run at all",
        force=Force("hdl.common.crossing:ResetSequencer", "waits", stuck(0)),
        tests=CROSSING,
    ),
    Fault(
        name="crossing-not-constrained",
        what="a path between two clocks gets no timing constraint",
        file="hdl/common/crossing.py",
        old='"fifo.consume_r_gry", "fifo.consume_cdc.stage0"',
        new='"fifo.consume_r_bin", "fifo.consume_cdc.stage0"',
        because="the constraint is no logic",
        tests=CROSSING,
    ),
    Fault(
        name="interrupt-without-an-edge",
        what="the ZCU106 forgets an interrupt that comes during the pulse of one before it",
        force=Force("boards.zcu106.top:PulseStretcher", "waits", stuck(0)),
        tests=("tests/boards/test_zcu106.py::test_each_pulse_is_followed_by_an_edge",),
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
    Fault(
        name="remote-fault-ignored",
        what="the U55C sends frames to an end that says that it cannot receive",
        force=Force("boards.u55c.top:U55cTop", "remote", stuck(0)),
        tests=("tests/boards/test_top.py",),
    ),
    # The bridge.
    Fault(
        name="bridge-check-ignored",
        what="the bridge executes a request whose check is wrong",
        force=Force("hdl.bridge.parser:RequestParser", "wrong", stuck(0)),
        tests=("tests/bridge/test_bridge.py::test_bridge",),
    ),
    # The AXI adapter.
    Fault(
        name="axi-read-overtakes-write",
        what="a read is asked for while a write before it has no response",
        force=Force("hdl.axi.order:Fence", "limit", like("come")),
        tests=ORDER + AXI,
    ),
    Fault(
        name="answer-overtakes-write",
        what="a register read is answered while a write before it is not done, on AXI and PCIe",
        force=Force("hdl.common.barrier:Barrier", "passed", stuck(1)),
        tests=BARRIER + AXI + PCIE,
    ),
    Fault(
        name="axi-error-forgotten",
        what="an error response that is not on the last beat is lost",
        force=Force("hdl.axi.reads:AxiReads", "before", stuck(0)),
        tests=AXI,
    ),
    Fault(
        name="axi-length-without-lane",
        what="a burst's length does not count the bytes in front of its first one",
        force=Force(
            "hdl.axi.writes:AxiWrites",
            "last_byte",
            of(lambda true, get: get("held.final")),
        ),
        tests=AXI,
    ),
    Fault(
        name="axi-writes-unlimited",
        what="more write bursts are issued than may be without response",
        force=Force("hdl.axi.writes:AxiWrites", "space", stuck(1)),
        tests=ORDER,
    ),
    # The adapter for PCI Express.
    Fault(
        name="pcie-any-length-served",
        what="a request of any length and kind is served as one of memory",
        force=Force("hdl.pcie.completer:Completer", "access", stuck(1)),
        tests=COMPLETER,
    ),
    Fault(
        name="pcie-cut-off-served",
        what="a request that the block cut off is completed",
        force=Force("hdl.pcie.completer:Completer", "dropped", stuck(0)),
        tests=COMPLETER,
    ),
    Fault(
        name="pcie-second-in-a-beat-lost",
        what="of the completions that begin in a beat only the first is seen",
        force=Force("hdl.pcie.straddle:Unstraddle", "more", stuck(0)),
        tests=(*STRADDLE, *PCIE),
    ),
    Fault(
        name="pcie-discontinued-taken",
        what="data that the block calls corrupt are good",
        force=Force("hdl.pcie.straddle:Unstraddle", "cut_off", stuck(0)),
        tests=STRADDLE,
    ),
    Fault(
        name="pcie-bad-unseen",
        what="a bad completion is counted and taken for a good one",
        force=Force("hdl.pcie.completions:Completions", "fresh.bad", stuck(0)),
        tests=PCIE,
    ),
    Fault(
        name="pcie-place-unchecked",
        what="a completion that is not where it should be is taken for a good one",
        force=Force("hdl.pcie.completions:Completions", "elsewhere", stuck(0)),
        tests=LATE,
    ),
    Fault(
        name="pcie-read-in-write",
        what="a read may enter the middle of a write's request",
        force=Force("hdl.pcie.requests:Requests", "inside", stuck(0)),
        tests=PCIE,
    ),
    Fault(
        name="pcie-block-border-unseen",
        what="a write's request says that it ends where the burst does, beyond its block",
        force=Force("hdl.pcie.requests:Requests", "further", stuck(0)),
        tests=REQUESTER,
    ),
    Fault(
        name="pcie-setting-unknown",
        what="the card is not told what the host sets in the block's configuration space",
        force=Force("hdl.pcie.control:FunctionControl", "differs", stuck(0)),
        tests=CONTROL,
    ),
    Fault(
        name="pcie-function-reset-ignored",
        what="a function-level reset resets nothing and has no end",
        force=Force("hdl.pcie.control:FunctionControl", "flr", stuck(0)),
        tests=CONTROL,
    ),
    Fault(
        name="pcie-capabilities-hidden",
        what="the card's configuration space is not shown in BAR 0",
        force=Force("hdl.pcie.control:FunctionControl", "inside", stuck(0)),
        tests=CONTROL,
    ),
    Fault(
        name="pcie-dropped-write-waited-for",
        what="a register read waits for ever for a write that the block has dropped",
        force=Force("hdl.pcie.posted:PostedWrites", "given_up", stuck(0)),
        tests=POSTED + PCIE,
    ),
    Fault(
        name="pcie-no-timeout",
        what="a read whose completion is lost waits for ever",
        force=Force("hdl.pcie.completions:Completions", "expires", stuck(0)),
        tests=PCIE,
    ),
    Fault(
        name="pcie-tag-used-at-once",
        what="a tag of AMD's block is used again when its read was given up",
        force=Force("hdl.pcie.completions:Completions", "parks", stuck(0)),
        tests=LATE,
    ),
    Fault(
        name="ptile-tag-used-at-once",
        what="a tag on P-Tile is used again when its read was given up",
        force=Force("hdl.pcie.completions:Completions", "parks", stuck(0)),
        tests=PTILE_LATE,
    ),
    Fault(
        name="pcie-quarantine-too-short",
        what="a tag leaves the quarantine as soon as it is looked at",
        force=Force("hdl.pcie.tag_pool:TagPool", "age", stuck(2)),
        tests=POOL,
    ),
    Fault(
        name="pcie-tags-not-allowed",
        what="a function uses tags of 8 bits that the host has not allowed it",
        force=Force("hdl.pcie.tag_pool:TagPool", "plain", stuck(0)),
        tests=LATE,
    ),
    Fault(
        name="pcie-sizes-of-function-0",
        what="writes are as long as function 0 may make them",
        force=Force("hdl.pcie.settings:BlockSettings", "max_payload", stuck(3)),
        tests=SETTINGS,
    ),
    Fault(
        name="pcie-read-without-credit",
        what="a read stands on RQ before writes while the host takes no reads",
        force=Force("hdl.pcie.read_credits:ReadCredits", "may_read", stuck(1)),
        tests=SETTINGS,
    ),
    Fault(
        name="pcie-answer-before-writes",
        what="an answer to a register read overtakes writes before it",
        force=Force("hdl.pcie.answers:Answers", "ahead", stuck(0)),
        tests=ANSWERS,
    ),
    Fault(
        name="pcie-old-number-counts",
        what="the number of a write that was given up is taken for one in flight",
        force=Force("hdl.pcie.posted:PostedWrites", "hit", like("said")),
        tests=POSTED,
    ),
    Fault(
        name="pcie-words-left-behind",
        what="the words of a packet that pass its last beat are lost",
        force=Force("hdl.pcie.realign:Realign", "spilling", stuck(0)),
        tests=PCIE,
    ),
    Fault(
        name="pcie-shared-beat-not-shared",
        what="the words of a write that should share a beat of RQ with the next request are lost",
        force=Force("hdl.pcie.realign:Realign", "tail", stuck(0)),
        tests=REQUESTER,
    ),
    Fault(
        name="ptile-second-packet-lost",
        what="a packet that ends in the beat in which it begins behind another one is lost",
        force=Force("hdl.pcie.ptile.receive:Receive", "left", stuck(0)),
        tests=STREAMS,
    ),
    Fault(
        name="ptile-always-ready",
        what="P-Tile may send although there is no room for what is on its way",
        force=Force("hdl.pcie.ptile.receive:Receive", "rx_st_ready", stuck(1)),
        tests=STREAMS,
    ),
    Fault(
        name="ptile-gap-in-packet",
        what="a packet is begun before it is whole",
        force=Force("hdl.pcie.ptile.transmit:Transmit", "begins", stuck(1)),
        tests=STREAMS,
    ),
    Fault(
        name="ptile-credits-unlimited",
        what="packets are sent for which the host has given no credits",
        force=Force("hdl.pcie.ptile.credits:Credits", "enough", stuck(1)),
        tests=STREAMS,
    ),
    Fault(
        name="ptile-buffer-overrun",
        what="more is read than P-Tile has room for",
        force=Force("hdl.pcie.ptile.reads:ReadsInFlight", "fits", stuck(1)),
        tests=PTILE,
    ),
    Fault(
        name="ptile-place-forgotten",
        what="a lost completion of several is not missed",
        force=Force("hdl.pcie.completions:Completions", "elsewhere", stuck(0)),
        tests=PTILE_DMA,
    ),
    Fault(
        name="ptile-no-bus-master",
        what="a function writes although the host has not made it a bus master",
        force=Force("hdl.pcie.ptile.transmit:Transmit", "drops", stuck(0)),
        tests=PTILE_DMA,
    ),
    Fault(
        name="ptile-answer-before-writes",
        what="an answer to a register read overtakes writes before it",
        force=Force("hdl.pcie.ptile.transmit:Transmit", "done", stuck(1)),
        tests=("tests/pcie/test_ptile_streams.py::test_transmit",),
    ),
    Fault(
        name="ptile-window-anywhere",
        what="an access through the configuration space may be of any length and place",
        force=Force("hdl.pcie.ptile.window:ConfigWindow", "good", stuck(1)),
        tests=PTILE,
    ),
    # What a peer or a guest may touch.
    Fault(
        name="range-unchecked",
        what="a region's end is not checked",
        force=Force("hdl.memory.keys:KeyCheck", "furthest", stuck((1 << 65) - 1)),
        tests=KEYS,
    ),
    Fault(
        name="pd-unchecked",
        what="a key of another protection domain is accepted",
        force=Force("hdl.memory.keys:KeyCheck", "row.pd", like("asked.0.pd")),
        tests=KEYS,
    ),
    Fault(
        name="tag-unchecked",
        what="a key that has been given back is accepted",
        force=Force("hdl.memory.keys:KeyCheck", "row.tag", like("asked.0.key")),
        tests=KEYS,
    ),
    Fault(
        name="access-unchecked",
        what="a region that may only be read is written",
        force=Force("hdl.memory.keys:KeyCheck", "row.access", stuck(0xF)),
        tests=KEYS,
    ),
    Fault(
        name="atomic-across-pages",
        what="an atomic's word may lie in two pages",
        force=Force("hdl.memory.keys:KeyCheck", "whole", stuck(1)),
        tests=("tests/memory/test_translate.py::test_atomics_of_regions_that_begin_at_any_byte",),
    ),
    Fault(
        name="entry-not-refused",
        what="bytes that no entry of an indirect key has are taken from what lies behind it",
        force=Force("hdl.memory.resolve:KeyResolve", "refused", stuck(0)),
        tests=(f"{INDIRECT}::test_an_error_in_the_second_entry_leaves_no_byte",),
    ),
    Fault(
        name="entries-unlimited",
        what="a packet may have more ranges of entries than there is room for",
        force=Force("hdl.memory.resolve:KeyResolve", "excess", stuck(0)),
        tests=(f"{INDIRECT}::test_ranges_of_a_packet_are_limited",),
    ),
    Fault(
        name="read-of-the-other-client",
        what="what comes back for the walk of an indirect key's entries goes to the page cache",
        force=Force("hdl.memory.share:ReadShare", "owners.r_data", stuck(0)),
        tests=(f"{INDIRECT}::test_entries_of_regions_with_pages",),
    ),
    Fault(
        name="page-size-ignored",
        what="all pages have 4 KiB",
        force=Force("hdl.memory.keys:KeyCheck", "page_size", stuck(0)),
        tests=("tests/memory/test_page_sizes.py::test_where_the_bytes_are",),
    ),
    Fault(
        name="large-page-not-aligned",
        what="an entry for a page of 2 MiB need only be a multiple of 4 KiB",
        because="it is a function of the line, not a signal",
        file="hdl/memory/fill.py",
        old="(odd[1] & page_size.any())",
        new="(odd[1] & page_size[1])",
        tests=("tests/memory/test_page_sizes.py::test_a_page_that_is_not_aligned_is_refused",),
    ),
    Fault(
        name="second-level-ignored",
        what="a page list of two levels is taken for one of one",
        force=Force("hdl.memory.keys:KeyCheck", "two_level", stuck(0)),
        tests=("tests/memory/test_two_levels.py::test_where_the_bytes_are",),
    ),
    Fault(
        name="first-level-unchecked",
        what="an entry of the first level counts though it is odd or could not be read",
        force=Force("hdl.memory.lines:LineReads", "bad", stuck(0)),
        tests=("tests/memory/test_two_levels.py::test_an_entry_that_names_nothing",),
    ),
    Fault(
        name="first-level-taken-for-a-line",
        what="the answer of a first level is taken for the line of a list",
        force=Force("hdl.memory.lines:LineReads", "is_first", stuck(0)),
        tests=("tests/memory/test_two_levels.py::test_what_a_miss_costs",),
    ),
    # Requests sent.
    Fault(
        name="psn-plus-1",
        what="every request packet has a PSN one too high",
        force=Force("hdl.transport.send.packets:RequestPackets", "job.payload.header.psn", plus(1)),
        tests=SEND,
    ),
    Fault(
        name="reth-length-plus-1",
        what="the RETH says a byte more than the message has",
        force=Force(
            "hdl.transport.send.packets:RequestPackets", "job.payload.header.dma_length", plus(1)
        ),
        tests=SEND,
    ),
    Fault(
        name="fence-ignored",
        what="a fenced WQE does not wait for the READs before it",
        force=Force("hdl.transport.send.admission:RequestAdmission", "wqe.wqe.fence", stuck(0)),
        tests=SEND,
    ),
    Fault(
        name="long-messages-pile-up",
        what="a QP's long messages are fetched while those before them wait to be sent",
        force=Force("hdl.transport.send.fetch_turn:FetchTurn", "distances.pending", stuck(0)),
        tests=("tests/transport/test_send.py::test_long_messages_do_not_pile_up",),
    ),
    Fault(
        name="start-not-reported",
        what="the requester does not tell that a long message begins",
        force=Force("hdl.transport.send.admission:RequestAdmission", "started.valid", stuck(0)),
        tests=("tests/transport/test_send.py::test_long_messages_do_not_pile_up",),
    ),
    Fault(
        name="doorbell-lost",
        what="a doorbell does not make the scheduler look at the ring again",
        force=Force("hdl.transport.send.fetch_turn:FetchTurn", "rings", stuck(0)),
        tests=SEND,
    ),
    # That nothing is lost or stands still for good, these two leave to contracts.
    Fault(
        name="index-not-asked-for",
        what="a QP sleeps without having asked for the driver's index",
        force=Force("hdl.transport.send.fetch_turn:FetchTurn", "poll", stuck(0)),
        tests=SEND,
    ),
    Fault(
        name="offered-job-changes",
        what="a job that is offered to the gather makes way for one of the other side",
        force=Force("hdl.transport.send.tx_arbiter:TxArbiter", "offered", stuck(0)),
        tests=("tests/transport/test_tx_arbiter.py",),
    ),
    Fault(
        name="reads-unlimited",
        what="READs are fetched that cannot be started",
        force=Force(
            "hdl.transport.send.scheduler:Scheduler", "context.rows.fetch.reading", stuck(0)
        ),
        tests=SEND,
    ),
    # Rings.
    Fault(
        name="avail-event-unwritten",
        what="a queue is found empty without asking for a notification",
        force=Force("hdl.queues.ring.polls:Polls", "wanted", stuck(0), having="write_client"),
        tests=FETCH,
    ),
    Fault(
        name="entries-kept",
        what="ring entries read ahead outlive the reset of their queue",
        force=Force("hdl.queues.ring.heads:RingHeads", "flush", stuck(0)),
        tests=FETCH_MIXED,
    ),
    Fault(
        name="packed-reaches-too-far",
        what="descriptors behind one that is not available count as available",
        force=Force("hdl.queues.ring.reach:Reach", "broken", stuck(0)),
        tests=("tests/queues/test_packed.py::test_reach[64-0]",),
    ),
    Fault(
        name="packed-buffer-misnamed",
        what="a list of descriptors in a packed ring comes back under another id",
        force=Force("hdl.queues.ring.walker:Walker", "id", plus(1)),
        tests=PACKED,
    ),
    Fault(
        name="packed-interrupt-unwanted",
        what="the driver's event suppression structure is not looked at",
        force=Force("hdl.queues.ring.used:UsedWriter", "suppressed", stuck(0)),
        tests=PACKED,
    ),
    # Requests received.
    Fault(
        name="gap-accepted",
        what="a request whose PSN is ahead of the expected one is executed",
        force=Force("hdl.transport.receive.responder:Responder", "facts_now.ahead", stuck(0)),
        tests=RECEIVE,
    ),
    Fault(
        name="nak-for-each-behind-a-gap",
        what="each request behind a gap brings a NAK of its own",
        force=Force("hdl.transport.receive.responder:Responder", "work.rx.nak_sent", stuck(0)),
        tests=RECEIVE,
    ),
    Fault(
        name="read-answered-again-counts",
        what="a READ in sequence is refused while READs before it are answered again",
        force=Force(
            "hdl.transport.receive.responder:Responder",
            "work.reply.answered",
            like("work.reply.read_head"),
        ),
        tests=RECEIVE,
    ),
    Fault(
        name="psn-not-advanced",
        what="the expected PSN stays when a request has been executed",
        force=Force(
            "hdl.transport.receive.responder:Responder", "rx_write.row.psn", like("work.rx.psn")
        ),
        tests=RECEIVE,
    ),
    Fault(
        name="msn-not-advanced",
        what="the MSN does not count messages",
        force=Force("hdl.transport.receive.responder:Responder", "facts_now.msn", plus(-1)),
        tests=RECEIVE + REPLAY,
        live=True,
    ),
    Fault(
        name="short-write-accepted",
        what="an RDMA WRITE may end before or behind the length that its RETH announced",
        force=Force(
            "hdl.transport.receive.responder:Responder",
            "message_length_error",
            of(lambda true, see: true & ~see("work.operation.last")),
        ),
        tests=RECEIVE,
    ),
    # Responses sent and received.
    Fault(
        name="nak-syndrome-wrong",
        what="a refused READ is answered with the syndrome of an ACK",
        force=Force(
            "hdl.transport.reply.turns:ReplyTurns",
            "o.payload.syndrome",
            of(lambda true, see: Mux(see("turn.serving"), SYNDROME_ACK_NO_LIMIT, true)),
        ),
        tests=REPLY,
    ),
    Fault(
        name="answered-read-not-reported",
        what="the responder learns of answered READs late, and refuses the peer's next one",
        force=Force(
            "hdl.transport.reply.turns:ReplyTurns",
            "row_write.enable",
            of(lambda true, see: true & ~see("progress.ends")),
        ),
        tests=REPLY,
    ),
    Fault(
        name="nak-for-each-refused",
        what="responses refused behind the first one bring NAKs of their own",
        force=Force(
            "hdl.transport.reply.turns:ReplyTurns",
            "refused.payload.generation",
            like("context.rows.reply.generation"),
        ),
        tests=REPLY,
    ),
    Fault(
        name="ack-left-out-for-another-qp",
        what="an ACK is left out because another QP will be answered",
        force=Force("hdl.transport.receive.ack_coalescer:AckCoalescer", "pushed_qp", stuck(0)),
        tests=("tests/transport/test_ack_coalescer.py",),
    ),
    Fault(
        name="ack-psn-plus-1",
        what="an ACK acknowledges a packet that has not come",
        force=Force(
            "hdl.transport.reply.turns:ReplyTurns",
            "turn.psn",
            of(lambda true, see: true + ~see("turn.nak")),
        ),
        tests=REPLY,
    ),
    Fault(
        name="completed-too-early",
        what="an ACK of any of its packets completes a WQE",
        force=Force("hdl.transport.receive.completer:Completer", "entry_now.at_last", stuck(1)),
        tests=RECEIVE,
    ),
    Fault(
        name="bad-payload-sealed",
        what="a packet whose payload could not be read gets a good ICRC",
        force=Force("hdl.egress.seal:Seal", "beats.o.payload.error", stuck(0)),
        tests=EGRESS,
    ),
    # Order of what the guest sees.
    Fault(
        name="cqe-before-payload",
        what="a packet's CQE may be written before its payload",
        force=Force("hdl.memory.scatter:Scatter", "release.written", like("answered")),
        tests=SCATTER,
    ),
    Fault(
        name="index-before-element",
        what="the used index is written before the used element",
        because="two states of a machine change places",
        file="hdl/queues/ring/used.py",
        old="""\
                    beat.addr.eq(addr),
                    beat.data.eq(element),
                    beat.keep.eq(0xFF),
                ]
                with m.If(self.write_client.beat.ready):
                    m.next = "INDEX"
                    add_low(m, addr, carry, ring.driver, event)
            # INDEX: writes the used index, of a split ring; ends when that is taken.
            with m.State("INDEX"):
                m.d.comb += [
                    self.write_client.beat.valid.eq(~packed),
                    beat.addr.eq(index_addr),
                    beat.data.eq((job.index + 1)[:16]),
                    beat.keep.eq(0b11),
                ]
                add_high(m, addr, carry)
""",
        new="""\
                    beat.addr.eq(index_addr),
                    beat.data.eq((job.index + 1)[:16]),
                    beat.keep.eq(0b11),
                ]
                with m.If(self.write_client.beat.ready):
                    m.next = "INDEX"
            with m.State("INDEX"):
                m.d.comb += [
                    self.write_client.beat.valid.eq(1),
                    beat.addr.eq(addr),
                    beat.data.eq(element),
                    beat.keep.eq(0xFF),
                ]
                add_high(m, addr, carry)
                with m.If(self.write_client.beat.ready):
                    add_low(m, addr, carry, ring.driver, event)
""",
        tests=COMPLETION,
    ),
    Fault(
        name="interrupt-before-index",
        what="the interrupt of an armed CQ is raised before the used index is written",
        because="there is one state more",
        file="hdl/queues/ring/used.py",
        old="""\
                    m.next = "INDEX"
                    add_low(m, addr, carry, ring.driver, event)
            # INDEX: writes the used index, of a split ring; ends when that is taken.
            with m.State("INDEX"):
                m.d.comb += [
                    self.write_client.beat.valid.eq(~packed),
                    beat.addr.eq(index_addr),
                    beat.data.eq((job.index + 1)[:16]),
                    beat.keep.eq(0b11),
                ]
                add_high(m, addr, carry)
                with m.If(self.write_client.beat.ready | packed):
                    with m.If(job.notify):
                        m.next = "SETTLE"
                    with m.Else():
                        m.d.comb += self.done.eq(1)
                        m.next = "IDLE"
""",
        new="""\
                    m.next = "INDEX"
                    add_low(m, addr, carry, ring.driver, event)
                    with m.If(job.notify & job.sure):
                        m.next = "EARLY"
            with m.State("EARLY"):
                m.d.comb += self.interrupt.valid.eq(1)
                with m.If(self.interrupt.ready):
                    m.next = "INDEX"
            with m.State("INDEX"):
                m.d.comb += [
                    self.write_client.beat.valid.eq(~packed),
                    beat.addr.eq(index_addr),
                    beat.data.eq((job.index + 1)[:16]),
                    beat.keep.eq(0b11),
                ]
                add_high(m, addr, carry)
                with m.If(self.write_client.beat.ready | packed):
                    with m.If(job.notify & ~job.sure):
                        m.next = "SETTLE"
                    with m.Else():
                        m.d.comb += [self.done.eq(1), self.raised.eq(job.notify)]
                        m.next = "IDLE"
""",
        tests=COMPLETION,
    ),
    Fault(
        name="cqe-seen-before-its-wqe",
        what="the used index of a CQ is written before that of the queue whose WQE it tells of",
        force=Force(
            "hdl.queues.ring.runs:UsedRuns",
            "current",
            of(lambda true, see: true | ~see("empty")[1]),
        ),
        tests=COMPLETION,
    ),
    Fault(
        name="armed-too-early",
        what="a CQ is armed while a used index is still to be written, which then wakes nobody",
        force=Force("hdl.queues.completion.engine:CompletionEngine", "pending", stuck(0)),
        tests=COMPLETION,
    ),
    Fault(
        name="read-overtakes-write",
        what="a host read does not wait for the writes that were accepted before it",
        force=Force("hdl.host.read:ReadEngine", "ordered", stuck(1)),
        tests=READ,
    ),
    Fault(
        name="read-forgets-it-may-go",
        what="a host read that has no tag while many writes go by waits for those too",
        force=Force("hdl.host.read:ReadEngine", "free", stuck(0)),
        tests=READ,
    ),
    # Bytes and tags on their way.
    Fault(
        name="tag-taken-twice",
        what="a tag is used again while its host read is outstanding",
        force=Force("hdl.host.read:ReadEngine", "space", stuck(1)),
        tests=READ,
    ),
    Fault(
        name="read-not-reordered",
        what="the oldest host read is returned before its data are complete",
        force=Force(
            "hdl.host.read:ReadEngine", "deliver", of(lambda true, see: see("head") != see("tail"))
        ),
        tests=READ,
    ),
    Fault(
        name="queue-reset-missed",
        what="a queue reset that ends in the cycle in which it is taken never ends",
        force=Force(
            "hdl.host.virtio_queues:VirtioQueues",
            "queue_reset_done",
            of(lambda true, see: true & see("under_reset")),
        ),
        tests=VIRTIO,
    ),
    Fault(
        name="write-shift-wrong",
        what="host writes at some addresses are moved by a byte too many",
        force=Force("hdl.host.write_align:WriteAlign", "shift", masked(14)),
        tests=WRITE,
    ),
    Fault(
        name="rotator-shift-wrong",
        what="one level of the shared rotator moves by a byte too many",
        force=Force("hdl.common.shift:Rotator", "turned", rotated(8)),
        tests=PACK,
    ),
    Fault(
        name="header-shift-wrong",
        what="a frame's payload stands a word off behind its headers",
        force=Force("hdl.egress.merge:Merge", "shift", plus(1)),
        tests=EGRESS,
    ),
    # What a reset or an invalidation waits for.
    Fault(
        name="reset-not-heeded",
        what="a message on its way goes on when its QP is reset",
        force=Force("hdl.transport.send.packets:RequestPackets", "reset", stuck(0)),
        tests=SEND,
    ),
    Fault(
        name="refusal-not-heeded",
        what="a packet that the gather has refused counts as sent",
        force=Force("hdl.transport.send.checks:RequestChecks", "bad", stuck(0)),
        tests=SEND,
    ),
    Fault(
        name="sent-before-its-entry",
        what="a packet goes out before its WQE is in the outstanding table",
        force=Force("hdl.transport.send.checks:RequestChecks", "any_begun", stuck(1)),
        tests=SEND,
    ),
    Fault(
        name="failed-wqe-left-behind",
        what="a failed WQE is not looked at again when the one in front of it has finished",
        force=Force(
            "hdl.transport.outstanding.table:OutstandingTable", "now.list.watched", stuck(0)
        ),
        tests=("tests/transport/test_outstanding.py",),
    ),
    Fault(
        name="next-of-a-grown-list",
        what="a WQE that was appended behind the last one, after that was looked at, is not found",
        force=Force(
            "hdl.transport.outstanding.table:OutstandingTable",
            "shown.qp",
            of(lambda true, see: Mux(see("append.ready"), ~true, true)),
        ),
        tests=("tests/transport/test_outstanding.py",),
    ),
    Fault(
        name="strangers-ack-merged",
        what="an ACK gives way to one of another machine for the same QP",
        force=Force(
            "hdl.transport.receive.intake:Intake",
            "same_sender",
            of(lambda true, see: true | 0b00100),
        ),
        tests=RECEIVE,
    ),
    Fault(
        name="next-packet-by-the-old-row",
        what="a packet of the same QP right behind another is worked out with the row before it",
        force=Force("hdl.transport.receive.intake:Intake", "rx_written.row", like("work.rx")),
        tests=RECEIVE,
    ),
    Fault(
        name="scheduler-counts-cycles",
        what="the scheduler takes the rows of a QP for those that it has asked for a cycle later",
        force=Force("hdl.transport.send.scheduler:Scheduler", "context.valid", stuck(1)),
        tests=LATE_ROWS,
    ),
    Fault(
        name="requester-counts-cycles",
        what="so does the requester",
        force=Force("hdl.transport.send.requester:Requester", "context.valid", stuck(1)),
        tests=LATE_ROWS,
    ),
    Fault(
        name="intake-counts-cycles",
        what="so does the intake of the receive side",
        force=Force("hdl.transport.receive.intake:Intake", "context.valid", stuck(1)),
        tests=LATE_ROWS_RECEIVE,
    ),
    Fault(
        name="working-copy-of-another-qp",
        what="a row that comes late is taken for the one that has just been written",
        force=Force("hdl.transport.send.row:RequestRow", "stored_qp", like("qp")),
        tests=LATE_ROWS,
    ),
    Fault(
        name="missed-row-counts",
        what="a row of a QP that is written while the intake reads it counts as it was before",
        force=Force("hdl.transport.receive.intake:Intake", "missed", stuck(0)),
        tests=("tests/transport/test_intake.py",),
    ),
    Fault(
        name="drain-before-fronts",
        what="a drain begins while packets and WQEs are at hand that go by the old row",
        force=Force("hdl.common.quiesce:Quiesce", "left", stuck(0)),
        tests=("tests/common/test_quiesce.py",),
    ),
    # Lost packets.
    Fault(
        name="timer-never-fires",
        what="an answer that does not come is waited for without end",
        force=Force("hdl.transport.recovery.qp_timers:QpTimers", "over", stuck(0)),
        tests=TIMERS,
        campaign="mixed",
    ),
    Fault(
        name="timer-too-short",
        what="a time-out comes before its time is over",
        force=Force("hdl.transport.recovery.qp_timers:QpTimers", "steps", plus(-2)),
        tests=TIMERS,
    ),
    Fault(
        name="timer-not-stopped",
        what="a QP with nothing outstanding has a timer that runs",
        force=Force(
            "hdl.transport.outstanding.table:OutstandingTable", "timer.payload.kind", stuck(1)
        ),
        tests=OUTSTANDING,
    ),
    Fault(
        name="old-timeout-believed",
        what="a time-out that waited while answers came makes the QP go back",
        force=Force(
            "hdl.transport.receive.intake:Intake", "timers", of(lambda true, see: true | 1)
        ),
        tests=RECEIVE,
    ),
    Fault(
        name="retries-not-counted",
        what="a QP goes back without end for the same packet",
        force=Force(
            "hdl.transport.receive.completer:Completer", "decision.verdict.retries", stuck(0)
        ),
        tests=RECEIVE,
    ),
    Fault(
        name="retries-off-by-one",
        what="a QP goes back once more often than its retry_cnt says",
        force=Force(
            "hdl.transport.receive.completer:Completer",
            "decision.verdict.retries",
            of(lambda true, see: Mux((true == 1) & ~see("s.ack.recovering"), 0, true)),
        ),
        tests=RECEIVE,
        campaign="mixed",
    ),
    Fault(
        name="rnr-timer-ignored",
        what="a QP whose peer has no receive WQE goes back at once",
        force=Force(
            "hdl.transport.receive.completer:Completer", "decision.verdict.pause", stuck(0)
        ),
        tests=RECEIVE,
        campaign="mixed",
    ),
    Fault(
        name="second-nak-believed",
        what="a NAK from before the QP went back makes it go back again",
        force=Force("hdl.transport.receive.completer:Completer", "s.ack.recovering", stuck(0)),
        tests=RECEIVE,
    ),
    Fault(
        name="stale-ack-believed",
        what="an ACK for what was acknowledged long ago moves the QP back to there",
        force=Force("hdl.transport.receive.completer:Completer", "entry_now.behind", stuck(0)),
        tests=RECEIVE,
        campaign="mixed",
    ),
    Fault(
        name="ghost-believed",
        what="an answer to what has not left the card counts",
        force=Force("hdl.transport.receive.completer:Completer", "entry_now.ghost", stuck(0)),
        tests=RECEIVE,
    ),
    Fault(
        name="waiting-is-a-time-out",
        what="a QP's wait for its turn on its own card counts as its peer's silence",
        force=Force("hdl.transport.receive.completer:Completer", "entry_now.awaited", stuck(1)),
        tests=RECEIVE,
    ),
    Fault(
        name="time-out-put-off",
        what="a QP that goes on sending waits for the answer to what it sent last",
        force=Force("hdl.transport.recovery.qp_timers:QpTimers", "idle", stuck(1)),
        tests=("tests/transport/test_qp_timers.py",),
    ),
    Fault(
        name="departure-ends-a-pause",
        what="a packet that leaves while its QP pauses gives the timer another time",
        force=Force("hdl.transport.recovery.qp_timers:QpTimers", "departs", stuck(0)),
        tests=("tests/transport/test_qp_timers.py",),
    ),
    Fault(
        name="sent-goes-back",
        what="what has left the card is forgotten when it is sent again",
        force=Force("hdl.transport.send.departures:Departures", "newer", stuck(1)),
        tests=("tests/transport/test_departures.py",),
    ),
    Fault(
        name="fetched-before-taken",
        what="a WQE that was fetched before its QP went back is taken afterwards",
        force=Force("hdl.transport.send.row:RequestRow", "rewinds", stuck(0)),
        tests=("tests/transport/test_resend.py",),
        campaign="heavy",
    ),
    Fault(
        name="duplicate-executed-twice",
        what="a request that comes a second time is executed a second time",
        force=Force("hdl.transport.receive.responder:Responder", "facts_now.behind", stuck(0)),
        tests=RECEIVE,
        campaign="mixed",
    ),
    Fault(
        name="resumed-at-the-beginning",
        what="a QP goes back to the first byte of a message, not to that of its packet",
        force=Force("hdl.transport.send.row:RequestRow", "origin.offset", stuck(0)),
        tests=SEND,
        campaign="mixed",
    ),
    Fault(
        name="ended-wqe-sent-again",
        what="a WQE that has ended meanwhile is sent again",
        force=Force("hdl.transport.send.admission:RequestAdmission", "finished", stuck(0)),
        tests=RESEND,
    ),
    Fault(
        name="pause-cut-short",
        what="a QP that pauses as its peer has asked sends what the driver posts meanwhile",
        force=Force("hdl.transport.send.admission:RequestAdmission", "ack.waiting", stuck(0)),
        tests=RESEND,
    ),
    Fault(
        name="stale-packets-sent",
        what="what a QP had handed over before it went back goes out",
        force=Force("hdl.memory.gate:PacketGate", "stale", stuck(0)),
        tests=GATHER,
    ),
    Fault(
        name="packets-of-every-generation-dropped",
        what="a QP that has gone back drops the packets of the others too",
        force=Force("hdl.memory.gate:PacketGate", "generation.index", stuck(1)),
        tests=GATHER,
    ),
    Fault(
        name="word-at-work-read-again",
        what="an atomic reads a word from the host that another one is about to write",
        force=Force("hdl.memory.atomic:AtomicUnit", "match", stuck(0)),
        tests=ATOMIC,
    ),
    Fault(
        name="swapped-though-unequal",
        what="a compare and swap writes its word whatever it has found",
        force=Force("hdl.memory.atomic:AtomicUnit", "equal", stuck(1)),
        tests=ATOMIC,
    ),
    Fault(
        name="write-passes-an-atomic",
        what="payload of a QP is written while an atomic in front of it is at work",
        force=Force("hdl.memory.cut:Cutter", "may_write", stuck(1)),
        tests=IN_TURN,
    ),
    Fault(
        name="answered-before-executed",
        what="the effects of an atomic do not wait until it has been executed",
        force=Force("hdl.memory.order:PacketOrder", "atomic", stuck(0)),
        tests=IN_TURN,
    ),
    Fault(
        name="undone-atomic-executed",
        what="an atomic that is rolled back is executed all the same",
        force=Force("hdl.memory.scatter:Scatter", "cutter.plan.payload.drop", stuck(0)),
        tests=IN_TURN,
    ),
    Fault(
        name="operands-of-a-refused-atomic",
        what="the operands of an atomic whose sink is refused go out with the next inline packet",
        force=Force("hdl.memory.fetch:PayloadFetch", "sources.i.payload.drop", stuck(0)),
        tests=GATHER,
    ),
    Fault(
        name="atomic-unaligned",
        what="the responder takes an atomic on a word that is not aligned",
        force=Force("hdl.transport.receive.responder:Responder", "message_length_error", stuck(0)),
        tests=RECEIVE,
    ),
    Fault(
        name="number-as-on-the-wire",
        what="what an atomic has found lies big-endian in the requester's memory",
        force=Force("hdl.ingress.realign:Realign", "plan.number", stuck(0)),
        tests=INGRESS,
    ),
    Fault(
        name="no-new-generation",
        what="what is handed over after a restart cannot be told from what was before",
        force=Force("hdl.transport.send.requester:Requester", "advance", stuck(0)),
        tests=RESEND,
    ),
    Fault(
        name="goes-on-with-any-wqe",
        what="a QP that goes back sends the WQE at hand again, whichever was lost",
        force=Force("hdl.transport.send.redirect:RequestRedirect", "at_hand", stuck(1)),
        tests=RESEND,
    ),
    Fault(
        name="fetches-what-is-at-hand",
        what="a message that goes back is fetched again, although it is at hand",
        force=Force("hdl.transport.send.redirect:RequestRedirect", "at_hand", stuck(0)),
        tests=RESEND,
    ),
    Fault(
        name="failure-meets-an-append",
        what="a WQE fails without waiting for the entry that is being made",
        force=Force("hdl.transport.send.redirect:RequestRedirect", "entering", stuck(0)),
        tests=("tests/transport/test_request_redirect.py",),
    ),
    Fault(
        name="window-stays-closed",
        what="a host that becomes slow is not asked for more ahead",
        force=Force("hdl.memory.window:ReadWindow", "dry", stuck(0)),
        tests=WINDOW,
    ),
    Fault(
        name="pause-outlives-its-qp",
        what="a QP that breaks while it pauses waits for the end of the pause",
        force=Force(
            "hdl.transport.send.requester:Requester",
            "redirect.waiting",
            of(lambda true, see: see("pauses")),
        ),
        tests=RESEND,
    ),
    Fault(
        name="last-straw-ends-twice",
        what="a READ response that shows the last loss allowed ends its READ twice",
        file="hdl/transport/receive/completer.py",
        old="                    m.d.sync += s.finish.eq(0)\n",
        new="",
        because="the signal is right wherever else it is read",
        tests=RECEIVE,
    ),
    Fault(
        name="atomic-answered-early",
        what="an atomic is answered before it has been executed",
        force=Force("hdl.transport.reply.replier:Replier", "turns.unknown", stuck(0)),
        tests=REPLY,
    ),
    Fault(
        name="read-waits-for-a-dropped-atomic",
        what="a READ that takes the place of a dropped atomic waits for that one's result",
        force=Force("hdl.transport.reply.replier:Replier", "executes", stuck(1)),
        tests=REPLY,
    ),
    Fault(
        name="ack-covers-reads",
        what="an ACK acknowledges the READs behind its request",
        force=Force(
            "hdl.transport.reply.turns:ReplyTurns",
            "context.rows.rx.ack_psn",
            of(lambda true, see: see("context.rows.rx.psn") - 1),
        ),
        tests=REPLY,
    ),
    Fault(
        name="drained-qp-begins",
        what="a QP whose send queue drains begins another WQE",
        force=Force("hdl.transport.send.admission:RequestAdmission", "drains", stuck(0)),
        tests=DRAINED,
    ),
    Fault(
        name="drained-qp-stops",
        what="a QP whose send queue drains leaves a message in its middle",
        force=Force("hdl.transport.send.scheduler:Scheduler", "drains", stuck(0)),
        tests=DRAINED,
    ),
    # Ahead of the checks.
    Fault(
        name="behind-a-refusal-executed",
        what="packets behind one whose check failed are executed",
        force=Force("hdl.transport.receive.commit:Commit", "failed.found", stuck(0)),
        tests=RECEIVE,
    ),
    Fault(
        name="rows-not-mended",
        what="the responder goes on with rows of packets that were undone",
        force=Force("hdl.transport.receive.commit:Commit", "ahead_write.enable", stuck(0)),
        tests=RECEIVE,
    ),
    Fault(
        name="undone-row-kept",
        what="a row that was worked out behind a refusal becomes the QP's",
        force=Force(
            "hdl.transport.receive.commit:Commit",
            "rx_write.enable",
            of(lambda true, see: see("gone") & see("record.commit")),
        ),
        tests=RECEIVE,
    ),
    Fault(
        name="failed-queue-pair-forgotten",
        what="the list of QPs whose checks failed has a single place",
        force=Force(
            "hdl.transport.receive.commit:Commit",
            "failed.add",
            of(lambda true, see: true & ~see("failed.any")),
        ),
        tests=RECEIVE,
    ),
    Fault(
        name="more-lines-read-than-reported",
        what="packets are taken although no more lines can be reported as read",
        force=Force("hdl.transport.receive.commit:Commit", "full", stuck(0)),
        tests=RECEIVE,
    ),
    Fault(
        name="discarded-payload-written",
        what="payload is written although its effects say otherwise",
        force=Force("hdl.memory.scatter:Scatter", "effects.payload.discard", stuck(0)),
        tests=SCATTER,
    ),
    # WQEs fetched ahead.
    Fault(
        name="stale-wqe-taken",
        what="a WQE that was asked for before a rewind is sent as if it were the next one",
        force=Force("hdl.transport.send.fetch_answer:FetchAnswer", "expected", stuck(0xF)),
        tests=SEND,
    ),
    Fault(
        name="asked-not-rewound",
        what="WQEs asked for before a rewind are not asked for again",
        force=Force(
            "hdl.transport.send.scheduler:Scheduler",
            "row_write.row.asked",
            of(lambda true, see: Mux(see("rewind.ready"), see("context.rows.fetch.asked"), true)),
        ),
        tests=SEND,
    ),
    Fault(
        name="ahead-without-limit",
        what="a QP asks for as many short WQEs ahead as there are",
        force=Force("hdl.transport.send.fetch_turn:FetchTurn", "distances.under_way", stuck(0)),
        tests=SEND,
    ),
    Fault(
        name="guessed-head-believed",
        what="a descriptor read where a head was expected is taken although the head is another",
        force=Force("hdl.queues.ring.descriptor:ShortDescriptors", "right", like("found.guessed")),
        tests=IN_ORDER,
    ),
    Fault(
        name="receive-wqe-of-another-position",
        what="the first receive WQE at hand is given out for every position",
        force=Force(
            "hdl.queues.receive.match:RecvMatch",
            "here",
            of(lambda true, see: see("source.count") != 0),
        ),
        tests=RECV,
    ),
    Fault(
        name="receive-keys-of-the-qps-domain",
        what="keys of receive WQEs are checked against the QP's domain, not the source's",
        force=Force(
            "hdl.transport.receive.responder:Responder", "job.payload.pd", like("i.payload.cfg.pd")
        ),
        tests=("tests/transport/test_receive.py",),
    ),
    Fault(
        name="held-wqe-of-another-message",
        what="a message gets the receive WQE that another QP's message holds of the same source",
        force=Force("hdl.queues.receive.match:RecvMatch", "same", stuck(0b111111)),
        tests=RECV,
    ),
    Fault(
        name="held-wqe-of-an-earlier-message",
        what="a held receive WQE that was fetched again is found when its head is another WQE's",
        force=Force("hdl.queues.receive.refetch:Refetch", "stale", stuck(0)),
        tests=RECV,
    ),
    Fault(
        name="line-fetched-into-while-read",
        what="a receive WQE is fetched into a line that a packet's job still reads",
        force=Force("hdl.queues.receive.lines:RecvLines", "held.held0", stuck(0)),
        tests=RECV,
    ),
    Fault(
        name="refetched-into-while-read",
        what="a held receive WQE is fetched again into a line that a packet's job still reads",
        force=Force("hdl.queues.receive.refetch:Refetch", "line_read", stuck(0)),
        tests=RECV,
    ),
    Fault(
        name="line-survives-reset",
        what="receive WQEs fetched ahead of a queue reset are given out after it",
        force=Force("hdl.queues.receive.reclaim:RecvReclaim", "stopped", stuck(0)),
        tests=RECV,
    ),
    Fault(
        name="few-take-all-lines",
        what="a receive queue keeps as many lines as it can get, however seldom it is asked",
        force=Force("hdl.queues.receive.shares:LineGrants", "by_pace", stuck(1)),
        tests=RECV_AHEAD,
    ),
    Fault(
        name="error-of-a-receive-wqe-lost",
        what="what is wrong with the receive WQE that is asked for is not kept for the answer",
        force=Force("hdl.queues.receive.answers:RecvAnswers", "arrived_valid", stuck(0)),
        tests=RECV_AHEAD,
    ),
    Fault(
        name="emptied-list-not-begun-anew",
        what="WQEs asked for while the source's list runs empty are not the first of its new list",
        force=Force("hdl.queues.receive.prefetch:RecvPrefetch", "emptied", stuck(0)),
        tests=RECV_AHEAD,
    ),
    Fault(
        name="row-not-shared",
        what="a source's requests wait as long as WQEs are asked for ahead of them",
        force=Force("hdl.queues.receive.prefetch:RecvPrefetch", "access.shared", stuck(0)),
        tests=RECV_AHEAD,
    ),
    Fault(
        name="older-index-counts",
        what="an avail index replaces one that was read after it, for a request",
        force=Force("hdl.queues.receive.prefetch:RecvPrefetch", "access.row.newer", stuck(0)),
        tests=("tests/queues/test_recv_index.py",),
    ),
    # What is counted for each QP.
    Fault(
        name="count-lost-behind-itself",
        what="what a counter has counted is lost when it counts again in the next cycle",
        force=Force(
            "hdl.transport.receive.qp_counters:QpCounters",
            "words.write.enable",
            of(lambda true, see: true & ~(see("storing") & (see("word") == see("place")))),
        ),
        tests=COUNTERS,
    ),
    Fault(
        name="tour-forgotten",
        what="a room's counter that nobody reads wraps unseen",
        force=Force("hdl.context.counter_bank:CounterBank", "again", stuck(0)),
        tests=("tests/context/test_counter_bank.py",),
    ),
    Fault(
        name="wrap-not-counted",
        what="the upper half of a 64-bit counter stays when the lower one wraps",
        force=Force("hdl.context.counter_bank:CounterBank", "wrapped", stuck(0)),
        tests=("tests/context/test_counter_bank.py",),
    ),
    Fault(
        name="gid-beyond-the-table",
        what="the number of a GID row beyond the table names a row in it",
        force=Force("hdl.context.gid:GidTable", "beyond", stuck(0)),
        tests=GIDS,
    ),
    Fault(
        name="second-event-not-counted",
        what="only one event of each packet is counted",
        force=Force("hdl.transport.receive.event_words:EventWords", "first", like("left")),
        tests=COUNTERS,
    ),
    Fault(
        name="counters-begin-anywhere",
        what="a QP's counters can be read before they were cleared for it",
        force=Force("hdl.transport.receive.qp_counters:QpCounters", "known", stuck(1)),
        tests=COUNTERS,
    ),
    # Services without answers.
    Fault(
        name="ended-before-it-is-sent",
        what="a WQE that nothing answers ends with its check, before its payload has been read",
        force=Force("hdl.transport.send.checks:RequestChecks", "gone", stuck(1)),
        tests=UNANSWERED,
    ),
    Fault(
        name="failed-datagram-forgotten",
        what="packets behind one that was not read whole end its WQE a second time",
        force=Force("hdl.transport.send.checks:RequestChecks", "void", stuck(0)),
        tests=UNANSWERED,
    ),
    Fault(
        name="sent-wqe-forgotten",
        what="nobody looks at a WQE that nothing answers when it has been sent",
        force=Force("hdl.transport.outstanding.table:OutstandingTable", "now.ends", stuck(0)),
        tests=UNANSWERED,
    ),
    Fault(
        name="success-behind-a-failure",
        what="a datagram that was sent behind a WQE that failed completes well",
        file="hdl/transport/receive/completer_outcome.py",
        old="with m.Elif(unanswered(config, work.cfg.type) & ~ack.error):",
        new="with m.Elif(unanswered(config, work.cfg.type)):",
        because="a choice among several, in a function",
        tests=RECEIVE_UNANSWERED,
    ),
    Fault(
        name="uc-answered",
        what="requests of UC and UD are judged and answered like those of RC",
        force=Force("hdl.transport.receive.responder:Responder", "facts_now.silent", stuck(0)),
        tests=RECEIVE_UNANSWERED,
    ),
    Fault(
        name="broken-message-keeps-its-wqe",
        what="the receive WQE of a message that is broken off is lost",
        force=Force("hdl.transport.receive.responder:Responder", "rx_write.row.held", stuck(0)),
        tests=RECEIVE_UNANSWERED,
    ),
    Fault(
        name="wqe-taken-behind-a-bad-write",
        what="a UC message takes a receive WQE while a WRITE before it may still be dropped",
        force=Force("hdl.transport.receive.intake:Intake", "settled", stuck(1)),
        tests=RECEIVE_UNANSWERED,
    ),
    Fault(
        name="sqe-stops-receiving",
        what="a send that fails stops the receive side of a UC or UD QP too",
        force=Force("hdl.transport.receive.intake:Intake", "receive_stopped", like("send_stopped")),
        tests=RECEIVE_UNANSWERED,
    ),
    Fault(
        name="qkey-unchecked",
        what="a datagram is taken whatever its Q_Key is",
        force=Force("hdl.transport.receive.intake:Intake", "drop_now.bad_qkey", stuck(0)),
        tests=RECEIVE_UNANSWERED,
    ),
    Fault(
        name="privileged-qkey-sent",
        what="a WQE can name a Q_Key with bit 31 set",
        force=Force(
            "hdl.transport.send.packets:RequestPackets",
            "cfg.qkey",
            of(lambda true, signal: signal("held.wqe.remote_addr")[32:]),
        ),
        tests=UNANSWERED,
    ),
    Fault(
        name="address-of-another-pd",
        what="a datagram goes out by an address handle of another protection domain",
        force=Force(
            "hdl.transport.send.admission:RequestAdmission", "destination.pd", like("cfg.pd")
        ),
        tests=UNANSWERED,
    ),
    Fault(
        name="grh-left-out",
        what="the GRH area of a datagram is all zeros",
        force=Force("hdl.ingress.grh:GrhJoin", "plans.i.payload.area", stuck(0)),
        tests=("tests/ingress/test_grh.py",),
    ),
    # Several functions on a card: see the configuration of the bench.
    Fault(
        name="keys-of-the-first-function",
        what="a key names a region of the first function, whoever asks",
        force=Force("hdl.memory.resolve:KeyLookup", "mr.index", masked(0x1F)),
        tests=FUNCTIONS,
    ),
    Fault(
        name="packets-to-the-first-function",
        what="a packet is for a QP of the first function, whatever its address",
        force=Force("hdl.transport.receive.intake:Intake", "index", masked(0xF)),
        tests=FUNCTIONS,
    ),
    Fault(
        name="requests-of-the-first-function",
        what="every control request comes from the first function",
        force=Force("hdl.queues.control.engine:ControlEngine", "function", stuck(1)),
        tests=FUNCTIONS,
    ),
    # Keys that work requests change.
    Fault(
        name="keys-stay-as-they-are",
        what="a key is said to be registered or invalid, and its region's row is not written",
        force=Force("hdl.context.region_keys:RegionKeys", "table.write", stuck(0)),
        tests=REGION_KEYS,
    ),
    Fault(
        name="keys-of-any-pd",
        what="a key may be invalidated from any PD",
        force=Force("hdl.context.region_keys:RegionKeys", "facts.pd", stuck((1 << 6) - 1)),
        tests=REGION_KEYS,
    ),
    Fault(
        name="window-beyond-its-region",
        what="a window may have more bytes than its region",
        force=Force("hdl.context.region_keys:RegionKeys", "furthest", stuck((1 << 65) - 1)),
        tests=("tests/context/test_windows.py",),
    ),
    Fault(
        name="window-of-any-qp",
        what="a window of type 2 serves every queue pair",
        force=Force("hdl.memory.keys:KeyCheck", "row.qp", like("asked.0.qp")),
        tests=("tests/memory/test_windows.py::test_who_may_use_it",),
    ),
    Fault(
        name="read-of-no-window",
        what="the check of a READ response's bytes takes all of them for those of one queue pair",
        force=Force("hdl.transport.reply.packets:ReplyPackets", "job.payload.qp", stuck(0)),
        tests=("tests/transport/test_replier.py::test_read_response_then_ack",),
    ),
    Fault(
        name="windows-share-their-pages",
        what="the cache of pages takes the windows of all regions for those of one",
        force=Force("hdl.memory.keys:KeyCheck", "row.parent", stuck(0)),
        tests=("tests/memory/test_windows.py::test_it_uses_the_pages_of_its_region",),
    ),
    Fault(
        name="region-goes-under-a-window",
        what="a region can be deregistered while a window is bound to it",
        because=FIRMWARE,
        file="firmware/window_commands.py",
        old="and parent == mr.number",
        new="and parent != mr.number",
        tests=("tests/firmware/test_windows.py",),
    ),
    Fault(
        name="registered-again",
        what="a QP that goes back sends its local requests as packets",
        file="hdl/transport/send/admission.py",
        old="                with m.Elif(local):",
        new="                with m.Elif(0):",
        because="the branch is chosen by a value that another branch uses, too",
        tests=REQUEST_KEYS,
    ),
    Fault(
        name="invalidation-overtakes",
        what="LOCAL_INV does not wait for the WQEs before it",
        force=Force("hdl.transport.send.admission:RequestAdmission", "older", stuck(0)),
        tests=REQUEST_KEYS,
    ),
    Fault(
        name="nobody-ends-a-registration",
        what="an entry that no answer ends gives no poke",
        force=Force(
            "hdl.transport.outstanding.table:OutstandingTable",
            "self.append.payload.unsent",
            stuck(0),
        ),
        tests=REQUEST_KEYS + OUTSTANDING,
    ),
    Fault(
        name="checked-before-the-key-is-gone",
        what="packets behind a SEND with invalidate are checked before its key is invalid",
        force=Force("hdl.transport.receive.commit:Commit", "decided", stuck(1)),
        tests=RECEIVE,
    ),
    Fault(
        name="invalidated-by-a-duplicate",
        what="a duplicate of a SEND with invalidate invalidates its key again",
        file="hdl/transport/receive/responder.py",
        old="pending.invalidate.eq(work.operation.invalidate & (outcome == Outcome.ACCEPT))",
        new="pending.invalidate.eq(work.operation.invalidate)",
        because="the verdict has no name of its own",
        tests=RECEIVE,
    ),
    # P_Keys of QP1.
    Fault(
        name="one-partition-for-qp1",
        what="QP1 takes packets of the P_Key table's first entry alone",
        force=Force("hdl.ingress.partition:PartitionMatch", "same", masked(1)),
        tests=INGRESS,
    ),
    Fault(
        name="partition-of-everybody",
        what="QP1 takes packets of partitions that the table does not have",
        force=Force("hdl.transport.receive.intake:Intake", "work.header.pkey_hit", stuck(1)),
        tests=RECEIVE_UNANSWERED,
    ),
    # What the whole card sends.
    Fault(
        name="pkey-wrong",
        what="the lowest bit of the P_Key is wrong in every packet",
        force=Force("hdl.egress.builder:HeaderBuilder", "i.payload.pkey", inverted(1)),
        tests=EGRESS + REPLAY,
        live=True,
    ),
    Fault(
        name="data-byte-wrong",
        what="a bit of the first payload byte in a beat is wrong, and the ICRC covers that",
        force=Force("hdl.egress.merge:Merge", "payload.payload.data", inverted(16)),
        tests=EGRESS + REPLAY,
        live=True,
    ),
    Fault(
        name="icrc-wrong",
        what="a bit of every ICRC is wrong",
        force=Force("hdl.egress.seal:Seal", "crcs.o.payload", inverted(1 << 9)),
        tests=EGRESS + REPLAY,
        live=True,
    ),
    # What the connection manager does.
    Fault(
        name="cm-lost-rtu-not-repeated",
        what="a REP that comes again gets no RTU, so the listener waits for ever",
        because="it is in the driver, which has no signals",
        file="sim/guest/cm/manager.py",
        old='elif message["local_comm_id"] == self.remote_id:\n            self._repeat()',
        new='elif message["local_comm_id"] == self.remote_id:\n            pass',
        tests=("tests/sim/test_cm.py::test_each_message_lost_once[RTU]",),
    ),
    Fault(
        name="cm-psns-exchanged",
        what="each side begins with the PSN that it has named, not with the peer's",
        because="it is in the driver, which has no signals",
        file="sim/guest/cm/params.py",
        old='sq_psn=answer["starting_psn"],\n        rq_psn=psn,',
        new='sq_psn=psn,\n        rq_psn=answer["starting_psn"],',
        tests=("tests/sim/test_cm.py::test_requests_begin_where_the_peer_says",),
    ),
    Fault(
        name="cm-unlimited",
        what="peers open as many connections as they like",
        because="it is in the driver, which has no signals",
        file="sim/guest/cm/manager.py",
        old="if len(incoming) < self.limit:",
        new="if len(incoming) >= 0:",
        tests=("tests/sim/test_cm.py::test_refused_requests_leave_nothing_behind",),
    ),
    Fault(
        name="cm-stranger-answers",
        what="a SIDR_REP of somebody who was not asked is taken",
        because="it is in the driver, which has no signals",
        file="sim/guest/cm/sidr.py",
        old="if query is None or query.peer != peer:",
        new="if query is None:",
        tests=("tests/sim/test_cm.py::test_stranger_answers_for_no_service",),
    ),
    # What the firmware does.
    Fault(
        name="reset-holds-the-others",
        what="while a function is in reset, the firmware serves no other one",
        because=FIRMWARE,
        file="firmware/service.py",
        old="            acted |= not self._alone and await self._reset(function)\n",
        new="            if not self._alone and await self._reset(function):\n"
        "                return True\n",
        tests=("tests/firmware/test_resets.py",),
    ),
    Fault(
        name="request-left-in-reset",
        what="a control queue is dropped while a request of it waits for its answer",
        because=FIRMWARE,
        file="firmware/service.py",
        old="        if request is not None and request.function == function.number:\n",
        new="        if request is not None and not function.number:\n",
        tests=("tests/firmware/test_resets.py", "tests/firmware/test_takeover.py"),
    ),
    Fault(
        name="old-key-during-change",
        what="the old key of a region that changes is valid while its pages are forgotten",
        because=FIRMWARE,
        file="firmware/region_commands.py",
        old='        await self._hardware.write_row("mr", mr.number, {})\n'
        "        await self._hardware.invalidate(mr.number)\n        while",
        new="        await self._hardware.invalidate(mr.number)\n        while",
        tests=("tests/firmware/test_rereg.py",),
    ),
    Fault(
        name="required-attribute-forgotten",
        what="a datagram QP goes to RTS without a PSN",
        because=FIRMWARE,
        file="firmware/transitions.py",
        old="(_DATAGRAM, S.RTR, S.RTS, M.SQ_PSN, _UD_LIVE)",
        new="(_DATAGRAM, S.RTR, S.RTS, _NONE, _UD_LIVE | M.SQ_PSN)",
        tests=("tests/firmware/test_transitions.py",),
    ),
    Fault(
        name="claimed-state-ignored",
        what="CUR_STATE may name any state",
        because=FIRMWARE,
        file="firmware/transitions.py",
        old=' or attrs["cur_qp_state"] != current)',
        new=")",
        tests=("tests/firmware/test_transitions.py::test_current_state_is_compared",),
    ),
    Fault(
        name="read-slots-leaked",
        what="a QP that is reset keeps its share of the READ requests",
        because=FIRMWARE,
        file="firmware/qp_commands.py",
        old="            self._objects().slices.give(qp.slice)\n            qp.slice = None",
        new="            qp.slice = None",
        tests=("tests/firmware/test_leaks.py::test_everything_10000_times",),
    ),
    Fault(
        name="destroyed-while-in-use",
        what="a CQ does not know that a receive queue completes to it",
        because=FIRMWARE,
        file="firmware/qp_commands.py",
        old="        recv_cq.users += 1",
        new="        recv_cq.users += 0",
        tests=("tests/firmware/test_leaks.py::test_commands_in_any_order",),
    ),
    Fault(
        name="violations-of-no-partition-forgotten",
        what="QUERY_PORT does not count packets whose P_Key names no partition",
        because=FIRMWARE,
        file="firmware/commands.py",
        old='("bad_pkey", "rx_drops_pkey")',
        new='("bad_pkey",)',
        tests=("tests/firmware/test_commands.py::test_query_port_counts_violations",),
    ),
    Fault(
        name="pkey-of-the-first-entry",
        what="every QP has the first P_Key of the table",
        because=FIRMWARE,
        file="firmware/qp_commands.py",
        old='self._pkeys[qp.attrs["pkey_index"]]',
        new="self._pkeys[0]",
        tests=("tests/firmware/test_pkeys.py",),
    ),
    Fault(
        name="stale-shadow-believed",
        what="the firmware believes that a window holds what it last wrote, after a read",
        because=FIRMWARE,
        file="firmware/registers.py",
        old="known, window.index, window.words = window.index, None, None",
        new="known, window.index = window.index, None",
        tests=(
            "tests/firmware/test_registers.py::test_words_that_are_there_are_not_written_again",
        ),
    ),
    Fault(
        name="answered-before-the-row",
        what="a command is answered while its row is still on the way",
        because=FIRMWARE,
        file="firmware/registers.py",
        old="        await self._settle()\n        if len(response)",
        new="        if len(response)",
        tests=("tests/firmware/test_registers.py::test_rows_are_written_before_what_follows",),
    ),
    Fault(
        name="spoiled-frame-succeeds",
        what="a WQE that nothing answers succeeds although its payload could not be read",
        force=Force("hdl.transport.send.checks:RequestChecks", "spoiled", stuck(0)),
        tests=("tests/transport/test_unanswered.py",),
    ),
    # Events.
    Fault(
        name="response-told-as-event",
        what="the event queue's buffer gets the words of the last response",
        force=Force("hdl.queues.control.engine:ControlEngine", "response.index", masked(0x3F)),
        tests=("tests/queues/test_queues.py::test_engine[events-64]",),
    ),
    Fault(
        name="event-position-stuck",
        what="every event goes to the buffer that the ring begins with",
        force=Force("hdl.queues.control.engine:ControlEngine", "job.position", masked(0xFFF0)),
        tests=("tests/queues/test_queues.py::test_engine[events-64]",),
    ),
    Fault(
        name="lost-events-untold",
        what="nobody is told how many events have found no buffer",
        because=FIRMWARE,
        file="firmware/events.py",
        old='self._waiting[0] | {"lost": self._lost}',
        new="self._waiting[0]",
        tests=("tests/firmware/test_events.py::test_lost_events_are_told",),
    ),
    Fault(
        name="limit-not-disarmed",
        what="the limit of a shared receive queue stays armed behind its event",
        because=FIRMWARE,
        file="firmware/events.py",
        old="            srq.limit = 0\n",
        new="",
        tests=("tests/firmware/test_events.py::test_srq_limit[0]",),
    ),
    Fault(
        name="resize-beyond-the-ring",
        what="a queue gets a size that its virtqueue has no room for",
        because=FIRMWARE,
        file="firmware/resize_commands.py",
        old='if row["enabled"] and size >',
        new="if False and size >",
        tests=("tests/firmware/test_resize.py::test_what_cannot_be",),
    ),
    Fault(
        name="window-of-2a-stays",
        what="a window of type 2A outlives the QP that has bound it",
        because=FIRMWARE,
        file="firmware/window_commands.py",
        old="if kind is not MwType.TYPE_1:",
        new="if kind is MwType.TYPE_2:",
        tests=("tests/firmware/test_windows.py::test_a_queue_pair_takes_its_windows_with_it",),
    ),
    Fault(
        name="first-level-as-long-as-the-list",
        what="a list of two levels is refused where only one of one level would wrap around",
        because=FIRMWARE,
        file="firmware/region_commands.py",
        old="entries * PAGE_ENTRY_SIZE",
        new="v.npages * PAGE_ENTRY_SIZE",
        tests=("tests/firmware/test_two_levels.py::test_a_first_level_may_end_where_memory_does",),
    ),
)
