"""Numbers of the virtio-rdma ABI: commands, opcodes, states, flags, attribute masks.

Names are those of rdma-core without their prefix (IBV_WR_SEND -> WrOpcode.SEND).
Spec: virtio-rdma VR-2.1 .. VR-4.10 and the errata named at the enumerations.
"""

from __future__ import annotations

from enum import IntEnum, IntFlag


class ControlCommand(IntEnum):
    """First byte of a control request. Spec: VR-3.6. Extensions have numbers from 32 on."""

    QUERY_PORT = 1
    CREATE_CQ = 2
    DESTROY_CQ = 3
    CREATE_PD = 4
    DESTROY_PD = 5
    GET_DMA_MR = 6
    CREATE_MR = 7
    MAP_MR_SG = 8
    REG_USER_MR = 9
    DEREG_MR = 10
    CREATE_QP = 11
    MODIFY_QP = 12
    QUERY_QP = 13
    DESTROY_QP = 14
    QUERY_PKEY = 15
    ADD_GID = 16
    DEL_GID = 17
    REQ_NOTIFY_CQ = 18


class ExtensionCommand(IntEnum):
    """Commands of extensions, each unknown unless its feature was negotiated."""

    CREATE_SRQ = 32
    MODIFY_SRQ = 33
    QUERY_SRQ = 34
    DESTROY_SRQ = 35
    ALLOC_XRCD = 36
    DEALLOC_XRCD = 37
    CREATE_XRC_SRQ = 38
    CREATE_DC_DESTINATION = 39
    REREG_MR = 40
    REG_USER_MR_PAGES = 41
    ALLOC_MW = 42
    DEALLOC_MW = 43
    ATTACH_MCAST = 44
    DETACH_MCAST = 45
    REG_USER_MR_TABLE = 46
    DESTROY_DC_DESTINATION = 47
    RESIZE_CQ = 48
    RESIZE_QP = 49
    RESET_STREAM = 50
    CREATE_MKEY = 51
    QUERY_DCT = 52


class RdmaFeature(IntEnum):
    """Feature bit numbers of extensions, in the device type's own range (VR-1.3)."""

    SRQ = 0
    XRC = 1
    EVENTS = 2
    RESIZE = 3
    REREG_MR = 4
    PAGE_SIZES = 5
    MW = 6
    MCAST = 7
    TWO_LEVEL = 8
    MP_WR = 9
    DC = 10
    MKEY = 11
    MEMCPY = 12
    PLACEMENT = 13
    QUEUE_ERROR = 14
    ARM_CQ = 15
    PUSH = 16

    @property
    def mask(self) -> int:
        """The feature as a bit of the 64-bit feature word."""
        return 1 << self.value


class ReregFlags(IntFlag):
    """What REREG_MR changes. The numbers are libibverbs' of ``ibv_rereg_mr_flags``, which does not
    know TWO_LEVEL: the new page list has two levels."""

    TRANSLATION = 1 << 0
    PD = 1 << 1
    ACCESS = 1 << 2
    TWO_LEVEL = 1 << 8


class MwType(IntEnum):
    """Types of memory windows. The numbers are libibverbs' of ``ibv_mw_type``, which does not tell
    types 2A and 2B apart; TYPE_2 is 2B."""

    TYPE_1 = 1
    TYPE_2 = 2
    TYPE_2A = 3


class FlushType(IntFlag):
    """What a FLUSH brings about (PLT of its header), as ``ibv_placement_type`` has it."""

    GLOBAL = 1 << 0
    PERSISTENT = 1 << 1


class FlushLevel(IntEnum):
    """What a FLUSH is about (SEL of its header), as ``ibv_selectivity_level`` has it."""

    RANGE = 0
    MR = 1


class SrqAttrMask(IntFlag):
    """Which attributes MODIFY_SRQ sets."""

    MAX_WR = 1 << 0
    LIMIT = 1 << 1


class EventType(IntEnum):
    """What an event is about. The numbers are libibverbs' of ``ibv_event_type``."""

    CQ_ERR = 0
    QP_FATAL = 1
    SQ_DRAINED = 5
    PORT_ACTIVE = 9
    PORT_ERR = 10
    PKEY_CHANGE = 12
    SRQ_ERR = 14
    SRQ_LIMIT_REACHED = 15
    QP_LAST_WQE_REACHED = 16
    GID_CHANGE = 18
    DCT_KEY_VIOLATION = 32  # as older headers of Mellanox have it, and the next two
    DCT_ACCESS_ERR, DCT_REQ_ERR = 33, 34


class Response(IntEnum):
    """First byte of a control response; a driver takes any non-zero value as an error. VR-3.2."""

    OK = 0
    ERR = 1


class DeviceCap(IntFlag):
    """``device_cap_flags`` of the device configuration. Spec: VR-2.1, E-1."""

    BAD_PKEY_CNTR = 1 << 1
    BAD_QKEY_CNTR = 1 << 2
    CHANGE_PHY_PORT = 1 << 5
    UD_AV_PORT_ENFORCE = 1 << 6
    SYS_IMAGE_GUID = 1 << 11
    RC_RNR_NAK_GEN = 1 << 12
    MEM_WINDOW = 1 << 17
    XRC = 1 << 20
    MEM_MGT_EXTENSIONS = 1 << 21
    BLOCK_MULTICAST_LOOPBACK = 1 << 22
    MEM_WINDOW_TYPE_2A = 1 << 23
    MEM_WINDOW_TYPE_2B = 1 << 24
    SG_GAPS_REG = 1 << 32
    FLUSH_GLOBAL = 1 << 38
    FLUSH_PERSISTENT = 1 << 39
    ATOMIC_WRITE = 1 << 40


class AtomicCap(IntEnum):
    """Among whom an atomic is atomic: nobody, this device's QPs, CPU and others too. VR-2.2."""

    NONE = 0
    HCA = 1
    GLOB = 2


class PortState(IntEnum):
    """Logical port state. Spec: VR-3.40."""

    NOP = 0
    DOWN = 1
    INIT = 2
    ARMED = 3
    ACTIVE = 4
    ACTIVE_DEFER = 5


class PhysState(IntEnum):
    """Physical port state. Spec: VR-3.40."""

    SLEEP = 1
    POLLING = 2
    DISABLED = 3
    PORT_CONFIGURATION_TRAINING = 4
    LINK_UP = 5
    LINK_ERROR_RECOVERY = 6
    PHY_TEST = 7


class PortSpeed(IntEnum):
    """``active_speed``, per lane. Spec: VR-3.40."""

    SDR = 1
    DDR = 2
    QDR = 4
    FDR10 = 8
    FDR = 16
    EDR = 32
    HDR = 64
    NDR = 128


class PortWidth(IntEnum):
    """``active_width``, in lanes. Spec: VR-3.40."""

    X1 = 1
    X4 = 2
    X8 = 4
    X12 = 8
    X2 = 16


class PortCap(IntFlag):
    """``port_cap_flags``. Spec: VR-3.40."""

    CM_SUP = 1 << 16


class Mtu(IntEnum):
    """Path MTU code; ``octets`` is the payload limit in bytes. Spec: VR-3.28."""

    MTU_256 = 1
    MTU_512 = 2
    MTU_1024 = 3
    MTU_2048 = 4
    MTU_4096 = 5

    @property
    def octets(self) -> int:
        return 128 << self.value


class GidType(IntEnum):
    """GID type as in the kernel's user ABI. Spec: VR-3.33."""

    IB = 0
    ROCE_V1 = 1
    ROCE_V2 = 2


class Access(IntFlag):
    """Memory region and QP access flags. Spec: VR-3.19."""

    LOCAL_WRITE = 1 << 0
    REMOTE_WRITE = 1 << 1
    REMOTE_READ = 1 << 2
    REMOTE_ATOMIC = 1 << 3
    MW_BIND = 1 << 4
    ZERO_BASED = 1 << 5
    ON_DEMAND = 1 << 6
    HUGETLB = 1 << 7
    FLUSH_GLOBAL = 1 << 8
    FLUSH_PERSISTENT = 1 << 9
    RELAXED_ORDERING = 1 << 20


#: Access flags that a device may ignore: bits 20 to 29.
OPTIONAL_ACCESS = 0x3FF0_0000


class QpType(IntEnum):
    """Spec: VR-3.23. The last four are of the extensions XRC and DC."""

    SMI = 0
    GSI = 1
    RC = 2
    UC = 3
    UD = 4
    XRC_INI = 9  # as libibverbs' XRC_SEND
    XRC_TGT = 10  # as libibverbs' XRC_RECV
    DCI = 0xF0  # of libibverbs' DRIVER, which is one number for both
    DCT = 0xF1


class SigType(IntEnum):
    """Which send work requests complete with a CQE: all, or those with SIGNALED. VR-3.23."""

    ALL_WR = 0
    REQ_WR = 1


class QpState(IntEnum):
    """Spec: VR-3.25."""

    RESET = 0
    INIT = 1
    RTR = 2
    RTS = 3
    SQD = 4
    SQE = 5
    ERR = 6


class MigState(IntEnum):
    """Path migration state; migration itself is out of scope. Spec: VR-3.25."""

    MIGRATED = 0
    REARM = 1
    ARMED = 2


class QpAttrMask(IntFlag):
    """Which attributes MODIFY_QP sets. Spec: VR-3.26."""

    STATE = 1 << 0
    CUR_STATE = 1 << 1
    EN_SQD_ASYNC_NOTIFY = 1 << 2
    ACCESS_FLAGS = 1 << 3
    PKEY_INDEX = 1 << 4
    PORT = 1 << 5
    QKEY = 1 << 6
    AV = 1 << 7
    PATH_MTU = 1 << 8
    TIMEOUT = 1 << 9
    RETRY_CNT = 1 << 10
    RNR_RETRY = 1 << 11
    RQ_PSN = 1 << 12
    MAX_QP_RD_ATOMIC = 1 << 13
    ALT_PATH = 1 << 14
    MIN_RNR_TIMER = 1 << 15
    SQ_PSN = 1 << 16
    MAX_DEST_RD_ATOMIC = 1 << 17
    PATH_MIG_STATE = 1 << 18
    CAP = 1 << 19
    DEST_QPN = 1 << 20
    RESERVED1 = 1 << 21
    RESERVED2 = 1 << 22
    RESERVED3 = 1 << 23
    RESERVED4 = 1 << 24
    RATE_LIMIT = 1 << 25


class AhFlags(IntFlag):
    """``ah_flags`` of an address handle: the global route is valid (always so for RoCE)."""

    GRH = 1 << 0


class NotifyFlags(IntFlag):
    """What REQ_NOTIFY_CQ waits for; NEXT_COMPLETION wins over SOLICITED. Spec: VR-3.34."""

    SOLICITED = 1 << 0
    NEXT_COMPLETION = 1 << 1


class WrOpcode(IntEnum):
    """``opcode`` of a send work request. Spec: VR-4.4; 10, 12, 13 and others are refused. BIND_MW,
    FLUSH, ATOMIC_WRITE, MEMCPY and those of MKEY are of extensions."""

    RDMA_WRITE = 0
    RDMA_WRITE_WITH_IMM = 1
    SEND = 2
    SEND_WITH_IMM = 3
    RDMA_READ = 4
    ATOMIC_CMP_AND_SWP = 5
    ATOMIC_FETCH_AND_ADD = 6
    LOCAL_INV = 7
    BIND_MW = 8
    SEND_WITH_INV = 9
    RDMA_READ_WITH_INV = 11
    FLUSH = 14
    ATOMIC_WRITE = 15
    REG_MR = 0x20
    MKEY_LIST = 0x21
    MKEY_INTERLEAVED = 0x22
    MEMCPY = 0x23


class SendFlags(IntFlag):
    """``send_flags`` of a send work request. Spec: VR-4.5."""

    FENCE = 1 << 0
    SIGNALED = 1 << 1
    SOLICITED = 1 << 2
    INLINE = 1 << 3
    IP_CSUM = 1 << 4


class WcStatus(IntEnum):
    """``status`` of a completion. Spec: VR-4.8."""

    SUCCESS = 0
    LOC_LEN_ERR = 1
    LOC_QP_OP_ERR = 2
    LOC_EEC_OP_ERR = 3
    LOC_PROT_ERR = 4
    WR_FLUSH_ERR = 5
    MW_BIND_ERR = 6
    BAD_RESP_ERR = 7
    LOC_ACCESS_ERR = 8
    REM_INV_REQ_ERR = 9
    REM_ACCESS_ERR = 10
    REM_OP_ERR = 11
    RETRY_EXC_ERR = 12
    RNR_RETRY_EXC_ERR = 13
    LOC_RDD_VIOL_ERR = 14
    REM_INV_RD_REQ_ERR = 15
    REM_ABORT_ERR = 16
    INV_EECN_ERR = 17
    INV_EEC_STATE_ERR = 18
    FATAL_ERR = 19
    RESP_TIMEOUT_ERR = 20
    GENERAL_ERR = 21


class WcOpcode(IntEnum):
    """``opcode`` of a completion: work completion codes, not WR opcodes. Spec: VR-4.9, E-5."""

    SEND = 0
    RDMA_WRITE = 1
    RDMA_READ = 2
    COMP_SWAP = 3
    FETCH_ADD = 4
    BIND_MW = 5
    LOCAL_INV = 6
    FLUSH = 8
    ATOMIC_WRITE = 9
    REG_MR = 10
    MKEY = 11
    MEMCPY = 12
    RECV = 128
    RECV_RDMA_WITH_IMM = 129
    RECV_NOP = 138  # MP_WR: without a packet


class WcFlags(IntFlag):
    """``wc_flags`` of a completion, with the values of libibverbs. Spec: VR-4.10, E-6."""

    GRH = 1 << 0
    WITH_IMM = 1 << 1
    IP_CSUM_OK = 1 << 2
    WITH_INV = 1 << 3
    #: MP_WR: the message goes on; it is the last one of its request; the message ends here, broken.
    MP_WR_MORE_IN_MSG = 1 << 7
    MP_WR_CONSUMED = 1 << 8
    MP_WR_BROKEN = 1 << 9
