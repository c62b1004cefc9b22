#include "sampler/othertracer.h"

#include <string.h>
#include <unistd.h>

/* TracerPid is the number of the thread that traces: of ours that is the calling one. 0: nobody else traces it. */
static pid_t read_other_tracer(const struct thread *thread)
{
    struct procfs_status status;
    if (thread_read_status(thread, &status) < 0 || status.tracer_pid == gettid())
        return 0;
    return status.tracer_pid;
}

static void remember(struct othertracer *first, const struct thread *thread, pid_t tracer_pid)
{
    *first = (struct othertracer){.target_pid = thread->process->pid, .pid = tracer_pid};
    struct procfs_stat stat;
    int fd = tracer_pid ? procfs_open_process(tracer_pid) : -1;
    if (fd >= 0 && procfs_read_stat(fd, "stat", &stat) == 0)
        memcpy(first->comm, stat.comm, sizeof(first->comm));
    if (fd >= 0)
        close(fd);
}

void othertracer_note(struct othertracer *first, const struct thread *thread, bool was_refused, uint64_t now_ns)
{
    struct process *process = thread->process;
    if (process->traced_tid)
        return; /* known; that it is gone is seen by looking, not by this thread */
    pid_t tracer_pid = read_other_tracer(thread);
    if (!tracer_pid && !was_refused)
        return;
    process->traced_tid = thread->tid;
    process->tracer_looked_ns = now_ns;
    if (!first->target_pid || (!first->pid && tracer_pid))
        remember(first, thread, tracer_pid);
}

bool othertracer_holds(struct process *process, uint64_t now_ns)
{
    if (!process->traced_tid || now_ns - process->tracer_looked_ns < OTHERTRACER_LOOK_NS)
        return process->traced_tid != 0;
    process->tracer_looked_ns = now_ns;
    /* First the one that it is known to have: as long as it has that, one look is enough. */
    for (size_t i = 0; i < process->thread_count; i++)
        if (process->threads[i]->tid == process->traced_tid && read_other_tracer(process->threads[i]))
            return true;
    process->traced_tid = 0;
    for (size_t i = 0; i < process->thread_count && !process->traced_tid; i++)
        if (read_other_tracer(process->threads[i]))
            process->traced_tid = process->threads[i]->tid;
    return process->traced_tid != 0;
}
