"""The card of the benches beside this file: the default one, as wide as the test asks for."""

import os

from hdl.config import NicConfig

CONFIG = NicConfig(width=int(os.environ.get("ROCINANTE_WIDTH", "64")))
