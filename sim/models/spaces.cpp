// Memory of functions whose guests are other programs: mapping it, and what becomes of what is lost.

#include "spaces.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <csignal>

namespace rocinante {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr int kReadable = 1, kWritable = 2;

void release(const Piece &piece) {
    if (piece.place) munmap(piece.place, piece.size);
}

std::array<Spaces, 4> &all() {
    static std::array<Spaces, 4> spaces;
    return spaces;
}

struct sigaction before_bus, before_fault;
pthread_t simulation;

// A program may cut its file while it is mapped here. The pages that it has lost then read as zero,
// and what is written to them goes nowhere.
void lost_page(int number, siginfo_t *info, void *) {
    for (const Spaces &spaces : all()) {
        if (spaces.fill(info->si_addr)) return;
    }
    sigaction(number, &before_bus, nullptr);  // the same access faults again
}

// Likewise memory of this process that is lent. A kernel would have kept such a page for the card;
// here the card gets another one in its place. Accesses of the program itself fault as ever.
void lost_lent(int number, siginfo_t *info, void *) {
    const auto page = reinterpret_cast<std::uint64_t>(info->si_addr) / kPage * kPage;
    for (unsigned host = 0; pthread_equal(pthread_self(), simulation) && host < 4; host++) {
        if (!spaces_of(host).lent.find(page)) continue;
        void *const place = mmap(reinterpret_cast<void *>(page), kPage, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (place != MAP_FAILED) return;
    }
    sigaction(number, &before_fault, nullptr);
}

void guard(int number, void (*handler)(int, siginfo_t *, void *), struct sigaction &before) {
    static std::array<bool, 64> guarded{};
    if (guarded[number]) return;
    guarded[number] = true;
    simulation = pthread_self();
    struct sigaction action {};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO;
    sigaction(number, &action, &before);
}

bool overlaps(const Space &space, std::uint64_t first, std::uint64_t last) {
    const auto found = space.pieces.lower_bound(first);
    return found != space.pieces.end() && found->second.first <= last;
}

// Where the bytes of a file are from now on; null and ``errno`` if they cannot be there.
void *mapped(int file, std::uint64_t offset, std::uint64_t size, int rights) {
    struct stat found {};
    if (fstat(file, &found)) return nullptr;
    if (!S_ISREG(found.st_mode) || offset % kPage || offset + size < size ||
        offset + size > static_cast<std::uint64_t>(found.st_size)) {
        errno = EINVAL;
        return nullptr;
    }
    const int protection = PROT_READ | (rights & kWritable ? PROT_WRITE : 0);
    void *const place = mmap(nullptr, size, protection, MAP_SHARED | MAP_NORESERVE, file,
                             static_cast<off_t>(offset));
    return place == MAP_FAILED ? nullptr : place;
}

}  // namespace

void Spaces::clear() {
    for (const auto &[function, space] : spaces_) {
        for (const auto &[last, piece] : space.pieces) release(piece);
    }
    spaces_.clear();
    lent.pieces.clear();
}

bool Spaces::fill(const void *addr) const {
    const auto *const byte = static_cast<const std::uint8_t *>(addr);
    for (const auto &[function, space] : spaces_) {
        for (const auto &[last, piece] : space.pieces) {
            if (!piece.place || byte < piece.place || byte >= piece.place + piece.size) continue;
            void *const page = piece.place + (byte - piece.place) / kPage * kPage;
            return mmap(page, kPage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
        }
    }
    return false;
}

Spaces &spaces_of(unsigned host) { return all()[host]; }

}  // namespace rocinante

extern "C" {

// Called by Python. Results are 0 or an errno.

// Makes a function see the pieces that are mapped for it, and nothing else.
void space_own(int host, std::uint32_t function) { rocinante::spaces_of(host).own(function); }

// file: its descriptor, which stays the caller's; -1: Python gets at the bytes.
int space_map(int host, std::uint32_t function, std::uint64_t first, std::uint64_t size, int file,
              std::uint64_t offset, int rights) {
    using namespace rocinante;
    Space *const space = spaces_of(host).of(function);
    if (!space || !size || first % kPage || size % kPage || first + (size - 1) < first) {
        return EINVAL;
    }
    if (overlaps(*space, first, first + (size - 1))) return EEXIST;
    std::uint8_t *place = nullptr;
    if (file >= 0) {
        guard(SIGBUS, lost_page, before_bus);
        place = static_cast<std::uint8_t *>(mapped(file, offset, size, rights));
        if (!place) return errno;
    }
    space->pieces[first + (size - 1)] = {first, size, place, (rights & kReadable) != 0,
                                         (rights & kWritable) != 0};
    return 0;
}

// Lets functions without a space reach a page of this process at its own address, or no more.
int space_lend(int host, std::uint64_t page, int on) {
    if (page % rocinante::kPage) return EINVAL;
    rocinante::guard(SIGSEGV, rocinante::lost_lent, rocinante::before_fault);
    auto &pieces = rocinante::spaces_of(host).lent.pieces;
    const std::uint64_t last = page + (rocinante::kPage - 1);
    if (!on) return pieces.erase(last) ? 0 : ENOENT;
    auto *const place = reinterpret_cast<std::uint8_t *>(page);
    return pieces.insert({last, {page, rocinante::kPage, place, true, true}}).second ? 0 : EEXIST;
}

// Takes away all pieces within a range; none may be in it only in part.
int space_unmap(int host, std::uint32_t function, std::uint64_t first, std::uint64_t size) {
    using namespace rocinante;
    Space *const space = spaces_of(host).of(function);
    if (!space || !size || first + (size - 1) < first) return EINVAL;
    const std::uint64_t last = first + (size - 1);
    const auto begin = space->pieces.lower_bound(first);
    auto end = begin;
    for (; end != space->pieces.end() && end->second.first <= last; ++end) {
        if (end->second.first < first || end->first > last) return EINVAL;
    }
    if (begin == end) return ENOENT;
    for (auto one = begin; one != end; ++one) rocinante::release(one->second);
    space->pieces.erase(begin, end);
    return 0;
}

// Accesses of a function that hit no piece, or none that allowed them, until now.
std::uint64_t space_faults(int host, std::uint32_t function, int write) {
    const rocinante::Space *const space = rocinante::spaces_of(host).of(function);
    if (!space) return 0;
    return write ? space->write_faults : space->read_faults;
}

}  // extern "C"
