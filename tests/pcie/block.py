"""AMD's block with what its users get: cocotbext-pcie's model, completed where it is empty.

The model has no configuration extension interface, no function-level reset, no credits of the link
partner and no completion timeout, and describes requests by the BARs of function 0, whichever
function they are for. All of this is here.
"""

import cocotb
from cocotb.queue import Queue
from cocotb.triggers import ClockCycles, RisingEdge
from cocotbext.pcie.core.caps.common import PciCap, PciCapId
from cocotbext.pcie.core.tlp import Tlp, TlpType
from cocotbext.pcie.xilinx.us import UltraScalePlusPcieDevice
from cocotbext.pcie.xilinx.us.tlp import ErrorCode, Tlp_us

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


class Number:
    """A pin that the model reads as a number."""

    def __init__(self, pin):
        self._pin = pin

    def __len__(self):
        return len(self._pin)

    @property
    def value(self):
        return int(self._pin.value)


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
            pcie_cq_np_req=Number(pin("cq_np_req")),
            **streams,
            **{theirs: pin(ours) for theirs, ours in names.items()},
            **settings,
        )
        self.cq_queue = Requests(self.functions)
        self.sink, self.source = self.rq_sink, self.rc_source
        # The model begins without reset, but the card may be in the middle of something.
        dut.rst.value = 1
        self._pin = pin
        #: Credits for reads that the block tells of.
        self.read_credits = 15
        #: Cycles after which the block gives up a request that ``forget`` has named.
        self.completion_timeout = 12_000
        pin("mgmt_read_write_done").value = 0
        cocotb.start_soon(self._tell_credits())
        cocotb.start_soon(self._answer_settings())
        if whole:
            for name in ("flr_in_process", *(f"ext__{one}" for one in EXTENSION)):
                pin(name).value = 0

    async def _tell_credits(self):
        """Credits as they were two cycles ago."""
        line = [0, 0]
        while True:
            await RisingEdge(self.user_clk)
            line.append(self.read_credits)
            self._pin("tfc_nph_av").value = line.pop(0)

    async def _answer_settings(self):
        """Reads of the configuration space by the management interface."""
        edge, pin = RisingEdge(self.user_clk), self._pin
        while True:
            await edge
            if pin("mgmt_read").value == 1:
                await ClockCycles(self.user_clk, 3)
                one = self.functions[int(pin("mgmt_function_number").value)]
                word = await one.read_config_register(int(pin("mgmt_addr").value))
                pin("mgmt_read_data").value = word
                pin("mgmt_read_write_done").value = 1
                await edge
                pin("mgmt_read_write_done").value = 0

    def forget(self, tag):
        """A completion of ``tag`` is lost. The block holds the request until its own timeout."""
        cocotb.start_soon(self._give_up(tag, self.active_request[tag]))

    async def _give_up(self, tag, request):
        await ClockCycles(self.user_clk, self.completion_timeout)
        if self.active_request[tag] is request:
            self.end_request(tag, ErrorCode.TIMEOUT)

    def end_request(self, tag, code):
        """The block ends the request of ``tag`` and says so; it has no entry of it any more."""
        request = self.active_request[tag]
        self.active_request[tag] = None
        self.cpld_credit_count -= request.get_data_credits()
        end = Tlp_us(Tlp())
        end.fmt_type, end.tag, end.requester_id = TlpType.CPL, tag, request.requester_id
        end.error_code, end.request_completed = code, True
        self.rc_queue.put_nowait(end)

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
