"""Plain Python models: host memory, regions with page lists, protection, and what a job must do."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

PAGE = 4096
SIZES = (PAGE, 1 << 21, 1 << 30)
LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC = 1, 2, 4, 8
OK, LOC_LEN_ERR, LOC_PROT_ERR, REM_ACCESS_ERR = 0, 1, 4, 10
INVALID, DMA, PAGES = 0, 1, 2
BOUND_1, BOUND_2 = 10, 14


class Memory:
    """``bits`` of bus address; pages appear with random contents when first touched."""

    def __init__(self, seed: int, bits: int = 64):
        self._random, self.bits = random.Random(seed), bits
        self.pages: dict[int, bytearray] = {}
        self.taken: set[int] = set()  # numbers of pages in use, touched or not
        self.bad: set[int] = set()  # page numbers whose reads fail

    def page(self, number: int) -> bytearray:
        if number not in self.pages:
            self.taken.add(number)
            self.pages[number] = bytearray(self._random.randbytes(PAGE))
        return self.pages[number]

    def read(self, addr: int, length: int) -> bytes:
        out = bytearray()
        while length:
            offset = addr % PAGE
            part = min(length, PAGE - offset)
            out += self.page(addr // PAGE)[offset : offset + part]
            addr, length = addr + part, length - part
        return bytes(out)

    def write(self, addr: int, data: bytes) -> None:
        while data:
            offset = addr % PAGE
            part = data[: PAGE - offset]
            self.page(addr // PAGE)[offset : offset + len(part)] = part
            addr, data = addr + len(part), data[len(part) :]

    def fails(self, addr: int, length: int) -> bool:
        return any(n in self.bad for n in range(addr // PAGE, (addr + length - 1) // PAGE + 1))

    def fresh(self) -> int:
        """Return a page number not in use."""
        while (number := self._random.getrandbits(self.bits - 12)) in self.taken:
            pass
        self.taken.add(number)
        return number


@dataclass
class Region:
    """A memory region; ``table`` is the bus address of its page list."""

    index: int
    tag: int
    type: int
    function: int
    pd: int
    access: int
    va: int
    length: int
    first_offset: int = 0
    table: int = 0
    page: int = PAGE
    levels: int = 1  # of the page list
    parent: int = 0  # of a window, and its QP
    qp: int = 0

    @property
    def key(self) -> int:
        return self.index << 8 | self.tag

    @property
    def windows(self) -> bool:
        """Whether it is a window: its pages are those of ``parent``."""
        return self.type in (BOUND_1, BOUND_2)

    @property
    def roundest(self) -> int:
        """Of its addresses behind the first one, the multiple of the highest power of two."""
        last = self.va + self.length - 1
        bits = (self.va ^ last).bit_length() - 1
        return last >> bits << bits if bits >= 0 else self.va

    def aligned(self, va: int) -> bool:
        """Whether the byte at ``va`` lies at a multiple of 8 of the bus."""
        return (va - self.va + self.first_offset) % 8 == 0

    def row(self) -> dict:
        fields = (
            "type",
            "function",
            "pd",
            "tag",
            "access",
            "va",
            "parent",
            "qp",
        )
        length = self.length & (1 << 47) - 1
        entry = self.page if self.levels == 1 else PAGE // 8 * self.page  # bytes that it stands for
        start = self.table % 64 // 8 * entry + self.first_offset
        return {name: getattr(self, name) for name in fields} | {
            "length": length,
            "block": self.table // 64,
            "start": start,
            "page_size": SIZES.index(self.page),
            "two_level": self.levels == 2,
        }


@dataclass
class Model:
    """The regions of a card and the memory behind them."""

    memory: Memory
    mrs: int
    regions: dict[int, Region] = field(default_factory=dict)

    def entry(self, region: Region, number: int) -> int | None:
        """The address of an entry of the page list; None if no line of it can be read there."""
        memory, entry = self.memory, region.table + 8 * number
        if region.levels == 2:
            above, below = divmod(number, PAGE // 8)
            first = region.table + 8 * above
            page = int.from_bytes(memory.read(first, 8), "little")
            if memory.fails(first, 8) or page % PAGE:
                return None
            entry = page + 8 * below
        return None if memory.fails(entry & ~63, 64) else entry

    def address(self, rng: random.Random, length: int) -> int:
        """Where a region may begin: with every other one a multiple of a high power of two lies
        among its ``length`` bytes, so that a sum with an offset carries up to there."""
        bits = self.memory.bits - 1
        place = rng.getrandbits(bits)
        if rng.random() < 0.5:
            cut = rng.randrange(12, bits)
            place = max(0, (place >> cut << cut) - rng.randrange(1, length + 1))
        return place

    def add_pages(
        self, rng: random.Random, index: int, length: int, *, page: int = PAGE, **fields
    ) -> Region:
        """Register ``length`` bytes at shuffled pages, the list at any 8-byte aligned address; one
        of two ``levels`` has its pages anywhere."""
        offset = rng.randrange(page)
        count = (offset + length + page - 1) // page
        table = self.memory.fresh() * PAGE + 8 * rng.randrange(PAGE // 8)
        region = Region(
            index=index,
            tag=rng.randrange(256),
            type=PAGES,
            va=fields.pop("va", self.address(rng, length)),
            length=length,
            first_offset=offset,
            table=table,
            page=page,
            **fields,
        )
        self.regions[index] = region
        if region.levels == 2:
            for at in range(table, table + -(-count // (PAGE // 8)) * 8, 8):
                self.memory.write(at, (self.memory.fresh() * PAGE).to_bytes(8, "little"))
        for n in range(count):
            address = self.memory.fresh() * PAGE // page * page
            at = self.entry(region, n)
            assert at is not None
            self.memory.write(at, address.to_bytes(8, "little"))
        return region

    def add_sparse(
        self,
        rng: random.Random,
        index: int,
        total: int,
        length: int,
        *,
        page: int,
        entry: int = 0,
        **fields,
    ) -> tuple[Region, int]:
        """Register ``total`` bytes, of which one page is there, and return where in the pages there
        are ``length`` bytes. In a list of one level that page is number ``entry`` in its line."""
        region = Region(
            index=index,
            tag=rng.randrange(256),
            type=PAGES,
            va=fields.pop("va", self.address(rng, total)),
            length=total,
            first_offset=rng.randrange(page - length) if total > page else 0,
            table=8 * rng.getrandbits(self.memory.bits - 4),
            page=page,
            **fields,
        )
        self.regions[index] = region
        place = rng.randrange(region.first_offset, total - length)
        place -= max(0, place % page + length - page)  # in one page
        number = place // page
        region.table += 8 * ((entry - number - region.table // 8) % 8)
        if region.levels == 2:
            first = region.table + 8 * (number // (PAGE // 8))
            self.memory.write(first, (self.memory.fresh() * PAGE).to_bytes(8, "little"))
        at = self.entry(region, number)
        assert at is not None
        self.memory.write(at, (self.memory.fresh() * PAGE // page * page).to_bytes(8, "little"))
        return region, place

    def add_dma(self, rng: random.Random, index: int, **fields) -> Region:
        """Register all of the bus: but for its last byte, if its addresses have 32 bits or more,
        as lengths have."""
        region = Region(
            index=index,
            tag=rng.randrange(256),
            type=DMA,
            va=0,
            length=(1 << max(self.memory.bits, 32)) - 1,
            **fields,
        )
        self.regions[index] = region
        return region

    def add_window(
        self, rng: random.Random, index: int, parent: Region, offset: int, **fields
    ) -> Region:
        """Bind a window to the bytes of a region from ``offset`` on."""
        window = replace(
            parent,
            index=index,
            tag=rng.randrange(256),
            parent=parent.index,
            first_offset=parent.first_offset + offset,
            **fields,
        )
        self.regions[index] = window
        return window

    def allowed(
        self,
        function: int,
        pd: int,
        key: int,
        va: int,
        length: int,
        access: int,
        *,
        qp: int | None = None,
    ) -> bool:
        """Whether the range may be accessed by the card, or by a peer over ``qp``."""
        if length == 0:
            return True
        region = self.regions.get(key >> 8)
        kinds = {DMA: True, PAGES: True, BOUND_1: qp is not None}
        return (
            region is not None
            and key >> 8 < self.mrs
            and (kinds | {BOUND_2: qp == region.qp}).get(region.type, False)
            and region.tag == key & 0xFF
            and region.function == function
            and region.pd == pd
            and access & ~region.access == 0
            and region.va <= va
            and va + length <= min(region.va + region.length, 1 << self.memory.bits)
            and (region.type == DMA or not access & REMOTE_ATOMIC or region.aligned(va))
        )

    def pieces(self, key: int, va: int, length: int) -> list[tuple[int, int]] | None:
        """Return (bus address, length) of an allowed range, None when a page is not to be had."""
        region = self.regions[key >> 8]
        out = []
        while length:
            if region.type == DMA:
                part = min(length, PAGE - va % PAGE)
                out.append((va, part))
            else:
                offset = va - region.va + region.first_offset
                part = min(length, PAGE - offset % PAGE)
                entry = self.entry(region, offset // region.page)
                if entry is None:
                    return None
                page = int.from_bytes(self.memory.read(entry, 8), "little")
                if page % region.page:
                    return None
                out.append((page + offset % region.page, part))
            va, length = va + part, length - part
        return out

    def line(
        self, function: int, pd: int, sges: list, offset: int, length: int, access: int
    ) -> tuple[int, list]:
        """Status and pieces of ``length`` bytes from ``offset`` of a message."""
        out = []
        for addr, size, key in sges:
            if size <= offset:
                offset -= size
                continue
            part = min(size - offset, length)
            if part == 0:
                break
            if not self.allowed(function, pd, key, addr + offset, part, access):
                return LOC_PROT_ERR, []
            pieces = self.pieces(key, addr + offset, part)
            if pieces is None:
                return LOC_PROT_ERR, []
            out += pieces
            offset, length = 0, length - part
        return (LOC_LEN_ERR, []) if length else (OK, out)

    def by_key(
        self,
        function: int,
        pd: int,
        key: int,
        va: int,
        length: int,
        access: int,
        *,
        qp: int = 0,
    ) -> tuple[int, list]:
        """Status and pieces of a range under a peer's key, over ``qp``."""
        if not self.allowed(function, pd, key, va, length, access, qp=qp):
            return REM_ACCESS_ERR, []
        if length == 0:
            return OK, []
        pieces = self.pieces(key, va, length)
        return (REM_ACCESS_ERR, []) if pieces is None else (OK, pieces)
