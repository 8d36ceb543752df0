# Has Verilator's headers compiled once for all models: to read them takes most of the compiler's
# time for a small one. This is a second makefile behind the one that Verilator writes. READY is a
# folder with headers.h; models of other settings have another one.
#
# A whole NIC is several files, for which Verilator has the headers compiled with the design's.
ifneq ($(VM_PARALLEL_BUILDS),1)
ready := $(READY)/headers.h
unfinished := $(ready).$(notdir $(CURDIR:/obj=))
readers := $(VK_USER_OBJS) $(VM_PREFIX)__ALL.o

$(readers): private CXXFLAGS += -Winvalid-pch -include $(ready)
$(readers): | $(ready).gch

# Renamed at the end: another build may be at it.
$(ready).gch: $(ready)
	$(CXX) $(OPT_FAST) $(CXXFLAGS) $(CPPFLAGS) -x c++-header $< -o $(unfinished)
	mv $(unfinished) $@
endif
