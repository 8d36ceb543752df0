// Host memory and root complex behind one card's host port.
//
// Order kept: reads see every write accepted before them; writes of one stream become visible in
// order. Everything else is shuffled: tags against each other, streams against each other.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <map>
#include <queue>
#include <vector>

#include "clock.hpp"
#include "events.hpp"
#include "host_types.hpp"
#include "pushes.hpp"
#include "spaces.hpp"
#include "tlp.hpp"

namespace rocinante {

constexpr std::uint64_t kMsiFirst = 0xFEE00000, kMsiLast = 0xFEEFFFFF;

class Host final : public Timed {
  public:
    Settings settings;
    Stats stats;
    Events events;
    Pushes pushes;
    std::uint8_t *memory = nullptr;
    std::uint64_t base = 0, size = 0;
    unsigned beat = 64;  // bytes

    bool rsp_valid = false, rsp_last = false, rsp_error = false;
    std::uint8_t rsp_tag = 0;
    std::array<std::uint32_t, 16> rsp_data{};
    bool rd_ready = false, wr_ready = false, mmio_valid = false, push_valid = false;
    bool fired = false;  // something went over the port in the last cycle

    void reseed() { random_.seed(settings.seed); }

    void clear() {
        waiting_ = {};
        ready_.clear();
        asked_.clear();
        for (auto &stream : streams_) {
            while (!stream.empty()) apply(stream);
        }
        mmio_.clear();
        pushes.clear();
        answers_.clear();
        returning_.clear();
        mmio_valid = push_valid = rsp_valid = rd_ready = wr_ready = false;
        stats.reads_outstanding = 0;
        current_ = -1;
        std::fill(std::begin(tag_used_), std::end(tag_used_), false);
        burst_left_ = 0;
    }

    // From now on what is accepted at the port is kept, or no more.
    void log(bool on) {
        logging_ = on;
        accesses_.clear();
    }
    bool take_logged(Access *access) {
        if (accesses_.empty()) return false;
        *access = accesses_.front();
        accesses_.pop_front();
        return true;
    }

    void push_mmio(const Mmio &access) { mmio_.push_back(access); }

    unsigned column() const override;

    std::uint64_t next(std::uint64_t now) const override {
        if (fired || rsp_valid || mmio_valid || push_valid || !ready_.empty() || !events.empty()) return 0;
        if (settings.stall_read || settings.stall_write) return 0;
        std::uint64_t next = kNever;
        if (!waiting_.empty()) next = std::min(next, waiting_.top().ready);
        for (const auto &stream : streams_) {
            if (!stream.empty()) next = std::min(next, stream.front().visible);
        }
        if (!returning_.empty()) next = std::min(next, returning_.front().event.time);
        if (!mmio_.empty()) next = std::min(next, mmio_.front().earliest);
        next = std::min(next, pushes.next());
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

    // Python has what a read has asked for; null: it cannot have it.
    void answer_read(std::uint32_t serial, const std::uint8_t *data) {
        const auto found = asked_.find(serial);
        if (found == asked_.end()) return;  // the card has been reset
        Read read = found->second;
        asked_.erase(found);
        read.fault = !data;
        if (data) read.data.assign(data, data + read.length);
        ready_.push_back(read);
    }

    // Takes what Python is to write: the bytes of a beat, which it copies to ``data``.
    unsigned take_store(std::uint8_t *data) {
        if (stores_.empty()) return 0;
        const auto bytes = std::move(stores_.front());
        stores_.pop_front();
        std::copy(bytes.begin(), bytes.end(), data);
        return bytes.size();
    }

    void take_write(std::uint64_t now, unsigned stream, unsigned function, std::uint64_t addr,
                    std::uint32_t length, const std::uint32_t *data, std::uint64_t strb, bool first,
                    bool last) {
        check_burst(now, addr, length, strb, first, last);
        if (first) {
            note(ACCESS_WRITE, function, addr + __builtin_ctzll(strb ? strb : 1), length, now);
        }
        Write write;
        write.order = ++order_;
        write.function = function;
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

    void take_read(std::uint64_t now, std::uint32_t tag, unsigned function, std::uint64_t addr,
                   std::uint32_t length) {
        if (tag_used_[tag]) broke(now, 1, addr);
        if (length == 0 || (addr & 4095) + length > 4096) broke(now, 2, addr);
        tag_used_[tag] = true;
        note(ACCESS_READ, function, addr, length, now);
        Read read{};
        read.ready = now + settings.read_latency_ps + random_.below(settings.read_jitter_ps);
        read.addr = addr;
        read.length = length;
        read.tag = tag;
        read.function = function;
        read.order = ++order_;
        if (Space *const space = spaces().of(function)) {
            const Piece *const piece = space->find(addr);
            read.fault = !piece || !piece->readable;
            read.ask = !read.fault && !piece->place;
            space->read_faults += read.fault;
        } else if (!own(addr, length)) {
            read.fault = true;
            events.push({EVENT_READ_FAULT, tag, length, addr, now});
        }
        stats.read_faults += read.fault;
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
            note(ACCESS_REGISTER, access.function, access.addr, access.value, now_);
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
        push_valid = pushes.next() <= now;
    }

  private:
    Random random_;
    std::priority_queue<Read, std::vector<Read>, Later> waiting_;
    std::vector<Read> ready_;
    std::array<std::deque<Write>, 16> streams_;  // pending_ writes in all
    std::deque<Mmio> mmio_, answers_;
    std::deque<Answer> returning_;
    std::map<std::uint32_t, Read> asked_;  // of Python, by serial
    std::deque<std::vector<std::uint8_t>> stores_;
    std::uint32_t serial_ = 0;
    bool tag_used_[256] = {};
    std::vector<Watch> watches_;
    int current_ = -1;  // index in ready_ of the completion being sent
    std::uint64_t order_ = 0, pending_ = 0, read_free_ = 0, write_free_ = 0, period_ = 0;
    std::uint32_t burst_left_ = 0;
    WritePackets write_packets_;
    std::uint64_t burst_next_ = 0;

    bool logging_ = false;
    std::deque<Access> accesses_;

    void note(std::uint32_t kind, std::uint32_t function, std::uint64_t addr, std::uint64_t value,
              std::uint64_t now) {
        if (logging_) accesses_.push_back({kind, function, addr, value, now});
    }

    bool stall(std::uint64_t of256) { return of256 && random_.below(256) < of256; }

    Spaces &spaces() const { return spaces_of(column()); }

    bool inside(std::uint64_t addr, std::uint64_t length) const {
        return addr >= base && addr - base < size && length <= size - (addr - base);
    }

    // Where bytes of functions without a space are: the host's memory, or what it has been lent.
    // None of them cross a page. Null: nowhere.
    std::uint8_t *own(std::uint64_t addr, std::uint64_t length) const {
        if (inside(addr, length)) return memory + (addr - base);
        const Piece *const piece = spaces().lent.find(addr);
        return piece ? piece->place + (addr - piece->first) : nullptr;
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
                events.push({EVENT_INTERRUPT, write.function, value, write.addr + lane, now_});
            }
            return;
        }
        if (!write.strb) return;
        const unsigned low = __builtin_ctzll(write.strb), high = 63 - __builtin_clzll(write.strb);
        std::uint8_t *const to = place_of(write, low, high);
        if (!to) return;
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

    // Where a beat's first lane is; null: nowhere that this process could write.
    std::uint8_t *place_of(const Write &write, unsigned low, unsigned high) {
        Space *const space = spaces().of(write.function);
        if (!space) {
            if (std::uint8_t *const to = own(write.addr + low, high - low + 1)) return to - low;
            stats.write_faults++;
            events.push({EVENT_WRITE_FAULT, 0, high - low + 1, write.addr + low, now_});
            return nullptr;
        }
        const Piece *const piece = space->find(write.addr + low);
        if (!piece || !piece->writable) {
            stats.write_faults++;
            space->write_faults++;
        } else if (piece->place) {
            return piece->place + (write.addr - piece->first);
        } else {
            stores_.emplace_back(&write.data[low], &write.data[high] + 1);
            events.push({EVENT_STORE, write.function, high - low + 1, write.addr + low, now_});
        }
        return nullptr;
    }

    // Asks Python for what a read wants, behind the writes before it.
    void ask(const Read &read) {
        flush(read.order);
        asked_.emplace(++serial_, read);
        const std::uint64_t value = std::uint64_t(read.function) << 32 | read.length;
        events.push({EVENT_FETCH, serial_, value, read.addr, now_});
    }

    // Where the next bytes of a read are; null: its guest has taken them away.
    const std::uint8_t *source(const Read &read) const {
        if (read.ask) return read.data.data() + (read.data.size() - read.length);
        const Space *const space = spaces().of(read.function);
        if (!space) return own(read.addr, 1);
        const Piece *const piece = space->find(read.addr);
        return piece && piece->place ? piece->place + (read.addr - piece->first) : nullptr;
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
            if (waiting_.top().ask) {
                ask(waiting_.top());
            } else {
                ready_.push_back(waiting_.top());
            }
            waiting_.pop();
        }
        rsp_valid = false;
        if (ready_.empty() || read_free_ > now || stall(settings.stall_completion)) return;
        if (current_ < 0) current_ = settings.reorder ? random_.below(ready_.size()) : 0;
        Read &read = ready_[current_];
        rsp_valid = true;
        rsp_tag = read.tag;
        if (!read.fault && !read.begun && !read.ask) flush(read.order);
        read.begun = true;
        const std::uint8_t *const from = read.fault ? nullptr : source(read);
        read.fault = !from;
        rsp_error = read.fault;
        rsp_last = true;
        bool chunk_ends = true;
        std::uint32_t bytes = beat;
        std::uint64_t headers = settings.tlp_payload ? kTlpShort : 0;
        if (!read.fault) {
            const std::uint32_t skip = read.addr % beat;
            bytes = std::min<std::uint32_t>(beat - skip, read.length);
            for (auto &word : rsp_data) word = random_.next();  // lanes not asked for
            std::memcpy(reinterpret_cast<std::uint8_t *>(rsp_data.data()) + skip, from, bytes);
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

}  // namespace rocinante
