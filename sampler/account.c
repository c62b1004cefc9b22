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
