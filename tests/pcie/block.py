"""AMD's block with what its users get: cocotbext-pcie's model, completed where it is empty.

The model has no configuration extension interface and no function-level reset, and describes
requests by the BARs of function 0, whichever function they are for. All of this is here.
"""

from cocotb.queue import Queue
from cocotb.triggers import RisingEdge
from cocotbext.pcie.core.caps.common import PciCap, PciCapId
from cocotbext.pcie.xilinx.us import UltraScalePlusPcieDevice

from tests.pcie.model import UserBus

__all__ = ["Pcie4Block"]

#: Registers of 32 bits below 256 bytes that the block leaves to the user, from 0xB0 to 0xBF.
EXTENDED = range(0xB0 // 4, 0xC0 // 4)
STREAMS = ("rq", "rc", "cq", "cc")
#: Inputs of the extension interface.
EXTENSION = ("read_received", "register_number", "function_number")
#: Cycles that the block waits for the user's answer.
PATIENCE = 16


class UserCapability(PciCap):
    """A capability in the registers of the configuration extension interface."""

    def __init__(self, block, function):
        super().__init__()
        self.cap_id, self.length = PciCapId.VNDR, len(EXTENDED)
        self._block, self._function = block, function

    async def _read_register(self, reg):
        word = await self._block.extended_read(self._function, EXTENDED[0] + reg)
        if reg == 0:  # the last one of the list
            assert word & 0xFFFF == int(self.cap_id), hex(word)
        return word

    async def _write_register(self, reg, data, mask):
        """The user has none to write."""


class Requests(Queue):
    """Requests of the host, each with the size of the BAR that it is for."""

    def __init__(self, functions):
        super().__init__()
        self._functions = functions

    def put_nowait(self, item):
        size = ~self._functions[item.completer_id.function].bar_mask[item.bar_id] & 0xFFFF_FFFF
        item.bar_aperture = size.bit_length()
        super().put_nowait(item)


class Pcie4Block(UltraScalePlusPcieDevice):
    """The block at PCIe 3.0 with 16 lanes, joined to the pins of card 0 of the top.

    ``whole``: the card is ``hdl.pcie_nic.PcieNic``; if not, ``tests.pcie.card`` with fewer pins.
    """

    #: Streams of the block, by the prefixes of their pins.
    READ_DATA, REQUESTS = "rc", "rq"

    def __init__(self, dut, *, functions, whole, **settings):
        def pin(name):
            return getattr(dut, f"nic0_{name}")

        streams = {f"{name}_bus": UserBus.from_prefix(dut, f"nic0_{name}_") for name in STREAMS}
        names = {
            f"pcie_rq_seq_num{one}": f"rq_seq_num{one}" for one in ("0", "1", "_vld0", "_vld1")
        }
        names |= {"cfg_max_payload": "max_payload", "cfg_max_read_req": "max_read"}
        if whole:
            names |= {"cfg_function_status": "function_status"}
            names |= {f"cfg_interrupt_msix_{one}": f"msix_{one}" for one in ("enable", "mask")}
        super().__init__(
            pcie_generation=3,
            pcie_link_width=16,
            user_clk_frequency=250e6,
            pf_count=functions,
            max_payload_size=1024,
            enable_extended_tag=True,
            rq_straddle=True,
            rc_4tlp_straddle=True,
            user_clk=dut.clk,
            user_reset=dut.rst,
            **streams,
            **{theirs: pin(ours) for theirs, ours in names.items()},
            **settings,
        )
        self.cq_queue = Requests(self.functions)
        self.sink, self.source = self.rq_sink, self.rc_source
        # The model begins without reset, but the card may be in the middle of something.
        dut.rst.value = 1
        self._pin = pin
        if whole:
            for name in ("flr_in_process", *(f"ext__{one}" for one in EXTENSION)):
                pin(name).value = 0

    def forget(self, tag):
        """A completion of ``tag`` is lost: the model has no timer of its own."""
        self.active_request[tag] = None

    def _ext(self, name):
        return self._pin(f"ext__{name}")

    def extend(self, function, _image):
        """Give ``function`` the capability that the user serves."""
        self.functions[function].register_capability(
            UserCapability(self, function), offset=EXTENDED[0]
        )

    async def extended_read(self, function, register):
        """Ask the user for a register; 0 if there is no answer."""
        assert register in EXTENDED, hex(register)
        edge = RisingEdge(self.user_clk)
        self._ext("function_number").value = function
        self._ext("register_number").value = register
        self._ext("read_received").value = 1
        await edge
        self._ext("read_received").value = 0
        for _ in range(PATIENCE):
            await edge
            if self._ext("read_data_valid").value == 1:
                return int(self._ext("read_data").value)
        return 0

    async def reset_function(self, function):
        """A function-level reset; returns the cycles until the user says that it is done.

        What the host had set in the function is cleared, but for the BARs, which the host would
        only set again.
        """
        one = self.functions[function]
        one.bus_master_enable = False
        if one.msix_cap in one.capabilities.list:
            one.msix_cap.msix_enable = one.msix_cap.msix_function_mask = False
        self._pin("flr_in_process").value = 1 << function
        for cycle in range(100_000):
            await RisingEdge(self.user_clk)
            if int(self._pin("flr_done").value) >> function & 1:
                self._pin("flr_in_process").value = 0
                return cycle
        raise AssertionError(f"The reset of function {function} has no end")
