"""Connections of librdmacm, which this card does not have."""

from sim.programs.pyverbs.absent import refusing

CMID = refusing("CMID")
AddrInfo = refusing("AddrInfo")
CMEvent = refusing("CMEvent")
CMEventChannel = refusing("CMEventChannel")
ConnParam = refusing("ConnParam")
UDParam = refusing("UDParam")
JoinMCAttrEx = refusing("JoinMCAttrEx")
