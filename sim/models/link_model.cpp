// The wire between two MAC ports, or between a MAC port and Python; link_model.sv calls it every
// cycle. Frames carry no FCS at the ports; its time, the preamble and the gap are accounted for.
//
// A card's beats are taken as fast as the line sends them, plus a small FIFO's worth. A frame is
// offered one beat a cycle, such that its last beat coincides with its last bit, but not before the
// sender has handed it over whole: until then it may still turn out to be a bad one.

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "clock.hpp"
#include "events.hpp"
#include "impairments.hpp"
#include "svdpi.h"

namespace rocinante {
namespace {

constexpr int kPorts = 4;

// Read by sim/models/platform.py through ctypes: same fields, same order.
struct LinkSettings {
    std::uint64_t ps_per_byte = 80;      // 100 Gb/s
    std::uint64_t delay_ps = 100'000;    // propagation
    std::uint64_t fifo_bytes = 256;      // how far the sender may be ahead of the line
    std::uint64_t peer = ~0ull;          // port at the far end; none = Python
    std::uint64_t buffer_bytes = 1 << 20;  // at the far end, before the sender is held off
    std::uint64_t stall_tx = 0;          // of 256 cycles, how many refuse a beat
    std::uint64_t stall_rx = 0;          // ... bring none although one is there
    std::uint64_t seed = 1;
};

struct LinkStats {
    std::uint64_t tx_frames = 0, tx_bytes = 0, tx_bad = 0;  // from the card
    std::uint64_t rx_frames = 0, rx_bytes = 0;              // to the card, taken
    std::uint64_t first_tx_ps = 0, last_tx_ps = 0;          // first bit of first, last bit of last
    std::uint64_t protocol_errors = 0;
};

// Packets that the card has sent since the program began, by opcode, and ACKNOWLEDGEs by syndrome.
struct Packets {
    std::uint64_t opcodes[256] = {}, syndromes[256] = {};

    void add(const std::vector<std::uint8_t> &bytes) {
        const std::size_t bth = bth_of(bytes);
        if (!bth) return;
        opcodes[bytes[bth]]++;
        if ((bytes[bth] & 31) == kAcknowledge) syndromes[bytes[bth + kBth]]++;
    }
};

// Nanosecond pcap; frames are written in the order in which they began.
class Capture {
  public:
    bool open(const char *path) {
        close();
        file_ = std::fopen(path, "wb");
        if (!file_) return false;
        const std::uint32_t head[6] = {0xA1B23C4D, 0x00040002, 0, 0, 65535, 1};
        std::fwrite(head, sizeof head, 1, file_);
        return true;
    }

    bool is_open() const { return file_; }

    void add(std::uint64_t ps, const std::vector<std::uint8_t> &bytes) {
        if (file_) held_.emplace(ps, bytes);
    }

    // No frame that began before ``until`` will be added any more.
    void write(std::uint64_t until) {
        while (!held_.empty() && held_.begin()->first <= until) {
            const auto &[ps, bytes] = *held_.begin();
            const std::uint64_t ns = ps / 1000;
            const std::uint32_t size = bytes.size();
            const std::uint32_t head[4] = {static_cast<std::uint32_t>(ns / 1'000'000'000),
                                           static_cast<std::uint32_t>(ns % 1'000'000'000), size,
                                           size};
            std::fwrite(head, sizeof head, 1, file_);
            std::fwrite(bytes.data(), size, 1, file_);
            held_.erase(held_.begin());
        }
    }

    void close() {
        if (!file_) return;
        write(~0ull);
        std::fclose(file_);
        file_ = nullptr;
    }

    ~Capture() { close(); }

  private:
    std::FILE *file_ = nullptr;
    std::multimap<std::uint64_t, std::vector<std::uint8_t>> held_;
};

Capture capture;

class Port final : public Timed {
  public:
    LinkSettings settings;
    LinkStats stats;
    Packets packets;
    Impairments outward, inward;  // of what the card sends, and of what Python sends to it
    Events events;
    std::deque<Frame> received;  // by Python, not fetched yet
    int id = 0;

    bool tx_ready = false, rx_valid = false, rx_first = false, rx_last = false, rx_error = false;
    std::uint64_t rx_keep = 0;
    const std::uint8_t *rx_data = nullptr;
    bool fired = false;  // a beat went over the port in the last cycle

    unsigned column() const override;

    std::uint64_t next(std::uint64_t now) const override {
        if (fired || rx_valid || !events.empty() || settings.stall_tx) return 0;
        std::uint64_t next = kNever;
        if (const Port *other = peer()) {
            // What it sends may be offered to the card in the same cycle, as may the room it has.
            if (other->inside_ || held_off_ || other->full()) return 0;
            next = std::min(other->outward.next(), other->inward.next());
        }
        if (!arriving_.empty()) next = std::min(next, arriving_.front().offer);
        if (!leaving_.empty()) next = std::min(next, leaving_.front().arrival);
        next = std::min({next, outward.next(), inward.next()});
        const std::uint64_t ahead = settings.fifo_bytes * settings.ps_per_byte;
        if (cursor_ > now + ahead) next = std::min(next, cursor_ - ahead);
        return next;
    }

    void skip(std::uint64_t last, std::uint64_t) override {
        if (now_) now_ = last;  // else nobody's port
    }

    void reseed() { random_.seed(settings.seed); }

    void impair() {
        outward.restart();
        inward.restart();
    }

    void clear() {
        sending_.bytes.clear();
        inside_ = false;
        arriving_.clear();
        leaving_.clear();
        outward.clear();
        inward.clear();
        arriving_bytes_ = 0;
        offset_ = 0;
        tx_ready = rx_valid = false;
    }

    // Earliest beginning of a frame this port may still add to the capture.
    std::uint64_t horizon() const { return inside_ ? begun_ : now_; }

    bool full() const { return arriving_bytes_ > settings.buffer_bytes; }

    // Bytes between the card and the far end, of one direction.
    std::uint64_t under_way(bool to_card) const {
        if (to_card) return arriving_bytes_ + inward.waiting_bytes();
        std::uint64_t bytes = outward.waiting_bytes() + (inside_ ? sending_.bytes.size() : 0);
        for (const Frame &frame : leaving_) bytes += frame.bytes.size();
        return bytes;
    }

    void take(std::uint64_t now, const std::uint32_t *data, std::uint64_t keep, unsigned beat,
              bool first, bool last, bool error);

    // A frame from the far end, Python or the peer; ``begin``: of its data, at the far end.
    void arrive(Frame &&frame, std::uint64_t begin, const LinkSettings &line) {
        const std::uint64_t beats = (frame.bytes.size() + beat_ - 1) / beat_;
        const std::uint64_t burst = std::min((beats - 1) * period_, frame.arrival);
        const std::uint64_t first = std::min<std::uint64_t>(beat_, frame.bytes.size());
        frame.offer = std::max(frame.arrival - burst,
                               begin + first * line.ps_per_byte + line.delay_ps);
        arriving_bytes_ += frame.bytes.size();
        arriving_.push_back(std::move(frame));
    }

    // Python's frames take the line towards this port one after the other.
    void inject(std::uint64_t earliest, const std::uint8_t *bytes, std::size_t size, bool error) {
        Frame frame;
        frame.bytes.assign(bytes, bytes + size);
        frame.error = error;
        frame.bytes.resize(std::max<std::size_t>(size, kShortest));
        const std::uint64_t ps = settings.ps_per_byte;
        const std::uint64_t free = std::max({now_, earliest, inject_free_});
        const std::uint64_t begin = inward.open(free) + kPreamble * ps;
        const std::uint64_t end = begin + (frame.bytes.size() + kFcs) * ps;
        inject_free_ = end + kGap * ps;
        frame.arrival = end + settings.delay_ps;
        capture.add(begin, frame.bytes);
        if (inward.active()) {
            inward.take(end, std::move(frame));
        } else {
            arrive(std::move(frame), begin, settings);
        }
    }

    void step(std::uint64_t now, unsigned beat, bool rx_fire);

    std::uint64_t now_ = 0;

  private:
    // A frame of the card goes on to the peer, or to Python.
    void leave(Frame &&frame, std::uint64_t begin) {
        if (settings.peer < kPorts) {
            deliver_to_peer(std::move(frame), begin);
        } else {
            leaving_.push_back(std::move(frame));
        }
    }

    void deliver_to_peer(Frame &&frame, std::uint64_t begin);

    // The port at the other end of the wire, unless that is Python or this one.
    const Port *peer() const;

    Random random_;
    bool held_off_ = false;  // in the last cycle
    Frame sending_;
    bool inside_ = false;
    std::uint64_t cursor_ = 0;  // until then the line is taken
    std::uint64_t begun_ = 0;
    std::deque<Frame> leaving_;  // on the line to Python
    std::deque<Frame> arriving_;  // on the line to the card, or at it
    std::uint64_t arriving_bytes_ = 0;
    std::size_t offset_ = 0;
    std::uint64_t inject_free_ = 0;
    std::uint64_t period_ = 0;  // of the clock
    unsigned beat_ = 64;        // bytes
};

Port ports[kPorts];

unsigned Port::column() const { return this - ports; }

const Port *Port::peer() const {
    const Port *const other = settings.peer < kPorts ? &ports[settings.peer] : this;
    return other == this ? nullptr : other;
}


void Port::deliver_to_peer(Frame &&frame, std::uint64_t begin) {
    ports[settings.peer].arrive(std::move(frame), begin, settings);
}

void Port::take(std::uint64_t now, const std::uint32_t *data, std::uint64_t keep, unsigned beat,
                bool first, bool last, bool error) {
    const std::uint64_t ps = settings.ps_per_byte;
    const std::uint64_t full_keep = ~0ull >> (64 - beat);
    if (first == inside_ || !keep || (keep & (keep + 1)) || (!last && keep != full_keep)) {
        stats.protocol_errors++;
        events.push({EVENT_PROTOCOL, 0, 9, stats.tx_frames, now});
    }
    if (first) {
        cursor_ = outward.open(std::max(now, cursor_)) + kPreamble * ps;
        begun_ = cursor_;
        sending_ = {};
        inside_ = true;
    }
    const std::size_t bytes = __builtin_popcountll(keep);
    const auto *from = reinterpret_cast<const std::uint8_t *>(data);
    sending_.bytes.insert(sending_.bytes.end(), from, from + bytes);
    cursor_ = std::max(cursor_, now) + bytes * ps;
    if (!last) return;

    inside_ = false;
    if (sending_.bytes.size() < kShortest) {
        cursor_ += (kShortest - sending_.bytes.size()) * ps;
        sending_.bytes.resize(kShortest);
    }
    const std::uint64_t end = cursor_ + kFcs * ps;
    const std::uint64_t begin = end - (sending_.bytes.size() + kFcs) * ps;
    cursor_ = end + kGap * ps;
    if (error) {
        stats.tx_bad++;
        return;
    }
    if (!stats.tx_frames) stats.first_tx_ps = begin;
    stats.last_tx_ps = end;
    stats.tx_frames++;
    stats.tx_bytes += sending_.bytes.size();
    capture.add(begin, sending_.bytes);
    packets.add(sending_.bytes);
    sending_.arrival = end + settings.delay_ps;
    if (outward.active()) {
        outward.take(end, std::move(sending_));
    } else {
        leave(std::move(sending_), begin);
    }
}

void Port::step(std::uint64_t now, unsigned beat, bool rx_fire) {
    period_ = now - now_;
    beat_ = beat;
    now_ = now;
    outward.step(now, settings.ps_per_byte, [&](Frame &&frame, std::uint64_t begin) {
        frame.arrival += settings.delay_ps;
        leave(std::move(frame), begin);
    });
    inward.step(now, settings.ps_per_byte, [&](Frame &&frame, std::uint64_t begin) {
        frame.arrival += settings.delay_ps;
        arrive(std::move(frame), begin, settings);
    });
    if (rx_fire && !arriving_.empty()) {
        offset_ += beat;
        Frame &frame = arriving_.front();
        if (offset_ >= frame.bytes.size()) {
            stats.rx_frames++;
            stats.rx_bytes += frame.bytes.size();
            arriving_bytes_ -= frame.bytes.size();
            arriving_.pop_front();
            offset_ = 0;
        }
        rx_valid = false;
    }
    if (!rx_valid && !arriving_.empty() && arriving_.front().offer <= now &&
        !(settings.stall_rx && random_.below(256) < settings.stall_rx)) {
        const Frame &frame = arriving_.front();
        const std::size_t left = frame.bytes.size() - offset_;
        rx_valid = true;
        rx_first = offset_ == 0;
        rx_last = left <= beat;
        rx_error = rx_last && frame.error;
        rx_keep = ~0ull >> (64 - std::min<std::size_t>(left, beat));
        rx_data = frame.bytes.data() + offset_;
    }
    while (!leaving_.empty() && leaving_.front().arrival <= now) {
        const Frame &frame = leaving_.front();
        events.push({EVENT_FRAME, 0, frame.bytes.size(), 0, frame.arrival});
        received.push_back(std::move(leaving_.front()));
        leaving_.pop_front();
    }
    held_off_ = settings.peer < kPorts && ports[settings.peer].full();
    tx_ready = cursor_ <= now + settings.fifo_bytes * settings.ps_per_byte && !held_off_ &&
               !(settings.stall_tx && random_.below(256) < settings.stall_tx);
}

}  // namespace
}  // namespace rocinante

using rocinante::capture;
using rocinante::Port;
using rocinante::ports;

extern "C" {

// Called by Python.

void *link_settings(int id) { return &ports[id].settings; }
void *link_stats(int id) { return &ports[id].stats; }
void *link_packets(int id) { return &ports[id].packets; }
// After a change of settings.
void link_reseed(int id) {
    rocinante::wake();
    ports[id].reseed();
}
void *link_impair_settings(int id, int inward) {
    return &(inward ? ports[id].inward : ports[id].outward).settings;
}
void *link_impair_stats(int id, int inward) {
    return &(inward ? ports[id].inward : ports[id].outward).stats;
}
// After a change of the impairments' settings.
void link_impair(int id) {
    rocinante::wake();
    ports[id].impair();
}
std::uint64_t link_under_way(int id, int to_card) { return ports[id].under_way(to_card != 0); }
int link_event(int id, rocinante::Event *event) { return ports[id].events.pop(event); }
int link_capture(const char *path) { return capture.open(path); }
void link_capture_end() { capture.close(); }

void link_inject(int id, std::uint64_t earliest, const std::uint8_t *bytes, std::uint64_t size,
                 int error) {
    rocinante::wake(id);
    ports[id].inject(earliest, bytes, size, error != 0);
}

// Size of the oldest frame that has arrived, 0 if none; with ``to`` it is copied and removed.
std::uint64_t link_receive(int id, std::uint8_t *to, std::uint64_t *arrival) {
    auto &received = ports[id].received;
    if (received.empty()) return 0;
    const auto &bytes = received.front().bytes;
    const std::uint64_t size = bytes.size();
    *arrival = received.front().arrival;
    if (to) {
        std::memcpy(to, bytes.data(), size);
        received.pop_front();
    }
    return size;
}

// Called by link_model.sv, once a cycle.

void link_cycle(int id, int reset, std::uint64_t now, int width, svBit tx_fire, svBit rx_fire,
                const svBitVecVal *tx_data, std::uint64_t tx_keep, svBit tx_first, svBit tx_last,
                svBit tx_error, svBit *tx_ready, svBit *rx_valid, svBitVecVal *rx_data,
                std::uint64_t *rx_keep, svBit *rx_first, svBit *rx_last, svBit *rx_error,
                svBit *signal) {
    Port &port = ports[id];
    const unsigned beat = width / 8;
    port.id = id;
    port.fired = tx_fire | rx_fire;
    if (reset) {
        port.now_ = now;
        port.clear();
    } else {
        if (tx_fire) port.take(now, tx_data, tx_keep, beat, tx_first, tx_last, tx_error);
        port.step(now, beat, rx_fire);
    }
    *tx_ready = port.tx_ready;
    *rx_valid = port.rx_valid;
    if (port.rx_valid) {
        std::memcpy(rx_data, port.rx_data, __builtin_popcountll(port.rx_keep));
        *rx_keep = port.rx_keep;
        *rx_first = port.rx_first;
        *rx_last = port.rx_last;
        *rx_error = port.rx_error;
    }
    *signal = port.events.signal();
    if (id == 0 && capture.is_open()) {
        std::uint64_t until = now;
        for (const Port &each : ports) {
            if (each.now_ && each.horizon() < until) until = each.horizon();
        }
        if (until) capture.write(until - 1);
    }
}

}  // extern "C"
