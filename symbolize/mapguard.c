#include "symbolize/mapguard.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAPS_MAX = 4096 };

/* Read by the handler: the size is set last and taken away first. */
static struct guarded {
    _Atomic uintptr_t start;
    atomic_size_t size; /* 0: free */
} guarded[MAPS_MAX];

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct sigaction before;
static uintptr_t page_bytes;

static bool is_guarded(uintptr_t address)
{
    for (size_t i = 0; i < MAPS_MAX; i++)
        if (address - guarded[i].start < guarded[i].size)
            return true;
    return false;
}

/* mmap is but a system call here, which is safe in a handler. */
static void on_fault(int signal, siginfo_t *info, void *context)
{
    uintptr_t address = (uintptr_t)info->si_addr;
    (void)context;
    if (info->si_code > 0 && is_guarded(address) &&
        mmap((void *)(address & ~(page_bytes - 1)), page_bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
             0) != MAP_FAILED)
        return;
    sigaction(signal, &before, NULL); /* the instruction is run again, and ends as it would have */
    if (info->si_code <= 0)
        raise(signal); /* somebody has sent it */
}

static int set_handler(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    struct sigaction now;
    sigemptyset(&action.sa_mask);
    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    if (sigaction(SIGBUS, NULL, &now) < 0)
        return -errno;
    if ((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_fault)
        return 0;
    before = now;
    return sigaction(SIGBUS, &action, NULL) < 0 ? -errno : 0;
}

static struct guarded *find_free(void)
{
    for (size_t i = 0; i < MAPS_MAX; i++)
        if (!guarded[i].size)
            return &guarded[i];
    return NULL;
}

static int add(const void *mapping, size_t bytes)
{
    struct guarded *guard = find_free();
    int error = guard ? set_handler() : -EMFILE;
    if (error)
        return error;
    guard->start = (uintptr_t)mapping;
    guard->size = (bytes + page_bytes - 1) & ~(page_bytes - 1);
    return 0;
}

int mapguard_add(const void *mapping, size_t bytes)
{
    pthread_mutex_lock(&mutex);
    int error = add(mapping, bytes);
    pthread_mutex_unlock(&mutex);
    return error;
}

void mapguard_remove(const void *mapping)
{
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < MAPS_MAX; i++)
        if (guarded[i].size && guarded[i].start == (uintptr_t)mapping)
            guarded[i].size = 0;
    pthread_mutex_unlock(&mutex);
}
