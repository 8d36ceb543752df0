// What PCIe's packets (TLPs) take on the link beside their payload, where the host model counts it.
//
// A packet has a header of three or, with an address beyond 4 GiB, four double words; before it 4
// bytes of framing and sequence number, behind it the link's CRC of 4 (PCI Express Base 3.0, 2.2 and
// 4.2.2). Acknowledgements and flow control are not counted, nor are register accesses.
#pragma once

#include <algorithm>
#include <cstdint>

namespace rocinante {

constexpr std::uint64_t kTlpLink = 8, kTlpShort = 12 + kTlpLink, kTlpLong = 16 + kTlpLink;

inline std::uint64_t request_bytes(std::uint64_t addr) { return addr >> 32 ? kTlpLong : kTlpShort; }

// Bytes of the requests for one read, each of at most ``most`` bytes (MRRS); 0: not counted.
inline std::uint64_t read_headers(std::uint64_t most, std::uint64_t addr, std::uint64_t length) {
    return most ? (length + most - 1) / most * request_bytes(addr) : 0;
}

// Bytes of the completions that begin with these bytes of a read. Each but the last one ends at a
// multiple of ``most`` (MPS), whatever other reads' data comes in between. ``left``: bytes to the end
// of the completion that has begun.
inline std::uint64_t completion_headers(std::uint64_t most, std::uint64_t addr, std::uint32_t bytes,
                                        std::uint32_t &left) {
    std::uint64_t headers = 0;
    while (most && bytes) {
        if (!left) {
            left = most - addr % most;
            headers += kTlpShort;
        }
        const std::uint32_t part = std::min(bytes, left);
        left -= part, bytes -= part, addr += part;
    }
    return headers;
}

// The packets of write bursts, which come beat by beat: each but a burst's last one is full.
class WritePackets {
  public:
    // Bytes of the headers that begin with a beat; ``most`` (MPS) 0: not counted.
    std::uint64_t headers(std::uint64_t most, std::uint64_t addr, std::uint64_t bytes, bool first) {
        if (first) left_ = 0;
        std::uint64_t headers = 0;
        for (; most && bytes > left_; headers += request_bytes(addr)) {
            bytes -= left_;
            left_ = most;
        }
        left_ -= std::min(bytes, left_);
        return headers;
    }

  private:
    std::uint64_t left_ = 0;  // bytes that the packet which has begun still takes
};

}  // namespace rocinante
