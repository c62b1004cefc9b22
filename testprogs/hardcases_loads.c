/* The loads of `hardcases`: calls during which a thread holds locks of the C library, or of the kernel. */
#include "hardcases.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <limits.h>
#include <link.h>
#include <pthread.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { BLOCKS = 64, PHDR_TURNS = 3000, BACKTRACE_DEPTH = 12, SIN_US = 1000 };

static char library_path[PATH_MAX];

/* Blocks of all sizes, freed in another order than they were taken; each says whose it is. */
static bool load_malloc(unsigned long turn)
{
    static _Thread_local uint64_t *blocks[BLOCKS];
    static _Thread_local uint64_t owners[BLOCKS];
    size_t at = turn * 37 % BLOCKS;
    bool is_right = !blocks[at] || *blocks[at] == owners[at];
    free(blocks[at]);
    blocks[at] = malloc(sizeof(uint64_t) << turn % 11);
    if (!blocks[at])
        return false;
    *blocks[at] = owners[at] = turn;
    return is_right;
}

static bool load_dlopen(unsigned long turn)
{
    (void)turn;
    void *library = dlopen(library_path, RTLD_NOW);
    bool is_right = library && dlsym(library, "library_outer");
    return library && dlclose(library) == 0 && is_right;
}

static bool ends_well(pid_t child)
{
    int status = -1;
    while (child > 0 && waitpid(child, &status, 0) < 0)
        ;
    return status == 0;
}

static bool load_exec(unsigned long turn)
{
    (void)turn;
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(98);
    }
    return ends_well(child);
}

static bool load_fork(unsigned long turn)
{
    (void)turn;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    return ends_well(child);
}

volatile int loads_objects;

/* The loader's lock is held while the callback runs. */
EXACT static int slow_callback(struct dl_phdr_info *info, size_t size, void *objects)
{
    (void)info;
    (void)size;
    for (int i = 0; i < PHDR_TURNS; i++)
        __asm__ volatile("" : "+r"(i)); /* in memory its speed would depend on where the stack is */
    ++*(int *)objects;
    return 0;
}

static bool load_iterate(unsigned long turn)
{
    (void)turn;
    int objects = 0;
    dl_iterate_phdr(slow_callback, &objects);
    loads_objects = objects;
    return objects >= 3;
}

EXACT static int backtrace_below(unsigned depth)
{
    void *addresses[2 * BACKTRACE_DEPTH];
    int count = depth > 0 ? backtrace_below(depth - 1) : backtrace(addresses, 2 * BACKTRACE_DEPTH);
    addresses[0] = NULL; /* no tail call */
    return count;
}

static bool load_backtrace(unsigned long turn)
{
    (void)turn;
    return backtrace_below(BACKTRACE_DEPTH) > BACKTRACE_DEPTH;
}

static void allocate_in_handler(int signal_number)
{
    char *volatile block = malloc((size_t)signal_number);
    free(block);
}

/* What no handler may do: shows that the trap of malloctrap.c works. */
static bool load_sinner(unsigned long turn)
{
    if (turn == 0) {
        struct sigaction action = {.sa_handler = allocate_in_handler, .sa_flags = SA_RESTART};
        struct itimerval timer = {{0, SIN_US}, {0, SIN_US}};
        sigaction(SIGPROF, &action, NULL);
        setitimer(ITIMER_PROF, &timer, NULL);
    }
    return load_malloc(turn);
}

const struct load loads[] = {
    {"malloc", load_malloc}, {"dlopen", load_dlopen},   {"throw", load_throw},         {"exec", load_exec},
    {"fork", load_fork},     {"iterate", load_iterate}, {"backtrace", load_backtrace}, {"sinner", load_sinner},
};
const size_t load_count = sizeof loads / sizeof loads[0];

void loads_prepare(void)
{
    ssize_t size = readlink("/proc/self/exe", library_path, sizeof library_path - 1);
    char *slash = size > 0 ? strrchr(library_path, '/') : NULL;
    const char *name = "/libdso_library.so";
    if (!slash || (size_t)(slash - library_path) + strlen(name) >= sizeof library_path)
        fail("readlink");
    strcpy(slash, name);
    backtrace_below(0); /* loads libgcc_s, once */
}
