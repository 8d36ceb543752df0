"""What the host sets in the configuration space of AMD's block, function by function."""

from amaranth.hdl import Array, Module, Mux, Signal
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Member, Out

from hdl.config import NicConfig

from .control import FUNCTIONS

__all__ = ["BlockSettings", "least", "mgmt_pins"]

#: Words of the block's configuration space, whose PCI Express capability is at 0x70 (PG213,
#: "Configuration Space").
DEVICE_CONTROL, DEVICE_CONTROL_2 = 0x78 // 4, 0x98 // 4


def _control() -> data.StructLayout:
    """Device Control (PCI Express Base Specification, 7.5.3.4)."""
    return data.StructLayout(
        {
            "reporting": 4, "relaxed": 1, "max_payload": 3, "extended_tags": 1, "phantom": 1,
            "aux": 1, "no_snoop": 1, "max_read": 3, "reset": 1,
        }
    )  # fmt: skip


def _control_2() -> data.StructLayout:
    """Device Control 2, as far as it matters."""
    return data.StructLayout({"timeout": 4, "timeout_disable": 1})


def mgmt_pins() -> dict[str, Member]:
    """Members for what joins the block's pins of the same names behind ``cfg_`` (PG213,
    "Configuration Management Interface")."""
    return {
        "mgmt_addr": Out(10),
        "mgmt_function_number": Out(8),
        "mgmt_read": Out(1),
        "mgmt_read_data": In(32),
        "mgmt_read_write_done": In(1),
    }


def least(values):
    """The least of some values."""
    values = list(values)
    found = values[0]
    for one in values[1:]:
        found = Mux(one < found, one, found)
    return found


class BlockSettings(wiring.Component):
    """Reads the settings of each function with a driver, again and again.

    The block has pins for the sizes of function 0 only, which bind the functions of a device with
    ARI. A function without ARI is bound by its own.

    Members: ``mgmt_*``: the block's pins; ``pf0_payload``, ``pf0_read`` In: codes of the sizes of
    function 0; ``max_payload``, ``max_read`` Out: codes of the sizes, the least of all;
    ``extended_tags`` Out: bits of the functions that may use 8 bits of tag; ``expires`` Out: each
    of them lets the block give up requests without completion.
    Latency: a setting is known after as many accesses as there are settings, two a function: some
    dozens of cycles. Errors: none. Reset: the least sizes, 5 bits of tag, nothing is given up.
    Source: PG213, "Configuration Management Interface": ``mgmt_read`` stays until
    ``mgmt_read_write_done``.
    """

    def __init__(self, *, config: NicConfig):
        self._functions = config.driven_functions
        super().__init__(
            {
                **mgmt_pins(),
                "pf0_payload": In(2),
                "pf0_read": In(3),
                "max_payload": Out(3),
                "max_read": Out(3),
                "extended_tags": Out(FUNCTIONS),
                "expires": Out(1),
            }
        )

    def elaborate(self, platform):
        m = Module()
        count = len(self._functions)
        which, second = Signal(range(max(2, count))), Signal()
        controls = [Signal(_control(), name=f"control{n}") for n in self._functions]
        gives_up = Signal(count)
        m.d.comb += [
            self.mgmt_function_number.eq(Array(self._functions)[which]),
            self.mgmt_addr.eq(Mux(second, DEVICE_CONTROL_2, DEVICE_CONTROL)),
        ]
        with m.FSM(name="settings"):
            # REST: a cycle without a request; ends with the next one.
            with m.State("REST"):
                m.d.sync += self.mgmt_read.eq(1)
                m.next = "ASK"
            # ASK: a word is asked for; ends when the block answers.
            with m.State("ASK"):
                with m.If(self.mgmt_read_write_done):
                    m.d.sync += [self.mgmt_read.eq(0), second.eq(~second)]
                    with m.If(second):
                        further = data.View(_control_2(), self.mgmt_read_data[: _control_2().size])
                        m.d.sync += [
                            gives_up.bit_select(which, 1).eq(~further.timeout_disable),
                            which.eq(Mux(which == count - 1, 0, which + 1)),
                        ]
                    with m.Else():
                        fresh = self.mgmt_read_data[: _control().size]
                        m.d.sync += Array(one.as_value() for one in controls)[which].eq(fresh)
                    m.next = "REST"
        for n, control in zip(self._functions, controls, strict=True):
            m.d.comb += self.extended_tags[n].eq(control.extended_tags)
        m.d.sync += [
            self.expires.eq(gives_up.all()),
            self.max_payload.eq(least([self.pf0_payload, *(c.max_payload for c in controls)])),
            self.max_read.eq(least([self.pf0_read, *(c.max_read for c in controls)])),
        ]
        return m
