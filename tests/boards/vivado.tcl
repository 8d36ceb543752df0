# Stand-ins for Vivado's commands: they check each name that a script or a constraint uses, and end
# the run at the first that is wrong. What a test knows comes from facts.tcl, by the caller:
#   part, ports (list), ball (array: ball -> function), cells (list of register paths).
# Pins and properties are those that the script uses, written after public designs and from memory.
# PG201 (ps), PG247 (smartconnect), PG164 (reset), PG210 (mac) and PG085 (frame_fifo) define them.
proc wrong {text} { puts stderr "WRONG: $text"; exit 1 }
proc known {what name list} {
    if {[lsearch -exact $list $name] < 0} { wrong "no $what $name" }
}
proc option {name arguments} {
    set at [lsearch -exact $arguments $name]
    if {$at < 0} { wrong "$name is missing" }
    return [lindex $arguments [expr {$at + 1}]]
}
array set pins {
    zynq_ultra_ps_e {pl_clk0 pl_clk1 pl_resetn0 pl_ps_irq0 maxihpm0_fpd_aclk saxihp0_fpd_aclk}
    smartconnect {aclk aresetn}
    proc_sys_reset {slowest_sync_clk ext_reset_in interconnect_aresetn peripheral_aresetn}
}
array set buses {
    zynq_ultra_ps_e {S_AXI_HP0_FPD M_AXI_HPM0_FPD}
    smartconnect {S00_AXI M00_AXI}
    proc_sys_reset {}
}
array set properties {
    zynq_ultra_ps_e {PSU__USE__M_AXI_GP0 PSU__USE__M_AXI_GP1 PSU__USE__M_AXI_GP2
        PSU__USE__S_AXI_GP2 PSU__SAXIGP2__DATA_WIDTH PSU__USE__IRQ0 PSU__USE__FABRIC__RST
        PSU__FPGA_PL0_ENABLE PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ PSU__FPGA_PL1_ENABLE
        PSU__CRL_APB__PL1_REF_CTRL__FREQMHZ}
    smartconnect {NUM_SI NUM_MI}
    xxv_ethernet {CORE LINE_RATE BASE_R_KR NUM_OF_CORES DATA_PATH_INTERFACE
        INCLUDE_AXI4_INTERFACE INCLUDE_SHARED_LOGIC GT_DRP_CLK GT_REF_CLK_FREQ GT_GROUP_SELECT
        LANE1_GT_LOC}
    axis_data_fifo {TDATA_NUM_BYTES TUSER_WIDTH HAS_TKEEP HAS_TLAST FIFO_DEPTH FIFO_MODE}
    interface {PROTOCOL DATA_WIDTH ADDR_WIDTH ID_WIDTH HAS_REGION FREQ_HZ}
    port {ASSOCIATED_BUSIF}
}
set made {} ; set added {} ; set placed {}
array set kind {} ; array set direction {} ; array set interface {}

proc create_project {name folder args} {
    if {[option -part $args] ne $::part} { wrong "part [option -part $args]" }
}
proc get_board_parts {pattern} { return [list [string map {* 2.6} $pattern]] }
proc current_project {} { return project }
proc current_fileset {} { return fileset }
proc add_files {args} {
    set file [lindex $args end]
    if {![file isfile $file]} { wrong "no file $file" }
    lappend ::added [file tail $file]
    if {[file extension $file] eq ".xdc"} { uplevel #0 [list source $file] }
}
proc get_files {name} {
    known file $name [concat $::added $::made]
    return "file $name"
}
proc create_bd_design {name} { lappend ::made $name.bd }
proc create_bd_cell {args} {
    set ip [lindex [split [option -vlnv $args] :] 2]
    if {![info exists ::pins($ip)]} { wrong "no cell of IP $ip" }
    set ::kind([lindex $args end]) $ip
    return [lindex $args end]
}
proc apply_bd_automation {args} { known cell [lindex $args end] [array names ::kind] }
proc create_bd_port {args} {
    set way [option -dir $args]
    known direction $way {I O}
    set width [expr {[lsearch $args -from] < 0 ? 1 : [option -from $args] + 1}]
    set ::direction([lindex $args end]) "$way $width"
}
proc create_bd_intf_port {args} {
    known mode [option -mode $args] {Master Slave}
    set ::interface([lindex $args end]) [option -mode $args]
}
proc get_bd_pins {path} {
    lassign [split $path /] cell pin
    known cell $cell [array names ::kind]
    known "pin of $cell" $pin $::pins($::kind($cell))
    return $path
}
proc get_bd_intf_pins {path} {
    lassign [split $path /] cell bus
    known cell $cell [array names ::kind]
    known "bus of $cell" $bus $::buses($::kind($cell))
    return $path
}
proc get_bd_ports {name} { known "port of the block design" $name [array names ::direction]
    return "port $name" }
proc get_bd_intf_ports {name} { known "interface port" $name [array names ::interface]
    return "interface $name" }
proc connect_bd_net {args} { if {[llength $args] != 2} { wrong "net $args" } }
proc connect_bd_intf_net {args} { if {[llength $args] != 2} { wrong "net $args" } }
proc get_bd_addr_segs {path} {
    known segment $path {registers/Reg ps/SAXIGP2/HP0_DDR_LOW}
    return $path
}
proc create_ip {args} {
    set name [option -module_name $args]
    set ::kind($name) [option -name $args]
    lappend ::made $name.xci
}
proc get_ips {{name *}} {
    if {$name ne "*"} { known IP $name [array names ::kind] }
    return $name
}
foreach name {assign_bd_address validate_bd_design save_bd_design update_compile_order launch_runs
        wait_on_run open_run report_utilization report_timing_summary report_cdc write_bitstream
        write_hw_platform generate_target set_max_delay set_bus_skew set_false_path} {
    proc $name {args} {}
}
proc get_timing_paths {args} { return path }
proc get_property {name object} { return [expr {$name eq "SLACK" ? 0.1 : 199998001}] }
proc set_property {args} {
    if {[lindex $args 0] eq "-dict"} {
        lassign $args _ pairs object
    } else {
        lassign $args name value object
        set pairs [list $name $value]
    }
    if {$object eq ""} { wrong "no object in set_property $args" }
    set type [lindex $object 0]
    foreach {name value} $pairs {
        if {[string match CONFIG.* $name]} {
            set owner [expr {[info exists ::kind($object)] ? $::kind($object) : $type}]
            known "property of $owner" [string range $name 7 end] $::properties($owner)
        } elseif {$name eq "PACKAGE_PIN"} {
            place $value [lindex $object 1]
        } elseif {$name eq "top"} {
            known module $value $::modules
        } else {
            known property $name {board_part PROCESSING_ORDER ASYNC_REG IOSTANDARD SLEW DRIVE}
        }
    }
}
# A port may be on a ball whose function it can have, and alone.
proc place {ball port} {
    if {![info exists ::ball($ball)]} { wrong "no ball $ball" }
    if {[lsearch $::placed $ball] >= 0} { wrong "ball $ball twice" }
    lappend ::placed $ball
    foreach {pattern function} {
        sfp_rx_p MGTHRXP2_225 sfp_rx_n MGTHRXN2_225 sfp_tx_p MGTHTXP2_225 sfp_tx_n MGTHTXN2_225
        mgt_refclk_p MGTREFCLK1P_226 mgt_refclk_n MGTREFCLK1N_226 * "IO LVCMOS12"
    } {
        if {[string match $pattern $port]} {
            if {$::ball($ball) ne $function} { wrong "ball $ball is $::ball($ball), not for $port" }
            return
        }
    }
}
proc get_ports {name} {
    known port $name $::ports
    return "port $name"
}
proc create_clock {args} { option -period $args }
# Patterns are {NAME =~ *a/b_reg*} and unions of them: each of them must meet a register.
proc meets {filter} {
    if {![regexp {NAME =~} $filter]} { wrong "filter $filter" }
    foreach {_ pattern} [regexp -all -inline {NAME =~ ([^ |]+)} $filter] {
        set pattern [regsub {/(PRE|CLR)$} $pattern {}]
        if {[lsearch -glob $::cells $pattern] < 0} { return 0 }
    }
    return 1
}
proc get_cells {args} {
    set filter [option -filter $args]
    if {![meets $filter] && [lsearch $args -quiet] < 0} { wrong "no cell $filter" }
    return cells
}
proc get_pins {args} {
    if {![meets [option -filter $args]]} { wrong "no pin [option -filter $args]" }
    return pins
}

source [lindex $argv 0]
source [lindex $argv 1]
if {[llength $placed] != [llength $ports]} { wrong "ports without a ball" }
foreach port [lsort [array names direction]] { puts "port $port $direction($port)" }
foreach bus [lsort [array names interface]] { puts "bus $bus $interface($bus)" }
foreach name [lsort $made] { puts "made $name" }
