"""Random regions, SGE lists and faults, for both directions."""

from __future__ import annotations

import random

from tests.memory.model import BOUND_2, PAGE, SIZES, Memory, Model, Region

FUNCTION, PD = 5, 0x5AC3


class World:
    """A card's regions: several with pages, one of all the bus, and some to be refused.

    two_level: some have page lists of two levels.
    """

    def __init__(self, seed: int, mrs: int, bits: int = 64, *, two_level: bool = True):
        self.rng = rng = random.Random(seed)
        self.memory = Memory(seed + 1, bits)
        self.end = 1 << bits
        self.model = model = Model(self.memory, mrs)
        own = {"function": FUNCTION, "pd": PD, "access": 15}
        indices = rng.sample(range(mrs), 14)
        sizes = (1, 100, PAGE, 3 * PAGE, 70_000, 40 * PAGE)
        self.good = [model.add_pages(rng, i, size, **own) for i, size in zip(indices, sizes)]
        self.good.append(model.add_pages(rng, indices[6], 8 * PAGE, va=self.end - 8 * PAGE, **own))
        self.good.append(model.add_dma(rng, indices[7], **own))
        two = own | {"levels": 2}
        # In a smaller memory their many pages would lie in each other's lists.
        self._two_level = two_level and bits == 64
        if self._two_level:
            self.good += [model.add_pages(rng, indices[n], n * 50 * PAGE, **two) for n in (12, 13)]
        flat = [region for region in self.good if region.levels == 1]
        self.large = [region for region in flat if region.length >= 3 * PAGE]
        self.refused = [
            model.add_pages(rng, indices[8], 9 * PAGE, **own | {"pd": PD + 1}),
            model.add_pages(rng, indices[9], 9 * PAGE, **own | {"function": FUNCTION + 1}),
            model.add_pages(rng, indices[10], 9 * PAGE, **own | {"access": 0}),
            # runs over the end of the address space: only what lies before it may be used
            model.add_pages(rng, indices[11], 9 * PAGE, va=self.end - 3000, **own),
        ]

    def singles(self, count: int, length: int) -> list[tuple[int, int, int]]:
        """Add regions of one page, small and large ones, with lists anywhere: pages of each size at
        each place in a line. Return keys, addresses of ``length`` bytes in these pages, and numbers
        whose low bits are the index of the cache line."""
        model, rng = self.model, self.rng
        free = [n for n in range(model.mrs) if n not in model.regions]
        found = []
        for number, index in enumerate(rng.sample(free, count)):
            entry, size = number // 3 % 8, SIZES[number % 3]
            levels = 2 if self._two_level and number % 4 == 3 else 1
            own = {"function": FUNCTION, "pd": PD, "access": 15, "levels": levels, "entry": entry}
            total = rng.choice([size, 1 << 46])
            region, place = model.add_sparse(rng, index, total, length, page=size, **own)
            va = region.va + place - region.first_offset
            line = (region.row()["start"] + place - region.first_offset) // size // 8
            found.append((region.key, va, line ^ index))
        return found

    def over_the_end(self, count: int) -> list[Region]:
        """Add large regions that run over the end of the address space and have most of their bytes
        behind it; of these none may be used."""
        model, rng = self.model, self.rng
        free = [n for n in range(model.mrs) if n not in model.regions]
        own = {"function": FUNCTION, "pd": PD, "access": 15}
        found = []
        for index in rng.sample(free, count):
            va = self.end - 1 - rng.getrandbits(rng.randint(30, 40))
            page = rng.choice(SIZES)
            found.append(model.add_sparse(rng, index, 1 << 46, 8, page=page, va=va, **own)[0])
        return found

    def windows(self, access: int) -> list[Region]:
        """Add windows of type 2 to a region of pages, each for another QP, and return them. Their
        words are where those of the bus are."""
        region, model = self.large[1], self.model
        free = [n for n in range(model.mrs) if n not in model.regions]
        bound = {"type": BOUND_2, "access": access, "length": PAGE}
        return [
            model.add_window(self.rng, n, region, at, va=region.first_offset + at, qp=qp, **bound)
            for n, at, qp in zip(free, (7, 1000, 9001), (0x2A5A, 0x2A5B, 0x0A5A))
        ]

    def bytes(self) -> int:
        """Return a length of up to 4 GiB: short, any, or a round one."""
        rng = self.rng
        some = rng.getrandbits(10), rng.getrandbits(32), rng.randrange(8) << rng.randrange(24, 32)
        return rng.choice(some) % (1 << 32)

    def place(self, region: Region, length: int) -> int:
        """Return an address from which ``length`` bytes lie in the region."""
        rng = self.rng
        if region.type == 1:
            pages = self.end // PAGE
            page = rng.choice([rng.randrange(pages), pages - 3])
            return min(page * PAGE + rng.randrange(PAGE), self.end - 1 - length)
        room = region.length - length
        over = region.roundest - region.va - rng.randint(0, length)
        over = min(max(over, 0), room)
        start = region.va + rng.choice([0, room, over, rng.randint(0, room), rng.randint(0, room)])
        return start & self.end - 1  # nothing may lie at the very end

    def sge(self, length: int) -> tuple[int, int, int]:
        """Return a good SGE of that length."""
        region = self.rng.choice([one for one in self.good if one.length >= max(length, 1)])
        return self.place(region, length), length, region.key

    def sges(self, most: int = 32, small: bool = False) -> list[tuple[int, int, int]]:
        """Return a random list of good SGEs; many are short, some empty."""
        rng = self.rng
        count = rng.choice([1, 1, 2, 3, rng.randint(1, most)])
        sizes = [0, 1, 3, 7, 8, 9, 63, 64, 65, 100, 256, 1000]
        if not small:
            sizes += [4095, 4096, 4097, 9000]
        return [self.sge(rng.choice(sizes)) for _ in range(count)]

    def spoil(self, addr: int, length: int, key: int) -> tuple[int, int, int]:
        """Return the access changed so that it is refused (most of the time)."""
        rng = self.rng
        region = self.model.regions[key >> 8]
        kind = rng.randrange(7)
        if kind == 0:
            return addr, length, key ^ 1 << rng.randrange(8)  # tag
        if kind == 1:
            return addr, length, key + (self.model.mrs << 8)  # beyond the table
        if kind == 2:
            return region.va - 1 & self.end - 1, length, key
        if kind == 3:
            return region.va + region.length - length + 1 & self.end - 1, length, key
        if kind == 4:
            return self.end - 1, length, key  # wraps round
        if kind == 5:
            used = {one.index for one in self.model.regions.values()}
            free = next(n for n in range(self.model.mrs) if n not in used)
            return addr, length, free << 8 | key & 0xFF
        region = rng.choice(self.refused)
        return region.va + rng.randrange(PAGE) & self.end - 1, length, region.key
