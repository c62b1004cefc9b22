/*
 * A program that confines itself with a seccomp filter: what is no system call of its own may kill it from then on.
 * Where the helper was loaded before the program, its calls of prctl(2) and syscall(2) come here (confine_x86_64.S has
 * the second), so that is known before. System calls that go around the C library the sampler notices a moment later,
 * from outside.
 */
#include "helper/rawcall.h"
#include "helper/state.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <sys/prctl.h>

/* Some milliseconds; a handler takes microseconds. */
enum { PATIENCE_TURNS = 200000 };

/* For confine_x86_64.S. */
__attribute__((visibility("hidden"))) void *confine_real_syscall;
__attribute__((visibility("hidden"))) void confine_note(void);

static void note(uint32_t limits)
{
    struct helper_shared *shared = state_enter();
    if (shared)
        atomic_fetch_or(&shared->settings.limits, limits);
    state_leave();
    /* Handlers of other threads that have begun before may still be about to make a call. (One that we have interrupted
     * ourselves will not end before us.) */
    for (long i = 0; shared && i < PATIENCE_TURNS && state_is_used(); i++)
        __builtin_ia32_pause();
}

void confine_note(void)
{
    note(HELPER_NO_CALLS | HELPER_NO_TSC); /* the strict mode, too, comes this way */
}

/* The C library's has the same arguments in the same registers, though it says "...". */
int prctl_of_program(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d) __asm__("prctl")
    __attribute__((visibility("default")));

int prctl_of_program(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
    if (option == PR_SET_SECCOMP)
        confine_note();
    if (option == PR_SET_TSC && a == PR_TSC_SIGSEGV)
        note(HELPER_NO_TSC);
    long result = rawcall6(SYS_prctl, option, (long)a, (long)b, (long)c, (long)d, 0);
    if (result >= 0)
        return (int)result;
    errno = (int)-result;
    return -1;
}

__attribute__((constructor(101))) static void load(void)
{
    confine_real_syscall = dlsym(RTLD_NEXT, "syscall");
}
