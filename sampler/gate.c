#include "sampler/gate.h"

#include "common/clock.h"
#include "sampler/kernelview.h"
#include "sampler/targets.h"

#include <signal.h>
#include <sys/stat.h>

/* Between two equal readings of the clock nobody's time has moved, so what was read between them is of one moment. */
enum { TRIES = 3 };

#define CENTURY_S INT64_C(3155760000)

static bool read_clock(const struct gate *gate, uint64_t *ret_ns)
{
    struct timespec time;
    if (clock_gettime(gate->clock, &time) < 0)
        return false;
    *ret_ns = (uint64_t)time.tv_sec * NS_PER_SEC + (uint64_t)time.tv_nsec;
    return true;
}

/* Without the timer the answers are the same, later. */
static void begin(struct gate *gate, pid_t pid)
{
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGCHLD};
    struct itimerspec far = {.it_value = {.tv_sec = CENTURY_S}};
    if (clock_getcpuclockid(pid, &gate->clock))
        return;
    if (timer_create(gate->clock, &event, &gate->timer) < 0)
        return;
    gate->has_timer = timer_settime(gate->timer, 0, &far, NULL) == 0;
    if (!gate->has_timer)
        timer_delete(gate->timer);
}

void gate_deinit(struct gate *gate)
{
    if (gate->has_timer)
        timer_delete(gate->timer);
    *gate = (struct gate){0};
}

static bool read_hot(struct process *process, struct kernelview *view, uint64_t now_ns, uint64_t *ret_run_ns)
{
    *ret_run_ns = 0;
    for (size_t i = 0; i < process->hot_count; i++)
        process->threads[i]->has_fresh = false;
    kernelview_look(view, process->threads, process->hot_count, now_ns, KERNELVIEW_READS_NOBODY);
    for (size_t i = 0; i < process->hot_count; i++) {
        struct thread *thread = process->threads[i];
        if (!thread->has_fresh && thread_read_schedstat(thread, &thread->fresh) < 0)
            return false;
        thread->has_fresh = true;
        *ret_run_ns += thread->fresh.run_ns;
    }
    return true;
}

/* The rest now. false: it could not be had in one moment. */
static bool measure(struct process *process, struct kernelview *view, uint64_t now_ns, uint64_t *ret_rest_ns)
{
    struct gate *gate = &process->gate;
    uint64_t before_ns;
    uint64_t after_ns;
    uint64_t hot_ns;
    if (!read_clock(gate, &before_ns))
        return false;
    for (int i = 0; i < TRIES; i++) {
        if (!read_hot(process, view, now_ns, &hot_ns) || !read_clock(gate, &after_ns))
            return false;
        if (before_ns == after_ns) {
            *ret_rest_ns = after_ns - hot_ns - process->cold_run_ns;
            gate->clock_ns = after_ns;
            gate->read_ns = now_ns;
            return true;
        }
        before_ns = after_ns;
    }
    return false;
}

/* Those that are told, or a link of the directory of its threads for each. */
static bool count_threads(const struct process *process, uint64_t now_ns, uint64_t *ret_count)
{
    struct stat st;
    for (size_t i = 0; i < process->hot_count; i++) {
        if (process->threads[i]->told_ns != now_ns || !process->threads[i]->told_threads)
            continue;
        *ret_count = process->threads[i]->told_threads;
        return true;
    }
    if (fstatat(process->proc_fd, "task", &st, 0) < 0)
        return false;
    *ret_count = st.st_nlink - 2; /* itself, and from above */
    return true;
}

static bool has_other_count(struct process *process, uint64_t now_ns)
{
    uint64_t before = process->gate.threads;
    return !count_threads(process, now_ns, &process->gate.threads) || before != process->gate.threads;
}

/* Has it so many cold threads that the question is worth while? */
static bool has_use(const struct process *process, const struct kernelview *view)
{
    size_t least = kernelview_is_open(view) ? GATE_COLD_LEAST_TOLD : GATE_COLD_LEAST;
    return process->thread_count - process->hot_count >= least;
}

bool gate_may_shut(const struct process *process, const struct kernelview *view)
{
    return process->gate.is_known && has_use(process, view);
}

bool gate_is_shut(struct process *process, struct kernelview *view, uint64_t now_ns)
{
    struct gate *gate = &process->gate;
    uint64_t rest_ns;
    gate->has_fired = false;
    if (!gate_may_shut(process, view) || !measure(process, view, now_ns, &rest_ns) || has_other_count(process, now_ns))
        return false;
    gate->has_fired = rest_ns != gate->rest_ns;
    return !gate->has_fired;
}

void gate_learn(struct process *process, bool moved, bool ended, struct kernelview *view, uint64_t now_ns)
{
    struct gate *gate = &process->gate;
    bool has_candidate = gate->has_candidate;
    gate->has_candidate = false;
    /* The time of a thread that has ended is in the clock and nobody's; the same when one came and went unseen. */
    if (ended || (gate->has_fired && !moved))
        gate->is_known = false;
    if (gate->is_known || !has_use(process, view))
        return;
    if (!gate->clock)
        begin(gate, process->pid);
    /* Nobody has run between the two looks, and the candidate was read in between. */
    if (has_candidate && !moved && !ended) {
        gate->is_known = true;
        gate->rest_ns = gate->candidate_ns;
        return;
    }
    gate->has_candidate = gate->clock && measure(process, view, now_ns, &gate->candidate_ns);
    for (size_t i = 0; i < process->hot_count; i++)
        process->threads[i]->has_fresh = false; /* will be old at the next look */
}
