// What a host writes to the push windows of its card, beat by beat.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>

#include "clock.hpp"

namespace rocinante {

struct Push {
    std::uint32_t function, addr;
    std::uint64_t strb, earliest;
    std::array<std::uint8_t, 64> data;
};

class Pushes {
  public:
    // ``size`` bytes in one piece: a beat for each of ``beat`` bytes that they touch.
    void add(unsigned beat, std::uint64_t earliest, unsigned function, std::uint32_t addr,
             const std::uint8_t *bytes, unsigned size) {
        for (unsigned done = 0; done < size;) {
            const unsigned lane = (addr + done) % beat;
            const unsigned count = std::min(beat - lane, size - done);
            Push push{function, addr + done - lane, (~0ull >> (64 - count)) << lane, earliest, {}};
            std::memcpy(&push.data[lane], bytes + done, count);
            waiting_.push_back(push);
            done += count;
        }
    }
    void clear() { waiting_.clear(); }
    void take() { waiting_.pop_front(); }
    const Push &first() const { return waiting_.front(); }
    // When the first beat may go.
    std::uint64_t next() const { return waiting_.empty() ? kNever : waiting_.front().earliest; }

  private:
    std::deque<Push> waiting_;
};

}  // namespace rocinante
