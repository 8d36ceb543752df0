"""An unmodified Debian guest in an unmodified QEMU, whose PCI device is the simulated card."""

import pytest

from sim.rtl.env import ToolError
from tests.host import qemu
from tests.host.vfio_guest import Served


@pytest.mark.slow
def test_lspci_in_a_debian_guest(tmp_path):
    """What ``lspci -vv`` shows, and that Linux's virtio-pci binds the card, twice."""
    try:
        machine = qemu.prepare(tmp_path)
    except ToolError as missing:
        pytest.skip(str(missing))
    folder = tmp_path / "card"
    folder.mkdir()
    card = Served(folder)
    console = qemu.boot(*machine, card.path(), 300)
    before, _, after = console.rpartition("00:04.0 ")
    for shown in (before, after):
        assert "Device 106a (rev 01)" in shown, console
        for kind in ("CommonCfg", "Notify", "ISR", "DeviceCfg"):
            assert f"VirtIO: {kind}" in shown, console
        assert "MSI-X: Enable- Count=32 Masked-" in shown
        assert "[size=64K]" in shown and "[size=4K]" in shown
    assert "Kernel driver in use: virtio-pci" in after and "in use" not in before
    assert "device 0x002a status 0x00000001" in after
    assert "bound again: 0000:00:04.0" in after
    card.says("the connection has ended")
    assert "not mapped" not in card.text
    assert card.close() == 0
