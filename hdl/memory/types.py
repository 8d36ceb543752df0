"""Rows that travel inside the memory room."""

from amaranth.hdl import Mux, Value
from amaranth.lib import data, enum, stream
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from hdl.abi.virtio_rdma import PAGE_SHIFTS, TABLE_PAGE_ENTRIES
from hdl.common.count import COUNT
from hdl.config import NicConfig
from hdl.ports.host import ReadClient
from hdl.ports.jobs import PACKET_GENERATION, WQE_LINE_BITS, LineStore
from hdl.ports.numbers import QpNumber
from hdl.ports.rows import MrRow, PlacementRights
from hdl.wire.constants import MAX_MTU

__all__ = [
    "ACCESS_LOCAL_WRITE",
    "ACCESS_REMOTE_ATOMIC",
    "ACCESS_REMOTE_READ",
    "ACCESS_REMOTE_WRITE",
    "AtomicWord",
    "BLOCKS",
    "BLOCK_BYTES",
    "CheckJob",
    "CheckResult",
    "CheckSource",
    "CheckedPacket",
    "Chunk",
    "LINE_BITS",
    "KeyEntry",
    "KeyedRequest",
    "Lookup",
    "entry_number",
    "line_number",
    "page_members",
    "place_bits",
    "PAGE_BITS",
    "PayloadPacket",
    "TABLE_PAGE_LINE_BITS",
    "Region",
    "TranslateChunk",
    "TranslateRequest",
    "WordUse",
]

#: Bits of ``MrRow.access``.
ACCESS_LOCAL_WRITE = 1
ACCESS_REMOTE_WRITE = 2
ACCESS_REMOTE_READ = 4
ACCESS_REMOTE_ATOMIC = 8

#: The smallest pages are 4 KiB, and chunks do not cross a multiple of that.
PAGE_BITS = 12
#: A region with a page list is shorter than 2**47 bytes, so this many bits number its cache lines.
LINE_BITS = 48 - PAGE_BITS - 3
#: log2 of the lines in a page of the second level of a page list.
TABLE_PAGE_LINE_BITS = ceil_log2(TABLE_PAGE_ENTRIES) - 3


def place_bits(config: NicConfig) -> int:
    """Bits of a place in a region with pages, counted from the first page of ``MrRow.block``."""
    return 48 if config.page_sizes else min(48, config.address_bits + 1)


class TranslateRequest(data.Struct):
    """A range of bytes under a key. ``access``: the MrRow.access bits it needs (0: local read)."""

    function: 8
    pd: 16
    key: 32
    va: 64
    length: 32
    access: 4
    flush: PlacementRights  # further rights that a FLUSH needs
    word: 1  # of ATOMIC WRITE, which is one word of the bus, as that of an atomic is
    whole: 1  # with ``flush``: ``va`` counts from the region's first byte
    qp: QpNumber  # whose request it is, if it is a peer's
    remote: 1  # a peer's access: errors are REM_ACCESS_ERR, else LOC_PROT_ERR
    check_only: 1  # one answer, no pages
    wrapped: 1  # ``va`` has passed the end of the address space: refused
    entry: 1  # under the key of an indirect key's entry (``KeyResolve``)
    short: 1  # of 0 bytes: the packet's SGEs have ended before it
    end: 1  # returned with the last chunk


class KeyedRequest(data.Struct):
    """A request and the row that its key names, which may be another region's or nobody's."""

    request: TranslateRequest
    row: MrRow


class KeyEntry(data.Struct):
    """A range that an indirect key has been resolved to: it is not empty unless ``refused``."""

    key: 32
    va: 64
    length: 32
    refused: 1  # there is no such range: beyond the entries, or an entry could not be read
    last: 1  # of its request


class TranslateChunk(data.Struct):
    """A contiguous piece at a bus address, within one page."""

    addr: 64
    length: 13
    last: 1  # of its request
    end: 1  # the request's own, on its last chunk
    status: 8  # WC status; not 0: the request failed (chunks up to ``last`` still come)


class Region(data.Struct):
    """A request after the key check.

    ``addr``: DMA: bus address. Pages: distance from the beginning of the page that the first entry
    of ``table`` names: the offset in the page, above it the entry in its cache line (3 bits), above
    them the number of the line (``line_number``).
    """

    function: 8
    mr: 16  # whose page list it is
    paged: 1
    single: 1  # one answer without an address: failed, check only, or nothing to translate
    addr: 64
    table: 58  # 64-byte block of the page list's first entry
    page_size: 2
    two_level: 1
    length: 32
    remote: 1
    end: 1
    status: 8


class Lookup(data.Struct):
    """One chunk to be: ``addr`` as in Region."""

    function: 8
    mr: 16
    paged: 1
    addr: 64
    table: 58
    page_size: 2
    two_level: 1
    length: 13
    last: 1
    end: 1
    remote: 1
    status: 8


def _by_size(lookup, low: int, high: int) -> Value:
    """Bits ``low`` to ``high`` above the offset in the page: one of three, a level of logic."""
    size, addr = lookup.page_size, lookup.addr
    small, medium, large = (addr[shift + low : min(shift + high, 48)] for shift in PAGE_SHIFTS)
    return Mux(size[1], large, Mux(size[0], medium, small))


def line_number(lookup) -> Value:
    """Which cache line of its region's page list a lookup is in, ``LINE_BITS``."""
    return _by_size(lookup, 3, 3 + LINE_BITS)


def entry_number(lookup) -> Value:
    """Which of the eight entries of its cache line names the page of a lookup."""
    return _by_size(lookup, 0, 3)


def page_members(config: NicConfig) -> dict:
    """Members of a component that finds the page of each lookup: see PageCache."""
    return {
        "i": In(stream.Signature(Lookup)),
        "o": Out(stream.Signature(TranslateChunk)),
        "read_client": Out(ReadClient(config.width)),
        "invalidate_mr": In(16),
        "invalidate_start": In(1),
        "invalidate_done": Out(1),
        "hits": Out(COUNT),
        "misses": Out(COUNT),
    }


class CheckSource(enum.Enum, shape=1):
    """Where a packet's bytes are: in the SGEs of a line, or at an address under a peer's key."""

    LINE = 0
    KEY = 1


class CheckJob(data.Struct):
    """The bytes of one packet: see TxJob and ScatterJob.

    ``length`` 0 (with ``check_sink`` or KEY): nothing is fetched or written."""

    source: CheckSource
    check_sink: 1
    copy: 1  # with ``check_sink``: local write is needed for the first SGE alone
    resume: 1
    function: 8
    pd: 16
    store: LineStore
    line: WQE_LINE_BITS
    num_sge: 6
    offset: 32
    length: 13
    va: 64
    key: 32
    qp: QpNumber  # KEY: whose request it is


class CheckResult(data.Struct):
    """``listed``: chunks were put out for this packet, and the last of them has ``end``."""

    status: 8
    listed: 1


class Chunk(data.Struct):
    """A piece of a packet in host memory; ``end``: the packet's last (if it failed, a mark)."""

    addr: 64
    length: 13
    end: 1


class WordUse(enum.Enum, shape=2):
    """What an operation does with its word."""

    CHANGE = 0  # an atomic: reads, changes and writes it
    STORE = 1  # ATOMIC WRITE: writes it
    READ = 2  # FLUSH: reads it, from the host, and that is all


class AtomicWord(data.Struct):
    """The place of 8 bytes that an operation of ``qp`` is about, unless it is to be dropped."""

    use: WordUse

    qp: QpNumber
    function: 8
    addr: 64
    drop: 1


#: In which waiting payload is counted, bytes; and how many of them a packet has.
BLOCK_BYTES = 64
BLOCKS = range(MAX_MTU // BLOCK_BYTES + 1)


class CheckedPacket(data.Struct):
    """A packet whose check has been answered; ``request``, ``qp``, ``generation`` as in TxJob.

    ``blocks``: of ``BLOCK_BYTES``, whole ones, that its payload has.
    """

    good: 1
    reads: 1  # it has chunks to read, or to throw away
    inline: 1
    request: 1
    qp: QpNumber
    generation: PACKET_GENERATION
    function: 8
    epoch: 1
    blocks: BLOCKS


class PayloadPacket(data.Struct):
    """A packet with payload: from the inline stream, or of the next chunks up to ``end``."""

    inline: 1
    good: 1  # else its chunks are thrown away
    function: 8
    epoch: 1
