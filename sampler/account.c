#include "sampler/account.h"

#include "common/array.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void account_deinit(struct account *account)
{
    for (size_t i = 0; i < account->total_count; i++)
        thread_shared_unref(account->totals[i].shared);
    free(account->totals);
    free(account->processes);
    *account = (struct account){0};
}

/* A thread without a sample, to others of its process and name. false: it is the first. */
static bool add_to_many(struct account *account, const struct thread *thread)
{
    for (size_t i = 0; i < account->many_count; i++) {
        struct thread_total *total = &account->totals[account->many[i]];
        if (total->shared->pid != thread->shared->pid || strcmp(total->comm, thread->comm) != 0)
            continue;
        total->cpu_ns += thread->cpu_ns;
        total->wait_ns += thread->wait_ns;
        total->is_of_many = true;
        return true;
    }
    return false;
}

void account_thread(struct account *account, const struct thread *thread, bool keep_total)
{
    uint64_t cpu_ns = thread->cpu_ns;
    account->cpu_ns_threads += cpu_ns;
    account->wait_ns_threads += thread->wait_ns;
    if (thread->samples)
        account->cpu_ns_sampled += cpu_ns;
    else
        account->threads_unsampled++;
    if (!keep_total || (!cpu_ns && !thread->samples))
        return;
    if (!thread->samples && add_to_many(account, thread))
        return;
    if (array_room(&account->totals, &account->total_capacity, account->total_count + 1)) {
        account->error = -ENOMEM;
        return;
    }
    if (!thread->samples && account->many_count < ACCOUNT_MANY_MAX)
        account->many[account->many_count++] = account->total_count;
    struct thread_total *total = &account->totals[account->total_count++];
    *total = (struct thread_total){
        .shared = thread_shared_ref(thread->shared), .cpu_ns = cpu_ns, .wait_ns = thread->wait_ns};
    memcpy(total->comm, thread->comm, sizeof(total->comm));
}

void account_unseen(struct account *account, struct thread_shared *shared, const char *comm, uint64_t cpu_ns)
{
    uint64_t left_ns =
        account->cpu_ns_target > account->cpu_ns_threads ? account->cpu_ns_target - account->cpu_ns_threads : 0;
    if (cpu_ns > left_ns) /* samples stand for their time on average only */
        cpu_ns = left_ns;
    account->cpu_ns_threads += cpu_ns;
    account->cpu_ns_sampled += cpu_ns;
    if (array_room(&account->totals, &account->total_capacity, account->total_count + 1)) {
        account->error = -ENOMEM;
        return;
    }
    struct thread_total *total = &account->totals[account->total_count++];
    *total = (struct thread_total){.shared = thread_shared_ref(shared), .cpu_ns = cpu_ns};
    snprintf(total->comm, sizeof(total->comm), "%s", comm);
}

static void add_process(struct account *account, const struct process *process, uint64_t cpu_ns)
{
    struct process_total total = {.pid = process->pid, .run_ns = cpu_ns, .wait_ns = process->known_wait_ns};
    for (size_t i = 0; i < process->thread_count; i++) {
        const struct thread *thread = process->threads[i];
        total.wait_ns += thread->wait_ns;
        if (thread->tid == process->pid || !total.comm[0])
            memcpy(total.comm, thread->comm, sizeof(total.comm));
    }
    if (account->process_count >= ACCOUNT_PROCESSES_MAX ||
        array_room(&account->processes, &account->process_capacity, account->process_count + 1)) {
        account->other_processes.run_ns += total.run_ns;
        account->other_processes.wait_ns += total.wait_ns;
        account->other_process_count++;
        return;
    }
    account->processes[account->process_count++] = total;
}

void account_process(struct account *account, const struct process *process)
{
    uint64_t cpu_ns = process->last_cpu_ns - process->first_cpu_ns;
    uint64_t known_ns = process_known_cpu_ns(process);
    /* The clock was read a little before its last thread's counters. */
    if (cpu_ns < known_ns)
        cpu_ns = known_ns;
    account->cpu_ns_target += cpu_ns;
    add_process(account, process, cpu_ns);
}

static int add_total(const struct thread_total *total, struct profile *profile)
{
    struct profile_thread thread = {
        .pid = total->shared->pid, .tid = total->shared->tid, .cpu_ns = total->cpu_ns, .wait_ns = total->wait_ns};
    if (total->is_of_many)
        thread.tid = 0;
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

static int add_totals(const struct account *account, struct profile *profile)
{
    int error = 0;
    for (size_t i = 0; i < account->total_count && !error; i++)
        error = add_total(&account->totals[i], profile);
    return error;
}

int account_scale_states(const struct account *account, struct profile *profile)
{
    int error = add_totals(account, profile);
    return error ? error : profile_scale_by_accounts(profile);
}

int account_scale_profile(const struct account *account, struct profile *profile, bool with_exited)
{
    int error = add_totals(account, profile);
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
