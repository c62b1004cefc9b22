#include "sampler/mapper.h"

#include "common/array.h"
#include "common/clock.h"

#include <errno.h>
#include <stdlib.h>

/* Maps are read again this often though no counter moved: a library can take the place of one of the same size. */
#define MAP_PERIOD_NS (100 * NS_PER_MS)
/* When new executable memory is told: what remains is memory that was moved, or unmapped. What comes in its place is
 * told again. */
#define MAP_TOLD_PERIOD_NS (10 * NS_PER_SEC)
/* The counter is looked at that often then. */
#define COUNTER_TOLD_PERIOD_NS (250 * NS_PER_MS)
/* And not more often than this for an address that they do not explain, while no counter moves. */
#define MAP_RETRY_NS (5 * NS_PER_MS)
/* Reading them takes at most one part in so many of the time: when nothing calls for it; when something does. */
enum { IDLE_SHARE = 100, BUSY_SHARE = 10 };

/* An exec that is under way takes some tens of microseconds more to set up its new memory. */
#define EXEC_PAUSE_NS (50 * NS_PER_US)

void mapper_deinit(struct mapper *mapper)
{
    for (size_t i = 0; i < mapper->space_count; i++)
        space_free(mapper->spaces[i]);
    free(mapper->spaces);
    *mapper = (struct mapper){0};
}

int mapper_begin_space(struct mapper *mapper, const struct thread *thread)
{
    struct process *process = thread->process;
    int error = array_room(&mapper->spaces, &mapper->space_capacity, mapper->space_count + 1);
    struct procfs_stat before = {0};
    struct procfs_stat after;
    struct space *space = NULL;
    for (int tries = 0; !error && tries < 5; tries++) {
        error = thread_read_stat(thread, &before);
        if (!error)
            error = space_new(process->pid, process->proc_fd, thread->tid, (uint32_t)mapper->space_count + 1, &space);
        if (!error)
            error = thread_read_stat(thread, &after);
        if (!error && before.image_hash == after.image_hash)
            break;
        if (!error)
            clock_sleep_until(clock_now_ns() + EXEC_PAUSE_NS);
        space_free(space); /* exec in between: whose memory was opened is not known */
        space = NULL;
    }
    if (!space) {
        bool is_refused = error == -EACCES || error == -EPERM;
        process->unreadable = is_refused && thread_read_stat(thread, &after) == 0 && !procfs_stat_is_ending(&after);
        process->image_hash = before.image_hash;
        return error ? error : -EAGAIN;
    }
    process->unreadable = false;
    mapper->spaces[mapper->space_count++] = space;
    process->space = space;
    process->image_hash = after.image_hash;
    return 0;
}

/* What reading these maps takes, about: 20 us and 1 us a mapping. Opening images comes once, and does not count. */
static uint64_t cost_ns(const struct process *process)
{
    return 20 * NS_PER_US + process->map->extent_count * NS_PER_US;
}

int mapper_read_maps(struct mapper *mapper, const struct thread *thread)
{
    struct process *process = thread->process;
    uint64_t counter = space_counter(process->space);
    bool moved = process->maps_moved;
    process->maps_moved = false;
    struct address_map *map;
    int error = space_read_maps(process->space, thread->tid, mapper->images, &map);
    if (error) {
        process->maps_moved = moved;
        return error;
    }
    address_map_unref(process->map);
    process->map = map;
    process->map_counter = counter;
    process->map_read_ns = clock_now_ns();
    return 0;
}

bool mapper_is_old(struct process *process, uint64_t now_ns)
{
    if (!process->map)
        return true;
    uint64_t age_ns = now_ns > process->map_read_ns ? now_ns - process->map_read_ns : 0;
    uint64_t period_ns = process->maps_told ? MAP_TOLD_PERIOD_NS : MAP_PERIOD_NS;
    if (age_ns > period_ns + IDLE_SHARE * cost_ns(process))
        return true;
    if (age_ns <= BUSY_SHARE * cost_ns(process))
        return false;
    if (process->maps_moved || atomic_load(&process->space->maps_stale))
        return true;
    if (process->maps_told && now_ns - process->counter_read_ns < COUNTER_TOLD_PERIOD_NS)
        return false;
    process->counter_read_ns = now_ns;
    return space_counter(process->space) != process->map_counter;
}

bool mapper_may_retry(const struct process *process)
{
    uint64_t age_ns = clock_now_ns() - process->map_read_ns;
    return age_ns > BUSY_SHARE * cost_ns(process) &&
           (age_ns > MAP_RETRY_NS || space_counter(process->space) != process->map_counter);
}
