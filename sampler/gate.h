/*
 * Has any thread of a process run but those that are known to be busy? One cheap question instead of a look at each of
 * thousands of sleeping threads.
 *
 * The CPU clock of a process (clock_gettime(2) on it, any process may ask) is the sum of its threads' run times, those
 * that have ended included; the kernel moves it and a thread's `schedstat` in one step. So the clock without the run
 * times of the hot threads, read now, and of the cold ones, as they were at their last look, is constant as long as no
 * cold thread runs and none ends: exactly, in nanoseconds. What it is, the rest, is learnt between two looks at all
 * threads that find nothing changed.
 *
 * Both are behind for a thread that is on a CPU: its time is added at scheduler ticks (4 ms at HZ=250) and when it
 * leaves the CPU. So a thread that began to run just now may not show; it does at the next question. Who cannot have
 * that asks how many threads run, too (procfs_parse_running).
 *
 * The last moments of a thread that ends may be in no account: the number of threads is looked at too.
 *
 * Reading the clock is a sum over all threads in the kernel, but for a process on which a CPU timer is armed, whoever
 * armed it: then it is one number (cpu_clock_sample_group in kernel/time/posix-cpu-timers.c). So one is armed, to go
 * off in a hundred years of CPU time. The kernel deletes it with us.
 */
#ifndef SAMPLER_GATE_H
#define SAMPLER_GATE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

struct kernelview;
struct process;

/* Fewer cold threads are looked at faster than asked about: one by one, and with a view of the kernel's. */
enum { GATE_COLD_LEAST = 3, GATE_COLD_LEAST_TOLD = 32 };

struct gate {
    clockid_t clock; /* of the process; 0: not begun */
    timer_t timer;
    bool has_timer;
    uint64_t threads;  /* of the process, at the last question */
    uint64_t clock_ns; /* what the clock said at the tick `read_ns` */
    uint64_t read_ns;
    bool is_known; /* the rest is */
    uint64_t rest_ns;
    bool has_candidate;
    uint64_t candidate_ns;
    bool has_fired; /* at the last question: another rest than known */
};

/*
 * Of a process with cold threads: true when none of them has run since the last look at it, but perhaps the last
 * milliseconds, and none has ended. false says nothing. Reads the hot threads' counters, which the next look at each
 * then takes (thread_look); through `view`, for the tick of `now_ns`, where that is open. It may be NULL.
 */
bool gate_is_shut(struct process *process, struct kernelview *view, uint64_t now_ns);
bool gate_may_shut(const struct process *process, const struct kernelview *view); /* else it need not be asked */

/* All threads were looked at, and are sorted into hot and cold. `moved`: some that was cold before has run, or may
 * have; `ended`: some thread is gone. */
void gate_learn(struct process *process, bool moved, bool ended, struct kernelview *view, uint64_t now_ns);

void gate_deinit(struct gate *gate);

#endif
