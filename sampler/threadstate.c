#include "sampler/threadstate.h"

#include <stdio.h>
#include <sys/syscall.h>

static const char *const call_names[] = {
#include "syscall_names.inc"
};

enum thread_state thread_state_of(char letter)
{
    switch (letter) {
    case 'R':
        return THREAD_RUNNABLE;
    case 'D':
        return THREAD_DISK_WAIT;
    case 'T':
    case 't':
        return THREAD_STOPPED;
    case 'S':
    case 'I':
    case 'P':
        return THREAD_SLEEPING;
    default:
        return THREAD_STATE_UNKNOWN;
    }
}

int16_t thread_state_call(int64_t number)
{
    return number >= 0 && number <= INT16_MAX ? (int16_t)number : -1;
}

void thread_state_name(enum thread_state state, int64_t call, char *ret_name)
{
    static const char *const names[THREAD_STATE_COUNT] = {"unknown",  "running",   "runnable",
                                                          "sleeping", "disk wait", "stopped"};
    const int64_t known = sizeof(call_names) / sizeof(call_names[0]);
    if (state != THREAD_SLEEPING || call < 0)
        snprintf(ret_name, THREAD_STATE_NAME_BYTES, "%s", names[state]);
    else if (call < known && call_names[call])
        snprintf(ret_name, THREAD_STATE_NAME_BYTES, "%s", call_names[call]);
    else
        snprintf(ret_name, THREAD_STATE_NAME_BYTES, "syscall_%lld", (long long)call);
}
