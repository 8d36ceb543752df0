"""Flow steering, which this card does not have."""

from sim.programs.pyverbs.absent import refusing

Flow = refusing("Flow")
FlowAttr = refusing("FlowAttr")
