#include "sampler/bpflook.h"

#include "common/clock.h"
#include "sampler/bpfobject.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

BPFOBJECT_INCLUDE(bpflook_object, SAMPLER_BPF_LOOK_OBJECT);

enum { LOOK, READ_RUNNING, PROGRAMS };

/*
 * The niceness of the thread that loads: on a busy CPU its 25 ms come in turns of some milliseconds within 150 ms, and
 * not in one piece. Where hundreds want each CPU it would not be done for many seconds, and everybody has to wait so
 * long there that one piece does not matter.
 */
enum { LESS_URGENT = 5, MORE_URGENT = -10 };

enum loading { LOADING, LOADED, FAILED, ABANDONED };

struct bpflook {
    pthread_t thread;
    _Atomic enum loading loading;
    atomic_uint_fast64_t load_ns; /* 0: not over yet */
    _Atomic pid_t tid;            /* of the thread; 0: has not begun */
    clockid_t clock;              /* its */
    bool has_clock;
    struct bpf_object *object;
    int program_fds[PROGRAMS];
    struct bpf_look *looks;
    struct bpf_look_stack *stacks;
};

enum { LOOKS_BYTES = BPF_LOOK_SLOTS * sizeof(struct bpf_look), STACKS_BYTES = BPF_LOOK_SLOTS * BPF_LOOK_STACK_BYTES };

_Static_assert(sizeof(struct bpf_look) % 8 == 0, "the kernel's entries lie at multiples of 8");

/* Is this pid namespace the first one? Its number is fixed (PROC_PID_INIT_INO, include/linux/proc_ns.h). */
static bool is_in_first_namespace(void)
{
    struct stat st;
    return stat("/proc/self/ns/pid", &st) == 0 && st.st_ino == 0xeffffffc;
}

static void *map_entries(const struct bpflook *bpflook, const char *name, size_t bytes)
{
    int fd = bpf_object__find_map_fd_by_name(bpflook->object, name);
    void *entries = fd < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return entries == MAP_FAILED ? NULL : entries;
}

/* Does it tell what is known of us? */
static bool tells_of_us(struct bpflook *bpflook)
{
    struct bpf_look *own = bpflook_slot(bpflook, 0);
    own->tid = (unsigned)gettid();
    own->wants = BPF_LOOK_COUNTERS;
    return bpflook_ask(bpflook, 1) && own->is_there && own->is_on_cpu && bpflook_state(own) == 'R';
}

static struct bpf_object *load_with(struct bpflook *bpflook, const char *look)
{
    const char *const programs[PROGRAMS] = {look, "read_running"};
    size_t size = (size_t)(bpflook_object_end - bpflook_object);
    return bpfobject_load(bpflook_object, size, programs, PROGRAMS, bpflook->program_fds);
}

static bool load(struct bpflook *bpflook)
{
    bpflook->object = load_with(bpflook, "look_by_vpid");
    if (!bpflook->object && is_in_first_namespace())
        bpflook->object = load_with(bpflook, "look_by_pid");
    if (!bpflook->object)
        return false;
    bpflook->looks = map_entries(bpflook, "looks", LOOKS_BYTES);
    bpflook->stacks = map_entries(bpflook, "stacks", STACKS_BYTES);
    return bpflook->looks && bpflook->stacks && tells_of_us(bpflook);
}

static void unload(struct bpflook *bpflook)
{
    if (bpflook->looks)
        munmap(bpflook->looks, LOOKS_BYTES);
    if (bpflook->stacks)
        munmap(bpflook->stacks, STACKS_BYTES);
    bpf_object__close(bpflook->object);
    free(bpflook);
}

static void *load_thread(void *context)
{
    struct bpflook *bpflook = context;
    pthread_setname_np(pthread_self(), "bpf-load");
    bpflook->tid = gettid();
    setpriority(PRIO_PROCESS, 0, LESS_URGENT); /* of this thread alone, against POSIX */
    enum loading before = LOADING;
    bool is_loaded = load(bpflook);
    bpflook->load_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
    if (!atomic_compare_exchange_strong(&bpflook->loading, &before, is_loaded ? LOADED : FAILED))
        unload(bpflook);
    return NULL;
}

struct bpflook *bpflook_start(void)
{
    struct bpflook *bpflook = calloc(1, sizeof(*bpflook));
    if (bpflook && pthread_create(&bpflook->thread, NULL, load_thread, bpflook)) {
        free(bpflook);
        return NULL;
    }
    if (bpflook)
        bpflook->has_clock = pthread_getcpuclockid(bpflook->thread, &bpflook->clock) == 0;
    return bpflook;
}

void bpflook_hurry(struct bpflook *bpflook)
{
    pid_t tid = bpflook->tid;
    if (tid && bpflook->loading == LOADING)
        setpriority(PRIO_PROCESS, (id_t)tid, MORE_URGENT);
}

void bpflook_free(struct bpflook *bpflook)
{
    enum loading before = LOADING;
    if (!bpflook)
        return;
    pthread_t thread = bpflook->thread; /* who is abandoned frees it */
    if (atomic_compare_exchange_strong(&bpflook->loading, &before, ABANDONED)) {
        pthread_detach(thread);
        return;
    }
    pthread_join(thread, NULL);
    unload(bpflook);
}

bool bpflook_is_ready(const struct bpflook *bpflook)
{
    return bpflook->loading == LOADED;
}

bool bpflook_has_failed(const struct bpflook *bpflook)
{
    return bpflook->loading == FAILED;
}

uint64_t bpflook_load_ns(const struct bpflook *bpflook)
{
    struct timespec now;
    uint64_t load_ns = bpflook->load_ns;
    if (load_ns || !bpflook->has_clock || clock_gettime(bpflook->clock, &now) < 0)
        return bpflook->load_ns; /* has ended, perhaps meanwhile */
    return (uint64_t)now.tv_sec * NS_PER_SEC + (uint64_t)now.tv_nsec;
}

struct bpf_look *bpflook_slot(struct bpflook *bpflook, size_t index)
{
    return &bpflook->looks[index];
}

const unsigned char *bpflook_stack(const struct bpflook *bpflook, size_t index)
{
    return bpflook->stacks[index].bytes;
}

bool bpflook_ask(struct bpflook *bpflook, size_t count)
{
    struct bpf_look_request request = {.count = (unsigned)count};
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &request, .ctx_size_in = sizeof(request));
    return bpf_prog_test_run_opts(bpflook->program_fds[LOOK], &options) == 0;
}

bool bpflook_read_running(struct bpflook *bpflook, size_t slot, int cpu)
{
    uint64_t argument = slot;
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &argument, .ctx_size_in = sizeof(argument),
                .flags = BPF_F_TEST_RUN_ON_CPU, .cpu = (unsigned)cpu);
    return bpf_prog_test_run_opts(bpflook->program_fds[READ_RUNNING], &options) == 0;
}

/* Of include/linux/sched.h; put together as by task_state_index() there. */
enum {
    TASK_UNINTERRUPTIBLE = 0x2,
    TASK_REPORT = 0x7f,
    TASK_IDLE = 0x402,
    TASK_RTLOCK_WAIT = 0x1000,
    TASK_FROZEN = 0x8000
};

char bpflook_state(const struct bpf_look *look)
{
    static const char letters[] = "RSDTtXZP";
    unsigned state = (look->state | look->exit_state) & TASK_REPORT;
    if ((look->state & TASK_IDLE) == TASK_IDLE)
        return 'I';
    if (look->state & (TASK_RTLOCK_WAIT | TASK_FROZEN))
        state = TASK_UNINTERRUPTIBLE;
    size_t index = 0;
    for (; state; state >>= 1)
        index++;
    return letters[index];
}
