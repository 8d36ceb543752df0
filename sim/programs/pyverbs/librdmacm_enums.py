"""The same enumerations under the name that newer programs import."""

from sim.programs.pyverbs import cm_enums

globals().update({k: v for k, v in vars(cm_enums).items() if not k.startswith("__")})
