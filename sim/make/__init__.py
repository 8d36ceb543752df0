"""What is made and never simulated: Verilog, boards' files, costs, registers, pages, packages."""

COMMANDS = {
    "rtl": ("sim.make.rtl", "Generate the Verilog of the whole NIC."),
    "verilog": ("sim.make.core.command", "Write the NIC as a core for a design of your own."),
    "build": ("sim.make.boards.command", "Write what makes a bitstream for a board."),
    "synth": ("sim.make.synth.command", "Measure what the gateware costs."),
    "timing": ("sim.make.timing.command", "Estimate the clock of a board's NIC."),
    "header": ("sim.make.header", "Write the C header of the ABI for drivers, virtio_rdma.h."),
    "registers": ("sim.make.registers", "Write the registers as SystemRDL, C header and HTML."),
    "docs": ("sim.make.site", "Build the documentation as a site."),
}
