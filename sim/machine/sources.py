"""Packages of Debian's releases, from the machine's own package sources, in folders of their own.

apt gets lists, a status and a cache of its own: the machine's are left as they are. The sources
are the machine's: where they are is nowhere written down. Packages are unpacked, never installed.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from filelock import FileLock

from sim.rtl.env import ToolError

__all__ = ["Apt"]

_KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
_CONFIGURATION = """\
Dir::Etc::sourcelist "{0}/sources.list";
Dir::Etc::sourceparts "-";
Dir::Etc::preferences "-";
Dir::Etc::preferencesparts "-";
Dir::State::lists "{0}/lists";
Dir::State::status "{0}/status";
Dir::Cache "{0}/cache";
APT::Architecture "amd64";
APT::Architectures {{ "amd64"; }};
APT::Sandbox::User "";
APT::Install-Recommends "false";
Acquire::Languages "none";
Acquire::Retries "3";
"""
#: Seconds that one run of apt may take.
_PATIENCE_S = 1800


class Apt:
    """apt for some suites of Debian, in a folder. ``suites``: the release first.

    What was downloaded when something broke is there at the next start. Raises ToolError, also in
    each method: no source of a Debian, no network, no such package.
    """

    def __init__(self, folder: Path, suites: Sequence[str]) -> None:
        self._folder = folder
        for tool, package in (("apt-get", "apt"), ("dpkg-deb", "dpkg")):
            if shutil.which(tool) is None:
                raise ToolError(f"{tool} not found: the guest is made on Debian ({package})")
        for name in ("lists/partial", "cache/archives/partial"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        where = _mirror()
        signed = f"[signed-by={_KEYS}] " if Path(_KEYS).exists() else ""
        kinds = [f"{kind} {signed}{where}" for kind in ("deb", "deb-src")]
        lines = [f"{kinds[0]} {suite} main" for suite in suites]
        lines.append(f"{kinds[1]} {suites[0]} main")
        (folder / "sources.list").write_text("\n".join(lines) + "\n")
        (folder / "status").touch()
        (folder / "apt.conf").write_text(_CONFIGURATION.format(folder))

    def update(self) -> None:
        """Fetch the lists of packages, if that has not been done."""
        done = self._folder / "updated"
        if not done.exists():
            self._apt("update", "-o", "APT::Update::Error-Mode=any")
            done.touch()

    def fetch(self, names: Sequence[str], target: Path, *, suite: str) -> dict[str, list[str]]:
        """Unpack packages and all that they depend on into ``target``, which is made.

        Returns the files of each package, by the name of its archive, which holds its version.
        """
        self.update()
        archives = self._folder / "cache" / target.name
        (archives / "partial").mkdir(parents=True, exist_ok=True)
        place = ("-o", f"Dir::Cache::archives={archives}")
        self._apt("install", *place, "-t", suite, "--download-only", *names)
        target.mkdir(parents=True, exist_ok=True)
        found = {}
        for path in sorted(archives.glob("*.deb")):
            listed = _run("dpkg-deb", "--vextract", str(path), str(target))
            found[path.name] = [line for line in listed.splitlines() if not line.endswith("/")]
        shutil.rmtree(archives)
        return found

    def fetch_alone(self, name: str, target: Path, *, what: str = "--extract") -> str:
        """Unpack a package into ``target``, without what it depends on; its archive's name.

        what: the option of dpkg-deb; ``--control`` unpacks the control files instead.
        """
        self.update()
        archives = self._folder / "cache" / target.name
        archives.mkdir(parents=True, exist_ok=True)
        self._apt("download", name, folder=archives)
        (archive,) = archives.glob("*.deb")
        target.mkdir(parents=True, exist_ok=True)
        _run("dpkg-deb", what, str(archive), str(target))
        shutil.rmtree(archives)
        return archive.name

    def depends(self, name: str) -> list[str]:
        """What a package depends on, by name."""
        self.update()
        found = _run("apt-cache", "depends", "--important", name, config=self._config)
        lines = [line.partition("Depends: ")[2].strip() for line in found.splitlines()]
        return [line for line in lines if line]

    def source(self, name: str, target: Path) -> Path:
        """The upstream archive of a source package, in ``target``."""
        self.update()
        target.mkdir(parents=True, exist_ok=True)
        trouble = ""
        try:
            # The archive alone is wanted. Its description may be missing where the archive is not.
            self._apt("source", "--download-only", "--only-source", name, folder=target)
        except ToolError as error:
            trouble = str(error)
        found = sorted(target.glob(f"{name}_*.orig.tar.*"))
        archives = [path for path in found if not path.name.endswith(".asc")]
        if not archives:
            raise ToolError(trouble or f"The source package {name} has no upstream archive")
        return archives[0]

    @property
    def _config(self) -> Path:
        return self._folder / "apt.conf"

    def _apt(self, *arguments: str, folder: Path | None = None) -> None:
        with FileLock(self._folder / "lock"):  # apt itself does not wait for another one
            _run("apt-get", "-q", "-y", *arguments, config=self._config, folder=folder)


def _mirror() -> str:
    """Where the machine has the packages of a release of Debian from."""
    listed = _run(
        *("apt-get", "indextargets", "--format", "$(REPO_URI) $(CODENAME) $(LABEL)"),
        "Created-By: Packages",
    )
    for line in listed.splitlines():
        uri, codename, label = [*line.split(maxsplit=2), "", ""][:3]
        if label == "Debian" and "-" not in codename:
            return uri
    raise ToolError(
        "The machine's package sources have no release of Debian, which the guest is made from: "
        "add one, and run apt-get update"
    )


def _run(*command: str, config: Path | None = None, folder: Path | None = None) -> str:
    settings = [] if config is None else [f"APT_CONFIG={config}"]
    try:
        done = subprocess.run(
            ["env", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive", *settings, *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            timeout=_PATIENCE_S,
        )
    except subprocess.TimeoutExpired:
        raise ToolError(f"{' '.join(command[:4])}: no end within {_PATIENCE_S} s") from None
    if done.returncode:
        raise ToolError(f"{_shown(command)}: {_reason(done.stderr)}")
    return done.stdout


def _shown(command: Sequence[str]) -> str:
    """A command without what would fill a line."""
    words = [word for word in command if not word.startswith("-")]
    return " ".join(words[:3]) + (" ..." if len(words) > 3 else "")


def _reason(text: str) -> str:
    """The first error of apt, which the others follow from."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("E:", "Err:", "dpkg-deb: error"))]
    with contextlib.suppress(IndexError):
        return (errors or lines[-1:])[0]
    return "no reason given"
