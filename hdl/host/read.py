"""Host reads: N clients share one tagged read port whose completions come in any order."""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.common.address import kept
from hdl.common.contract import require
from hdl.common.count import PIECE
from hdl.common.ram import Ram
from hdl.common.skid import Skid
from hdl.config import NicConfig
from hdl.ports.host import ReadClient, ReadRequest, edge_read_beat, edge_read_request

from .read_align import ReadAlign, ReadPass, slot_beat
from .round_robin import round_robin

__all__ = ["ReadEngine"]

#: Requests that wait for writes accepted before them.
QUEUE = 4
#: Bytes of a request, at most.
MOST_BYTES = 4096


class ReadEngine(wiring.Component):
    """Cuts client reads into pieces, keeps ``tags`` of them in flight, returns them in order.

    A request (1 to 4096 bytes, any address; 0 and more than 4096 must not occur) is cut at
    multiples of ``read_bytes``. Each piece takes the next tag of a ring and with it a slot of the
    reorder RAM, before it is issued; slots are read back in ring order, so all clients' responses
    come in the order in which their requests were accepted. Clients take every beat at once:
    nothing can block the one return path.

    Members: one read client of each name in ``clients``, round robin per request;
    ``rd_req``, ``rd_rsp``: the card edge (``HostPort``); ``hold``: accept no new request;
    ``idle``: everything accepted has been returned.
    ``writes_accepted``, ``writes_issued`` (from the write engine): a request is issued only when
    every write burst accepted before it has been handed to the host, so a read never overtakes a
    write of the NIC at any address (rings and their event indices depend on it). Up to
    ``QUEUE`` requests and the one in hand wait for that side by side.
    Requests of the ``direct`` clients come from a register that nothing long follows, and have no
    slice here.
    ``address_lanes``: responses are the aligned beats that a request touches, each byte in the lane
    of its address, without ``keep``: for a client that moves bytes itself.
    Latency: 4 cycles from a request to ``rd_req``, 3 of a direct client; 6 from a piece's last
    ``rd_rsp`` beat to its first response beat, 3 in address lanes. ``rd_req`` comes out of a
    register slice, so that ReadMerge needs none.
    Throughput: one piece a cycle is issued; one beat a cycle is stored and one is returned. A
    request that touches one more aligned beat than it has response beats costs that cycle. A piece
    is returned when it is complete.
    Errors: an edge beat with ``error`` ends its piece; the request has its full number of beats,
    ``error`` is set on its ``last``. Not counted here.
    ``tags`` (all of ``read_tags`` unless given) from ``first_tag`` on are this engine's own.
    Reset: empty, after ``tags`` cycles of clearing in which no request is accepted.
    Reads that are outstanding at reset must have returned before: use ``hold`` and ``idle``.
    """

    def __init__(
        self,
        *,
        config: NicConfig,
        clients: tuple[str, ...],
        tags: int | None = None,
        first_tag: int = 0,
        direct: tuple[str, ...] = (),
        address_lanes: bool = False,
    ):
        tags = config.read_tags if tags is None else tags
        if not 1 <= len(set(clients)) == len(clients) <= 16:
            raise ValueError(f"Clients must be 1 to 16 different names, not {clients!r}")
        if tags < 2 or tags & (tags - 1):
            raise ValueError(f"Tags must be a power of two, at least 2, not {tags!r}")
        if first_tag % tags or first_tag + tags > config.read_tags:
            raise ValueError(f"First tag must be a multiple of {tags}, not {first_tag!r}")
        self._tags, self._first_tag = tags, first_tag
        if config.read_bytes < config.bytes_per_beat:
            raise ValueError(
                f"read_bytes must be at least a beat of {config.bytes_per_beat} bytes, "
                f"not {config.read_bytes!r}"
            )
        if not set(direct) <= set(clients):
            raise ValueError(f"Direct clients must be some of {clients!r}, not {direct!r}")
        self._config, self._names, self._direct = config, clients, direct
        self._clients = len(clients)
        self._address_lanes = address_lanes
        members = {name: In(ReadClient(config.width)) for name in clients}
        super().__init__(
            members
            | {
                "rd_req": Out(stream.Signature(edge_read_request())),
                "rd_rsp": In(stream.Signature(edge_read_beat(config.width), always_ready=True)),
                "hold": In(1),
                "idle": Out(1),
                "writes_accepted": In(8),
                "writes_issued": In(8),
            }
        )

    def elaborate(self, platform):
        m = Module()
        config = self._config
        lanes = ceil_log2(config.bytes_per_beat)  # address bits within a beat
        slot_beats = config.read_bytes // config.bytes_per_beat
        tags = self._tags
        tag_bits = ceil_log2(tags)

        # The ring of tags: [tail, head) are taken. The extra bit counts rounds.
        head, tail = Signal(tag_bits + 1), Signal(tag_bits + 1)
        clear = Signal(tag_bits + 1)
        cleared = clear[tag_bits]
        space = Signal(init=1)  # seen a cycle after a tag comes free, and at once when one is taken
        with m.If(~cleared):
            m.d.sync += clear.eq(clear + 1)

        piece = data.StructLayout(
            {
                "client": range(max(2, self._clients)),
                "offset": lanes,  # lane of the request's byte 0
                "end": lanes,  # (request length - 1) modulo a beat
                "beats": range(max(2, slot_beats)),  # of this piece, less one
                "first": 1,  # piece of its request
                "last": 1,
            }
        )
        pieces = memory.Memory(shape=piece, depth=tags, init=[])
        m.submodules.pieces = pieces
        issue = Signal()
        issued = self._issue(m, platform, pieces.write_port(), head, space & cleared, issue)
        after = Signal(tag_bits + 1)
        m.d.comb += after.eq(head + 1)
        m.d.sync += space.eq(Mux(issue, (after ^ tail) != tags, (head ^ tail) != tags))

        # Completions: how far each slot has been filled. ``done`` holds the round the slot is
        # complete for, so that a tag needs no clearing when it is taken again.
        fill = data.StructLayout({"count": range(max(2, slot_beats)), "done": 1, "error": 1})
        fills = memory.Memory(shape=fill, depth=tags, init=[])
        m.submodules.fills = fills
        fill_write = fills.write_port()
        filled = fills.read_port(domain="comb")
        oldest = fills.read_port(domain="comb")
        # A slot is read when it is complete, and not written then.
        depth = tags * slot_beats
        m.submodules.slots = slots = Ram(shape=config.width, depth=depth, forward=False)
        beat = Signal(edge_read_beat(config.width), reset_less=True)
        beat_valid = Signal()
        m.d.sync += [beat.eq(self.rd_rsp.payload), beat_valid.eq(self.rd_rsp.valid)]
        tag = beat.tag[:tag_bits]
        ends = beat.last | beat.error
        newer_round = Signal()  # the tag was taken in head's round, not in the one before
        m.d.comb += [
            newer_round.eq(tag < head[:tag_bits]),
            filled.addr.eq(tag),
            fill_write.en.eq(beat_valid | ~cleared),
            slots.write.index.eq(self._slot(tag, filled.data.count, slot_beats)),
            slots.write.row.eq(beat.data),
            slots.write.enable.eq(beat_valid),
        ]
        with m.If(~cleared):
            m.d.comb += fill_write.addr.eq(clear[:tag_bits])
        with m.Else():
            m.d.comb += fill_write.addr.eq(tag)
            with m.If(ends):
                m.d.comb += [
                    fill_write.data.done.eq(head[tag_bits] ^ newer_round),
                    fill_write.data.error.eq(beat.error),
                ]
            with m.Else():
                m.d.comb += [
                    fill_write.data.count.eq(filled.data.count + 1),
                    fill_write.data.done.eq(filled.data.done),
                ]

        # Delivery: the oldest slot, beat by beat, as soon as it is complete.
        delivered = pieces.read_port(domain="comb")
        position = Signal(range(max(2, slot_beats)))
        deliver = Signal()
        out = ReadPass if self._address_lanes else ReadAlign
        m.submodules.align = align = out(width=config.width, clients=self._clients)
        m.d.comb += [
            oldest.addr.eq(tail[:tag_bits]),
            delivered.addr.eq(tail[:tag_bits]),
            deliver.eq((head != tail) & (oldest.data.done != tail[tag_bits])),
            slots.read0.index.eq(self._slot(tail[:tag_bits], position, slot_beats)),
            slots.read0.enable.eq(deliver),
        ]
        ends_piece = position == delivered.data.beats
        taken = (tag - tail[:tag_bits])[:tag_bits] < (head - tail)[: tag_bits + 1]
        open_ = taken & (filled.data.done != (head[tag_bits] ^ newer_round))
        require(m, platform, ~beat_valid | open_, "each beat is of a piece that is outstanding")
        facts = Signal(slot_beat(config.width, self._clients), reset_less=True)
        m.d.sync += [
            align.valid.eq(deliver),
            facts.client.eq(delivered.data.client),
            facts.offset.eq(delivered.data.offset),
            facts.end.eq(delivered.data.end),
            facts.first.eq(delivered.data.first & (position == 0)),
            facts.last.eq(delivered.data.last & ends_piece),
            facts.error.eq(oldest.data.error),
        ]
        m.d.comb += [align.beat.eq(facts), align.data.eq(slots.read0.row)]
        with m.If(deliver):
            with m.If(ends_piece):
                m.d.sync += [position.eq(0), tail.eq(tail + 1)]
            with m.Else():
                m.d.sync += position.eq(position + 1)

        for i, name in enumerate(self._names):
            rsp = getattr(self, name).rsp
            m.d.comb += [rsp.valid.eq(align.o_valid[i]), rsp.payload.eq(align.o)]
        m.d.sync += self.idle.eq(
            cleared & ~issued & (head == tail) & ~align.valid & ~align.busy & ~deliver
        )
        return m

    @staticmethod
    def _slot(tag, beat, slot_beats: int):
        """Index of a beat in the reorder RAM."""
        return Cat(beat, tag) if slot_beats > 1 else tag

    def _issue(self, m: Module, platform, pieces, head, space, issue):
        """Choose a request, cut it, ``issue`` a piece. Returns whether one is on its way."""
        config = self._config
        lanes = ceil_log2(config.bytes_per_beat)
        low = ceil_log2(config.read_bytes)
        requests = []
        for name in self._names:
            req = getattr(self, name).req
            length = req.payload.length
            text = f"{name}: a read has 1 to {MOST_BYTES} bytes"
            require(m, platform, ~req.valid | ((length >= 1) & (length <= MOST_BYTES)), text)
            held = stream.Signature(ReadRequest).flip().create(path=("held", name))
            m.d.comb += [
                held.valid.eq(req.valid & ~self.hold),
                held.payload.eq(req.payload),
                held.payload.addr.eq(kept(config, req.payload.addr)),
                req.ready.eq(held.ready & ~self.hold),
            ]
            if name not in self._direct:
                m.submodules[f"request_{name}"] = skid = Skid(shape=ReadRequest)
                wiring.connect(m, wiring.flipped(held), skid.i)
                held = skid.o
            requests.append(held)
        waiting = Signal(self._clients)
        last, chosen = Signal(range(max(2, self._clients))), Signal(range(max(2, self._clients)))
        m.d.comb += waiting.eq(Cat(request.valid for request in requests))
        round_robin(m, waiting, last, chosen)
        busy = Signal()  # a request is being cut
        fits, take = Signal(), Signal()
        ordered = Signal()  # every write accepted before it has been issued
        queued = self._queue(m, requests, waiting, last, chosen, take, ordered)

        function, addr = Signal(8, reset_less=True), Signal(64, reset_less=True)
        # The request's last byte, counted from the beginning of the block that ``addr`` is in.
        rest = Signal(range(config.read_bytes + 4096), reset_less=True)
        client = Signal.like(chosen, reset_less=True)
        first = Signal(reset_less=True)
        offset, end = Signal(lanes, reset_less=True), Signal(lanes, reset_less=True)
        final = Signal(low)  # last byte of the piece: of the request, or of the block
        # The next block. Only one carry can leave the lowest bits of its number while a request is
        # cut, so what it meets above them is known when the request comes.
        block, above = addr[low:], range(PIECE, 64 - low, PIECE)
        carry, ones = block[:PIECE].all(), Signal(len(above), reset_less=True)
        following = Cat(
            (block[:PIECE] + 1)[:PIECE],
            ((block[at : at + PIECE] + (carry & one))[:PIECE] for at, one in zip(above, ones)),
        )[: len(block)]
        m.submodules.edge = edge = Skid(shape=edge_read_request())
        wiring.connect(m, edge.o, wiring.flipped(self.rd_req))
        m.d.comb += [
            fits.eq(rest[low:] == 0),
            final.eq(Mux(fits, rest[:low], config.read_bytes - 1)),
            edge.i.valid.eq(busy & ordered & space),
            issue.eq(edge.i.valid & edge.i.ready),
            take.eq(~busy | (issue & fits)),
        ]
        m.d.comb += [
            pieces.addr.eq(head[:-1]),
            pieces.en.eq(issue),
            pieces.data.client.eq(client),
            pieces.data.offset.eq(offset),
            pieces.data.end.eq(end),
            pieces.data.beats.eq(final[lanes:] - addr[lanes:low]),
            pieces.data.first.eq(first),
            pieces.data.last.eq(fits),
        ]
        m.d.comb += [
            edge.i.payload.tag.eq(self._first_tag | head[:-1]),
            edge.i.payload.function.eq(function),
            edge.i.payload.addr.eq(kept(config, addr)),
            edge.i.payload.length.eq(final - addr[:low] + 1),
        ]
        with m.If(issue):
            m.d.sync += [
                head.eq(head + 1),
                first.eq(0),
                addr.eq(Cat(Const(0, low), following)),
                rest[low:].eq(rest[low:] - 1),
            ]
        with m.If(take):
            request = queued.payload.request
            m.d.sync += [
                busy.eq(queued.valid),
                first.eq(1),
                client.eq(queued.payload.client),
                function.eq(request.function),
                addr.eq(request.addr),
                ones.eq(
                    Cat(1, (request.addr[low + PIECE :][: at - PIECE].all() for at in above[1:]))
                ),
                rest.eq(request.addr[:low] + request.length - 1),
                offset.eq(request.addr),
                end.eq(request.length - 1),
            ]
        return busy | waiting.any() | queued.valid

    def _queue(self, m: Module, requests, waiting, last, chosen, take, ordered):
        """Requests in the order in which they are served; returns the next one.

        Each waits here for the writes accepted before it, side by side with those behind it.
        ``ordered``: the one taken last need not wait any more. Equality is seen in the cycle in
        which it holds (``writes_issued`` rises by one) and remembered, however long it stays."""
        shape = data.StructLayout({"client": chosen.shape(), "request": ReadRequest})
        queued = stream.Signature(shape).create(path=("queued",))
        m.submodules.queue = queue = memory.Memory(shape=shape, depth=QUEUE, init=[])
        write, read = queue.write_port(), queue.read_port(domain="comb")
        level = Signal(range(QUEUE + 1))
        push, pop = Signal(), Signal()
        m.d.comb += [
            push.eq(waiting.any() & (level != QUEUE)),
            pop.eq(take & (level != 0)),
            write.en.eq(push),
            write.data.client.eq(chosen),
            queued.valid.eq(level != 0),
            queued.payload.eq(read.data),
        ]
        m.d.sync += [write.addr.eq(write.addr + push), read.addr.eq(read.addr + pop)]
        with m.If(push != pop):
            m.d.sync += level.eq(Mux(push, level + 1, level - 1))
        with m.If(push):
            m.d.sync += last.eq(chosen)
        with m.Switch(chosen):
            for i, request in enumerate(requests):
                with m.Case(i):
                    m.d.comb += [
                        write.data.request.eq(request.payload),
                        request.ready.eq(level != QUEUE),
                    ]

        # The newest writes that each must not overtake, and whether they have been issued.
        fences = [Signal(8, name=f"fence{i}", reset_less=True) for i in range(QUEUE)]
        passed = Signal(QUEUE)
        fence, free = Signal(8, reset_less=True), Signal()  # of the one taken last
        none = self.writes_accepted == self.writes_issued
        m.d.comb += ordered.eq(free | (fence == self.writes_issued))
        m.d.sync += [
            passed.eq(passed | Cat(one == self.writes_issued for one in fences)),
            free.eq(ordered),
        ]
        with m.If(push):
            with m.Switch(write.addr):
                for i, one in enumerate(fences):
                    with m.Case(i):
                        m.d.sync += [one.eq(self.writes_accepted), passed[i].eq(none)]
        with m.If(take):
            with m.Switch(read.addr):
                for i, one in enumerate(fences):
                    with m.Case(i):
                        m.d.sync += [
                            fence.eq(one),
                            free.eq(passed[i] | (one == self.writes_issued)),
                        ]
        return queued
