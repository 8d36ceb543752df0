"""The card of the benches beside this file: the default one, as wide as the test asks for, or one
with few hot QPs; and one with every feature."""

import os
from dataclasses import replace

from hdl.config import NicConfig
from sim.bench import cards

CONFIG = NicConfig(width=int(os.environ.get("ROCINANTE_WIDTH", "64")))
#: As few hot QPs as can be, of many: the context of the QPs is a cache.
HOT = NicConfig(width=CONFIG.width, qps=1024, hot_qps=16)
#: For benches of what the default card does not have.
ALL = replace(cards.EVERYTHING, width=CONFIG.width)
#: The same for two functions.
FUNCTIONS = replace(cards.FUNCTIONS, width=CONFIG.width)
#: Of two functions whose WQEs may come with their doorbells; rings may be packed otherwise.
PUSH = replace(CONFIG, functions=2, packed=True, push=True)
if os.environ.get("ROCINANTE_HOT"):
    CONFIG = HOT
