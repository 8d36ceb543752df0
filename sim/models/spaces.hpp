// Memory of functions whose guests are other programs: pieces of it, each mapped into this process or
// out of its reach. sim/models/spaces.py is the Python side.
#pragma once

#include <cstdint>
#include <map>

namespace rocinante {

// Bytes of a guest's memory from the bus address ``first`` on. ``place``: where they are in this
// process; null: only the guest's program can get at them, and Python asks it.
struct Piece {
    std::uint64_t first, size;
    std::uint8_t *place;
    bool readable, writable;
};

// What one function may reach. Pieces are whole pages of 4 KiB, so that no access has bytes of two.
struct Space {
    std::map<std::uint64_t, Piece> pieces;  // by the last byte
    std::uint64_t read_faults = 0, write_faults = 0;

    // The piece that holds the byte at ``addr``, or null.
    const Piece *find(std::uint64_t addr) const {
        const auto found = pieces.lower_bound(addr);
        return found != pieces.end() && found->second.first <= addr ? &found->second : nullptr;
    }
};

// The spaces of one host's functions. A function without one uses the host's own memory.
class Spaces {
  public:
    Space *of(unsigned function) {
        const auto found = spaces_.find(function);
        return found == spaces_.end() ? nullptr : &found->second;
    }
    void own(unsigned function) { spaces_[function]; }

    // Memory of this process, at its own addresses, that functions without a space reach beside
    // their host's.
    Space lent;
    void clear();

    // Gives a page that its file has no more to whoever is about to touch it; false: not ours.
    bool fill(const void *addr) const;

  private:
    std::map<unsigned, Space> spaces_;
};

Spaces &spaces_of(unsigned host);

}  // namespace rocinante
