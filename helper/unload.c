/*
 * Code that goes away: what is mapped at its address later is other code. Until the sampler has looked at the maps
 * again it cannot tell which was meant; so the program's calls of dlclose(3) are counted, where the helper was loaded
 * before it. (Not those of dlopen(3), which asks who has called it; and new code takes no one's place.)
 */
#include "helper/state.h"

#include <dlfcn.h>
#include <stddef.h>

typedef int close_function(void *handle);
static close_function *real_close;

__attribute__((constructor(101))) static void load(void)
{
    real_close = (close_function *)dlsym(RTLD_NEXT, "dlclose");
}

static void note(void)
{
    struct helper_shared *shared = state_enter();
    if (shared)
        atomic_fetch_add(&shared->report.unloads, 1);
    state_leave();
}

__attribute__((visibility("default"))) int dlclose(void *handle)
{
    if (!real_close)
        load();
    note(); /* before: who is sampled meanwhile */
    int result = real_close(handle);
    note(); /* behind: who has looked meanwhile */
    return result;
}
