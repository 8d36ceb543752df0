// What a bad network does to the frames of one direction: some are lost, some come twice, late,
// changed, or behind frames that were sent after them. It stands between a sender and its peer as a
// switch does: a frame is taken whole, may wait, and is sent again at the rate of the line behind.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "clock.hpp"
#include "events.hpp"

namespace rocinante {

constexpr std::uint64_t kPreamble = 8, kFcs = 4, kGap = 12, kShortest = 60;  // bytes

constexpr std::size_t kBth = 12;         // bytes
constexpr unsigned kAcknowledge = 0x11;  // operation of an ACKNOWLEDGE

// Where the BTH of a RoCE v2 packet begins, behind which there is at least a byte; else 0.
inline std::size_t bth_of(const std::vector<std::uint8_t> &bytes) {
    constexpr std::size_t kEthernet = 14, kVlan = 4, kUdp = 8;
    std::size_t at = kEthernet;
    auto word = [&](std::size_t offset) {
        return offset + 1 < bytes.size() ? bytes[offset] << 8 | bytes[offset + 1] : 0;
    };
    if (word(at - 2) == 0x8100) at += kVlan;
    const int type = word(at - 2);
    if (type == 0x0800) {
        at += (bytes[at] & 15) * 4;
    } else if (type == 0x86DD) {
        at += 40;
    } else {
        return 0;
    }
    if (at + kUdp + kBth >= bytes.size() || word(at + 2) != 4791) return 0;
    return at + kUdp;
}

struct Frame {
    std::vector<std::uint8_t> bytes;
    std::uint64_t arrival = 0;  // of the last bit
    std::uint64_t offer = 0;    // when its first beat may be offered
    bool error = false;
};

// Read by sim/models/native.py through ctypes: same fields, same order. Rates are of 2^32 frames.
struct ImpairSettings {
    std::uint64_t on = 0;  // 0: frames go straight from the sender to its peer
    std::uint64_t seed = 1;
    std::uint64_t loss = 0;   // rate at which a loss begins,
    std::uint64_t burst = 1;  // and the frames that are lost then, one behind the other
    std::uint64_t every = 0;  // each frame is lost whose number, from 1, is a multiple; 0: none
    std::uint64_t duplicate = 0;
    std::uint64_t corrupt = 0;   // one bit is changed, and the FCS is right for it
    std::uint64_t overtaken = 0;
    std::uint64_t span = 0;      // 1 to so many later frames pass one that is overtaken
    std::uint64_t delay_ps = 0;  // of each frame, in addition to the link's
    std::uint64_t jitter_ps = 0;  // 0 to this in addition, without a change of order
    std::uint64_t ps_per_byte = 0;  // of the line behind; 0: as the link
    std::uint64_t queue_bytes = 0;  // wait for the line; more are lost. 0: no limit
    std::uint64_t pause_ps = 0;     // the sender begins no frame for so long,
    std::uint64_t pause_every_ps = 0;  // once in this time
    std::uint64_t operations = 0;   // packets of a role: bit n is that of the opcode's low 5 bits,
    std::uint64_t answers = 0;      // bit n that of the kind n of an ACKNOWLEDGE's syndrome;
    std::uint64_t skip = 0;         // so many of them pass,
    std::uint64_t drop = 0;         // then so many are lost
};

struct ImpairStats {
    std::uint64_t frames = 0;  // taken
    std::uint64_t lost = 0, dropped = 0, overflowed = 0;  // by chance or number, role, full queue
    std::uint64_t duplicated = 0, corrupted = 0, overtaken = 0;
    std::uint64_t sent = 0;  // frames + duplicated - lost - dropped - overflowed - those inside
    std::uint64_t paused = 0;  // frames that a pause has held back
};

class Impairments {
  public:
    ImpairSettings settings;
    ImpairStats stats;

    bool active() const { return settings.on || !held_.empty(); }

    void restart() {
        random_.seed(settings.seed);
        stats = {};
        burst_ = roles_ = 0;
        // Apart from the others, whose chances are the same with and without pauses.
        Random apart;
        apart.seed(~settings.seed);
        pause_at_ = apart.below(settings.pause_every_ps);
    }

    // Bytes of the frames that wait here.
    std::uint64_t waiting_bytes() const { return waiting_bytes_; }

    // When the sender may begin a frame that it could begin at ``when``: 802.3x (IEEE Std 802.3,
    // annex 31B) stops it between two frames, so those that follow wait in the sender.
    std::uint64_t open(std::uint64_t when) {
        if (!settings.pause_ps) return when;
        const std::uint64_t every = settings.pause_every_ps;
        const std::uint64_t since = (when + every - pause_at_) % every;  // the pause began
        if (since >= settings.pause_ps) return when;
        stats.paused++;
        return when + settings.pause_ps - since;
    }

    void clear() {
        held_.clear();
        waiting_bytes_ = 0;
        free_ = latest_ = 0;
    }

    // A frame whose last bit comes at ``now``.
    void take(std::uint64_t now, Frame &&frame) {
        const std::uint64_t number = ++stats.frames;
        for (auto &[when, held] : held_) held.passed += 1;
        const bool unlucky = lost(number), unwanted = dropped(frame.bytes);
        if (unlucky || unwanted) {
            (unlucky ? stats.lost : stats.dropped)++;
            return;
        }
        if (waiting_bytes_ + frame.bytes.size() > settings.queue_bytes && settings.queue_bytes) {
            stats.overflowed++;
            return;
        }
        if (chance(settings.corrupt)) {
            const std::uint64_t bit = random_.below(frame.bytes.size() * 8);
            frame.bytes[bit / 8] ^= 1u << (bit % 8);
            stats.corrupted++;
        }
        std::uint64_t when = now + settings.delay_ps + random_.below(settings.jitter_ps + 1);
        when = latest_ = std::max(when, latest_);
        if (chance(settings.duplicate)) {
            stats.duplicated++;
            hold(when, {frame, 0, 0});
        }
        std::uint64_t behind = 0;
        if (settings.span && chance(settings.overtaken)) {
            stats.overtaken++;
            behind = 1 + random_.below(settings.span);
            when += behind * kPatience;
        }
        hold(when, {std::move(frame), behind, 0});
    }

    // When the next frame goes on; kNever if none waits.
    std::uint64_t next() const {
        return held_.empty() ? kNever : std::max(held_.begin()->first, free_);
    }

    // Hand over what is due: ``give(frame, begin)``; ``begin`` is that of its data.
    template <typename Give>
    void step(std::uint64_t now, std::uint64_t link_ps_per_byte, Give give) {
        release(now);
        const std::uint64_t ps = settings.ps_per_byte ? settings.ps_per_byte : link_ps_per_byte;
        while (next() <= now) {
            auto first = held_.begin();
            const std::uint64_t size = first->second.frame.bytes.size();
            const std::uint64_t begin = std::max(first->first, free_) + kPreamble * ps;
            free_ = begin + (size + kFcs + kGap) * ps;
            first->second.frame.arrival = begin + (size + kFcs) * ps;
            waiting_bytes_ -= size;
            stats.sent++;
            give(std::move(first->second.frame), begin);
            held_.erase(first);
        }
    }

  private:
    struct Held {
        Frame frame;
        std::uint64_t behind;  // later frames that are to pass it; 0: it is on time
        std::uint64_t passed;  // those that have come
    };

    // A frame that waits to be overtaken goes on after this time for each frame, if none come.
    static constexpr std::uint64_t kPatience = 1'000'000;  // ps

    bool chance(std::uint64_t rate) { return rate && (random_.next() >> 32) < rate; }

    bool lost(std::uint64_t number) {
        if (!burst_ && chance(settings.loss)) burst_ = settings.burst;
        if (burst_) {
            burst_--;
            return true;
        }
        return settings.every && number % settings.every == 0;
    }

    bool dropped(const std::vector<std::uint8_t> &bytes) {
        if (!settings.drop || !has_role(bytes)) return false;
        const std::uint64_t number = roles_++;
        return number >= settings.skip && number - settings.skip < settings.drop;
    }

    // Whether the frame is a RoCE v2 packet of the role that the settings name.
    bool has_role(const std::vector<std::uint8_t> &bytes) const {
        const std::size_t bth = bth_of(bytes);
        if (!bth) return false;
        const unsigned operation = bytes[bth] & 31;
        if (operation == kAcknowledge && settings.answers >> (bytes[bth + kBth] >> 5) & 1)
            return true;
        return settings.operations >> operation & 1;
    }

    void hold(std::uint64_t when, Held &&held) {
        waiting_bytes_ += held.frame.bytes.size();
        held_.emplace(when, std::move(held));
    }

    // Those that enough later frames have passed wait no longer, only for these.
    void release(std::uint64_t now) {
        for (auto at = held_.begin(); at != held_.end();) {
            auto next = std::next(at);
            if (at->second.behind && at->second.passed >= at->second.behind && at->first > now) {
                Held held = std::move(at->second);
                held.behind = 0;
                held_.erase(at);
                held_.emplace(std::max(now, latest_), std::move(held));
            }
            at = next;
        }
    }

    Random random_;
    std::multimap<std::uint64_t, Held> held_;  // by the time at which they go on
    std::uint64_t waiting_bytes_ = 0;
    std::uint64_t free_ = 0;    // until then the line behind is taken
    std::uint64_t latest_ = 0;  // time of the last frame in order
    std::uint64_t burst_ = 0;   // frames that are still to be lost
    std::uint64_t roles_ = 0;   // packets of the role that have come
    std::uint64_t pause_at_ = 0;  // of each interval: where its pause begins
};

}  // namespace rocinante
