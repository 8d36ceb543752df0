"""Buffers of other devices, which this card does not have."""

from sim.programs.pyverbs.absent import refusing

DmaBuf = refusing("DmaBuf")
