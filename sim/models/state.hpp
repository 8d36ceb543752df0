// The state of a card's gateware and of its models' registers, as the clock sees it: compared from
// cycle to cycle, and taken on over cycles that are left out. Big memories are not compared: their
// write ports are driven by what is, so what they write in the third of three equal cycles they have
// written in the second.
#pragma once

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "Vtop__Syms.h"
#include "ticks.hpp"
#include "verilated_syms.h"

void Vtop___024root___eval(Vtop___024root *);

namespace rocinante {

struct Piece {
    std::size_t begin, size;
};

// What belongs to one card or its models.
struct Own {
    std::size_t begin, size;
    unsigned column;
};

// All arrays of the gateware, the next values of the registers called ``age``, and what belongs to
// one column (sim/rtl/arrays.py writes the lists when Verilator has run).
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
constexpr Piece kArrays[] = {
#include "arrays.inc"
    {sizeof(Vtop__Syms), 0}};
constexpr Piece kNext[] = {
#include "next.inc"
    {sizeof(Vtop__Syms), 0}};
constexpr Own kOwn[] = {
#include "own.inc"
    {sizeof(Vtop__Syms), 0, 0}};

constexpr std::size_t kBig = 1024;  // bytes of an array that is left out
constexpr std::uint64_t kLongest = 1ull << 40;
constexpr unsigned kRest = 10;  // at rest an epoch lasts 2^10 times as long: its end takes cycles

// The registers and wires of a column.
class State {
  public:
    void find(unsigned column) {
        if (syms_) return;
        const std::string card = ".nic" + std::to_string(column) + ".";
        const auto *scopes = Verilated::threadContextp()->scopeNameMap();
        for (const auto &[name, scope] : *scopes) {
            syms_ = static_cast<Vtop__Syms *>(scope->symsp());
            if (!scope->varsp() || !std::strstr(name, card.c_str())) continue;
            Ticks ticks;
            if (ticks.find(*scope)) ticks_.push_back(ticks);
            for (const auto &[var, entry] : *scope->varsp()) {
                if (!std::strcmp(var, "age")) {
                    ages_.push_back({static_cast<std::uint16_t *>(entry.datap()), true});
                }
            }
        }
        std::size_t from = 0;
        for (const Piece &piece : left_out(column)) {
            if (piece.begin > from) pieces_.push_back({from, piece.begin - from});
            from = std::max(from, piece.begin + piece.size);
        }
        pieces_.push_back({from, sizeof(Vtop__Syms) - from});
        saved_.resize(sizeof(Vtop__Syms));
    }

    void save() {
        for (const Piece &piece : pieces_) {
            std::memcpy(&saved_[piece.begin], byte(piece.begin), piece.size);
        }
        fresh_ = true;
    }

    // A cycle after ``save`` or the last call; false: something else than the ages has changed.
    bool same() {
        for (Age &age : ages_) {
            std::uint16_t value;
            std::memcpy(&value, &saved_[at(age.now)], sizeof value);
            if (fresh_) age.grows = *age.now != value;
            value += age.grows;
            std::memcpy(&saved_[at(age.now)], &value, sizeof value);
        }
        fresh_ = false;
        for (const Piece &piece : pieces_) {
            if (std::memcmp(&saved_[piece.begin], byte(piece.begin), piece.size)) return false;
        }
        return true;
    }

    // Cycles until an age gets to its end, which is a cycle that has to happen. ``rest``: epochs
    // last longer.
    std::uint64_t room(bool rest) const {
        std::uint64_t least = kLongest;
        for (const Age &age : ages_) {
            if (!age.grows) continue;
            std::uint64_t cycles = *age.now < 0xFFFE ? 0xFFFE - *age.now : 0;
            if (const Ticks *ticks = counts(age)) {
                cycles += cycles ? ticks->room() : 0;
            } else if (rest) {
                cycles <<= kRest;
            }
            least = std::min(least, cycles);
        }
        return least;
    }

    void skip(std::uint64_t cycles, bool rest) {
        for (const Age &age : ages_) {
            if (!age.grows) continue;
            if (Ticks *ticks = counts(age)) {
                ticks->skip(cycles);
            } else {
                *age.now += rest ? cycles >> kRest : cycles;
            }
        }
        settle();
    }

    // Whether the card's timers are in use.
    bool timers() const {
        return std::any_of(ticks_.begin(), ticks_.end(), [](const Ticks &t) { return t.used(); });
    }

  private:
    Vtop__Syms *syms_ = nullptr;
    struct Age {
        std::uint16_t *now;
        bool grows;
    };
    std::vector<Age> ages_;
    std::vector<Ticks> ticks_;
    bool fresh_ = false;  // saved, and no cycle has been compared with that
    std::vector<Piece> pieces_;
    std::vector<std::uint8_t> saved_;

    // Evaluates what is behind the registers that have been written: only the logic behind an edge
    // of a clock is evaluated, and the rising edge of ``settle`` assigns them to themselves. Its
    // fall is to be seen too: another column may wake at the same time.
    void settle() {
        for (const int level : {1, 0}) {
            syms_->TOP.settle = level;
            Vtop___024root___eval(&syms_->TOP);
        }
    }

    // What is not compared, in the order of the places.
    static std::vector<Piece> left_out(unsigned column) {
        std::vector<Piece> found(std::begin(kNext), std::end(kNext));
        std::copy_if(std::begin(kArrays), std::end(kArrays), std::back_inserter(found),
                     [](const Piece &array) { return array.size > kBig; });
        for (const Own &own : kOwn) {
            if (own.column != column) found.push_back({own.begin, own.size});
        }
        std::sort(found.begin(), found.end(),
                  [](const Piece &a, const Piece &b) { return a.begin < b.begin; });
        return found;
    }

    // The timers whose age this is.
    const Ticks *counts(const Age &age) const {
        for (const Ticks &ticks : ticks_) {
            if (ticks.age() == age.now) return &ticks;
        }
        return nullptr;
    }
    Ticks *counts(const Age &age) {
        return const_cast<Ticks *>(std::as_const(*this).counts(age));
    }

    std::size_t at(const void *place) const {
        return static_cast<const std::uint8_t *>(place) - reinterpret_cast<std::uint8_t *>(syms_);
    }
    const std::uint8_t *byte(std::size_t offset) const {
        return reinterpret_cast<const std::uint8_t *>(syms_) + offset;
    }
};

}  // namespace rocinante
