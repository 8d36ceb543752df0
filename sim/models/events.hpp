// What a model tells Python: a queue of records, and one signal that says it is no longer empty.
#pragma once

#include <cstdint>
#include <deque>

namespace rocinante {

// Read by sim/models/platform.py through ctypes: same fields, same order.
struct Event {
    std::uint32_t kind;
    std::uint32_t id;     // of the access, or number of the frame, or of the function
    std::uint64_t value;  // value read, data of an interrupt, length of what failed or is asked for
    std::uint64_t addr;
    std::uint64_t time;  // ps
};

enum EventKind : std::uint32_t {
    EVENT_MMIO = 1,         // a read has returned
    EVENT_INTERRUPT = 2,    // a write into the MSI window
    EVENT_READ_FAULT = 3,   // read outside memory: answered with an error
    EVENT_WRITE_FAULT = 4,  // write outside memory: dropped
    EVENT_FRAME = 5,        // a frame has arrived at a port served by Python
    EVENT_PROTOCOL = 6,     // the card broke the rules of the port; value says which
    EVENT_WRITTEN = 7,      // a write to watched memory has become visible; id of the watch
    EVENT_FETCH = 8,        // a read that Python answers; its serial, function << 32 | length
    EVENT_STORE = 9,        // a write that Python does; its bytes are the next of host_store
};

class Events {
  public:
    void push(const Event &event) { queue_.push_back(event); }

    bool pop(Event *event) {
        if (queue_.empty()) {
            told_ = false;
            return false;
        }
        *event = queue_.front();
        queue_.pop_front();
        return true;
    }

    bool empty() const { return queue_.empty(); }

    // Level of the wake signal: changes once for each time the queue has become non-empty.
    bool signal() {
        if (!told_ && !queue_.empty()) {
            told_ = true;
            level_ = !level_;
        }
        return level_;
    }

  private:
    std::deque<Event> queue_;
    bool told_ = false;
    bool level_ = false;
};

// xorshift64*: small, seeded, the same on every machine.
class Random {
  public:
    void seed(std::uint64_t value) { state_ = value * 0x9E3779B97F4A7C15ull | 1; }

    std::uint64_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 0x2545F4914F6CDD1Dull;
    }

    // 0 <= result < limit
    std::uint64_t below(std::uint64_t limit) { return limit ? (next() >> 16) % limit : 0; }

  private:
    std::uint64_t state_ = 1;
};

}  // namespace rocinante
