/* The helper's way with SIGSEGV and SIGBUS, alone, as a library for `faulter`. */
#include "helper/safeload.h"

enum { LOADS = 10 };

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int faulter_own(void);
EXPORTED bool faulter_load_badly(bool is_ours);

int faulter_own(void)
{
    return safeload_own();
}

/* Are the signals ours as expected, and do bad loads give nothing? */
bool faulter_load_badly(bool is_ours)
{
    ucontext_t context;
    getcontext(&context);
    if (safeload_may_use_instruction(&context, true) != is_ours)
        return false;
    uint64_t before = safeload_faults();
    for (unsigned i = 0; is_ours && i < LOADS; i++) {
        uint64_t value;
        char bytes[16];
        if (safe_load(SAFELOAD_INSTRUCTION, i, &value) || safe_copy(SAFELOAD_INSTRUCTION, bytes, i, sizeof bytes) != 0)
            return false;
    }
    return safeload_faults() - before == (is_ours ? 2 * LOADS : 0);
}
