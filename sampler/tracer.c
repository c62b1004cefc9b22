#include "sampler/tracer.h"

#include "common/clock.h"
#include "common/fileio.h"
#include "sampler/capture_arch.h"
#include "sampler/procfs.h"
#include "sampler/stackcopy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

/*
 * After this a request is given up. What is runnable or sleeps in an ordinary call stops sooner on any machine that is
 * not hopelessly overloaded; nothing waits for it meanwhile, and it executes nothing, so a stack that comes late is the
 * right one.
 */
#define STOP_DEADLINE_NS NS_PER_SEC
/* A thread that has not stopped after this is asked again. */
#define ASK_AGAIN_NS (20 * NS_PER_MS)
/* At the end: for threads that wait for a CPU to stop on, beyond what is asked for. */
#define COMING_NS (5 * NS_PER_SEC)

/* How often the watching thread looks while threads are being seized. */
#define WATCH_PERIOD_NS (5 * NS_PER_MS)

/* Of a stack, to be read before the stop. */
enum { WARM_BYTES = 8 << 10 };

struct slot {
    atomic_int tid; /* 0: free; read by the watching thread */
    pid_t pid;
    struct tracer_request *request; /* NULL: overdue, nobody waits for its stack */
    uint64_t interrupted_ns;
    uint64_t asked_ns; /* the last time */
};

struct tracer {
    struct slot slots[TRACER_SLOTS];
    size_t used;        /* slots */
    size_t top;         /* none at or above it is used */
    size_t in_flight;   /* of them with a request */
    uint64_t looked_ns; /* who has not been served yet had not arrived then */
    int child_fd;       /* signalfd of SIGCHLD */
    int watch_fd;       /* timerfd */
    bool is_watched;    /* it is armed */
    void (*exited)(void *context, pid_t pid, const struct wait_event *event);
    void *exited_context;
    void (*finished)(void *context, struct tracer_request *request);
    void *finished_context;
    struct tracer_request *done; /* finished, not yet told */
    struct tracer_counters counters;
};

int tracer_check_allowed(void)
{
    /* We are no tracee of ours. A copy of nothing is always possible. */
    if (ptrace(PTRACE_INTERRUPT, getpid(), NULL, NULL) < 0 && errno != ESRCH)
        return -errno;
    return process_vm_readv(getpid(), NULL, 0, NULL, 0, 0) < 0 ? -errno : 0;
}

int tracer_new(void (*exited)(void *context, pid_t pid, const struct wait_event *event), void *context,
               struct tracer **ret_tracer)
{
    struct tracer *tracer = calloc(1, sizeof(*tracer));
    if (!tracer)
        return -ENOMEM;
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    tracer->child_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    tracer->watch_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (tracer->child_fd < 0 || tracer->watch_fd < 0) {
        int error = -errno;
        tracer_free(tracer);
        return error;
    }
    tracer->exited = exited;
    tracer->exited_context = context;
    *ret_tracer = tracer;
    return 0;
}

void tracer_free(struct tracer *tracer)
{
    if (!tracer)
        return;
    if (tracer->child_fd >= 0)
        close(tracer->child_fd);
    if (tracer->watch_fd >= 0)
        close(tracer->watch_fd);
    free(tracer);
}

void tracer_set_sink(struct tracer *tracer, void (*finished)(void *context, struct tracer_request *request),
                     void *context)
{
    tracer->finished = finished;
    tracer->finished_context = context;
}

const struct tracer_counters *tracer_counters(const struct tracer *tracer)
{
    return &tracer->counters;
}

size_t tracer_in_flight(const struct tracer *tracer)
{
    return tracer->in_flight;
}

bool tracer_holds_any(const struct tracer *tracer)
{
    return tracer->used > 0;
}

static void begin_watch(struct tracer *tracer)
{
    struct itimerspec timer = {.it_value = clock_timespec(WATCH_PERIOD_NS),
                               .it_interval = clock_timespec(WATCH_PERIOD_NS)};
    tracer->is_watched = timerfd_settime(tracer->watch_fd, 0, &timer, NULL) == 0;
}

void tracer_watch_end(struct tracer *tracer)
{
    struct itimerspec timer = {0};
    if (tracer->is_watched)
        timerfd_settime(tracer->watch_fd, 0, &timer, NULL);
    tracer->is_watched = false;
}

static struct slot *slot_find(struct tracer *tracer, pid_t tid)
{
    for (size_t i = 0; i < tracer->top; i++)
        if (tracer->slots[i].tid == tid)
            return &tracer->slots[i];
    return NULL;
}

static struct slot *slot_find_free(struct tracer *tracer)
{
    struct slot *slot = slot_find(tracer, 0);
    if (!slot && tracer->top < TRACER_SLOTS)
        slot = &tracer->slots[tracer->top];
    return slot;
}

/* The slot's request is over; told later, when nobody stands still. */
static void slot_finish_request(struct tracer *tracer, struct slot *slot, enum tracer_outcome outcome)
{
    struct tracer_request *request = slot->request;
    if (!request)
        return;
    request->outcome = outcome;
    request->next = tracer->done;
    tracer->done = request;
    tracer->in_flight--;
    slot->request = NULL;
}

static void slot_free(struct tracer *tracer, struct slot *slot, enum tracer_outcome outcome)
{
    slot_finish_request(tracer, slot, outcome);
    slot->tid = 0;
    tracer->used--;
    while (tracer->top && !tracer->slots[tracer->top - 1].tid)
        tracer->top--;
}

static void tell_finished(struct tracer *tracer)
{
    while (tracer->done) {
        struct tracer_request *request = tracer->done;
        tracer->done = request->next;
        tracer->finished(tracer->finished_context, request);
    }
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The stack that a signal handler's own one leads to, which ends at `end_avma` as far as is known. */
static void read_other_stack(struct tracer_request *request, uint64_t sp_place, uint64_t end_avma, size_t bytes_max,
                             struct stackcopy *copy)
{
    uint64_t sp;
    if (sp_place < request->bytes_avma || request->bytes < sizeof(sp) ||
        sp_place - request->bytes_avma > request->bytes - sizeof(sp))
        return;
    memcpy(&sp, request->buffer + (sp_place - request->bytes_avma), sizeof(sp));
    /* Above the handler's, in what is copied already or would be by a larger copy. */
    if (sp >= request->bytes_avma && sp < end_avma)
        return;
    size_t used = (request->bytes + sizeof(sp) - 1) / sizeof(sp) * sizeof(sp);
    if (used >= request->buffer_bytes)
        return;
    request->other = request->buffer + used;
    request->other_bytes = stackcopy_read(copy, sp, 0, request->buffer + used,
                                          smaller(bytes_max, request->buffer_bytes - used), &request->other_avma);
    request->is_cut |= copy->is_cut;
}

static bool is_memory_gone(int mem_fd)
{
    char byte;
    return mem_fd >= 0 && pread(mem_fd, &byte, 1, 0) == 0; /* once it is, reads give 0 bytes */
}

static void read_stacks(struct tracer_request *request)
{
    uint64_t sp = request->registers.value[REGISTER_RSP];
    uint64_t sp_place = request->interrupted_sp_at_avma;
    struct stackcopy copy = {.tid = request->tid, .mem_fd = request->mem_fd};
    copy.until_ns = request->held_ns_max ? request->arrived_ns + request->held_ns_max : UINT64_MAX;
    size_t bytes_max = request->stack_bytes_max ? request->stack_bytes_max : request->buffer_bytes;
    bool is_known = request->stack_start_avma <= sp && sp < request->stack_end_avma;
    request->other_bytes = 0;
    uint64_t limit_avma = is_known ? stackcopy_end(sp, request->stack_top_avma, request->stack_end_avma) : 0;
    request->bytes = stackcopy_read(&copy, sp, limit_avma, request->buffer, smaller(bytes_max, request->buffer_bytes),
                                    &request->bytes_avma);
    request->is_cut = copy.is_cut;
    /* A stopped thread is in no exec: what is true now is true of the whole snapshot. */
    request->memory_gone = copy.memory_gone || (!copy.has_memory && is_memory_gone(request->mem_fd));
    uint64_t end_avma = request->stack_end_avma;
    if (!is_known) {
        uint64_t signal_end_avma;
        if (capture_arch.find_interrupted(request->buffer, request->bytes, request->bytes_avma, &sp_place,
                                          &signal_end_avma) &&
            signal_end_avma - request->bytes_avma < request->bytes)
            request->bytes = signal_end_avma - request->bytes_avma; /* what lies above needs no room */
        /* What the request tells of is where the thread was before, perhaps the interrupted stack. */
        end_avma = request->bytes_avma + request->bytes;
    }
    request->interrupted_sp_at_avma = sp_place;
    if (sp_place)
        read_other_stack(request, sp_place, end_avma, bytes_max, &copy);
}

static enum tracer_outcome capture(struct tracer_request *request)
{
    int error = capture_arch.read_registers(request->tid, &request->registers, &request->in_wait);
    if (error == -ENOEXEC)
        return TRACER_FOREIGN;
    if (error == -ESRCH)
        return TRACER_VANISHED;
    if (error) {
        request->error = error;
        return TRACER_FAILED;
    }
    read_stacks(request);
    return TRACER_CAPTURED;
}

/*
 * Reaps `pid` if it has ended. Looked at first and taken then: a wait for WEXITED reports the stop of a tracee too,
 * even to another thread than its tracer, and taking that would leave it stopped with nothing more to wait for. Returns
 * 0, -EAGAIN when it has not ended, or -ECHILD when it is not ours to reap (any more).
 */
static int reap(pid_t pid, int options, struct wait_event *ret_event)
{
    siginfo_t info = {0};
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT | __WALL | options) < 0)
        return -errno;
    if (info.si_pid == 0 || wait_classify(info.si_code, info.si_status).kind != WAIT_EXIT)
        return -EAGAIN;
    info = (siginfo_t){0};
    if (waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | __WALL | options) < 0)
        return -errno;
    if (info.si_pid == 0)
        return -ECHILD;
    *ret_event = wait_classify(info.si_code, info.si_status);
    return 0;
}

static void reap_tracee(struct tracer *tracer, pid_t tid, int options)
{
    struct wait_event event;
    if (reap(tid, options, &event) == 0)
        tracer->exited(tracer->exited_context, tid, &event);
}

/*
 * A thread other than the main one that calls exec takes over the main thread's id. So a stop may come under an id that
 * was not seized; then the requested threads of that process are gone.
 */
static void forget_replaced(struct tracer *tracer, pid_t pid)
{
    for (size_t i = 0; i < TRACER_SLOTS; i++)
        if (tracer->slots[i].tid && tracer->slots[i].pid == pid)
            slot_free(tracer, &tracer->slots[i], TRACER_VANISHED);
}

/* Is the thread in the same call, in the same place, as at an earlier stop? */
static bool is_same_call(const struct registers *now, const struct registers *before)
{
    static const uint8_t told[] = {REGISTER_RSP, REGISTER_PC,  REGISTER_RDI, REGISTER_RSI,
                                   REGISTER_RDX, REGISTER_R10, REGISTER_R8,  REGISTER_R9};
    for (size_t i = 0; i < sizeof(told); i++)
        if (!registers_known(before, told[i]) || before->value[told[i]] != now->value[told[i]])
            return false;
    return true;
}

/* Of a stopped thread. */
static int read_schedstat(pid_t tid, struct procfs_schedstat *ret)
{
    char path[48];
    snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)tid);
    autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : procfs_pread_schedstat(fd, ret);
}

/* A stop of ours, and of nobody else, must not be seen by the program. Of whom we wanted no registers nothing is known
 * from before. */
static void hide_stop(struct tracer *tracer, pid_t tid, struct tracer_request *request)
{
    bool goes_on = request && request->registers.value[REGISTER_RAX] == (uint64_t)-ERESTART_RESTARTBLOCK;
    if (request && !goes_on &&
        (request->registers.value[REGISTER_RAX] != (uint64_t)-EINTR ||
         is_same_call(&request->registers, &request->restarted_at)))
        return;
    bool is_endless = false;
    bool may_lose_timeout = false;
    bool restarted = capture_arch.restart_call(tid, &is_endless, &may_lose_timeout);
    tracer->counters.eintr_restarted += restarted;
    if (!request || !restarted)
        return;
    struct procfs_schedstat now;
    request->restarted = true;
    request->is_endless = is_endless;
    request->may_lose_timeout = may_lose_timeout;
    request->restarted_slices = read_schedstat(tid, &now) == 0 ? now.slices : 0;
}

/*
 * A stop of ours; or of a signal, which an untraced thread would not have noticed if it ignores it: with a handler the
 * call ends with EINTR all the same. Signals that stop the process end calls by themselves (signal(7)).
 */
static bool may_be_hidden(const struct wait_event *event)
{
    if (event->kind != WAIT_SIGNAL_STOP)
        return event->kind == WAIT_INTERRUPT_STOP;
    return event->signal != SIGSTOP && event->signal != SIGTSTP && event->signal != SIGTTIN && event->signal != SIGTTOU;
}

static void handle_stop(struct tracer *tracer, pid_t tid, const struct wait_event *event)
{
    struct slot *slot = slot_find(tracer, tid);
    enum tracer_outcome outcome = TRACER_VANISHED;
    if (slot && slot->request) {
        slot->request->interrupted_ns = slot->interrupted_ns;
        slot->request->arrived_ns = slot->interrupted_ns > tracer->looked_ns ? slot->interrupted_ns : tracer->looked_ns;
        outcome = capture(slot->request);
    }
    if (may_be_hidden(event) && (!slot || !slot->request || outcome == TRACER_CAPTURED))
        hide_stop(tracer, tid, slot ? slot->request : NULL);
    /* Before: the thread that is let go may take the CPU from us, and what we do then is late, not its release. */
    uint64_t now_ns = clock_now_ns();
    if (ptrace(PTRACE_DETACH, tid, NULL, (void *)(intptr_t)wait_detach_signal(event)) < 0)
        return; /* killed meanwhile: it stays ours until its exit is reaped, which is the next thing that the wait tells
                 */
    if (event->kind == WAIT_SIGNAL_STOP)
        tracer->counters.signals_forwarded++;
    if (event->kind == WAIT_GROUP_STOP)
        tracer->counters.group_stops++;
    if (!slot) {
        forget_replaced(tracer, tid);
        return;
    }
    if (slot->request) {
        struct tracer_request *request = slot->request;
        request->released_ns = now_ns;
        tracer->counters.stops++;
        tracer->counters.copies_cut += request->is_cut;
        histogram_add(&tracer->counters.stop_ns, now_ns - request->interrupted_ns);
        histogram_add(&tracer->counters.held_ns, now_ns - request->arrived_ns);
    }
    slot_free(tracer, slot, outcome);
}

static void handle_exit(struct tracer *tracer, pid_t tid)
{
    reap_tracee(tracer, tid, __WNOTHREAD);
    struct slot *slot = slot_find(tracer, tid);
    if (slot)
        slot_free(tracer, slot, TRACER_VANISHED);
}

/* Gathers one wait status of any tracee, classifies it and dispatches. Returns 0, -EAGAIN when there is none, or
 * -ECHILD. */
static int gather(struct tracer *tracer)
{
    siginfo_t info = {0};
    if (waitid(P_ALL, 0, &info, WSTOPPED | WEXITED | WNOWAIT | WNOHANG | __WALL | __WNOTHREAD) < 0)
        return -errno;
    if (info.si_pid == 0)
        return -EAGAIN;
    struct wait_event event = wait_classify(info.si_code, info.si_status);
    switch (event.kind) {
    case WAIT_INTERRUPT_STOP:
    case WAIT_GROUP_STOP:
    case WAIT_SIGNAL_STOP:
    case WAIT_EVENT_STOP:
    case WAIT_UNKNOWN: /* whatever it is, it is let go */
        handle_stop(tracer, info.si_pid, &event);
        break;
    case WAIT_EXIT:
        handle_exit(tracer, info.si_pid);
        break;
    case WAIT_CONTINUED: /* not asked for */
        return -EAGAIN;
    }
    return 0;
}

/* Nothing is traced by us any more: whoever was waited for is gone (an exec can take a tracee away without a status).
 */
static void forget_all(struct tracer *tracer)
{
    for (size_t i = 0; i < TRACER_SLOTS; i++)
        if (tracer->slots[i].tid)
            slot_free(tracer, &tracer->slots[i], TRACER_VANISHED);
}

/*
 * Looks after a thread that has not arrived for a while. The interrupt may have gone lost: one that meets an exec is
 * sometimes forgotten by the kernel (seen on Linux 6.18: the thread runs on, traced and never stopping). A second one
 * does no harm, whatever the first is doing: PTRACE_DETACH clears it. Or we trace nothing of this number any more: the
 * watching thread has reaped it, or it has called exec and goes by its main thread's number.
 */
static void ask_again(struct tracer *tracer, struct slot *slot, uint64_t now_ns)
{
    slot->asked_ns = now_ns;
    if (ptrace(PTRACE_INTERRUPT, (pid_t)slot->tid, NULL, NULL) == 0 || errno != ESRCH)
        return;
    if (slot->tid != slot->pid && !slot_find(tracer, slot->pid) &&
        ptrace(PTRACE_INTERRUPT, slot->pid, NULL, NULL) == 0) {
        slot_finish_request(tracer, slot, TRACER_VANISHED);
        slot->tid = slot->pid;
    } else {
        slot_free(tracer, slot, TRACER_VANISHED);
    }
}

/* Requests older than `deadline_ns` are finished; their threads stay overdue. */
static void look_after(struct tracer *tracer, uint64_t now_ns, uint64_t deadline_ns)
{
    for (size_t i = 0; i < TRACER_SLOTS && tracer->used; i++) {
        struct slot *slot = &tracer->slots[i];
        if (slot->tid && now_ns - slot->asked_ns >= ASK_AGAIN_NS)
            ask_again(tracer, slot, now_ns);
        if (slot->tid && slot->request && now_ns - slot->interrupted_ns >= deadline_ns) {
            slot_finish_request(tracer, slot, TRACER_TIMEOUT);
            tracer->counters.timeouts++;
        }
    }
}

/*
 * What the stop will need is touched before it: a system call that was not made for a while takes longer, and so does
 * memory that is in no cache. What is read is of no use, and may be none.
 */
static void warm_up(const struct tracer_request *request)
{
    uint64_t start_avma;
    struct stackcopy copy = {.tid = request->tid, .mem_fd = request->mem_fd};
    if (request->last_sp_avma)
        stackcopy_read(&copy, request->last_sp_avma, request->stack_end_avma, request->buffer,
                       smaller(WARM_BYTES, request->buffer_bytes), &start_avma);
}

int tracer_start(struct tracer *tracer, struct tracer_request *request)
{
    struct slot *slot = slot_find_free(tracer);
    if (!slot || slot_find(tracer, request->tid))
        return -EBUSY;
    if (tracer->used == 0) /* nobody stands still meanwhile */
        warm_up(request);
    else if (!tracer->is_watched) /* an exec may wait for us in one of those while we wait for it in SEIZE */
        begin_watch(tracer);
    request->outcome = TRACER_IN_FLIGHT;
    request->error = 0;
    slot->pid = request->pid;
    slot->request = request;
    slot->tid = request->tid; /* before SEIZE: the watching thread must know whom to reap while we wait in it */
    tracer->used++;
    tracer->in_flight++;
    if ((size_t)(slot - tracer->slots) >= tracer->top)
        tracer->top = (size_t)(slot - tracer->slots) + 1;
    if (ptrace(PTRACE_SEIZE, request->tid, NULL, NULL) < 0) {
        int error = -errno;
        slot->request = NULL;
        slot->tid = 0;
        tracer->used--;
        tracer->in_flight--;
        return error;
    }
    slot->interrupted_ns = clock_now_ns(); /* a signal may stop it from now on */
    slot->asked_ns = slot->interrupted_ns;
    if (tracer->used == 1)
        tracer->looked_ns = slot->interrupted_ns;       /* nobody else can have arrived */
    ptrace(PTRACE_INTERRUPT, request->tid, NULL, NULL); /* ESRCH: it is ending; the wait will say so */
    return 0;
}

static void gather_all(struct tracer *tracer)
{
    int error = 0;
    while (tracer->used && error == 0) {
        uint64_t now_ns = clock_now_ns();
        error = gather(tracer);
        if (error == -EAGAIN)
            tracer->looked_ns = now_ns;
    }
    if (error == -ECHILD)
        forget_all(tracer);
}

void tracer_collect(struct tracer *tracer)
{
    /* First those that stand still; then the note that they do, and once more those that came before the note was
     * taken. */
    struct signalfd_siginfo note;
    gather_all(tracer);
    (void)!read(tracer->child_fd, &note, sizeof(note)); /* one at most is pending */
    gather_all(tracer);
    if (tracer->used)
        look_after(tracer, clock_now_ns(), STOP_DEADLINE_NS);
    tell_finished(tracer);
}

void tracer_serve(struct tracer *tracer)
{
    if (tracer->used)
        tracer_collect(tracer);
}

/* While threads are seized they are looked after at least this often. */
#define LOOK_PERIOD_NS ASK_AGAIN_NS

/* A look so long ago still tells when who arrives has arrived. */
#define LOOK_FRESH_NS (20 * NS_PER_US)

bool tracer_wait(struct tracer *tracer, int wake_fd, uint64_t deadline_ns, bool until_idle)
{
    struct pollfd fds[2] = {{.fd = tracer->child_fd, .events = POLLIN}, {.fd = wake_fd, .events = POLLIN}};
    for (;;) {
        uint64_t now_ns = clock_now_ns();
        /* Who arrives from here on wakes us; of who has already it must be known that it was not then. */
        if (tracer->used && now_ns - tracer->looked_ns > LOOK_FRESH_NS) {
            tracer_collect(tracer);
            now_ns = clock_now_ns();
        }
        uint64_t wait_ns = now_ns < deadline_ns ? deadline_ns - now_ns : 0;
        if (tracer->used && wait_ns > LOOK_PERIOD_NS)
            wait_ns = LOOK_PERIOD_NS;
        if (until_idle && tracer->in_flight == 0)
            return false;
        /* Looked at also when the time is over already: who is always late must hear what others want all the same. */
        struct timespec timeout = clock_timespec(wait_ns);
        int ready = ppoll(fds, 2, &timeout, NULL);
        if (ready > 0)
            tracer->looked_ns = clock_now_ns(); /* woken: there was nobody when we went to sleep */
        if (ready > 0 && fds[1].revents)
            return true;
        if (ready > 0 || tracer->used)
            tracer_collect(tracer);
        if (now_ns >= deadline_ns || (ready == 0 && now_ns + wait_ns >= deadline_ns))
            return false;
    }
}

void tracer_spin(struct tracer *tracer, uint64_t until_ns)
{
    while (tracer->in_flight && clock_now_ns() < until_ns)
        gather_all(tracer);
    tracer_collect(tracer);
}

/*
 * Does a thread that we hold wait for a CPU only? Then it arrives. One that was left to the kernel to release would
 * find its system call interrupted, with nobody to hide it.
 */
static bool is_any_coming(const struct tracer *tracer)
{
    for (size_t i = 0; i < TRACER_SLOTS; i++) {
        char path[32];
        struct procfs_stat stat;
        if (!tracer->slots[i].tid)
            continue;
        snprintf(path, sizeof(path), "/proc/%d/stat", (int)tracer->slots[i].tid);
        if (procfs_read_stat(AT_FDCWD, path, &stat) == 0 && (stat.state == 'R' || stat.state == 't'))
            return true;
    }
    return false;
}

void tracer_release(struct tracer *tracer, uint64_t timeout_ns)
{
    uint64_t deadline_ns = clock_now_ns() + timeout_ns;
    tracer_wait(tracer, -1, deadline_ns, true);
    while (tracer->used &&
           (clock_now_ns() < deadline_ns || (clock_now_ns() < deadline_ns + COMING_NS && is_any_coming(tracer))))
        tracer_wait(tracer, -1, clock_now_ns() + WATCH_PERIOD_NS, false);
    look_after(tracer, clock_now_ns(), 0);
    tell_finished(tracer);
}

int tracer_watch_fd(const struct tracer *tracer)
{
    return tracer->watch_fd;
}

void tracer_watch(struct tracer *tracer)
{
    uint64_t expirations;
    if (read(tracer->watch_fd, &expirations, sizeof(expirations)) < 0)
        return; /* disarmed meanwhile */
    for (size_t i = 0; i < TRACER_SLOTS; i++) {
        pid_t tid = tracer->slots[i].tid;
        if (tid)
            reap_tracee(tracer, tid, 0);
    }
}

int tracer_reap_child(pid_t pid, struct wait_event *ret_event)
{
    return reap(pid, 0, ret_event);
}
