// Notes each access to two pages of memory, as a card's BAR would see it: the pages may not be
// touched, SIGSEGV tells of an access, and the processor's trap flag ends it after one instruction.
#include <csignal>
#include <cstring>
#include <sys/mman.h>
#include <ucontext.h>

namespace {
constexpr long PAGE = 4096, PAGES = 2, MOST = 256, TRAP_FLAG = 0x100, WRITE = 2;
struct Seen {
    long write, offset, changed;
} seen[MOST];
long count;
char *begin, before[PAGES * PAGE];

void protect(bool open, long page) {
    mprotect(begin + page * PAGE, PAGE, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void touched(int number, siginfo_t *info, void *context) {
    long offset = static_cast<char *>(info->si_addr) - begin;
    if (offset < 0 || offset >= PAGES * PAGE || count >= MOST) {
        signal(number, SIG_DFL); // somebody else's mistake
        return;
    }
    auto &registers = static_cast<ucontext_t *>(context)->uc_mcontext.gregs;
    seen[count++] = {(registers[REG_ERR] & WRITE) != 0, offset, 0};
    protect(true, offset / PAGE);
    std::memcpy(before + offset / PAGE * PAGE, begin + offset / PAGE * PAGE, PAGE);
    registers[REG_EFL] |= TRAP_FLAG;
}

void done(int, siginfo_t *, void *context) {
    static_cast<ucontext_t *>(context)->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    Seen &last = seen[count - 1];
    long page = last.offset / PAGE;
    for (long i = page * PAGE; i < (page + 1) * PAGE; i++)
        last.changed += begin[i] != before[i];
    protect(false, page);
}
} // namespace

extern "C" void watch(void *memory) {
    begin = static_cast<char *>(memory);
    struct sigaction action = {};
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    action.sa_sigaction = touched;
    sigaction(SIGSEGV, &action, nullptr);
    action.sa_sigaction = done;
    sigaction(SIGTRAP, &action, nullptr);
    for (long page = 0; page < PAGES; page++)
        protect(false, page);
}

extern "C" long take(long index, long *write, long *offset, long *changed) {
    if (index >= count)
        return 0;
    *write = seen[index].write, *offset = seen[index].offset, *changed = seen[index].changed;
    return 1;
}
