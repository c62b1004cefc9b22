#include "sampler/pinning.h"

#include <errno.h>
#include <sched.h>

bool pinning_may_use(int cpu)
{
    cpu_set_t allowed;
    return cpu >= 0 && cpu < CPU_SETSIZE && sched_getaffinity(0, sizeof(allowed), &allowed) == 0 &&
           CPU_ISSET((size_t)cpu, &allowed);
}

int pinning_apply(int how)
{
    cpu_set_t one;
    if (how < 0)
        return 0;
    CPU_ZERO(&one);
    CPU_SET((size_t)how, &one);
    return sched_setaffinity(0, sizeof(one), &one) < 0 ? -errno : 0;
}
