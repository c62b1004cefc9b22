/*
 * restorer eax|rax|cfi [SECONDS]: main;outer;interrupted;trap_first;<restorer>;handler;handler_spin: a signal handler
 * that returns to code without unwind information, restorer_eax or restorer_rax; or to restorer_cfi, whose unwind
 * information says that it was called.
 */
#include "testprog.h"

#include <string.h>
#include <sys/syscall.h>

/* As the kernel has it. */
struct kernel_sigaction {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

enum { RESTORER_IS_SET = 0x04000000 };

void restorer_eax(void);
void restorer_rax(void);
void restorer_cfi(void);
void trap_first(void);

static volatile int zero;

EXACT void handler_spin(void)
{
    SPIN();
    _exit(0);
}

EXACT void handler(int signal_number)
{
    (void)signal_number;
    handler_spin();
    zero = 0;
}

EXACT void interrupted(void)
{
    trap_first();
    zero = 0;
}

EXACT void outer(void)
{
    interrupted();
    zero = 0;
}

static void (*find_restorer(const char *kind))(void)
{
    if (strcmp(kind, "cfi") == 0)
        return restorer_cfi;
    return strcmp(kind, "rax") == 0 ? restorer_rax : restorer_eax;
}

int main(int argc, char **argv)
{
    struct kernel_sigaction action = {
        .handler = handler,
        .flags = RESTORER_IS_SET,
        .restorer = find_restorer(argc > 1 ? argv[1] : ""),
    };
    if (syscall(SYS_rt_sigaction, SIGILL, &action, NULL, sizeof action.mask) != 0)
        fail("rt_sigaction");
    stop_after(number_argument(argc, argv, 2, 60));
    ready("");
    outer();
    return 0;
}
