// The timers of the QPs (hdl/transport/recovery/qp_timers.py), as the clock sees them. They count ticks of
// some hundred cycles while one of them is in use, and most ticks change nothing but the count: the
// clock passes over these too. What it does to the registers is what as many cycles do.
#pragma once

#include <cstdint>

#include "verilated_syms.h"

namespace rocinante {

class Ticks {
  public:
    // Registers of the component in ``scope``; false: it has no timers.
    bool find(const VerilatedScope &scope) {
        ticks_ = place<std::uint64_t>(scope, "ticks");
        used_ = place<std::uint32_t>(scope, "used");
        own_ = place<std::uint32_t>(scope, "own");
        moved_ = place<std::uint8_t>(scope, "moved");
        tick_ = place<std::uint16_t>(scope, "tick");
        age_ = place<std::uint16_t>(scope, "age");
        return ticks_ && used_ && own_ && moved_ && tick_ && age_;
    }

    const std::uint16_t *age() const { return age_; }

    // Whether there are timers that run, or ran a moment ago.
    bool used() const { return *used_; }

    // Cycles of the ticks, behind the one that has begun, at which no count of a class in use moves
    // on: a class n counts 2^n ticks.
    std::uint64_t room() const {
        if (!used() || *tick_ < kShortest || begins() > *age_) return 0;
        const std::uint64_t least = *used_ & -*used_;
        return (least - 1 - (*ticks_ & (least - 1))) * *tick_;
    }

    // What ``cycles`` cycles leave behind, in which no such count moves on.
    void skip(std::uint64_t cycles) {
        const std::uint64_t since = *age_ - begins() + cycles;  // the tick began
        const std::uint64_t passed = since / *tick_, now = since % *tick_;
        *age_ = begins() + now;
        if (!passed) return;
        *ticks_ = (*ticks_ + passed) & ((1ull << 36) - 1);
        // The classes that moved on are known a cycle later than the count, and used two later.
        *own_ = classes(*ticks_ - (now == 0));
        *moved_ = now < 2 ? 1 << now : 0;
    }

  private:
    static constexpr std::uint16_t kShortest = 8;  // cycles, more than those of a tick's work

    std::uint64_t *ticks_ = nullptr;
    std::uint32_t *used_ = nullptr, *own_ = nullptr;
    std::uint8_t *moved_ = nullptr;
    std::uint16_t *tick_ = nullptr, *age_ = nullptr;

    template <typename Word>
    static Word *place(const VerilatedScope &scope, const char *name) {
        VerilatedVar *const found = scope.varFind(name);
        return found && found->entSize() == sizeof(Word) ? static_cast<Word *>(found->datap())
                                                         : nullptr;
    }

    // Value of ``age`` with which a tick begins.
    std::uint32_t begins() const { return (1u << 16) - *tick_; }

    // Those whose counts move on when the count of ticks has become ``ticks``.
    static std::uint32_t classes(std::uint64_t ticks) {
        const std::uint32_t low = static_cast<std::uint32_t>(ticks) & 0x7FFF'FFFF;
        return low ? (low ^ (low - 1)) : ~0u;
    }
};

}  // namespace rocinante
