"""The control commands about destinations and targets of DC (docs/extensions.md)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from firmware.dc.initiators import Initiators
from firmware.dc.targets import Targets
from firmware.objects import Destination, Limits, Objects, Refused
from firmware.qp import check_address
from firmware.qp_commands import QpCommands
from hdl.abi.enums import AhFlags, QpState, QpType
from hdl.abi.layout import Values
from hdl.abi.virtio_rdma import QPN_BITS

__all__ = ["DcCommands"]


class DcCommands:
    """CREATE and DESTROY_DC_DESTINATION, RESET_STREAM, QUERY_DCT."""

    def __init__(
        self,
        limits: Limits,
        objects: Callable[[], Objects],
        qps: QpCommands,
        initiators: Initiators,
        targets: Targets,
    ):
        self._limits, self._objects, self._qps = limits, objects, qps
        self._initiators, self._targets = initiators, targets

    async def create(self, v: Values) -> dict[str, Any]:
        """CREATE_DC_DESTINATION: the address is checked as that of a queue pair."""
        objects = self._objects()
        pd = objects.pds.get(v.pdn)
        if v.dctn >> QPN_BITS:
            raise Refused(f"dctn {v.dctn:#x} has more than {QPN_BITS} bits")
        names = ("dgid", "flow_label", "sgid_index", "hop_limit", "traffic_class")
        ah = {
            "grh": {name: v[name] for name in names},
            "sl": v.sl,
            "roce_dmac": v.dmac,
            "ah_flags": AhFlags.GRH,
            "port_num": 1,
        }
        check_address(self._limits, ah, objects.gids)
        made = objects.destinations.add(lambda: Destination(pd, v.dctn, v.dc_key, ah))
        pd.users += 1
        return {"destination": made.number}

    async def destroy(self, v: Values) -> None:
        """DESTROY_DC_DESTINATION: requests that go on naming it end with LOC_QP_OP_ERR, unless
        they are on their way."""
        destination = self._objects().destinations.get(v.destination)
        destination.pd.users -= 1
        self._objects().destinations.remove(destination.number)

    async def reset_stream(self, v: Values) -> None:
        """RESET_STREAM: requests of a stream that has failed are executed again. Refused for one
        that has not: rdma-core's tests want that."""
        qp = self._qps.find(v.qpn)
        if qp.streams is None:
            raise Refused(f"QP {v.qpn:#x} has no streams")
        state, _ = await self._qps.look(qp)
        if state == QpState.RTS and v.stream_id not in qp.streams.errored:
            raise Refused(f"Stream {v.stream_id} has not failed")
        await self._initiators.reset_stream(qp, v.stream_id)
        qp.streams.errored.discard(v.stream_id)
        self._objects().qps.touched.add(qp.number)

    async def query_target(self, v: Values) -> dict[str, Any]:
        """QUERY_DCT: its connections; the next one of what it counts is an event again."""
        dct = self._qps.find(v.qpn)
        if dct.type != QpType.DCT:
            raise Refused(f"QP {v.qpn:#x} is no target of DC")
        counts = self._targets.counts(dct)
        counts.told.clear()
        return {
            "state": int(dct.state == QpState.RTR),
            "contexts": self._targets.alive(dct),
            "connects": counts.connects,
            "key_violations": counts.key_violations,
            "refused_busy": counts.refused_busy,
            "access_errors": counts.access_errors,
            "request_errors": counts.request_errors,
        }
