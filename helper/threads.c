#include "helper/threads.h"

#include "helper/rawcall.h"
#include "helper/state.h"
#include "helper/timers.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

typedef int create_function(pthread_t *thread, const pthread_attr_t *attributes, void *(*function)(void *),
                            void *argument);

static create_function *real_create;
static pthread_key_t end_key;
static bool is_following;

struct start {
    void *(*function)(void *);
    void *argument;
};

static int32_t own_tid(void)
{
    return (int32_t)rawcall3(SYS_gettid, 0, 0, 0);
}

static void begin_thread(void *(*function)(void *))
{
    struct helper_shared *shared = state_enter();
    if (shared) {
        uint32_t slot = timers_slot(shared, own_tid());
        if (slot != HELPER_SLOTS) {
            shared->slots[slot].start_avma = (uint64_t)function;
            timers_arm(shared, slot);
            pthread_setspecific(end_key, &shared->slots[slot]); /* so that end_thread is called */
        }
    }
    state_leave();
}

/* The destructor of end_key: at each end of a thread but that of the process. */
static void end_thread(void *slot)
{
    struct helper_shared *shared = state_enter();
    uint64_t off = (uint64_t)slot - (uint64_t)(shared ? shared->slots : NULL);
    if (shared && off < sizeof(shared->slots)) /* it may be other memory by now than when the thread began */
        timers_end_thread(shared, (uint32_t)(off / sizeof(shared->slots[0])));
    state_leave();
}

/* The call at the end is a jump, so no frame of ours is on the thread's stack. */
__attribute__((optimize("optimize-sibling-calls"))) static void *run_thread(void *context)
{
    struct start start = *(struct start *)context;
    free(context);
    begin_thread(start.function);
    return start.function(start.argument);
}

__attribute__((visibility("default"))) int pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                                                          void *(*function)(void *), void *argument)
{
    create_function *create = real_create;
    if (!create)
        create = (create_function *)dlsym(RTLD_NEXT, "pthread_create");
    struct start *start = is_following ? malloc(sizeof(*start)) : NULL;
    if (!start)
        return create(thread, attributes, function, argument);
    *start = (struct start){.function = function, .argument = argument};
    int error = create(thread, attributes, run_thread, start);
    if (error)
        free(start);
    return error;
}

void threads_follow(void)
{
    real_create = (create_function *)dlsym(RTLD_NEXT, "pthread_create");
    is_following = real_create && pthread_key_create(&end_key, end_thread) == 0;
}

bool threads_are_followed(void)
{
    return is_following;
}
