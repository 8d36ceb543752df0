// Host memory and root complex behind one card's host port; host_model.sv calls it every cycle.
//
// Order kept: reads see every write accepted before them; writes of one stream become visible in
// order. Everything else is shuffled: tags against each other, streams against each other.

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <queue>
#include <string>
#include <vector>

#include "clock.hpp"
#include "events.hpp"
#include "host_types.hpp"
#include "svdpi.h"
#include "tlp.hpp"

namespace rocinante {
namespace {

constexpr int kHosts = 4;
constexpr std::uint64_t kMsiFirst = 0xFEE00000, kMsiLast = 0xFEEFFFFF;

class Host final : public Timed {
  public:
    Settings settings;
    Stats stats;
    Events events;
    std::uint8_t *memory = nullptr;
    std::uint64_t base = 0, size = 0;
    unsigned beat = 64;  // bytes

    bool rsp_valid = false, rsp_last = false, rsp_error = false;
    std::uint8_t rsp_tag = 0;
    std::array<std::uint32_t, 16> rsp_data{};
    bool rd_ready = false, wr_ready = false, mmio_valid = false;
    bool fired = false;  // something went over the port in the last cycle

    void reseed() { random_.seed(settings.seed); }

    void clear() {
        waiting_ = {};
        ready_.clear();
        for (auto &stream : streams_) {
            while (!stream.empty()) apply(stream);
        }
        mmio_.clear();
        answers_.clear();
        returning_.clear();
        mmio_valid = rsp_valid = rd_ready = wr_ready = false;
        stats.reads_outstanding = 0;
        current_ = -1;
        std::fill(std::begin(tag_used_), std::end(tag_used_), false);
        burst_left_ = 0;
    }

    void push_mmio(const Mmio &access) { mmio_.push_back(access); }

    unsigned column() const override;

    std::uint64_t next(std::uint64_t now) const override {
        if (fired || rsp_valid || mmio_valid || !ready_.empty() || !events.empty()) return 0;
        if (settings.stall_read || settings.stall_write) return 0;
        std::uint64_t next = kNever;
        if (!waiting_.empty()) next = std::min(next, waiting_.top().ready);
        for (const auto &stream : streams_) {
            if (!stream.empty()) next = std::min(next, stream.front().visible);
        }
        if (!returning_.empty()) next = std::min(next, returning_.front().event.time);
        if (!mmio_.empty()) next = std::min(next, mmio_.front().earliest);
        if (write_free_ > now + period_) next = std::min(next, write_free_ - period_);
        return next;
    }

    void skip(std::uint64_t last, std::uint64_t cycles) override {
        if (!now_) return;  // nobody's host
        now_ = last;
        stats.cycles += cycles;
    }

    void watch(const Watch &watch) { watches_.push_back(watch); }
    void unwatch() { watches_.clear(); }

    const Mmio *mmio() const { return mmio_.empty() ? nullptr : &mmio_.front(); }

    void take_write(std::uint64_t now, unsigned stream, std::uint64_t addr, std::uint32_t length,
                    const std::uint32_t *data, std::uint64_t strb, bool first, bool last) {
        check_burst(now, addr, length, strb, first, last);
        Write write;
        write.order = ++order_;
        write.addr = addr;
        write.strb = strb;
        std::memcpy(write.data.data(), data, beat);
        write.visible = now + settings.write_delay_ps + random_.below(settings.write_jitter_ps);
        auto &queue = streams_[stream];
        if (!queue.empty()) write.visible = std::max(write.visible, queue.back().visible);
        queue.push_back(write);
        stats.writes_pending = ++pending_;
        stats.write_beats++;
        const std::uint64_t bytes = __builtin_popcountll(strb);
        stats.write_bytes += bytes;
        stats.writes += last;
        if (!stats.first_write_ps) stats.first_write_ps = now;
        stats.last_write_ps = now;
        const std::uint64_t around = write_packets_.headers(settings.tlp_payload, addr, bytes, first);
        spend(now, write_free_, (bytes + around) * settings.write_ps_per_kib / 1024);
    }

    void take_read(std::uint64_t now, std::uint32_t tag, std::uint64_t addr, std::uint32_t length) {
        if (tag_used_[tag]) broke(now, 1, addr);
        if (length == 0 || (addr & 4095) + length > 4096) broke(now, 2, addr);
        tag_used_[tag] = true;
        Read read{};
        read.ready = now + settings.read_latency_ps + random_.below(settings.read_jitter_ps);
        read.addr = addr;
        read.length = length;
        read.tag = tag;
        read.order = ++order_;
        read.fault = !inside(addr, length);
        if (read.fault) {
            stats.read_faults++;
            events.push({EVENT_READ_FAULT, tag, length, addr, now});
        }
        waiting_.push(read);
        stats.reads++;
        stats.reads_outstanding_max = std::max(stats.reads_outstanding_max, ++stats.reads_outstanding);
        if (!stats.first_read_ps) stats.first_read_ps = now;
        stats.last_read_ps = now;
        const std::uint64_t requests = read_headers(settings.tlp_read, addr, length);
        spend(now, write_free_, requests * settings.write_ps_per_kib / 1024);
    }

    void take_mmio() {
        const Mmio access = mmio_.front();
        mmio_.pop_front();
        if (access.write) {
            stats.mmio_writes++;
        } else {
            stats.mmio_reads++;
            answers_.push_back(access);
        }
    }

    void take_answer(std::uint64_t now, std::uint32_t word) {
        if (answers_.empty()) {
            broke(now, 3, word);
            return;
        }
        const Mmio access = answers_.front();
        answers_.pop_front();
        const std::uint64_t mask = access.size == 4 ? 0xFFFFFFFFu : (1u << (8 * access.size)) - 1;
        const std::uint64_t value = (word >> (8 * (access.addr & 3))) & mask;
        const std::uint64_t arrival = now + settings.mmio_latency_ps;
        returning_.push_back({{EVENT_MMIO, access.id, value, access.addr, arrival}, order_ + 1});
    }

    // Everything that happens by itself; decides what the outputs are in the next cycle.
    void step(std::uint64_t now, std::uint64_t period) {
        stats.cycles++;
        period_ = period;
        if (pending_) {
            for (auto &stream : streams_) {
                while (!stream.empty() && stream.front().visible <= now) apply(stream);
            }
        }
        while (!returning_.empty() && returning_.front().event.time <= now) {
            flush(returning_.front().order);  // a completion does not pass writes before it
            events.push(returning_.front().event);
            returning_.pop_front();
        }
        complete(now);
        const bool line_free = write_free_ <= now + period_;
        rd_ready = !stall(settings.stall_read) && (line_free || !settings.tlp_read);
        wr_ready = !stall(settings.stall_write) && line_free;
        mmio_valid = !mmio_.empty() && mmio_.front().earliest <= now;
    }

  private:
    Random random_;
    std::priority_queue<Read, std::vector<Read>, Later> waiting_;
    std::vector<Read> ready_;
    std::array<std::deque<Write>, 16> streams_;  // pending_ writes in all
    std::deque<Mmio> mmio_, answers_;
    std::deque<Answer> returning_;
    bool tag_used_[256] = {};
    std::vector<Watch> watches_;
    int current_ = -1;  // index in ready_ of the completion being sent
    std::uint64_t order_ = 0, pending_ = 0, read_free_ = 0, write_free_ = 0, period_ = 0;
    std::uint32_t burst_left_ = 0;
    WritePackets write_packets_;
    std::uint64_t burst_next_ = 0;

    bool stall(std::uint64_t of256) { return of256 && random_.below(256) < of256; }

    bool inside(std::uint64_t addr, std::uint64_t length) const {
        return addr >= base && addr - base < size && length <= size - (addr - base);
    }

    void broke(std::uint64_t now, std::uint64_t rule, std::uint64_t addr) {
        events.push({EVENT_PROTOCOL, 0, rule, addr, now});
    }

    // Time that a bandwidth limit takes; what a beat has left of its cycle counts for the next one.
    void spend(std::uint64_t now, std::uint64_t &free, std::uint64_t ps) {
        if (ps) free = std::max(free, now - std::min(now, period_)) + ps;
    }

    // A burst's beats follow each other, its length is right, it stays within 4 KiB.
    void check_burst(std::uint64_t now, std::uint64_t addr, std::uint32_t length,
                     std::uint64_t strb, bool first, bool last) {
        if (first != (burst_left_ == 0)) broke(now, 4, addr);
        if (addr % beat || strb == 0 || (beat < 64 && strb >> beat)) broke(now, 5, addr);
        if (first) {
            const std::uint64_t start = addr + __builtin_ctzll(strb ? strb : 1);
            if (length == 0 || (start & 4095) + length > 4096) broke(now, 6, addr);
            burst_left_ = length;
        } else if (addr != burst_next_) {
            broke(now, 7, addr);
        }
        const std::uint32_t bytes = __builtin_popcountll(strb);
        if (bytes > burst_left_ || last != (bytes == burst_left_)) broke(now, 8, addr);
        burst_left_ = last ? 0 : burst_left_ - std::min(bytes, burst_left_);
        burst_next_ = addr + beat;
    }

    void apply(std::deque<Write> &stream) {
        const Write write = stream.front();
        stream.pop_front();
        stats.writes_pending = --pending_;
        if (write.addr >= kMsiFirst && write.addr <= kMsiLast) {
            for (unsigned lane = 0; lane + 4 <= beat; lane += 4) {
                if ((write.strb >> lane & 15) != 15) continue;
                std::uint32_t value;
                std::memcpy(&value, &write.data[lane], 4);
                stats.interrupts++;
                events.push({EVENT_INTERRUPT, 0, value, write.addr + lane, now_});
            }
            return;
        }
        if (!write.strb) return;
        const unsigned low = __builtin_ctzll(write.strb), high = 63 - __builtin_clzll(write.strb);
        if (!inside(write.addr + low, high - low + 1)) {
            stats.write_faults++;
            events.push({EVENT_WRITE_FAULT, 0, high - low + 1, write.addr + low, now_});
            return;
        }
        std::uint8_t *to = memory + (write.addr - base);
        if (write.strb == (~0ull >> (64 - beat))) {
            std::memcpy(to, write.data.data(), beat);
        } else {
            for (unsigned lane = low; lane <= high; lane++) {
                if (write.strb >> lane & 1) to[lane] = write.data[lane];
            }
        }
        for (const Watch &watch : watches_) {
            if (write.addr + low < watch.addr + watch.size && watch.addr <= write.addr + high) {
                events.push({EVENT_WRITTEN, watch.id, 0, watch.addr, now_});
            }
        }
    }

    // A read pushes the writes that came before it.
    void flush(std::uint64_t order) {
        if (!pending_) return;
        for (auto &stream : streams_) {
            while (!stream.empty() && stream.front().order < order) apply(stream);
        }
    }

    void complete(std::uint64_t now) {
        while (!waiting_.empty() && waiting_.top().ready <= now) {
            ready_.push_back(waiting_.top());
            waiting_.pop();
        }
        rsp_valid = false;
        if (ready_.empty() || read_free_ > now || stall(settings.stall_completion)) return;
        if (current_ < 0) current_ = settings.reorder ? random_.below(ready_.size()) : 0;
        Read &read = ready_[current_];
        rsp_valid = true;
        rsp_tag = read.tag;
        rsp_error = read.fault;
        rsp_last = true;
        bool chunk_ends = true;
        std::uint32_t bytes = beat;
        std::uint64_t headers = settings.tlp_payload ? kTlpShort : 0;
        if (!read.fault) {
            if (!read.begun) flush(read.order);
            read.begun = true;
            const std::uint32_t skip = read.addr % beat;
            bytes = std::min<std::uint32_t>(beat - skip, read.length);
            for (auto &word : rsp_data) word = random_.next();  // lanes not asked for
            std::memcpy(reinterpret_cast<std::uint8_t *>(rsp_data.data()) + skip,
                        memory + (read.addr - base), bytes);
            headers = completion_headers(settings.tlp_payload, read.addr, bytes, read.tlp_left);
            read.addr += bytes;
            read.length -= bytes;
            rsp_last = read.length == 0;
            const std::uint64_t chunk = std::max<std::uint64_t>(settings.chunk_bytes, beat);
            chunk_ends = settings.reorder && read.addr % chunk == 0;
            stats.read_bytes += bytes;
        }
        stats.read_beats++;
        if (rsp_last) {
            tag_used_[read.tag] = false;
            stats.reads_outstanding--;
            if (settings.reorder) {
                ready_[current_] = ready_.back();
                ready_.pop_back();
            } else {
                ready_.erase(ready_.begin());
            }
        }
        if (rsp_last || chunk_ends) current_ = -1;
        spend(now, read_free_, (bytes + headers) * settings.read_ps_per_kib / 1024);
    }

  public:
    std::uint64_t now_ = 0;
};

Host hosts[kHosts];

unsigned Host::column() const { return this - hosts; }

}  // namespace
}  // namespace rocinante

using rocinante::Host;
using rocinante::hosts;

extern "C" {

// Called by Python.

void *host_memory(int id, std::uint64_t base, std::uint64_t size) {
    Host &host = hosts[id];
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

void host_watch(int id, std::uint32_t watch, std::uint64_t addr, std::uint64_t size) {
    hosts[id].watch({watch, addr, size});
}
void host_unwatch(int id) { hosts[id].unwatch(); }

int host_event(int id, rocinante::Event *event) { return hosts[id].events.pop(event); }

// Called by host_model.sv, once a cycle: what the card offered, and what it is offered next.

void host_cycle(int id, int reset, std::uint64_t now, int width,
                // card to host: valid and ready as they were before the clock edge
                svBit rd_req_fire, svBit wr_fire, svBit mmio_req_fire, svBit mmio_rsp_fire,
                std::uint8_t rd_tag, std::uint64_t rd_addr, std::uint16_t rd_length,
                std::uint8_t wr_stream, std::uint64_t wr_addr, std::uint16_t wr_length,
                const svBitVecVal *wr_data, std::uint64_t wr_strb, svBit wr_first, svBit wr_last,
                std::uint32_t mmio_rsp,
                // host to card
                svBit *rd_req_ready, svBit *wr_ready, svBit *rsp_valid, std::uint8_t *rsp_tag,
                svBitVecVal *rsp_data, svBit *rsp_last, svBit *rsp_error, svBit *mmio_valid,
                std::uint8_t *mmio_function, std::uint8_t *mmio_bar, std::uint32_t *mmio_addr,
                svBit *mmio_write, std::uint8_t *mmio_strb, std::uint32_t *mmio_data,
                svBit *signal) {
    Host &host = hosts[id];
    const std::uint64_t period = now - host.now_;
    host.now_ = now;
    host.beat = width / 8;
    host.fired = rd_req_fire | wr_fire | mmio_req_fire | mmio_rsp_fire;
    if (reset) {
        host.clear();
    } else {
        // A write and a read accepted in the same cycle: the write counts as the earlier one.
        if (wr_fire) {
            host.take_write(now, wr_stream, wr_addr, wr_length, wr_data, wr_strb, wr_first, wr_last);
        }
        if (rd_req_fire) host.take_read(now, rd_tag, rd_addr, rd_length);
        if (mmio_req_fire) host.take_mmio();
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
    *signal = host.events.signal();
}

}  // extern "C"
