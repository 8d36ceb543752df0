"""The pieces that are synthesised: the whole NIC, and every component that its boxes join."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from hdl.config import SWITCHES, NicConfig
from hdl.egress.rows import FRAME_BYTES
from hdl.pcie_nic import bars
from sim.make.synth.tool import Cuts
from sim.rtl.verilog import Rtl

WHOLE = "nic"

#: The NIC without the components that talk to driver and firmware: what packets walk through.
CORE = "core"
#: Those components; in the core, ports of the top take their place.
OUTSIDE = ("send_fetch", "recv_fetch", "completion", "control", "virtio", "management", "mmio")

#: Adapters of the host port and of a MAC, which are beside the NIC and synthesised only where they
#: are named.
ADAPTERS = {
    "axi_host": "hdl.axi.host:AxiHost",
    "pcie_host": "hdl.pcie.host:PcieHost",
    "ptile_host": "hdl.pcie.ptile.host:PTileHost",
    "cmac_crossing": "hdl.mac.cmac:CmacCrossing",
}
#: ``--small``: a configuration that a mid-size device holds, and that is mapped in seconds.
SMALL = {
    "qps": 64,
    "cqs": 8,
    "mrs": 64,
    "gids": 4,
    "groups": 4,
    "vectors": 8,
    "queue_size": 256,
    "read_tags": 16,
    "read_bytes": 256,
    "max_sge": 4,
    "max_inline": 64,
    "send_lines": 8,
    "recv_lines": 16,
    "read_sinks": 64,
    "long_sinks": 4,
    "outstanding": 128,
    "read_resources": 128,
    "translation_lines": 64,
    "gather_bytes": 8192,
    "receive_bytes": 16384,
}
#: ``--tiny``: one whose core the largest ECP5 holds, placed and routed in about a quarter of an
#: hour.
TINY = SMALL | {
    "qps": 16,
    "cqs": 4,
    "mrs": 8,
    "gids": 2,
    "groups": 2,
    "queue_size": 64,
    "read_tags": 8,
    "max_sge": 2,
    "max_inline": 32,
    "send_lines": 4,
    "recv_lines": 8,
    "read_sinks": 16,
    "long_sinks": 2,
    "outstanding": 32,
    "read_resources": 32,
    "max_rd_atomic": 2,
    "translation_lines": 16,
}
#: The fields that each size sets; "" is the usual one.
SIZES = {"": {}, "small": SMALL, "tiny": TINY}


@dataclass(frozen=True)
class Part:
    """One piece: its instance name in its box, and its room (a folder below ``hdl/``)."""

    name: str
    room: str
    config: NicConfig

    @property
    def rtl(self) -> Rtl:
        """What to generate."""
        if self.name in (WHOLE, CORE):
            return Rtl("hdl.nic:Nic", {"config": self.config}, name=self.name)
        if self.name in ADAPTERS:
            params: dict[str, Any] = {"config": self.config}
            if self.name == "ptile_host":
                params["bars"] = bars(self.config)
            if self.name == "cmac_crossing":
                params = {"width": self.config.width, "frame_bytes": FRAME_BYTES}
            return Rtl(ADAPTERS[self.name], params, name=self.name)
        params = {"config": self.config, "name": self.name}
        return Rtl("sim.make.synth.parts:component", params, name=self.name)

    @property
    def cuts(self) -> Cuts:
        """Of the core, modules whose place ports of the top take; the whole in its components."""
        if self.name not in (CORE, WHOLE):
            return Cuts()
        paths = {path.rpartition(".")[2]: path for path in _found(self.config)}
        if self.name == CORE:
            return Cuts(without=tuple(f"{CORE}.{paths[name]}" for name in OUTSIDE))
        return Cuts(apart=tuple(f"{WHOLE}.{path}" for path in paths.values()))


def components(config: NicConfig) -> dict[str, Any]:
    """Return the components that the NIC's boxes join by instance name, in their order."""
    return {path.rpartition(".")[2]: one for path, one in _found(config).items()}


def _found(config: NicConfig) -> dict[str, Any]:
    """The components by their path below the top: in a box, or beside the boxes."""
    from hdl.nic import BOXES, Nic

    found: dict[str, Any] = {}
    for name, one in _submodules(Nic(config=config)).items():
        if name in BOXES:
            found |= {f"{name}.{inner}": part for inner, part in _submodules(one).items()}
        else:
            found[name] = one
    return found


def _submodules(component: Any) -> dict[str, Any]:
    """Submodules by name, without the wrapper that lets a device reset reach them."""
    module = component.elaborate("verilog")
    return {
        name: getattr(one, "_elaboratable_", one)
        for name, (one, _source) in module._named_submodules.items()
    }


def component(*, config: NicConfig, name: str) -> Any:
    """Return one component of the NIC, with the parameters it has there."""
    return components(config)[name]


def parts(config: NicConfig) -> list[Part]:
    """Return all components of the NIC as parts, those of a room together."""
    found = [
        Part(name, type(one).__module__.split(".")[1], config)
        for name, one in components(config).items()
    ]
    return sorted(found, key=lambda part: part.room)


def choose(config: NicConfig, names: tuple[str, ...]) -> list[Part]:
    """Return the parts that ``names`` name: components, rooms (all their components), core, nic.

    Raises ValueError for a name that is none of these.
    """
    known = [*parts(config), *(Part(name, "all", config) for name in (CORE, WHOLE))]
    known += [Part(name, path.split(".")[1], config) for name, path in ADAPTERS.items()]
    for name in names:
        if not any(name in (part.name, part.room) for part in known):
            rooms = sorted({part.room for part in known})
            raise ValueError(
                f"--room must be a room ({', '.join(rooms)}), a component of one, {CORE} or "
                f"{WHOLE}, not {name!r}"
            )
    return [part for part in known if not {part.name, part.room}.isdisjoint(names)]


def configuration(width: int, settings: tuple[str, ...] = (), *, size: str = "") -> NicConfig:
    """Return the configuration of ``--width``, a size and ``--config KEY=VALUE``, which wins.

    size: one of ``SIZES``. Raises ValueError for a setting that NicConfig does not have or take.
    """
    values: dict[str, Any] = dict(SIZES[size])
    for text in settings:
        key, value = setting("--config", text)
        if key == "width":
            raise ValueError(f"--width sets the width, not --config {text!r}")
        values[key] = value
    return NicConfig(width=width, **values)


def setting(option: str, text: str) -> tuple[str, int | bool]:
    """Return a field of ``NicConfig`` and its value, of ``KEY=VALUE``; ValueError for another text.

    option: whose text it is.
    """
    key, separator, value = text.partition("=")
    if key not in {field.name for field in fields(NicConfig)} or not separator:
        raise ValueError(f"{option} must be KEY=VALUE with a KEY of NicConfig, not {text!r}")
    if key in SWITCHES:
        if value not in ("true", "false"):
            raise ValueError(f"{option} {key} must be true or false, not {value!r}")
        return key, value == "true"
    if not value.isdecimal():
        raise ValueError(f"{option} {key} must be a whole number, not {value!r}")
    return key, int(value)
