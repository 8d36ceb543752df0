"""The card of the benches beside this file: the default one, as wide as the test asks for; or one
with few hot QPs; or one that has FLUSH and ATOMIC WRITE as well, or these and MEMCPY, or XRC, or
this and receive requests that take several packets, or indirect keys, or a push window, or DC."""

import os
from dataclasses import replace

from hdl.config import NicConfig

CONFIG = NicConfig(width=int(os.environ.get("ROCINANTE_WIDTH", "64")))
#: As few hot QPs as can be, of many: the context of the QPs is a cache.
HOT = NicConfig(width=CONFIG.width, qps=1024, hot_qps=16)
#: With the memory placement extensions, for a host that keeps what it has been given.
PLACEMENT = replace(CONFIG, placement=True, persistence=True)
#: With copies inside host memory as well.
MEMCPY = replace(PLACEMENT, memcpy=True)
#: With XRC; on the next card if the test asks for that.
XRC = replace(CONFIG, xrc=True, mp_wr=bool(os.environ.get("ROCINANTE_MP_WR")))
#: With receive requests that take several packets, and XRC.
MP_WR = replace(XRC, mp_wr=True)
#: Of two functions whose WQEs may come with their doorbells; rings may be packed otherwise.
PUSH = replace(CONFIG, functions=2, packed=True, push=True)
#: With connections that come and go, and copies between what goes over them.
DC = replace(CONFIG, dc=True, memcpy=True)
#: With indirect keys, and all that may use them.
MKEYS = replace(MEMCPY, xrc=True, mkeys=True)
if os.environ.get("ROCINANTE_HOT"):
    CONFIG = HOT
