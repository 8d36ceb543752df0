"""AMD ZCU106: a Zynq UltraScale+ whose processor runs the firmware, and SFP+ at 10 Gb/s."""
