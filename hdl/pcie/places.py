"""Where the registers of functions with a driver are, as an adapter must know it."""

from dataclasses import dataclass

__all__ = ["Places"]


@dataclass(frozen=True)
class Places:
    """Places in a function with a driver; all but ``msix`` are offsets in ``bar``.

    Attributes:
        bar: BAR of the registers.
        window: where the adapter shows the card's own configuration space; nothing is there else.
        window_bytes: its size, a power of two of which ``window`` is a multiple.
        msix: the MSI-X capability in the card's own configuration space, of each of
            ``NicConfig.driven_functions``.
    """

    bar: int
    window: int
    window_bytes: int
    msix: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.window_bytes & (self.window_bytes - 1) or self.window % self.window_bytes:
            raise ValueError(f"A window of {self.window_bytes} bytes cannot be at {self.window:#x}")
