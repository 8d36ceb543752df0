"""What the gateware costs: logic synthesis by Yosys, counted and walked by code of our own.

``parts`` lists the pieces, ``tool`` runs Yosys, ``report`` measures a piece by ``sim.make.sta``,
``baseline`` compares with the figures kept in the repository, ``place`` runs nextpnr, ``command``
is ``rocinante synth``.
"""
