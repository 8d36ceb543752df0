"""The same enumerations under the name that newer programs import."""

from sim.programs.pyverbs import enums

globals().update({k: v for k, v in vars(enums).items() if not k.startswith("__")})
