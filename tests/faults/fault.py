"""What a deliberate fault is: what is put into which source file, and which tests must fail."""

from __future__ import annotations

from dataclasses import dataclass

from tests.force import Force

__all__ = ["INSTALLS", "Fault"]

#: How a source file with a fault comes to the tables; what it installs stands behind it.
INSTALLS = "from tests.faults import catalogue\n\n"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault: each of ``tests`` must fail with it. ``live``: so must an exchange with the Linux
    guest (``rocinante faults --interop``). ``campaign``: the random scenarios that must find
    it too (``rocinante faults --campaign``).

    It is told by its meaning: ``force`` names a component, a signal and what becomes of that
    (tests/force.py). What cannot be told so is told by its text: ``old``, which occurs once in
    ``file``, becomes ``new``; ``because`` says what keeps it from being a force.
    """

    name: str
    what: str
    force: Force | None = None
    file: str = ""
    old: str = ""
    new: str = ""
    because: str = ""
    tests: tuple[str, ...]
    live: bool = False
    campaign: str = ""

    @property
    def place(self) -> str:
        """Return the file that the fault is in."""
        if self.force is None:
            return self.file
        return self.force.part.partition(":")[0].replace(".", "/") + ".py"

    @property
    def where(self) -> str:
        """Return the component and the signal, or the file, for a reader."""
        if self.force is None:
            return self.file
        return f"{self.force.part.partition(':')[2]}.{self.force.signal}"

    def apply(self, source: str) -> str:
        """Return ``source`` with the fault; raises ValueError unless ``old`` is in it once.

        A force is installed at the end of the component's file, when the class is there. The cache
        of Verilog knows a file by its contents, so it knows the fault too.
        """
        if self.force is not None:
            return f"{source}\n\n{INSTALLS}catalogue.install({self.name!r})\n"
        if (count := source.count(self.old)) != 1:
            raise ValueError(
                f"Fault {self.name}: its text must occur once in {self.file}, not {count} times"
            )
        return source.replace(self.old, self.new)
