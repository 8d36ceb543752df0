"""What Debian's lintian says of the packages: nothing that is not explained here."""

from __future__ import annotations

import re
import shutil

import pytest

from sim.machine import image
from sim.machine.packages import module
from sim.make import package as firmware
from tests.machine.packages.chroot import chroot

pytestmark = pytest.mark.slow

#: Tags that stay, and why.
EXPLAINED = {
    "bogus-mail-host": "the project has no address",
    "bogus-mail-host-in-debian-changelog": "the project has no address",
    "no-manual-page": "--help of both programs and docs/firmware_service.md say the same",
    "wrong-section-according-to-package-name": "firmware of a host's process, not of a kernel's",
}


@pytest.mark.parametrize("release", ["12", "13"])
def test_lintian(release, tmp_path):
    debian = chroot(release)
    writers = {"firmware": firmware.build, "module": module.write, "provider": image.write_provider}
    for name, write in writers.items():
        shutil.copy(write(tmp_path), debian.root / f"tmp/{name}.deb")
    names = [f"/tmp/{name}.deb" for name in writers]
    done = debian.run("lintian", "--allow-root", "--tag-display-limit", "0", "-I", *names)
    tags = re.findall(r"^[EWI]: [\w-]+: ([\w-]+)", done.stdout, re.MULTILINE)
    assert "no-manual-page" in tags, done.stdout + done.stderr  # it has looked at them
    assert set(tags) <= EXPLAINED.keys(), done.stdout
