"""Device-wide part of the common configuration: features, status, reset, needs-reset.

Spec: Virtio 1.2, 2.1 (status), 2.2 (features), 2.4 (reset), 4.1.4.3 (common configuration).
"""

from amaranth.hdl import Cat, Const, Module, Mux, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hdl.abi import virtio_pci as abi
from hdl.abi.enums import RdmaFeature
from hdl.abi.virtio_pci import Feature, Status
from hdl.common.count import increment
from hdl.config import CardFeature, NicConfig
from hdl.ports.jobs import QueueError, QueueErrorCause

from .kind import FunctionKind
from .local import LocalPort, lanes, merge

__all__ = ["CommonConfig", "offered_features", "transport_features"]

#: Feature bits of the transport that every function offers.
_OFFERED = (
    Feature.INDIRECT_DESC,
    Feature.EVENT_IDX,
    Feature.VERSION_1,
    Feature.ACCESS_PLATFORM,
    Feature.IN_ORDER,
    Feature.ORDER_PLATFORM,
    Feature.NOTIFICATION_DATA,
    Feature.RING_RESET,
)
#: What a card has -> the feature bits of the extensions with which a driver uses it.
_EXTENSIONS = {
    CardFeature.SRQ: (RdmaFeature.SRQ,),
    CardFeature.XRC: (RdmaFeature.XRC,),
    CardFeature.DC: (RdmaFeature.DC,),
    CardFeature.MP_WR: (RdmaFeature.MP_WR,),
    CardFeature.EVENTS: (RdmaFeature.EVENTS, RdmaFeature.QUEUE_ERROR),
    CardFeature.RESIZE: (RdmaFeature.RESIZE,),
    CardFeature.MW: (RdmaFeature.MW,),
    CardFeature.PAGE_SIZES: (RdmaFeature.PAGE_SIZES,),
    CardFeature.TWO_LEVEL: (RdmaFeature.TWO_LEVEL,),
    CardFeature.MCAST: (RdmaFeature.MCAST,),
    CardFeature.MKEYS: (RdmaFeature.MKEY,),
    CardFeature.MEMCPY: (RdmaFeature.MEMCPY,),
    CardFeature.PLACEMENT: (RdmaFeature.PLACEMENT,),
    CardFeature.PUSH: (RdmaFeature.PUSH,),
}
#: Extensions that every card has.
_COMMON_EXTENSIONS = (RdmaFeature.REREG_MR, RdmaFeature.ARM_CQ)
COMMON = abi.COMMON_CFG.offset
#: What the driver may set in the status; FEATURES_OK and DRIVER_OK on conditions.
PLAIN_STATUS = Status.ACKNOWLEDGE | Status.DRIVER | Status.FAILED


def offered_features(config: NicConfig) -> int:
    """The feature word that the RDMA functions of a card offer."""
    extensions = [
        bit.mask for card, bits in _EXTENSIONS.items() if card in config.features for bit in bits
    ]
    extensions += [bit.mask for bit in _COMMON_EXTENSIONS]
    return transport_features(config) + sum(extensions)


def transport_features(config: NicConfig) -> int:
    """What each function of a card offers of virtio's own features, as a mask."""
    packed = Feature.RING_PACKED.mask * config.packed
    return sum((feature.mask for feature in _OFFERED), packed)


class CommonConfig(wiring.Component):
    """Serves the registers below ``queue_size``; sequences a device reset; remembers broken queues.

    Parameters: ``kind``: what the function is.
    Members: ``port`` (offsets of the common configuration); Out: ``queue_select``,
    ``config_vector``, ``features`` (64; 0 until FEATURES_OK), ``status`` (8), ``driver_ok``,
    ``config_changed`` (one cycle: notify the driver). Reset: ``reset_request`` Out, held until
    ``reset_done`` In; then ``clear`` Out, held until ``cleared`` In; ``resetting`` Out from the
    write of 0 to the end, ``reset_count`` Out (32) counts at its beginning. ``flr`` In, held: a
    function-level reset begins a device reset, or joins the one that goes on, and nothing that the
    driver had written is readable; ``fenced`` Out from then to the end of the device reset:
    what the function had has a previous owner; ``over`` Out: no device reset waits or goes on.
    ``contents_changed`` In, one cycle, the device configuration is new. ``queue_error`` In (always
    accepted), ``misaligned`` In with ``misaligned_queue``: the first sets DEVICE_NEEDS_RESET and is
    kept in ``needs_reset``, ``needs_reset_cause``, ``needs_reset_queue`` until the reset.
    Latency: ``done`` two cycles after ``start``.
    Errors: FEATURES_OK is refused (reads back 0) without VERSION_1, with a bit that was not
    offered, with two that do not go together, or with one and not what it needs; DRIVER_OK is
    refused without FEATURES_OK; features cannot change after it; a driver cannot clear status bits
    except by writing 0. During a reset the status reads DEVICE_NEEDS_RESET alone, so never 0, and
    writes are lost.
    """

    def __init__(self, *, kind: FunctionKind):
        self._kind = kind
        super().__init__(
            {
                "port": In(LocalPort(12)),
                "queue_select": Out(16),
                "config_vector": Out(16, init=abi.NO_VECTOR),
                "features": Out(64),
                "status": Out(8),
                "driver_ok": Out(1),
                "config_changed": Out(1),
                "reset_request": Out(1),
                "reset_done": In(1),
                "clear": Out(1),
                "cleared": In(1),
                "resetting": Out(1),
                "flr": In(1),
                "fenced": Out(1),
                "over": Out(1),
                "reset_count": Out(32),
                "contents_changed": In(1),
                "queue_error": In(stream.Signature(QueueError)),
                "misaligned": In(1),
                "misaligned_queue": In(16),
                "needs_reset": Out(1),
                "needs_reset_cause": Out(QueueErrorCause),
                "needs_reset_queue": Out(16),
            }
        )

    def elaborate(self, platform):
        m = Module()
        port = self.port
        device_select, driver_select = Signal(32), Signal(32)
        driver_features = Signal(64)
        generation = Signal(8)
        status = Signal(8)
        features_ok = Signal()
        # A cycle after ``port.start``, when the old contents are in a register.
        started, write = Signal(), Signal()
        m.d.comb += [
            write.eq(started & port.write & ~self.resetting & ~self.flr),
            features_ok.eq((status & Status.FEATURES_OK) != 0),
            self.features.eq(Mux(features_ok, driver_features, 0)),
            self.status.eq(Mux(self.resetting, int(Status.DEVICE_NEEDS_RESET), status)),
            self.driver_ok.eq(((status & Status.DRIVER_OK) != 0) & ~self.resetting),
            self.needs_reset.eq((status & Status.DEVICE_NEEDS_RESET) != 0),
        ]

        # The value of each field; the words that are read consist of them.
        offered = Const(self._kind.offered, 64)
        shown = {
            "device_feature_select": device_select,
            "device_feature": self._half(offered, device_select),
            "driver_feature_select": driver_select,
            "driver_feature": Mux(self.fenced, 0, self._half(driver_features, driver_select)),
            "config_msix_vector": self.config_vector,
            "num_queues": Const(self._kind.queues, 16),
            "device_status": self.status,
            "config_generation": generation,
            "queue_select": self.queue_select,
        }
        words: dict[int, dict[int, Signal]] = {}
        for name, value in shown.items():
            word, low = lanes(COMMON(name))
            part = Signal(8 * abi.COMMON_CFG.place(name).size, name=f"{name}_shown")
            m.d.comb += part.eq(value)
            words.setdefault(word, {})[low] = part
        current, now = Signal(32, reset_less=True), Signal(32)
        with m.Switch(port.addr):
            for word, parts in words.items():
                with m.Case(word):
                    m.d.comb += now.eq(Cat(parts[low] for low in sorted(parts)))
        m.d.sync += [started.eq(port.start), port.done.eq(started), port.read_data.eq(current)]
        with m.If(port.start):
            m.d.sync += current.eq(now)

        merged = Signal(32)
        m.d.comb += merged.eq(merge(current, port))

        def written(name: str):
            """Whether the access writes a byte of the field, and the field's new value."""
            word, low = lanes(COMMON(name))
            size = abi.COMMON_CFG.place(name).size
            touched = port.strb[low // 8 : low // 8 + size].any()
            return write & (port.addr == word) & touched, merged[low : low + 8 * size]

        self._plain(m, written, device_select, driver_select, driver_features, features_ok)
        granted = self._status(m, written, status, driver_features)
        m.d.sync += status.eq(status | granted | self._troubles(m))
        m.d.sync += self.config_changed.eq(0)
        with m.If(self.contents_changed):
            m.d.sync += generation.eq(generation + 1)
        troubled = self.queue_error.valid | self.misaligned
        with m.If(self.driver_ok & (self.contents_changed | (troubled & ~self.needs_reset))):
            m.d.sync += self.config_changed.eq(1)

        chosen = device_select, driver_select, driver_features
        self._resets(m, written, status, chosen, generation)
        return m

    def _resets(self, m, written, status, chosen, generation) -> None:
        """The sequence of a device reset, which the driver or a function-level reset begins."""
        device_select, driver_select, driver_features = chosen
        asked, before = Signal(), Signal()  # a function-level reset waits; it had begun a cycle ago
        m.d.comb += self.over.eq(~self.resetting & ~asked)
        with m.FSM(name="reset"):
            # IDLE: waits for a reset of the driver or of the function; ends with it.
            with m.State("IDLE"):
                touched, value = written("device_status")
                with m.If((touched & (value == 0)) | asked):
                    m.d.sync += [
                        self.resetting.eq(1),
                        self.reset_request.eq(1),
                        asked.eq(0),
                    ]
                    increment(m, self.reset_count)
                    m.next = "QUIESCE"
            # QUIESCE: all that the function has is taken away; ends when that is done. A
            # function-level reset adds nothing, for no access has brought anything new meanwhile.
            with m.State("QUIESCE"):
                m.d.sync += asked.eq(0)
                with m.If(self.reset_done):
                    m.d.sync += [self.reset_request.eq(0), self.clear.eq(1)]
                    m.next = "CLEAR"
            # CLEAR: the rows of the virtqueues are cleared; ends with the last one.
            with m.State("CLEAR"):
                with m.If(self.cleared):
                    m.d.sync += [
                        self.clear.eq(0),
                        self.resetting.eq(0),
                        self.fenced.eq(asked),
                        status.eq(0),
                        device_select.eq(0),
                        driver_select.eq(0),
                        driver_features.eq(0),
                        self.queue_select.eq(0),
                        self.config_vector.eq(abi.NO_VECTOR),
                        self.needs_reset_cause.eq(QueueErrorCause.NONE),
                        self.needs_reset_queue.eq(0),
                    ]
                    m.next = "IDLE"
        m.d.sync += before.eq(self.flr)
        with m.If(self.flr):
            m.d.sync += [
                device_select.eq(0),
                driver_select.eq(0),
                self.queue_select.eq(0),
                self.config_vector.eq(abi.NO_VECTOR),
                generation.eq(0),
            ]
        with m.If(self.flr & ~before):
            m.d.sync += [asked.eq(1), self.fenced.eq(1)]

    @staticmethod
    def _half(value, select):
        """The 32 bits of ``value`` that ``select`` names; 0 beyond 64 bits."""
        return Mux(select == 0, value[:32], Mux(select == 1, value[32:], 0))

    def _plain(self, m, written, device_select, driver_select, driver_features, features_ok):
        for name, target in (
            ("device_feature_select", device_select),
            ("driver_feature_select", driver_select),
            ("queue_select", self.queue_select),
        ):
            touched, value = written(name)
            with m.If(touched):
                m.d.sync += target.eq(value)
        touched, value = written("driver_feature")
        with m.If(touched & ~features_ok):
            with m.If(driver_select == 0):
                m.d.sync += driver_features[:32].eq(value)
            with m.Elif(driver_select == 1):
                m.d.sync += driver_features[32:].eq(value)
        touched, value = written("config_msix_vector")
        with m.If(touched):
            m.d.sync += self.config_vector.eq(Mux(value < self._kind.vectors, value, abi.NO_VECTOR))

    def _status(self, m, written, status, driver_features):
        """The bits that the driver's write of the status is granted."""
        touched, value = written("device_status")
        others = self._kind.offered ^ ((1 << 64) - 1)
        acceptable = (driver_features & others) == 0
        for together in self._kind.exclusive:
            acceptable &= (driver_features & together) != together
        for feature, needed in self._kind.needs:
            acceptable &= ((driver_features & feature) == 0) | ((driver_features & needed) != 0)
        has_version = driver_features[Feature.VERSION_1]
        grant_features, grant_driver = Signal(), Signal()
        m.d.comb += [
            grant_features.eq(((value & Status.FEATURES_OK) != 0) & acceptable & has_version),
            grant_driver.eq(
                ((value & Status.DRIVER_OK) != 0)
                & (grant_features | ((status & Status.FEATURES_OK) != 0))
            ),
        ]
        granted = Signal(8)
        with m.If(touched & (value != 0)):
            m.d.comb += granted.eq(
                (value & int(PLAIN_STATUS))
                | Mux(grant_features, int(Status.FEATURES_OK), 0)
                | Mux(grant_driver, int(Status.DRIVER_OK), 0)
            )
        return granted

    def _troubles(self, m):
        """Remember the first broken queue; returns the status bits to set."""
        m.d.comb += self.queue_error.ready.eq(1)
        with m.If(~self.resetting & (self.queue_error.valid | self.misaligned)):
            with m.If(~self.needs_reset):
                m.d.sync += [
                    self.needs_reset_cause.eq(
                        Mux(
                            self.queue_error.valid,
                            self.queue_error.payload.cause,
                            QueueErrorCause.ALIGNMENT,
                        )
                    ),
                    self.needs_reset_queue.eq(
                        Mux(
                            self.queue_error.valid,
                            self.queue_error.payload.queue,
                            self.misaligned_queue,
                        )
                    ),
                ]
        troubled = self.queue_error.valid | self.misaligned
        return Mux(troubled & ~self.resetting, int(Status.DEVICE_NEEDS_RESET), 0)
