# Stand-ins for Vivado's commands: they check each name that a script or a constraint uses, and end
# the run at the first that is wrong. What a test knows comes from facts.tcl, by the caller:
#   part, ports (list of bits), modules, ball (array: ball -> function), uses (pairs: pattern of
#   ports, pattern of functions), cells (list of register paths),
#   values (array: owner,property -> the values that it may have).
# Pins and buses are those that the script uses, written after public designs and from memory.
# PG201 (ps), PG247 (smartconnect) and PG164 (reset) define them.
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
set made {} ; set added {} ; set placed {}
array set kind {} ; array set direction {} ; array set interface {}

proc create_project {name folder args} {
    if {[option -part $args] ne $::part} { wrong "part [option -part $args]" }
}
proc get_board_parts {pattern} { return [list [string map {* 2.6} $pattern]] }
proc current_project {} { return project }
proc current_fileset {} { return fileset }
proc current_design {} { return design }
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
    if {![llength [array names ::values [option -name $args],*]]} {
        wrong "no IP [option -name $args]"
    }
    set ::kind($name) [option -name $args]
    lappend ::made $name.xci
}
proc get_ips {{name *}} {
    if {$name ne "*"} { known IP $name [array names ::kind] }
    return $name
}
foreach name {assign_bd_address validate_bd_design save_bd_design update_compile_order launch_runs
        wait_on_run open_run report_utilization report_timing_summary report_cdc report_methodology
        write_bitstream write_hw_platform generate_target create_ip_run set_max_delay set_bus_skew
        set_false_path} {
    proc $name {args} {}
}
proc get_timing_paths {args} {
    known "kind of delay" [option -delay_type $args] {max min}
    return path
}
proc get_runs {name} {
    known run $name {synth_1 impl_1}
    return run
}
# SLACK, and how far a run has come, are what a test says; by default all is well.
proc get_property {name object} {
    switch $name {
        SLACK { return [expr {[info exists ::slack] ? $::slack : 0.1}] }
        PROGRESS { return [expr {[info exists ::progress] ? $::progress : "100%"}] }
        CONFIG.FREQ_HZ { return 199998001 }
        default { wrong "no property $name" }
    }
}
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
            check_property $owner [string range $name 7 end] $value
        } elseif {$name eq "PACKAGE_PIN"} {
            place $value [lindex $object 1]
        } elseif {$name eq "top"} {
            known module $value $::modules
        } elseif {$type eq "pin" || $type eq "design"} {
            check_property $type $name $value
        } else {
            known property $name {board_part PROCESSING_ORDER ASYNC_REG}
        }
    }
}
# A port may be on a ball whose function it can have, and alone.
proc place {ball port} {
    if {![info exists ::ball($ball)]} { wrong "no ball $ball" }
    if {[lsearch $::placed $ball] >= 0} { wrong "ball $ball twice" }
    lappend ::placed $ball
    foreach {pattern function} $::uses {
        if {[string match $pattern $port]} {
            if {![string match $function $::ball($ball)]} {
                wrong "ball $ball is $::ball($ball), not for $port"
            }
            return
        }
    }
    wrong "no use of $port is known"
}
# A property must be known of its owner, and its value one that it may have.
proc check_property {owner name value} {
    if {![info exists ::values($owner,$name)]} { wrong "no property of $owner $name" }
    if {![regexp "^(?:$::values($owner,$name))\$" $value]} {
        wrong "$name of $owner cannot be $value"
    }
}
proc get_ports {name} {
    known port $name $::ports
    return [list pin $name]
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
if {[catch {source [lindex $argv 1]} said]} {
    puts stderr "ENDS: $said"
    exit 2
}
if {[llength $placed] != [llength $ports]} { wrong "ports without a ball" }
foreach port [lsort [array names direction]] { puts "port $port $direction($port)" }
foreach bus [lsort [array names interface]] { puts "bus $bus $interface($bus)" }
foreach name [lsort $made] { puts "made $name" }
