// The clock of a testbench. A card and its models are a column, which sleeps while nothing in it can
// change: its clock stands still, and the simulation goes on exactly as if all edges in between had
// been there. When all columns sleep, the clock itself stands still.
//
// Nothing in a column can change before a certain time when
// - none of its models has anything under way before that time (``Timed``), and
// - the gateware's state is the same as one and two cycles before, except registers called ``age``
//   (hdl/common/epoch.py), which have grown by one each time and are not near their end. Those of a
//   card that is switched off stand still. The timers' age (``Ticks``) begins anew with each tick,
//   and ticks without effect are passed over.

#include <algorithm>
#include <string>
#include <vector>

#include "clock.hpp"
#include "state.hpp"
#include "vpi_user.h"

namespace rocinante {
namespace {

constexpr unsigned kDrain = 6;         // quiet cycles before the state is looked at
constexpr unsigned kPatience = 64;     // ... at most, after it has been found changing
constexpr std::uint64_t kShortest = 4;  // edges that are worth leaving out

// Read by sim/models/platform.py through ctypes: same fields, same order.
struct ClockStats {
    std::uint64_t cycles = 0, skipped = 0, jumps = 0, looks = 0, slept = 0;
};

std::uint64_t time_now() {
    s_vpi_time time{vpiSimTime, 0, 0, 0};
    vpi_get_time(nullptr, &time);
    return std::uint64_t(time.high) << 32 | time.low;
}

vpiHandle of_top(const std::string &name) {
    return vpi_handle_by_name(const_cast<char *>(("testbench." + name).c_str()), nullptr);
}

void put(vpiHandle signal, int value) {
    s_vpi_value data{vpiIntVal, {}};
    data.value.integer = value;
    vpi_put_value(signal, &data, nullptr, vpiNoDelay);
}

// A card and its models: awake, or asleep since an edge.
class Column {
  public:
    // signal: stops the column's clock.
    Column(unsigned number, vpiHandle signal, ClockStats &stats) : signal_(signal), stats_(stats) {
        state_.find(number);
        for (Timed *model : Timed::all()) {
            if (model->column() == number) models_.push_back(model);
        }
    }

    bool sleeps() const { return asleep_; }
    bool timers() const { return state_.timers(); }

    // Whether it sleeps until somebody else does something, or a timer runs out.
    bool idle() const { return asleep_ && next(edge_) == kNever; }

    // Stops the column's clock or lets it run, while all clocks are low.
    void tell() {
        if (told_ != asleep_) put(signal_, told_ = asleep_);
    }

    // The first edge behind ``edge`` that has to be, if the column sleeps.
    std::uint64_t goes_on(std::uint64_t edge, std::uint64_t period) const {
        const std::uint64_t next = this->next(edge);
        if (next <= edge) return edge + period;
        return std::min(until_, next == kNever ? kNever : first_at(next, edge, period));
    }

    // All edges up to ``last`` count as having been; the next one will be.
    void wake(std::uint64_t last, std::uint64_t period, bool rest) {
        if (!asleep_) return;
        asleep_ = false;
        stir();
        const std::uint64_t cycles = (last - edge_) / period;
        if (!cycles) return;
        stats_.slept += cycles;
        state_.skip(cycles, rest);
        for (Timed *model : models_) model->skip(last, cycles);
    }

    // After each edge while it is awake: whether it falls asleep.
    bool falls_asleep(std::uint64_t edge, std::uint64_t period, bool rest) {
        const std::uint64_t next = this->next(edge);
        if (next <= edge) {
            stir();
            return false;
        }
        if (++quiet_ < look_) return false;
        if (quiet_ == look_) {
            stats_.looks++;
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
        if (next != kNever) cycles = std::min(cycles, (next - edge - 1) / period);
        if (cycles < kShortest) return false;
        edge_ = edge;
        until_ = edge + (cycles + 1) * period;
        return asleep_ = true;
    }

  private:
    vpiHandle signal_;
    ClockStats &stats_;
    State state_;
    std::vector<Timed *> models_;
    bool asleep_ = false, told_ = false;
    std::uint64_t edge_ = 0;   // asleep: the last edge that was
    std::uint64_t until_ = 0;  // ... and the one with which it goes on by itself
    unsigned quiet_ = 0, look_ = kDrain, wait_ = kDrain, equal_ = 0;

    // Something happens: quiet cycles are counted anew.
    void stir() {
        quiet_ = equal_ = 0;
        look_ = wait_ = kDrain;
    }

    std::uint64_t next(std::uint64_t edge) const {
        std::uint64_t next = kNever;
        for (const Timed *model : models_) next = std::min(next, model->next(edge));
        return next;
    }

    static std::uint64_t first_at(std::uint64_t time, std::uint64_t edge, std::uint64_t period) {
        return edge + (time - edge + period - 1) / period * period;
    }
};

class Clock {
  public:
    ClockStats stats;

    void start(std::uint64_t period) {
        cancel();  // of an earlier test
        signal_ = of_top("clk");
        period_ = period;
        stats = {};
        jump_ = rest_ = standing_ = false;
        if (columns_.empty()) find();
        rise();
    }

    // Whether cycles may be left out, and whether epochs may last longer while nothing happens.
    void allow(bool jump, bool rest) {
        wake();
        jump_ = jump;
        rest_ = rest;
    }

    // Whether a card's timers are in use; what has been left out until now is made up for.
    bool timers() {
        wake();
        return std::any_of(columns_.begin(), columns_.end(),
                           [](const Column &column) { return column.timers(); });
    }

    // Whether nothing goes on in any card, its host and its wire.
    bool idle() const {
        return std::all_of(columns_.begin(), columns_.end(),
                           [](const Column &column) { return column.idle(); });
    }

    void stop() {
        wake();
        cancel();
    }

    void wake() {
        go_on();
        for (Column &column : columns_) column.wake(edge_, period_, rest_);
    }

    void wake(unsigned number) {
        go_on();
        if (number < columns_.size()) columns_[number].wake(edge_, period_, rest_);
    }

  private:
    vpiHandle signal_ = nullptr, pending_ = nullptr;
    std::uint64_t period_ = 0, edge_ = 0;  // the last edge that was, or counts as having been
    bool jump_ = false;
    bool rest_ = false;
    bool standing_ = false;
    std::uint64_t goes_on_ = 0;  // while standing: the edge with which it goes on by itself
    std::vector<Column> columns_;

    static PLI_INT32 risen(p_cb_data);
    static PLI_INT32 fallen(p_cb_data);
    static PLI_INT32 resumed(p_cb_data);

    void find() {
        for (unsigned number = 0;; number++) {
            const vpiHandle signal = of_top("sleep" + std::to_string(number));
            if (!signal) return;
            columns_.emplace_back(number, signal, stats);
        }
    }

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

    void rise() {
        const std::uint64_t now = time_now();
        for (Column &column : columns_) {
            if (column.sleeps() && column.goes_on(edge_, period_) <= now) {
                column.wake(edge_, period_, rest_);
            }
            column.tell();
        }
        put(signal_, 1);
        edge_ = now;
        stats.cycles++;
        at(period_ / 2, cbAfterDelay, fallen);
    }

    void fall() {
        const bool stands = jump_ && stand_still();
        put(signal_, 0);
        if (!stands) at(period_ / 2, cbAfterDelay, risen);
    }

    void resume() {
        make_up(edge_ + (time_now() - edge_) / period_ * period_ + period_);
        at(period_ / 2, cbAfterDelay, risen);
    }

    // Lets columns fall asleep; when all do, leaves out the edges before the next that has to be.
    bool stand_still() {
        bool all = true;
        for (Column &column : columns_) {
            if (!column.sleeps()) all &= column.falls_asleep(edge_, period_, rest_);
        }
        if (!all) return false;
        goes_on_ = kNever;
        for (const Column &column : columns_) {
            goes_on_ = std::min(goes_on_, column.goes_on(edge_, period_));
        }
        if (goes_on_ - edge_ <= kShortest * period_) return false;
        standing_ = true;
        at(goes_on_ - time_now() - period_ / 2, cbAfterDelay, resumed);
        return true;
    }

    // All edges before ``edge`` count as having been.
    void make_up(std::uint64_t edge) {
        if (!standing_) return;
        standing_ = false;
        const std::uint64_t cycles = (edge - edge_) / period_ - 1;
        if (!cycles) return;
        edge_ = edge - period_;
        stats.cycles += cycles;
        stats.skipped += cycles;
        stats.jumps++;
    }

    // If the clock stands still, it goes on.
    void go_on() {
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
void wake(unsigned column) { the_clock().wake(column); }

}  // namespace rocinante

extern "C" {

// Called by Python.

void clock_start(std::uint64_t period) { rocinante::the_clock().start(period); }
void clock_stop() { rocinante::the_clock().stop(); }
void clock_jump(int allowed, int rest) { rocinante::the_clock().allow(allowed, rest); }
void clock_wake() { rocinante::wake(); }
int clock_idle() { return rocinante::the_clock().idle(); }
int clock_timers() { return rocinante::the_clock().timers(); }
void *clock_stats() { return &rocinante::the_clock().stats; }

}  // extern "C"
