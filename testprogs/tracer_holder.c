/*
 * tracer_holder TID… [stop]: traces these threads, as a debugger does, and does nothing else until it is killed, which
 * releases them unharmed. With `stop` they stand still meanwhile.
 */
#include "testprog.h"

#include <stdbool.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

int main(int argc, char **argv)
{
    bool stops = argc > 2 && strcmp(argv[argc - 1], "stop") == 0;
    if (argc < 2)
        return 99;
    for (int i = 1; i < argc - stops; i++) {
        pid_t tid = (pid_t)strtol(argv[i], NULL, 10);
        if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) != 0)
            fail("PTRACE_SEIZE");
        if (stops && (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) != 0 || waitpid(tid, NULL, __WALL) != tid))
            fail("PTRACE_INTERRUPT");
    }
    ready("");
    alarm(120);
    for (;;)
        pause();
}
