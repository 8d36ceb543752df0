"""The virtqueues of the guest functions: everything between doorbells, rings and decoded WQEs."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out, connect, flipped

from hdl.common.activation import activation_layout
from hdl.common.contract import keeps_offers
from hdl.common.count import COUNT
from hdl.common.skid import Skid
from hdl.common.tables import TableProgram
from hdl.config import NicConfig
from hdl.csr.command import QueueCommands
from hdl.csr.mailbox import MailboxPort
from hdl.ports.boxes import (
    ENGINES,
    Dropped,
    LinesPort,
    PushInput,
    RecvFetchPort,
    SendFetchPort,
    SpareLinesPort,
    engine_port,
)
from hdl.ports.host import STREAM_DATA
from hdl.ports.jobs import Activation, Completion, Doorbell
from hdl.ports.numbers import CqNumber, QpNumber
from hdl.ports.push import PushCounts
from hdl.ports.rows import CqRow

from .completion.engine import CompletionEngine
from .control.engine import ControlEngine
from .doorbell import DoorbellRouter
from .drops import QueueDrops
from .push.window import PushWindow
from .receive.fetch import RecvFetch
from .send import SendFetch
from .wqe.tap import LineTap
from .wqe.whole import fixed_bytes

__all__ = ["Queues"]

#: Counter (``hdl/ports/counter_names.py``) -> the component and the member that counts it.
COUNTS = {
    "completions": ("completion", "completions"),
    "cq_overflows": ("completion", "overflows"),
    "interrupts": ("completion", "interrupts"),
    "control_requests": ("control", "requests"),
    "doorbell_drops": ("doorbells", "drops"),
}


class Queues(wiring.Component):
    """Doorbells, send WQEs, receive WQEs, completions and control requests.

    Parameters: ``receive_flags``: flags of the activation that a receive doorbell causes.
    Members: ``recv``, ``send``, ``completion``, ``control``: each engine's port to the host side.
    ``queue_reset`` In: queues that the driver resets, taken when it is done. ``dropped`` Out: see
    ``Dropped``.
    ``doorbell`` In; ``doorbell_send``, ``doorbell_receive`` Out to the transport. ``send_fetch``,
    ``recv_fetch`` In: decoded WQEs for the transport; ``send_lines``, ``recv_lines`` In: their
    SGEs and inline bytes for the memory box; ``push`` In, ``pushed`` Out, on cards with push
    windows: WQEs that come with their doorbell, and what becomes of them; ``layout_lines`` In, on
    cards with indirect keys: who sets layouts reads send WQEs too. ``completions`` In: WQEs that
    are finished; ``lost`` Out: QPs whose CQE was lost, as a CQ had no buffer. ``mailbox``: control
    requests to the firmware. ``command``, ``cq_rows``, ``used_indices`` In: the firmware's.
    ``counts``: by name. Reset: see the engines.
    """

    def __init__(self, *, config: NicConfig, receive_flags: int):
        self._config, self._receive_flags = config, receive_flags
        super().__init__(
            {name: Out(engine_port(config, name)) for name in ENGINES}
            | {
                "doorbell": In(stream.Signature(Doorbell)),
                "queue_reset": In(stream.Signature(16)),
                "dropped": Out(Dropped()),
                "doorbell_send": Out(stream.Signature(activation_layout(16))),
                "doorbell_receive": Out(stream.Signature(Activation)),
                "send_fetch": In(SendFetchPort()),
                "recv_fetch": In(RecvFetchPort()),
                "send_lines": In(LinesPort()),
                "recv_lines": In(LinesPort()),
                "completions": In(stream.Signature(Completion)),
                "lost": Out(stream.Signature(QpNumber)),
                "mailbox": Out(MailboxPort(posts=config.events)),
                "command": In(QueueCommands()),
                "cq_rows": In(TableProgram(CqNumber, CqRow)),
                "used_indices": In(TableProgram(16, 16)),
                "counts": Out(data.StructLayout(dict.fromkeys(COUNTS, COUNT))),
            }
            | ({"layout_lines": In(SpareLinesPort())} if config.mkeys else {})
            | ({"push": In(PushInput(config)), "pushed": Out(PushCounts())} if config.push else {})
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        m.submodules.doorbells = doorbells = DoorbellRouter(
            config=config, receive_flags=self._receive_flags
        )
        m.submodules.send_fetch = send = SendFetch(config=config)
        m.submodules.recv_fetch = recv = RecvFetch(config=config)
        m.submodules.completion = completion = CompletionEngine(config=config)
        m.submodules.control = control = ControlEngine(config=config, stream_id=STREAM_DATA)
        self._to_host(m, recv=recv, send=send, completion=completion, control=control)

        # Queues that are dropped, by the driver or by the firmware.
        engines = (recv, send, completion, control)
        m.submodules.drops = drops = QueueDrops(engines=len(engines))
        connect(m, flipped(self.queue_reset), drops.reset)
        connect(m, flipped(self.command.drop_queue), drops.drop)
        connect(m, drops.dropped, flipped(self.dropped))
        for number, engine in enumerate(engines):
            connect(m, getattr(drops, f"o{number}"), engine.queue_reset)

        # Doorbells.
        connect(m, flipped(self.doorbell), doorbells.i)
        connect(m, doorbells.control, control.doorbell)
        if config.push:
            self._push(m, doorbells, send)
        else:
            connect(m, doorbells.send, flipped(self.doorbell_send))
        connect(m, doorbells.receive, flipped(self.doorbell_receive))
        connect(m, doorbells.ahead, recv.doorbell)

        # Send WQEs and receive WQEs.
        connect(m, flipped(self.send_fetch.req), send.req)
        connect(m, send.rsp, flipped(self.send_fetch.rsp))
        connect(m, flipped(self.send_fetch.release), send.release)
        connect(m, flipped(self.send_fetch.destination), send.destination)
        connect(m, flipped(self.recv_fetch.req), recv.req)
        connect(m, recv.rsp, flipped(self.recv_fetch.rsp))
        connect(m, flipped(self.recv_fetch.line_use), recv.line_use)
        connect(m, flipped(self.recv_fetch.upcoming), recv.upcoming)
        send_lines = self.send_lines
        if config.mkeys:
            m.submodules.tap = tap = LineTap()
            connect(m, flipped(self.send_lines), tap.reader)
            connect(m, flipped(self.layout_lines), tap.spare)
            send_lines = tap.lines
        for lines, store in ((send_lines, send), (self.recv_lines, recv)):
            m.d.comb += [
                store.slot.eq(lines.slot),
                store.slot_enable.eq(lines.slot_enable),
                lines.slot_data.eq(store.slot_data),
            ]

        # Completions.
        connect(m, flipped(self.completions), completion.i)
        connect(m, flipped(self.command.arm_cq), completion.arm)
        connect(m, doorbells.arm, completion.request)
        connect(m, flipped(self.cq_rows), completion.cq_program)
        connect(m, flipped(self.used_indices), completion.used_program)
        m.d.comb += [
            self.lost.valid.eq(completion.cq_error.valid),
            self.lost.payload.eq(completion.cq_error.payload.qp),
            completion.cq_error.ready.eq(self.lost.ready),
        ]

        # Control requests.
        mailbox = self.mailbox
        connect(m, control.request, flipped(mailbox.request))
        connect(m, control.response, flipped(mailbox.response))
        m.d.comb += [
            mailbox.pending.eq(control.pending),
            mailbox.function.eq(control.function),
            mailbox.request_length.eq(control.request_length),
            mailbox.writable_length.eq(control.writable_length),
            control.response_length.eq(mailbox.response_length),
            control.done.eq(mailbox.done),
        ]
        if config.events:
            connect(m, flipped(mailbox.post), control.post)
        parts = {"completion": completion, "control": control, "doorbells": doorbells}
        for name, (part, member) in COUNTS.items():
            m.d.comb += self.counts[name].eq(getattr(parts[part], member))
        keeps_offers(m, platform, self)
        return m

    def _push(self, m, doorbells, send) -> None:
        """WQEs that come with their doorbell, which goes in front of others, but for one that is
        offered already."""
        m.submodules.push = push = PushWindow(
            config=self._config, least=fixed_bytes(self._config, receive=False)
        )
        connect(m, flipped(self.push), push.push)
        connect(m, push.counts, flipped(self.pushed))
        connect(m, send.push, push.port)
        # Whether the scheduler takes one is known late.
        m.submodules.rings = rings = Skid(shape=doorbells.send.payload.shape())
        connect(m, rings.o, flipped(self.doorbell_send))
        rung, others, offered = push.ring, doorbells.send, rings.i
        begun, first = Signal(), Signal()
        m.d.sync += begun.eq(others.valid & ~first & ~offered.ready)
        m.d.comb += [
            first.eq(rung.valid & ~begun),
            offered.valid.eq(rung.valid | others.valid),
            offered.payload.eq(Mux(first, rung.payload, others.payload)),
            rung.ready.eq(offered.ready & first),
            others.ready.eq(offered.ready & ~first),
        ]

    def _to_host(self, m, **engines) -> None:
        """Each engine's port to the host side, as far as the engine has its members."""
        for name, engine in engines.items():
            port = getattr(self, name)
            for member in ("queue_read", "error", "read_client", "write_client", "interrupt"):
                if member in engine.signature.members:
                    connect(m, getattr(engine, member), flipped(getattr(port, member)))
            if "resetting" in engine.signature.members:
                m.d.comb += engine.resetting.eq(port.resetting)
