/*
 * smallstacks FILE [SECONDS [again]]: threads that have hardly any stack left for a signal handler.
 *
 * coroutine  spins in coroutine_spin on a stack of 8 KiB with a guard page below, 2 KiB of which are left; has a
 *            signal stack of 64 KiB
 * alternate  sits in its SIGSEGV handler (alternate_spin) on the smallest signal stack that a handler can be entered
 *            on; another signal that it lets in there kills it. With "again" it leaves the handler every 100,000 turns
 *            and comes back: who came after the handler was entered first is there before it is entered next
 * minimum-N  spin in minimum_spin on stacks of PTHREAD_STACK_MIN
 *
 * FILE holds a 64-bit number every 64 bytes, in that order, that counts the thread's turns. Ends after SECONDS with
 * {"turns": {NAME: …}, "damaged": N}: canaries that are not as they were, in what is left of the stacks, below and
 * above; then the status is 3.
 */
#include "testprog.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

enum {
    PAGE = 4096,
    COROUTINE_BYTES = 8 * 1024,
    LEFT_BYTES = 2 * 1024,
    NEAR_BYTES = 512, /* below a frame: its red zone, and the frames of what it calls */
    SIGNAL_STACK_BYTES = 64 * 1024,
    HANDLER_BYTES = 1024, /* for the handler's own frames */
    MINIMUM_THREADS = 4,
    THREADS = MINIMUM_THREADS + 2,
    STRIDE = 64,
    CANARY = 0x5a,
    TURNS = 100000, /* between two looks at canaries */
    DAMAGED_STATUS = 3
};

void run_on_stack(void *top, void (*function)(void));

static char *counters;
static atomic_int damaged;
static bool enters_again;
static _Thread_local volatile uint64_t *turns;
static _Thread_local char *canary_begin;
static _Thread_local char *canary_end;

static void plant_canary(char *begin, char *end)
{
    memset(begin, CANARY, (size_t)(end - begin));
    canary_begin = begin;
    canary_end = end;
}

static void check_canary(void)
{
    for (const char *byte = canary_begin; byte < canary_end; byte++) {
        if (*byte != CANARY) {
            atomic_fetch_add(&damaged, 1);
            return;
        }
    }
}

#define SPIN_AND_CHECK()                                                                                               \
    while (!stop) {                                                                                                    \
        for (int i_ = 0; i_ < TURNS && !stop; i_++)                                                                    \
            (*turns)++;                                                                                                \
        check_canary();                                                                                                \
    }

EXACT void coroutine_spin(void)
{
    SPIN_AND_CHECK()
}

/* A page that none may touch, and memory above it; its end. */
static char *guarded(size_t bytes)
{
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    char *memory = mmap(NULL, PAGE + whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, PAGE, PROT_NONE) != 0)
        fail("mmap");
    return memory + PAGE + whole;
}

static void use_signal_stack(size_t bytes)
{
    stack_t signal_stack = {.ss_sp = guarded(bytes) - bytes, .ss_size = bytes};
    if (sigaltstack(&signal_stack, NULL) != 0)
        fail("sigaltstack");
}

static _Thread_local char *coroutine_top;

/* Called at the stack's top: takes all but LEFT_BYTES. */
EXACT void coroutine_outer(void)
{
    char *base = coroutine_top - COROUTINE_BYTES;
    char *here = __builtin_frame_address(0);
    volatile char *taken = __builtin_alloca((size_t)(here - base) - LEFT_BYTES);
    taken[0] = 0;
    plant_canary(base, base + LEFT_BYTES - NEAR_BYTES);
    coroutine_spin();
    taken[0] = 1;
}

static void coroutine_main(void)
{
    use_signal_stack(SIGNAL_STACK_BYTES);
    coroutine_top = guarded(COROUTINE_BYTES);
    run_on_stack(coroutine_top, coroutine_outer);
}

EXACT void alternate_spin(void)
{
    do {
        for (int i = 0; i < TURNS && !stop; i++)
            (*turns)++;
        check_canary();
    } while (!stop && !enters_again);
}

static _Thread_local volatile char *forbidden;

static void on_segv(int signal_number)
{
    (void)signal_number;
    alternate_spin();
    if (mprotect((char *)forbidden, PAGE, PROT_READ | PROT_WRITE) != 0)
        _exit(98);
}

/* Its canary is on its ordinary stack, which the handler does not need. */
static void alternate_main(void)
{
    char bytes[NEAR_BYTES];
    plant_canary(bytes, bytes + sizeof bytes);
    use_signal_stack((size_t)sysconf(_SC_MINSIGSTKSZ) + HANDLER_BYTES);
    forbidden = guarded(PAGE) - PAGE;
    do {
        if (mprotect((char *)forbidden, PAGE, PROT_NONE) != 0)
            fail("mprotect");
        *forbidden = 1;
    } while (!stop);
    check_canary();
}

EXACT void minimum_spin(void)
{
    SPIN_AND_CHECK()
}

static void minimum_main(void)
{
    char bytes[NEAR_BYTES];
    plant_canary(bytes, bytes + sizeof bytes);
    minimum_spin();
    check_canary();
}

static void *thread_main(void *argument)
{
    int index = (int)(intptr_t)argument;
    turns = (volatile uint64_t *)(counters + (ptrdiff_t)index * STRIDE);
    if (index == 0)
        coroutine_main();
    else if (index == 1)
        alternate_main();
    else
        minimum_main();
    return NULL;
}

static void map_counters(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, THREADS * STRIDE) != 0)
        fail(path);
    counters = mmap(NULL, THREADS * STRIDE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (counters == MAP_FAILED)
        fail("mmap");
}

static void name_thread(int index, char *ret_name, size_t size)
{
    if (index < 2)
        snprintf(ret_name, size, "%s", index == 0 ? "coroutine" : "alternate");
    else
        snprintf(ret_name, size, "minimum-%d", index - 2);
}

static pthread_t start_thread(int index)
{
    pthread_t thread;
    pthread_attr_t attributes;
    char name[16];
    pthread_attr_init(&attributes);
    if (index >= 2 && pthread_attr_setstacksize(&attributes, (size_t)PTHREAD_STACK_MIN) != 0)
        fail("pthread_attr_setstacksize");
    if (pthread_create(&thread, &attributes, thread_main, (void *)(intptr_t)index) != 0)
        fail("pthread_create");
    pthread_attr_destroy(&attributes);
    name_thread(index, name, sizeof name);
    pthread_setname_np(thread, name);
    return thread;
}

static void print_results(void)
{
    printf("{\"turns\": {");
    for (int i = 0; i < THREADS; i++) {
        char name[16];
        name_thread(i, name, sizeof name);
        printf("%s\"%s\": %llu", i ? ", " : "", name,
               (unsigned long long)*(uint64_t *)(counters + (ptrdiff_t)i * STRIDE));
    }
    printf("}, \"damaged\": %d}\n", atomic_load(&damaged));
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 99;
    enters_again = argc > 3 && strcmp(argv[3], "again") == 0;
    struct sigaction action = {.sa_handler = on_segv, .sa_flags = SA_ONSTACK};
    sigaction(SIGSEGV, &action, NULL);
    map_counters(argv[1]);
    pthread_t threads[THREADS];
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM); /* main's alone */
    pthread_sigmask(SIG_BLOCK, &alarm, NULL);
    for (int i = 0; i < THREADS; i++)
        threads[i] = start_thread(i);
    pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
    stop_after(number_argument(argc, argv, 2, 60));
    ready("threads=%d", THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    print_results();
    return damaged ? DAMAGED_STATUS : 0;
}
