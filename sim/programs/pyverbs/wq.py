"""Work queues apart from queue pairs, and their tables, which this card does not have."""

from sim.programs.pyverbs.absent import refusing

WQ = refusing("WQ")
WQAttr = refusing("WQAttr")
WQInitAttr = refusing("WQInitAttr")
RwqIndTable = refusing("RwqIndTable")
RwqIndTableInitAttr = refusing("RwqIndTableInitAttr")
RxHashConf = refusing("RxHashConf")
