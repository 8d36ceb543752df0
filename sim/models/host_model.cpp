// The host models of all cards; host_model.sv calls them every cycle, Python when it likes.

#include <sys/mman.h>

#include <cstring>

#include "host.hpp"
#include "svdpi.h"

namespace rocinante {
namespace {

constexpr int kHosts = 4;

Host hosts[kHosts];

}  // namespace

unsigned Host::column() const { return this - hosts; }

}  // namespace rocinante

using rocinante::Host;
using rocinante::hosts;

extern "C" {

// Called by Python.

void *host_memory(int id, std::uint64_t base, std::uint64_t size) {
    Host &host = hosts[id];
    rocinante::spaces_of(id).clear();
    if (host.memory) munmap(host.memory, host.size);
    void *area = mmap(nullptr, size, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (area == MAP_FAILED) {
        host.memory = nullptr;
        host.size = 0;
        return nullptr;
    }
    host.memory = static_cast<std::uint8_t *>(area);
    host.base = base;
    host.size = size;
    return area;
}

void *host_settings(int id) { return &hosts[id].settings; }
void *host_stats(int id) { return &hosts[id].stats; }
// After a change of settings.
void host_reseed(int id) {
    rocinante::wake();
    hosts[id].reseed();
}

void host_mmio(int id, std::uint32_t access, std::uint32_t function, std::uint32_t bar,
               std::uint32_t addr, std::uint32_t size, std::uint32_t write, std::uint64_t value) {
    Host &host = hosts[id];
    rocinante::wake(id);
    host.push_mmio({access, function, bar, addr, size, write, value,
                    host.now_ + host.settings.mmio_latency_ps});
}

void host_push(int id, std::uint32_t function, std::uint32_t addr, const std::uint8_t *data,
               std::uint32_t size) {
    rocinante::wake(id);
    Host &host = hosts[id];
    host.pushes.add(host.beat, host.now_ + host.settings.mmio_latency_ps, function, addr, data, size);
}

void host_watch(int id, std::uint32_t watch, std::uint64_t addr, std::uint64_t size) {
    hosts[id].watch({watch, addr, size});
}
void host_unwatch(int id) { hosts[id].unwatch(); }

void host_answer(int id, std::uint32_t serial, const std::uint8_t *data) {
    rocinante::wake(id);
    hosts[id].answer_read(serial, data);
}
int host_store(int id, std::uint8_t *data) { return hosts[id].take_store(data); }

int host_event(int id, rocinante::Event *event) { return hosts[id].events.pop(event); }

void host_log(int id, int on) { hosts[id].log(on); }
int host_logged(int id, rocinante::Access *access) { return hosts[id].take_logged(access); }

// Called by host_model.sv, once a cycle: what the card offered, and what it is offered next.

void host_cycle(int id, int reset, std::uint64_t now, int width,
                // card to host: valid and ready as they were before the clock edge
                svBit rd_req_fire, svBit wr_fire, svBit mmio_req_fire, svBit mmio_rsp_fire, svBit push_fire,
                std::uint8_t rd_tag, std::uint8_t rd_function, std::uint64_t rd_addr,
                std::uint16_t rd_length, std::uint8_t wr_stream, std::uint8_t wr_function,
                std::uint64_t wr_addr, std::uint16_t wr_length, const svBitVecVal *wr_data,
                std::uint64_t wr_strb, svBit wr_first, svBit wr_last, std::uint32_t mmio_rsp,
                // host to card
                svBit *rd_req_ready, svBit *wr_ready, svBit *rsp_valid, std::uint8_t *rsp_tag,
                svBitVecVal *rsp_data, svBit *rsp_last, svBit *rsp_error, svBit *mmio_valid,
                std::uint8_t *mmio_function, std::uint8_t *mmio_bar, std::uint32_t *mmio_addr,
                svBit *mmio_write, std::uint8_t *mmio_strb, std::uint32_t *mmio_data,
                svBit *push_valid, std::uint8_t *push_function, std::uint32_t *push_addr,
                svBitVecVal *push_data, std::uint64_t *push_strb, svBit *signal) {
    Host &host = hosts[id];
    const std::uint64_t period = now - host.now_;
    host.now_ = now;
    host.beat = width / 8;
    host.fired = rd_req_fire | wr_fire | mmio_req_fire | mmio_rsp_fire | push_fire;
    if (reset) {
        host.clear();
    } else {
        // A write and a read accepted in the same cycle: the write counts as the earlier one.
        if (wr_fire) {
            host.take_write(now, wr_stream, wr_function, wr_addr, wr_length, wr_data, wr_strb,
                            wr_first, wr_last);
        }
        if (rd_req_fire) host.take_read(now, rd_tag, rd_function, rd_addr, rd_length);
        if (mmio_req_fire) host.take_mmio();
        if (push_fire) host.pushes.take();
        if (mmio_rsp_fire) host.take_answer(now, mmio_rsp);
        host.step(now, period);
    }
    *rd_req_ready = host.rd_ready;
    *wr_ready = host.wr_ready;
    *rsp_valid = host.rsp_valid;
    *rsp_tag = 0;
    if (host.rsp_valid) {
        *rsp_tag = host.rsp_tag;
        *rsp_last = host.rsp_last;
        *rsp_error = host.rsp_error;
        std::memcpy(rsp_data, host.rsp_data.data(), 64);
    }
    *mmio_valid = host.mmio_valid;
    if (host.mmio_valid) {
        const auto *access = host.mmio();
        const unsigned lane = access->addr & 3;
        *mmio_function = access->function;
        *mmio_bar = access->bar;
        *mmio_addr = access->addr & ~3u;
        *mmio_write = access->write != 0;
        *mmio_strb = ((1u << access->size) - 1) << lane;
        *mmio_data = static_cast<std::uint32_t>(access->value) << (8 * lane);
    }
    *push_valid = host.push_valid;
    if (host.push_valid) {
        const auto &beat = host.pushes.first();
        *push_function = beat.function;
        *push_addr = beat.addr;
        *push_strb = beat.strb;
        std::memcpy(push_data, beat.data.data(), 64);
    }
    *signal = host.events.signal();
}

}  // extern "C"
