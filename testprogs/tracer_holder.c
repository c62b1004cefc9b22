/* tracer_holder PID: traces PID, as a debugger does, and does nothing else until it is killed, which releases PID
 * unharmed. */
#include "testprog.h"

#include <sys/ptrace.h>

int main(int argc, char **argv)
{
    if (argc < 2)
        return 99;
    if (ptrace(PTRACE_SEIZE, (pid_t)strtol(argv[1], NULL, 10), NULL, NULL) != 0)
        fail("PTRACE_SEIZE");
    ready("");
    alarm(120);
    for (;;)
        pause();
}
