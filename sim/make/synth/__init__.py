"""What the gateware costs: logic synthesis by Yosys, counted and walked by code of our own.

``parts`` lists the pieces, ``tool`` runs Yosys, ``cells`` says what its cells are, ``netlist``
reads what it wrote, ``levels`` walks the paths, ``report`` measures a piece, ``baseline`` compares
with the figures kept in the repository, ``place`` runs nextpnr, ``timing`` adds up the ``delays``
of the boards in ``cards``, ``timing_report`` shows that, ``command`` is ``rocinante synth``.
"""
