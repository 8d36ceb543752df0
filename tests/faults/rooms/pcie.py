"""Deliberate faults of hdl/pcie."""

from tests.faults.fault import Fault
from tests.force import Force, like, stuck

__all__ = ["FAULTS"]

COMPLETER = ("tests/pcie/test_completer.py",)
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

FAULTS = (
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
)
