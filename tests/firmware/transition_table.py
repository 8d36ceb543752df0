"""What MODIFY_QP must and may carry, written out row by row from the InfiniBand tables.

Independent of ``firmware/transitions.py``: one line for each type and transition, as IBTA vol 1,
11.2.5.2, table 91 has them; required | optional attributes besides STATE.
"""

from hdl.abi.enums import QpAttrMask as M
from hdl.abi.enums import QpState as S
from hdl.abi.enums import QpType as T

TYPES = (T.RC, T.UC, T.UD, T.GSI)

_TEXT = """
RC  RESET INIT: ACCESS_FLAGS PKEY_INDEX PORT |
RC  INIT  INIT: | ACCESS_FLAGS PKEY_INDEX PORT
RC  INIT  RTR : AV DEST_QPN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER PATH_MTU RQ_PSN | \
ACCESS_FLAGS ALT_PATH PKEY_INDEX
RC  RTR   RTS : MAX_QP_RD_ATOMIC RETRY_CNT RNR_RETRY SQ_PSN TIMEOUT | \
ACCESS_FLAGS ALT_PATH CUR_STATE MIN_RNR_TIMER PATH_MIG_STATE
RC  RTS   RTS : | ACCESS_FLAGS ALT_PATH CUR_STATE MIN_RNR_TIMER PATH_MIG_STATE
RC  RTS   SQD : | EN_SQD_ASYNC_NOTIFY
RC  SQD   RTS : | ACCESS_FLAGS ALT_PATH CUR_STATE MIN_RNR_TIMER PATH_MIG_STATE
RC  SQD   SQD : | ACCESS_FLAGS ALT_PATH AV MAX_DEST_RD_ATOMIC MAX_QP_RD_ATOMIC MIN_RNR_TIMER \
PATH_MIG_STATE PKEY_INDEX PORT RETRY_CNT RNR_RETRY TIMEOUT

UC  RESET INIT: ACCESS_FLAGS PKEY_INDEX PORT |
UC  INIT  INIT: | ACCESS_FLAGS PKEY_INDEX PORT
UC  INIT  RTR : AV DEST_QPN PATH_MTU RQ_PSN | ACCESS_FLAGS ALT_PATH PKEY_INDEX
UC  RTR   RTS : SQ_PSN | ACCESS_FLAGS ALT_PATH CUR_STATE PATH_MIG_STATE
UC  RTS   RTS : | ACCESS_FLAGS ALT_PATH CUR_STATE PATH_MIG_STATE
UC  RTS   SQD : | EN_SQD_ASYNC_NOTIFY
UC  SQD   RTS : | ACCESS_FLAGS ALT_PATH CUR_STATE PATH_MIG_STATE
UC  SQD   SQD : | ACCESS_FLAGS ALT_PATH AV PATH_MIG_STATE PKEY_INDEX
UC  SQE   RTS : | ACCESS_FLAGS CUR_STATE

UD  RESET INIT: PKEY_INDEX PORT QKEY |
UD  INIT  INIT: | PKEY_INDEX PORT QKEY
UD  INIT  RTR : | PKEY_INDEX QKEY
UD  RTR   RTS : SQ_PSN | CUR_STATE QKEY
UD  RTS   RTS : | CUR_STATE QKEY
UD  RTS   SQD : | EN_SQD_ASYNC_NOTIFY
UD  SQD   RTS : | CUR_STATE QKEY
UD  SQD   SQD : | PKEY_INDEX QKEY
UD  SQE   RTS : | CUR_STATE QKEY

GSI RESET INIT: PKEY_INDEX QKEY |
GSI INIT  INIT: | PKEY_INDEX QKEY
GSI INIT  RTR : | PKEY_INDEX QKEY
GSI RTR   RTS : SQ_PSN | CUR_STATE QKEY
GSI RTS   RTS : | CUR_STATE QKEY
GSI RTS   SQD : | EN_SQD_ASYNC_NOTIFY
GSI SQD   RTS : | CUR_STATE QKEY
GSI SQD   SQD : | PKEY_INDEX QKEY
GSI SQE   RTS : | CUR_STATE QKEY
"""


def _bits(names):
    return sum((M[name] for name in names.split()), M(0))


def _parse(text):
    for line in filter(None, text.splitlines()):
        edge, attributes = line.split(":")
        type_, start, end = edge.split()
        required, optional = attributes.split("|")
        yield (T[type_], S[start], S[end]), (_bits(required), _bits(optional))


#: (type, from, to) -> (required, optional).
TABLE = dict(_parse(_TEXT))
TABLE |= {(t, start, end): (M(0), M(0)) for t in TYPES for start in S for end in (S.RESET, S.ERR)}
