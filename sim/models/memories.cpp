// The words of the gateware's large memories (rocinante_ram), where Verilator keeps them: Python
// reads and writes whole tables without simulated time. Only the clock's edge looks at the words,
// so nothing has to be evaluated again.

#include <cstdint>

#include "verilated.h"
#include "verilated_sym_props.h"
#include "verilated_syms.h"

extern "C" {

// Words of the memory in ``scope``, nullptr when there is none; ``bytes`` of a word, and ``rows``.
void *memory_words(const char *scope, std::uint32_t *bytes, std::uint32_t *rows) {
    const VerilatedScope *const found = Verilated::scopeFind(scope);
    VerilatedVar *const words = found ? found->varFind("rows") : nullptr;
    if (!words || words->udims() != 1) return nullptr;
    *bytes = words->entSize();
    *rows = words->elements(1);
    return words->datap();
}

// Name of scope ``index`` that has such a memory, nullptr behind the last one.
const char *memory_scope(std::uint32_t index) {
    for (const auto &entry : *Verilated::scopeNameMap()) {
        const VerilatedVar *const words = entry.second->varFind("rows");
        if (words && words->udims() == 1 && !index--) return entry.first;
    }
    return nullptr;
}
}
