# Stand-ins for the commands of Intel Quartus and its qsys-script: they check each name that a script,
# an assignment or a constraint uses, and end the run at the first that is wrong. What a test knows
# comes from facts.tcl, by the caller: see vivado.tcl.
proc wrong {text} { puts stderr "WRONG: $text"; exit 1 }
proc known {what name list} {
    if {[lsearch -exact $list $name] < 0} { wrong "no $what $name" }
}
proc option {name arguments} {
    set at [lsearch -exact $arguments $name]
    if {$at < 0} { wrong "$name is missing" }
    return [lindex $arguments [expr {$at + 1}]]
}
set made {} ; set placed {} ; set unit {} ; set system {}
array set kind {}

# A property must be known of its owner, and its value one that it may have.
proc check_property {owner name value} {
    if {![info exists ::values($owner,$name)]} { wrong "no property of $owner $name" }
    if {![regexp "^(?:$::values($owner,$name))\$" $value]} {
        wrong "$name of $owner cannot be $value"
    }
}
proc check_file {name} { if {![file isfile $name]} { wrong "no file $name" } }

# The project's script.
rename package tcl_package
proc package {args} {
    if {[lindex $args 0] eq "require"} {
        known package [lindex $args end-[expr {[lindex $args 1] eq "-exact"}]] {
            ::quartus::project ::quartus::flow qsys}
        return
    }
    uplevel 1 [list tcl_package {*}$args]
}
proc exec {tool args} {
    known tool $tool {qsys-script}
    known option [lindex $args 0] {--quartus-project=none}
    if {![regexp {^--script=(.+)$} [lindex $args 1] _ script]} { wrong "script [lindex $args 1]" }
    check_file $script
    uplevel #0 [list source $script]
}
proc project_open {name} {
    check_file $name.qsf
    set file [open $name.qsf]
    foreach line [split [read $file] \n] {
        uplevel #0 [string map {\[ \\\[ \] \\\]} $line]
    }
    close $file
    set ::project $name
}
proc execute_module {args} { known tool [option -tool $args] {ipg} }
proc execute_flow {what} {
    known flow $what {-compile}
    if {[info exists ::fails]} { error "the flow has failed" }
    file mkdir output_files
    set file [open output_files/$::project.sta.summary w]
    puts $file "Type  : Slow 900mV 100C Model Setup 'clock'\nSlack : [expr {
        [info exists ::slack] ? $::slack : 0.1}]\nTNS   : 0.000"
    close $file
}
proc project_close {} {}

# Scripts of IP cores.
proc create_system {name} { set ::system $name }
proc set_project_property {name value} {
    if {$name eq "DEVICE" && $value ne $::part} { wrong "part $value" }
    known property $name {DEVICE DEVICE_FAMILY HIDE_FROM_IP_CATALOG}
}
proc add_instance {name ip} {
    if {![llength [array names ::values $ip,*]]} { wrong "no IP $ip" }
    set ::kind($name) $ip
}
proc set_instance_parameter_value {name parameter value} {
    known instance $name [array names ::kind]
    check_property $::kind($name) $parameter $value
}
proc set_instance_property {name property value} {
    known instance $name [array names ::kind]
    known property $property {AUTO_EXPORT}
}
proc save_system {name} {
    if {$name ne "$::system.ip"} { wrong "system $name" }
    lappend ::made $name
}

# Assignments.
proc set_global_assignment {args} {
    set name [option -name $args] ; set value [lindex $args end]
    switch $name {
        DEVICE { if {$value ne $::part} { wrong "part $value" } }
        TOP_LEVEL_ENTITY { known module $value $::modules }
        SYSTEMVERILOG_FILE { check_file $value }
        SDC_FILE { check_file $value ; uplevel #0 [list source $value] }
        IP_FILE { known IP $value $::made }
        default { check_property global $name $value }
    }
}
# A port may be on a ball whose function it can have, and alone.
proc set_location_assignment {pin args} {
    set port [option -to $args]
    known port $port $::ports
    if {![regexp {^PIN_(.+)$} $pin _ ball]} { wrong "pin $pin" }
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
proc set_instance_assignment {args} {
    known port [option -to $args] $::ports
    check_property instance [option -name $args] [lindex $args 2]
}

# Constraints. A pattern must meet a register.
proc get_ports {name} { known port $name $::ports ; return port }
proc get_registers {pattern} {
    if {[lsearch -glob $::cells [string map {| /} $pattern]] < 0} { wrong "no register $pattern" }
    return registers
}
proc create_clock {args} { option -period $args ; option -name $args }
foreach name {derive_clock_uncertainty set_false_path set_max_delay set_min_delay set_net_delay
        set_max_skew} {
    proc $name {args} {}
}

source [lindex $argv 0]
if {[catch {source [lindex $argv 1]} said]} {
    puts stderr "ENDS: $said"
    exit 2
}
if {[llength $placed] != [llength $ports]} { wrong "ports without a ball" }
foreach name [lsort $made] { puts "made $name" }
