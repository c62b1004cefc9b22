#include "sampler/slice.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* struct sched_attr of linux/sched/types.h, its first version; glibc 2.36 has no wrapper. */
struct attributes {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns; /* in the ordinary class: the slice; 0 is the default, 100 us the least */
    uint64_t deadline_ns;
    uint64_t period_ns;
};

enum { SHORTEST_SLICE_NS = 100000, MOST_URGENT = -20 };

void slice_ask_short(void)
{
    struct attributes attributes = {.size = sizeof(attributes)};
    if (syscall(SYS_sched_getattr, 0, &attributes, sizeof(attributes), 0) < 0 || attributes.policy != SCHED_OTHER)
        return;
    attributes.size = sizeof(attributes);
    attributes.runtime_ns = SHORTEST_SLICE_NS;
    int32_t nice = attributes.nice;
    if (nice == 0) /* whoever has set another means it */
        attributes.nice = MOST_URGENT;
    if (syscall(SYS_sched_setattr, 0, &attributes, 0) == 0)
        return;
    attributes.nice = nice;
    syscall(SYS_sched_setattr, 0, &attributes, 0);
}

int slice_give_way(void)
{
    struct attributes attributes = {.size = sizeof(attributes), .policy = SCHED_IDLE, .runtime_ns = SHORTEST_SLICE_NS};
    return syscall(SYS_sched_setattr, 0, &attributes, 0) < 0 ? -errno : 0;
}
