// The clock of a testbench. When nothing can change before a certain time, it stands still until
// then: the simulation goes on exactly as if all edges in between had been there.
//
// Nothing can change when
// - no model has anything under way before that time (``Timed``), and
// - the gateware's state is the same as one and two cycles before, except registers called ``age``
//   (hdl/common/epoch.py), which have grown by one each time and are not near their end. Those of a
//   card that is switched off stand still. The timers' age (``Ticks``) begins anew with each tick,
//   and ticks without effect are passed over.
// Big memories are left out of the comparison: their write ports are driven by what is in it, so
// what they write in the third of three equal cycles they have written in the second.

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "Vtop__Syms.h"
#include "clock.hpp"
#include "ticks.hpp"
#include "verilated_syms.h"
#include "vpi_user.h"

void Vtop___024root___eval(Vtop___024root *);

namespace rocinante {
namespace {

struct Piece {
    std::size_t begin, size;
};

// All arrays of the gateware, and the next values of the registers called ``age``
// (sim/rtl/arrays.py writes the lists when Verilator has run).
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
constexpr Piece kArrays[] = {
#include "arrays.inc"
    {sizeof(Vtop__Syms), 0}};
constexpr Piece kNext[] = {
#include "next.inc"
    {sizeof(Vtop__Syms), 0}};

constexpr std::size_t kBig = 1024;      // bytes of an array that is left out
constexpr unsigned kDrain = 6;         // quiet cycles before the state is looked at
constexpr unsigned kPatience = 64;     // ... at most, after it has been found changing
constexpr std::uint64_t kLongest = 1ull << 40;
constexpr unsigned kRest = 10;  // at rest an epoch lasts 2^10 times as long: its end takes cycles
constexpr std::uint64_t kShortest = 4;  // edges that are worth leaving out

// Read by sim/models/platform.py through ctypes: same fields, same order.
struct ClockStats {
    std::uint64_t cycles = 0, skipped = 0, jumps = 0, looks = 0;
};

// The gateware's registers and wires.
class State {
  public:
    void find() {
        if (syms_) return;
        const auto *scopes = Verilated::threadContextp()->scopeNameMap();
        for (const auto &[name, scope] : *scopes) {
            syms_ = static_cast<Vtop__Syms *>(scope->symsp());
            if (!scope->varsp()) continue;
            Ticks ticks;
            if (ticks.find(*scope)) ticks_.push_back(ticks);
            for (const auto &[var, entry] : *scope->varsp()) {
                if (!std::strcmp(var, "age")) {
                    ages_.push_back({static_cast<std::uint16_t *>(entry.datap()), true});
                }
            }
        }
        std::size_t from = 0;
        for (const Piece &array : left_out()) {
            pieces_.push_back({from, array.begin - from});
            from = array.begin + array.size;
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

    // Whether a card's timers are in use.
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
    // of a clock is evaluated, and the rising edge of ``settle`` assigns them to themselves.
    void settle() {
        syms_->TOP.settle = 1;
        Vtop___024root___eval(&syms_->TOP);
        syms_->TOP.settle = 0;
    }

    // What is not compared, in the order of the places.
    static std::vector<Piece> left_out() {
        std::vector<Piece> found(std::begin(kNext), std::end(kNext));
        std::copy_if(std::begin(kArrays), std::end(kArrays), std::back_inserter(found),
                     [](const Piece &array) { return array.size > kBig; });
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

std::uint64_t time_now() {
    s_vpi_time time{vpiSimTime, 0, 0, 0};
    vpi_get_time(nullptr, &time);
    return std::uint64_t(time.high) << 32 | time.low;
}

class Clock {
  public:
    ClockStats stats;
    bool jump = false;
    bool rest = false;  // epochs may last longer while nothing happens

    void start(std::uint64_t period) {
        cancel();  // of an earlier test
        signal_ = vpi_handle_by_name(const_cast<char *>("testbench.clk"), nullptr);
        period_ = period;
        stats = {};
        jump = rest = standing_ = false;
        state_.find();
        rise();
    }

    // Whether a card's timers are in use; what has been left out until now is made up for.
    bool timers() {
        wake();
        return state_.timers();
    }

    void stop() {
        wake();
        cancel();
    }

    void wake() {
        if (!standing_) return;
        const std::uint64_t now = time_now();
        const std::uint64_t edge = edge_ + (now - edge_ + period_ - 1) / period_ * period_;
        make_up(edge);
        if (edge >= goes_on_) return;  // as planned
        cancel();
        if (now == edge) {  // after all that Python has to do at this time
            at(0, cbReadWriteSynch, risen);
        } else if (now >= edge - period_ / 2) {
            at(edge - now, cbAfterDelay, risen);
        } else {
            at(edge - period_ / 2 - now, cbAfterDelay, resumed);
        }
    }

  private:
    vpiHandle signal_ = nullptr, pending_ = nullptr;
    std::uint64_t period_ = 0, edge_ = 0;  // the last edge that was, or counts as having been
    bool standing_ = false;
    std::uint64_t goes_on_ = 0;  // while standing: the edge with which it goes on by itself
    State state_;
    unsigned quiet_ = 0, look_ = kDrain, wait_ = kDrain, equal_ = 0;

    static PLI_INT32 risen(p_cb_data);
    static PLI_INT32 fallen(p_cb_data);
    static PLI_INT32 resumed(p_cb_data);

    void at(std::uint64_t delay, PLI_INT32 reason, PLI_INT32 (*call)(p_cb_data)) {
        s_vpi_time time{vpiSimTime, PLI_UINT32(delay >> 32), PLI_UINT32(delay), 0};
        s_cb_data data{reason, call, nullptr, &time, nullptr, 0, nullptr};
        if (pending_) vpi_release_handle(pending_);
        pending_ = vpi_register_cb(&data);
    }

    void cancel() {
        if (pending_) vpi_remove_cb(pending_);
        pending_ = nullptr;
    }

    void put(int value) {
        s_vpi_value data{vpiIntVal, {}};
        data.value.integer = value;
        vpi_put_value(signal_, &data, nullptr, vpiNoDelay);
    }

    void rise() {
        put(1);
        edge_ = time_now();
        stats.cycles++;
        at(period_ / 2, cbAfterDelay, fallen);
    }

    void fall() {
        const bool stands = jump && stand_still();
        put(0);
        if (!stands) at(period_ / 2, cbAfterDelay, risen);
    }

    void resume() {
        make_up(edge_ + (time_now() - edge_) / period_ * period_ + period_);
        at(period_ / 2, cbAfterDelay, risen);
    }

    // Nothing happens before the edge with which the clock goes on: leave out those before it.
    bool stand_still() {
        std::uint64_t next = kNever;
        for (const Timed *model : Timed::all()) {
            next = std::min(next, model->next(edge_));
        }
        if (next <= edge_) {
            quiet_ = equal_ = 0;
            look_ = wait_ = kDrain;
            return false;
        }
        if (++quiet_ < look_) return false;
        if (quiet_ == look_) {
            stats.looks++;
            state_.save();
            equal_ = 0;
            return false;
        }
        if (!state_.same()) {
            wait_ = std::min(2 * wait_, kPatience);
            look_ = quiet_ + wait_;
            return false;
        }
        if (++equal_ < 2) return false;
        std::uint64_t cycles = state_.room(rest);
        if (next != kNever) cycles = std::min(cycles, (next - edge_ - 1) / period_);
        if (cycles < kShortest) return false;
        goes_on_ = edge_ + (cycles + 1) * period_;
        standing_ = true;
        at(goes_on_ - time_now() - period_ / 2, cbAfterDelay, resumed);
        return true;
    }

    // All edges before ``edge`` count as having been.
    void make_up(std::uint64_t edge) {
        if (!standing_) return;
        standing_ = false;
        const std::uint64_t cycles = (edge - edge_) / period_ - 1;
        quiet_ = equal_ = 0;
        look_ = wait_ = kDrain;
        if (!cycles) return;
        edge_ = edge - period_;
        stats.cycles += cycles;
        stats.skipped += cycles;
        stats.jumps++;
        state_.skip(cycles, rest);
        for (Timed *model : Timed::all()) model->skip(edge_, cycles);
    }
};

// Never destroyed: the simulator outlives static objects' order.
Clock &the_clock() {
    static Clock &only = *new Clock;
    return only;
}

PLI_INT32 Clock::risen(p_cb_data) { return the_clock().rise(), 0; }
PLI_INT32 Clock::fallen(p_cb_data) { return the_clock().fall(), 0; }
PLI_INT32 Clock::resumed(p_cb_data) { return the_clock().resume(), 0; }

}  // namespace

void wake() { the_clock().wake(); }

}  // namespace rocinante

extern "C" {

// Called by Python.

void clock_start(std::uint64_t period) { rocinante::the_clock().start(period); }
void clock_stop() { rocinante::the_clock().stop(); }
// Whether cycles may be left out, and whether epochs may last longer while nothing happens.
void clock_jump(int allowed, int rest) {
    rocinante::the_clock().jump = allowed != 0;
    rocinante::the_clock().rest = rest != 0;
}
void clock_wake() { rocinante::wake(); }
int clock_timers() { return rocinante::the_clock().timers(); }
void *clock_stats() { return &rocinante::the_clock().stats; }

}  // extern "C"
