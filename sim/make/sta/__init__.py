"""Static timing analysis of a mapped netlist: levels of logic and delays of its paths.

A library without a command. In: the JSON netlist that Yosys writes of one flat module, the family
of its cells, and for delays the family's table. Out: paths.

    netlist = read(text, top)                          # netlist: cells, nets, their names
    walk = Walk(netlist, "xcup")                       # levels: cells on each path
    walk.levels("register").worst                      # 8; .paths: the longest to each register
    Timing(netlist, "xcup", ULTRASCALE_PLUS).paths()   # timing: ps, the slowest path to each

- A family is a key of ``cells`` (``xcup``: UltraScale+, ``ecp5``). A cell that it does not know
  raises ValueError, a combinational loop or a missing module BuildError.
- A netlist must have the attributes ``NAMED`` and ``REGISTER`` of ``netlist`` on its wires, or its
  paths go by the names of cells.
- ``Walk`` takes the ports of the module for ends too, ``Timing`` registers and memories alone.
- ``nets`` lists what costs time in any placement: wide nets and deep memories.

``sim.make.synth`` makes the netlists and limits their levels, ``sim.make.timing`` estimates the
clocks of boards. This package imports neither.
"""
