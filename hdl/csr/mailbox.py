"""The mailbox between the control queue and the firmware."""

from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out, Signature

from hdl.common.ram import Ram
from hdl.common.tables import TableRead, TableWrite
from hdl.ports.boxes import BrokenQueue

from .block import BlockBus, CsrBlock
from .describe import Block
from .mailbox_block import MAILBOX_WORDS

__all__ = ["ROW_BITS", "Mailbox", "MailboxPort", "QueuePost"]

#: Rows of a RAM with two ports, more than there are words: so many are mapped to block RAM, fewer
#: to look-up tables and registers. Those of the response's RAM behind the words hold an event.
ROWS = 2 * MAILBOX_WORDS
ROW_BITS = (ROWS - 1).bit_length()


class QueuePost(Signature):
    """What the firmware does to virtqueue ``queue``, seen from the firmware: ``start`` is held
    until ``done`` (one cycle). ``look``: only the avail index is read, which is not below
    ``position``, of the queue whose row the firmware has read last. Else it is the event queue,
    whose next buffer gets an event and is returned. ``success`` and ``available``, the index, hold
    from ``done`` on."""

    def __init__(self):
        super().__init__(
            {
                "start": Out(1),
                "queue": Out(16),
                "position": Out(16),
                "look": Out(1),
                "done": In(1),
                "success": In(1),
                "available": In(16),
            }
        )


class MailboxPort(Signature):
    """Between the control engine and the mailbox, seen from the engine; see ``Mailbox``. ``posts``:
    there is an event queue. ``words`` of a request."""

    def __init__(self, *, posts: bool, words: int = MAILBOX_WORDS):
        super().__init__(
            {
                "pending": Out(1),
                "function": Out(8),
                "request_length": Out(16),
                "writable_length": Out(32),
                "request": Out(TableWrite((words - 1).bit_length(), 32)),
                "response_length": In(16),
                "response": Out(TableRead(ROW_BITS, 32)),
                "done": In(1),
            }
            | ({"post": In(QueuePost())} if posts else {})
        )


class Mailbox(wiring.Component):
    """Registers and RAMs: the request on its way in, 256 bytes of response on their way out.

    Parameters: ``block``: its registers, which say how long a request may be.
    Members (towards the control engine): ``pending`` In, high from the complete request to its
    response; ``function`` In, the PCI function that asks; ``request_length`` and
    ``writable_length`` In, bytes; ``request`` In (``TableWrite``), words of the request;
    ``response_length`` Out, bytes; ``response`` In (``TableRead``), words of
    the response, latency 1, in its upper half those of an event; ``done`` Out, one cycle, the
    response is complete. With `post` among the registers, ``post`` Out: see ``QueuePost``, and
    ``broken`` In: see ``BrokenQueue``.
    ``done`` without ``pending`` is not passed on. Reset: the RAMs keep their contents.
    """

    def __init__(self, *, block: Block):
        self._block = block
        self._posts = any(register.name == "post" for register in block.registers)
        (words,) = (window.words for window in block.windows if window.name == "request")
        if words > ROWS:
            raise ValueError(f"Request must have at most {ROWS} words, not {words!r}")
        port = MailboxPort(posts=self._posts, words=words).flip()
        broken = {"broken": In(BrokenQueue())} if self._posts else {}
        super().__init__({"bus": In(BlockBus())} | dict(port.members.items()) | broken)

    def elaborate(self, platform):
        m = Module()
        m.submodules.registers = registers = CsrBlock(block=self._block)
        # Nobody reads what is being written: a request is read when it is pending, a response when
        # it is done, and the bus has one access at a time.
        m.submodules.request = request = Ram(shape=32, depth=ROWS, forward=False)
        m.submodules.response = response = Ram(shape=32, depth=ROWS, forward=False)
        # The bus reads back where it writes: a RAM with one address.
        m.submodules.written = written = Ram(shape=32, depth=MAILBOX_WORDS, forward=False)
        wiring.connect(m, wiring.flipped(self.bus), registers.bus)
        m.d.comb += [
            request.write.index.eq(self.request.index),
            request.write.row.eq(self.request.row),
            request.write.enable.eq(self.request.enable),
            response.read0.index.eq(self.response.index),
            response.read0.enable.eq(self.response.enable),
            self.response.row.eq(response.read0.row),
            registers.status_pending.eq(self.pending),
            registers.status_function.eq(self.function),
            registers.request_length.eq(self.request_length),
            registers.writable_length.eq(self.writable_length),
            self.response_length.eq(registers.response_length),
            self.done.eq(registers.control_done & self.pending),
            request.read0.index.eq(registers.request.index),
            request.read0.enable.eq(registers.request.enable),
            registers.request.read_data.eq(request.read0.row),
            response.write.index.eq(registers.response.index),
            response.write.enable.eq(registers.response.enable & registers.response.write),
            response.write.row.eq(registers.response.data),
            written.write.index.eq(registers.response.index),
            written.write.enable.eq(registers.response.enable & registers.response.write),
            written.write.row.eq(registers.response.data),
            written.read0.index.eq(registers.response.index),
            written.read0.enable.eq(registers.response.enable),
            registers.response.read_data.eq(written.read0.row),
        ]
        if self._posts:
            self._post(m)
        return m

    def _post(self, m: Module) -> None:
        """What the firmware does to a queue; its record lies behind the response."""
        registers, response, post = m.submodules.registers, m.submodules.response, self.post
        record = registers.record
        with m.If(record.enable):
            m.d.comb += [
                response.write.index.eq(record.index | MAILBOX_WORDS),
                response.write.enable.eq(record.write),
                response.write.row.eq(record.data),
            ]
        m.d.comb += [
            registers.status_broken.eq(self.broken.valid),
            registers.broken_queue.eq(self.broken.queue),
            registers.broken_cause.eq(self.broken.cause),
            registers.broken_valid.eq(self.broken.valid),
            self.broken.done.eq(registers.control_broken_done),
            registers.post_status_busy.eq(post.start | registers.post_write),
            registers.post_status_success.eq(post.success),
            registers.post_status_available.eq(post.available),
        ]
        with m.If(post.start & post.done):
            m.d.sync += post.start.eq(0)
        with m.Elif(registers.post_write & ~post.start):
            m.d.sync += [
                post.start.eq(1),
                post.queue.eq(registers.post_queue),
                post.look.eq(registers.post_look),
                post.position.eq(registers.post_position),
            ]
