"""What makes a bitstream of the ZCU106's files with Vivado.

Written after public scripts and from memory. AMD's guides define what is used here: UG994 (block
designs), PG201 (processor), PG210 (MAC), PG085 (FIFO). They have not been compared with it.
"""

from boards.vivado import Ip, project_script
from boards.zcu106.blocks import IRQS, MAC, REGISTER_BITS, WIDTH
from boards.zcu106.top import CONFIG, MAC_HZ, SLOW_HZ
from hdl.axi.reads import ID_BITS

__all__ = ["script"]

_SLOW_MHZ = SLOW_HZ // 1_000_000
_IPS = (
    Ip(
        MAC.name,
        "xxv_ethernet",
        {
            "CORE": "Ethernet MAC+PCS/PMA 64-bit",
            "LINE_RATE": 10,
            "BASE_R_KR": "BASE-R",
            "NUM_OF_CORES": 1,
            "DATA_PATH_INTERFACE": "AXI Stream",
            "INCLUDE_AXI4_INTERFACE": 0,
            "INCLUDE_SHARED_LOGIC": 1,
            "GT_DRP_CLK": f"{_SLOW_MHZ}.00",
            "GT_REF_CLK_FREQ": f"{MAC_HZ / 1e6:g}",
            "GT_GROUP_SELECT": "Quad_X0Y2",
            "LANE1_GT_LOC": "X0Y10",
        },
    ),
)
_PROCESSOR = """\
# The processor, as the module `processor`: memory by S_AXI_HP0_FPD, registers by M_AXI_HPM0_FPD.
create_bd_design processor
set ps [create_bd_cell -type ip -vlnv xilinx.com:ip:zynq_ultra_ps_e ps]
apply_bd_automation -rule xilinx.com:bd_rule:zynq_ultra_ps_e \\
    -config {apply_board_preset "1"} $ps
set_property -dict [list \\
    CONFIG.PSU__USE__M_AXI_GP0 1 CONFIG.PSU__USE__M_AXI_GP1 0 CONFIG.PSU__USE__M_AXI_GP2 0 \\
    CONFIG.PSU__USE__S_AXI_GP2 1 CONFIG.PSU__SAXIGP2__DATA_WIDTH @WIDTH@ \\
    CONFIG.PSU__USE__IRQ0 1 CONFIG.PSU__USE__FABRIC__RST 1 \\
    CONFIG.PSU__FPGA_PL0_ENABLE 1 CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ @CLOCK@ \\
    CONFIG.PSU__FPGA_PL1_ENABLE 1 CONFIG.PSU__CRL_APB__PL1_REF_CTRL__FREQMHZ @SLOW@] $ps
foreach bus {memory_bus register_bus} {
    set cell [create_bd_cell -type ip -vlnv xilinx.com:ip:smartconnect $bus]
    set_property -dict [list CONFIG.NUM_SI 1 CONFIG.NUM_MI 1] $cell
}
create_bd_cell -type ip -vlnv xilinx.com:ip:proc_sys_reset reset
set hertz [get_property CONFIG.FREQ_HZ [get_bd_pins ps/pl_clk0]]
create_bd_port -dir O -type clk clk
create_bd_port -dir O -type clk slow_clk
create_bd_port -dir O -type rst resetn
create_bd_port -dir I -from @IRQ@ -to 0 irq
create_bd_intf_port -mode Slave -vlnv xilinx.com:interface:aximm_rtl:1.0 memory
set_property -dict [list CONFIG.PROTOCOL AXI4 CONFIG.DATA_WIDTH @WIDTH@ CONFIG.ADDR_WIDTH 64 \\
    CONFIG.ID_WIDTH @ID@ CONFIG.HAS_REGION 0 CONFIG.FREQ_HZ $hertz] [get_bd_intf_ports memory]
create_bd_intf_port -mode Master -vlnv xilinx.com:interface:aximm_rtl:1.0 registers
set_property -dict [list CONFIG.PROTOCOL AXI4LITE CONFIG.DATA_WIDTH 32 \\
    CONFIG.ADDR_WIDTH @REGISTER@ CONFIG.FREQ_HZ $hertz] [get_bd_intf_ports registers]
set_property CONFIG.ASSOCIATED_BUSIF {memory:registers} [get_bd_ports clk]
foreach pin {ps/maxihpm0_fpd_aclk ps/saxihp0_fpd_aclk memory_bus/aclk register_bus/aclk \\
        reset/slowest_sync_clk} {
    connect_bd_net [get_bd_pins ps/pl_clk0] [get_bd_pins $pin]
}
connect_bd_net [get_bd_pins ps/pl_clk0] [get_bd_ports clk]
connect_bd_net [get_bd_pins ps/pl_clk1] [get_bd_ports slow_clk]
connect_bd_net [get_bd_pins ps/pl_resetn0] [get_bd_pins reset/ext_reset_in]
foreach bus {memory_bus register_bus} {
    connect_bd_net [get_bd_pins reset/interconnect_aresetn] [get_bd_pins $bus/aresetn]
}
connect_bd_net [get_bd_pins reset/peripheral_aresetn] [get_bd_ports resetn]
connect_bd_net [get_bd_ports irq] [get_bd_pins ps/pl_ps_irq0]
connect_bd_intf_net [get_bd_intf_ports memory] [get_bd_intf_pins memory_bus/S00_AXI]
connect_bd_intf_net [get_bd_intf_pins memory_bus/M00_AXI] [get_bd_intf_pins ps/S_AXI_HP0_FPD]
connect_bd_intf_net [get_bd_intf_pins ps/M_AXI_HPM0_FPD] [get_bd_intf_pins register_bus/S00_AXI]
connect_bd_intf_net [get_bd_intf_pins register_bus/M00_AXI] [get_bd_intf_ports registers]
assign_bd_address -offset 0xA0000000 -range 64M [get_bd_addr_segs registers/Reg]
assign_bd_address [get_bd_addr_segs ps/SAXIGP2/HP0_DDR_LOW]
validate_bd_design
save_bd_design
generate_target all [get_files processor.bd]

"""
_PLATFORM = """\
write_hw_platform -fixed -include_bit -force [file join $here zcu106.xsa]
"""


def script(part: str, board: str) -> str:
    """Return the Tcl text; ``part`` and ``board`` as Vivado names them, the board as a pattern."""
    design = _PROCESSOR
    values = {
        "WIDTH": WIDTH,
        "CLOCK": CONFIG.clock_hz // 1_000_000,
        "SLOW": _SLOW_MHZ,
        "IRQ": IRQS - 1,
        "ID": ID_BITS,
        "REGISTER": REGISTER_BITS,
    }
    for name, value in values.items():
        design = design.replace(f"@{name}@", str(value))
    return project_script("zcu106", part, ips=_IPS, board=board, design=design, end=_PLATFORM)
