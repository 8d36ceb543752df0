"""rdma-core's own tests, from the package of Debian that has them among its documents."""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from filelock import FileLock

from sim.machine.releases import Release
from sim.machine.sources import Apt
from sim.rtl.env import build_root

__all__ = ["check", "suite"]

_PACKAGE = "python3-pyverbs"
_DOCUMENTS = "usr/share/doc/rdma-core/tests"


def suite(release: Release, say: Callable[[str], None]) -> Path:
    """A folder that has the suite of a release as ``tests``, fetched if it is not at hand.

    say: takes what is under way. Raises ToolError: no source of a Debian, no network.
    """
    base = build_root() / "programs"
    folder = base / f"tests-{release.number}"
    base.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            say(f"fetching {_PACKAGE} of Debian {release.number}")
            with tempfile.TemporaryDirectory(dir=base, prefix="new") as work:
                made = Path(work, "made")
                apt = Apt(base / "apt" / release.suite, [release.suite])
                archive = apt.fetch_alone(_PACKAGE, Path(work, "package"))
                _unpack(Path(work, "package", _DOCUMENTS), made / "tests")
                (made / "package.json").write_text(json.dumps({"archive": archive}))
                made.rename(folder)
    return folder


def _unpack(packed: Path, target: Path) -> None:
    """Copy the modules; some are compressed."""
    target.mkdir(parents=True)
    for path in sorted(packed.glob("*.py*")):
        if path.suffix == ".gz":
            (target / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        else:
            shutil.copy(path, target)


def check(folder: Path, names: Sequence[str]) -> None:
    """ValueError for a name whose file the suite does not have."""
    for name in names:
        if not Path(folder, "tests", f"{name.split('.')[0]}.py").is_file():
            raise ValueError(f"The suite has no file {name.split('.')[0]}")
