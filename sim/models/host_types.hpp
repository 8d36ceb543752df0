// What the host model keeps: its settings and statistics, and what is on its way.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "events.hpp"

namespace rocinante {

// Read by sim/models/platform.py through ctypes: same fields, same order.
struct Settings {
    std::uint64_t read_latency_ps = 500'000;
    std::uint64_t read_jitter_ps = 0;     // up to that much more, random for each read
    std::uint64_t write_delay_ps = 200'000;
    std::uint64_t write_jitter_ps = 0;    // up to that much more, random for each beat
    std::uint64_t read_ps_per_kib = 0;    // bandwidth of data towards the card; 0 = none set
    std::uint64_t write_ps_per_kib = 0;   // bandwidth of data from the card
    std::uint64_t mmio_latency_ps = 100'000;  // each way
    std::uint64_t chunk_bytes = 0;        // completions are split at multiples of it; 0 = every beat
    std::uint64_t reorder = 1;            // completions of different tags in any order
    std::uint64_t stall_read = 0;         // of 256 cycles, how many refuse a read request
    std::uint64_t stall_write = 0;        // ... a write beat
    std::uint64_t stall_completion = 0;   // ... bring no completion
    std::uint64_t seed = 1;
    // PCIe's packets count against the limits: largest payload of one (MPS) and largest read of one
    // request (MRRS), bytes; 0 = data alone counts.
    std::uint64_t tlp_payload = 0, tlp_read = 0;
};

struct Stats {
    std::uint64_t reads = 0, read_bytes = 0, read_beats = 0, read_faults = 0;
    std::uint64_t writes = 0, write_bytes = 0, write_beats = 0, write_faults = 0;
    std::uint64_t interrupts = 0, mmio_reads = 0, mmio_writes = 0;
    std::uint64_t reads_outstanding = 0, reads_outstanding_max = 0, writes_pending = 0;
    std::uint64_t first_read_ps = 0, last_read_ps = 0, first_write_ps = 0, last_write_ps = 0;
    std::uint64_t cycles = 0;
};

// One transaction of the host port that was accepted while they are logged; read by Python.
struct Access {
    std::uint32_t kind, function;
    std::uint64_t addr, value, time;  // value: bytes of a read or write, what a register gets; ps
};

enum AccessKind : std::uint32_t {
    ACCESS_READ = 0,      // the card asks for memory
    ACCESS_WRITE = 1,     // the first beat of a burst of the card
    ACCESS_REGISTER = 2,  // the host writes a register of the card
};

struct Read {
    std::uint64_t ready, addr, order;
    std::uint32_t length, tag, function;
    bool fault, begun;
    bool ask;                // Python gets the bytes, which are ``data`` then
    std::uint32_t tlp_left;  // bytes to the end of the completion packet that has begun
    std::vector<std::uint8_t> data;
};

struct Write {
    std::uint64_t visible, addr, strb, order;
    std::uint32_t function;
    std::array<std::uint8_t, 64> data;
};

struct Mmio {
    std::uint32_t id, function, bar, addr, size, write;
    std::uint64_t value, earliest;
};

struct Answer {
    Event event;
    std::uint64_t order;
};

struct Watch {
    std::uint32_t id;
    std::uint64_t addr, size;
};

struct Later {
    bool operator()(const Read &a, const Read &b) const {
        return a.ready != b.ready ? a.ready > b.ready : a.order > b.order;
    }
};

}  // namespace rocinante
