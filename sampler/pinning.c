#include "sampler/pinning.h"

#include "common/clock.h"
#include "sampler/slice.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WANT_END = -1 };

/* How often the mover looks whether the capture thread wants to leave: a stop takes so long; and when it takes longer.
 */
enum { LOOKS = 20 };
#define LOOK_NS  (50 * NS_PER_US)
#define LATER_NS NS_PER_MS

struct pinning {
    cpu_set_t allowed; /* to the process, when it began */
    bool has_mover;
    bool moves;  /* so far it could do what it was asked for */
    pid_t tid;   /* the capture thread */
    int ask_fd;  /* eventfd: the mover is to act on `want` */
    int done_fd; /* eventfd: it has */
    /* Written by the capture thread before it asks, and by the mover before it has done. */
    int want;    /* a CPU or WANT_END */
    int error;   /* of what the mover did last */
    int avoided; /* by the mover: the CPU entered last */
    atomic_bool is_leaving;
    pthread_t mover;
};

bool pinning_may_use(int cpu)
{
    cpu_set_t allowed;
    return cpu >= 0 && cpu < CPU_SETSIZE && sched_getaffinity(0, sizeof(allowed), &allowed) == 0 &&
           CPU_ISSET((size_t)cpu, &allowed);
}

static int set_affinity(pid_t tid, const cpu_set_t *set)
{
    return sched_setaffinity(tid, sizeof(*set), set) < 0 ? -errno : 0;
}

/* The capture thread is asleep meanwhile. Neither thread is to be on the target's CPU but for the stop itself. */
static int move_in(struct pinning *pinning)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)pinning->want, &one);
    if (pinning->want != pinning->avoided) {
        cpu_set_t others = pinning->allowed;
        CPU_CLR((size_t)pinning->want, &others);
        set_affinity(0, &others);
        pinning->avoided = pinning->want;
    }
    return set_affinity(pinning->tid, &one);
}

static int move_out(struct pinning *pinning)
{
    cpu_set_t others = pinning->allowed;
    CPU_CLR((size_t)pinning->want, &others);
    int error = set_affinity(pinning->tid, &others);
    if (error) /* the others were taken from us meanwhile */
        set_affinity(pinning->tid, &pinning->allowed);
    return error;
}

/* By our own clock: to be woken from the target's CPU would take that CPU's time, tens of microseconds on a virtual
 * machine. */
static void wait_for_departure(struct pinning *pinning)
{
    const struct timespec soon = clock_timespec(LOOK_NS);
    const struct timespec later = clock_timespec(LATER_NS);
    for (int looks = 0; !pinning->is_leaving; looks++)
        nanosleep(looks < LOOKS ? &soon : &later, NULL);
    pinning->is_leaving = false;
}

static void *move_loop(void *context)
{
    struct pinning *pinning = context;
    pthread_setname_np(pthread_self(), "mover");
    prctl(PR_SET_TIMERSLACK, 1UL);
    slice_ask_short();
    for (;;) {
        eventfd_t count;
        if (eventfd_read(pinning->ask_fd, &count) < 0 && errno == EINTR)
            continue;
        if (pinning->want == WANT_END)
            return NULL;
        pinning->error = move_in(pinning);
        eventfd_write(pinning->done_fd, 1);
        wait_for_departure(pinning);
        pinning->error = move_out(pinning);
        eventfd_write(pinning->done_fd, 1);
    }
}

static void wait_for_mover(const struct pinning *pinning)
{
    eventfd_t count;
    while (eventfd_read(pinning->done_fd, &count) < 0 && errno == EINTR)
        ;
}

static int start_mover(struct pinning *pinning)
{
    pinning->ask_fd = eventfd(0, EFD_CLOEXEC);
    pinning->done_fd = eventfd(0, EFD_CLOEXEC);
    int error = pinning->ask_fd < 0 || pinning->done_fd < 0
                    ? -errno
                    : -pthread_create(&pinning->mover, NULL, move_loop, pinning);
    pinning->has_mover = error == 0;
    pinning->moves = pinning->has_mover;
    return error;
}

int pinning_new(int how, struct pinning **ret_pinning)
{
    struct pinning *pinning = calloc(1, sizeof(*pinning));
    if (!pinning)
        return -ENOMEM;
    *pinning = (struct pinning){
        .tid = (pid_t)syscall(SYS_gettid), .avoided = -1, .ask_fd = -1, .done_fd = -1, .want = WANT_END};
    int error = 0;
    if (how >= 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET((size_t)how, &one);
        error = set_affinity(0, &one);
    } else if (how == PIN_TARGET && sched_getaffinity(0, sizeof(pinning->allowed), &pinning->allowed) == 0 &&
               CPU_COUNT(&pinning->allowed) > 1) {
        error = start_mover(pinning); /* with more than 1024 CPUs the mask does not fit, and nothing moves */
    }
    if (error) {
        pinning_free(pinning);
        return error;
    }
    *ret_pinning = pinning;
    return 0;
}

void pinning_free(struct pinning *pinning)
{
    if (!pinning)
        return;
    if (pinning->has_mover) {
        pinning->want = WANT_END;
        eventfd_write(pinning->ask_fd, 1);
        pthread_join(pinning->mover, NULL);
    }
    if (pinning->ask_fd >= 0)
        close(pinning->ask_fd);
    if (pinning->done_fd >= 0)
        close(pinning->done_fd);
    free(pinning);
}

bool pinning_can_enter(const struct pinning *pinning, int cpu)
{
    return pinning->moves && cpu >= 0 && cpu < CPU_SETSIZE && CPU_ISSET((size_t)cpu, &pinning->allowed);
}

bool pinning_enter(struct pinning *pinning, int cpu)
{
    pinning->want = cpu;
    eventfd_write(pinning->ask_fd, 1);
    wait_for_mover(pinning);
    pinning->moves = pinning->error == 0;
    return pinning->moves;
}

void pinning_leave(struct pinning *pinning)
{
    pinning->is_leaving = true;
    wait_for_mover(pinning);
    if (pinning->error)
        pinning->moves = false;
}
