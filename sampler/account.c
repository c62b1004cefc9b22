#include "sampler/account.h"

#include "common/array.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void account_deinit(struct account *account)
{
    for (size_t i = 0; i < account->total_count; i++)
        thread_shared_unref(account->totals[i].shared);
    free(account->totals);
    *account = (struct account){0};
}

void account_thread(struct account *account, const struct thread *thread, bool keep_total)
{
    uint64_t cpu_ns = thread->cpu_ns;
    account->cpu_ns_threads += cpu_ns;
    if (thread->samples)
        account->cpu_ns_sampled += cpu_ns;
    else
        account->threads_unsampled++;
    if (!keep_total || (!cpu_ns && !thread->samples))
        return;
    if (array_room(&account->totals, &account->total_capacity, account->total_count + 1)) {
        account->error = -ENOMEM;
        return;
    }
    struct thread_total *total = &account->totals[account->total_count++];
    *total = (struct thread_total){.shared = thread_shared_ref(thread->shared), .cpu_ns = cpu_ns};
    memcpy(total->comm, thread->comm, sizeof(total->comm));
}

void account_process(struct account *account, const struct process *process)
{
    uint64_t cpu_ns = process->last_cpu_ns - process->first_cpu_ns;
    uint64_t known_ns = process->known_cpu_ns;
    for (size_t i = 0; i < process->thread_count; i++)
        known_ns += process->threads[i]->cpu_ns;
    /* The clock was read a little before its last thread's counters. */
    account->cpu_ns_target += cpu_ns > known_ns ? cpu_ns : known_ns;
}

static int add_total(const struct thread_total *total, struct profile *profile)
{
    struct profile_thread thread = {.pid = total->shared->pid, .tid = total->shared->tid, .cpu_ns = total->cpu_ns};
    int error = strings_add(&profile->strings, total->comm, &thread.name);
    if (error)
        return error;
    if (total->shared->in_profile) {
        profile->threads[total->shared->profile_thread] = thread;
        return 0;
    }
    uint32_t number;
    return profile_add_thread(profile, &thread, &number);
}

int account_scale_profile(const struct account *account, struct profile *profile, bool with_exited)
{
    int error = 0;
    for (size_t i = 0; i < account->total_count && !error; i++)
        error = add_total(&account->totals[i], profile);
    /* The rest of the processes' time is that of threads which were never seen. */
    if (!error && with_exited && account->cpu_ns_target > account->cpu_ns_threads) {
        struct profile_thread exited = {.cpu_ns = account->cpu_ns_target - account->cpu_ns_threads};
        uint32_t number;
        error = strings_add(&profile->strings, "[exited threads]", &exited.name);
        if (!error)
            error = profile_add_thread(profile, &exited, &number);
    }
    return error ? error : profile_scale_by_cpu(profile);
}
