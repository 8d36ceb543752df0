"""Deliberate faults of hdl/host."""

from tests.faults.fault import Fault
from tests.force import Force, like, masked, of, stuck

__all__ = ["FAULTS"]

BROKEN = "tests/host/test_queue_errors.py"
READ = ("tests/host/test_read.py::test_read_engine[64]",)
VIRTIO = ("tests/host/test_virtio.py::test_small_card[setup]",)
FLR = ("tests/host/test_virtio.py::test_small_card[flr]",)
FENCE = ("tests/host/test_fence.py",)
WRITE = ("tests/host/test_write.py::test_write_engine[64]",)

FAULTS = (
    Fault(
        name="broken-card-runs-on",
        what="a card that has broken starts its rooms again by itself",
        force=Force("hdl.host.reset:ResetSequence", "request", stuck(1)),
        tests=("tests/host/test_reset.py",),
    ),
    # Broken virtqueues.
    Fault(
        name="broken-queue-stays-broken",
        what="a virtqueue that was dropped is not as new, so its next error is told to nobody",
        force=Force("hdl.host.queue_errors:QueueErrors", "dropped.valid", stuck(0)),
        tests=(f"{BROKEN}::test_once_in_a_life",),
    ),
    Fault(
        name="broken-queue-of-all",
        what="an error of the control queue is told to the firmware, which serves it",
        force=Force("hdl.host.queue_errors:QueueErrors", "isolated", stuck(1)),
        tests=(f"{BROKEN}::test_who_is_told", f"{BROKEN}::test_nobody_has_negotiated_it"),
    ),
    Fault(
        name="broken-queue-overtaken",
        what="a virtqueue is shown while the firmware is at another one, which is lost",
        force=Force("hdl.host.queue_errors:QueueErrors", "free", stuck(1)),
        tests=(f"{BROKEN}::test_a_flood_loses_nothing",),
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
)
