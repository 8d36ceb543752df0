// The clock, as the other models see it: who takes part in a jump over idle cycles.
#pragma once

#include <cstdint>
#include <vector>

namespace rocinante {

constexpr std::uint64_t kNever = ~0ull;

// What a model has to say about time. While its card's clock stands still nobody calls it.
class Timed {
  public:
    Timed() { all().push_back(this); }
    Timed(const Timed &) = delete;

    // Which card it belongs to.
    virtual unsigned column() const = 0;

    // When it will do something by itself, kNever if it waits for others. 0: something is going on
    // in this cycle, or each cycle counts (random stalls). ``now``: the last edge of the clock.
    virtual std::uint64_t next(std::uint64_t now) const = 0;

    // ``cycles`` edges of the clock have been left out, the last of them at ``last``.
    virtual void skip(std::uint64_t last, std::uint64_t cycles) = 0;

    static std::vector<Timed *> &all() {
        static std::vector<Timed *> models;
        return models;
    }

  protected:
    ~Timed() = default;
};

// Something new is about to reach the models of a card, or of any: if its clock stands still it goes
// on, and what has been left out until now is made up for.
void wake(unsigned column);
void wake();

}  // namespace rocinante
