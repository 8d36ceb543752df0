"""Plain Python model of what Translate counts, whenever its look-ups come and miss."""

from __future__ import annotations

from tests.memory.model import DMA, PAGE, Model

__all__ = ["Counts"]


class Counts:
    """Requests that are refused, and look-ups of pages that find the line of their page list in a
    cache of ``lines``, or do not; without lines none does.

    Each place of the cache holds the line that was looked up last there: its number, with the
    index of its region over it, is the place. A line that could not be read is not modelled.
    """

    def __init__(self, model: Model, lines: int):
        self.model, self._places = model, lines
        self._held: dict[int, tuple[int, int]] = {}  # region and line, by place
        self.key_errors = self.hits = self.misses = 0

    def request(
        self,
        function: int,
        pd: int,
        key: int,
        va: int,
        length: int,
        access: int,
        *,
        qp: int | None = None,
        check_only: bool = False,
    ) -> None:
        """A range is checked and, unless ``check_only``, its pages are looked up."""
        if not self.model.allowed(function, pd, key, va, length, access, qp=qp):
            self.key_errors += 1
            return
        if check_only or not length:
            return
        region = self.model.regions[key >> 8]
        if region.type == DMA:
            return
        place = region.row()["start"] + va - region.va
        for number in range(place // PAGE, (place + length - 1) // PAGE + 1):
            line = number * PAGE // region.page // 8
            self._look_up(region.parent if region.windows else region.index, line)

    def _look_up(self, region: int, line: int) -> None:
        if not self._places:
            self.misses += 1
            return
        place = (line ^ region) % self._places
        if self._held.get(place) == (region, line):
            self.hits += 1
        else:
            self.misses += 1
            self._held[place] = region, line

    def line(
        self, function: int, pd: int, sges: list, offset: int, length: int, access: int
    ) -> None:
        """``length`` bytes from ``offset`` of a message; what is refused stops nothing."""
        for addr, size, key in sges:
            if size > offset and length:
                part = min(size - offset, length)
                self.request(function, pd, key, addr + offset, part, access)
                length -= part
            offset = max(0, offset - size)

    def forget(self, region: int) -> None:
        """The lines of a region become invalid."""
        self._held = {place: one for place, one in self._held.items() if one[0] != region}

    def compare(self, got: dict[str, int]) -> None:
        wanted = {name: getattr(self, name) for name in got}
        assert got == wanted, f"counted {got}, not {wanted}"
