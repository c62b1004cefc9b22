/*
 * altstacks PLACE TRAP [SECONDS]: <main or thread_fn>;run;deep_3;deep_2;deep_1;TRAP;…;handler;handler_spin: SIGILL hits
 * TRAP (trap_first, trap_after_push, trap_last, trap_call, which calls trap_first) at just the instruction that its
 * name tells. With `nested` as TRAP, trap_first's handler is itself hit: …;trap_first;…;handler;nest;trap_again;…;
 * second_handler;handler_spin. The handlers' stack, by PLACE:
 *   none: the interrupted one                  thread: none, in a thread
 *   own:  an array in main's frame             above, below: in a thread, mapped above or below the thread's stack
 *   low:  mapped somewhere below main's
 */
#include "testprog.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

enum { STACK_BYTES = 64 * 1024, OWN_BYTES = 20 * 1024, GAP_BYTES = 64 * 1024 };

void trap_first(void);
void trap_after_push(void);
void trap_last(void);
void trap_call(void);
void trap_again(void);

static volatile int zero;
static void (*trap)(void);
static bool nested;
static char *alternate_stack; /* NULL: none */
static size_t alternate_bytes = STACK_BYTES;

EXACT void handler_spin(void)
{
    SPIN();
    _exit(0);
}

EXACT void nest(void)
{
    trap_again();
    zero = 0;
}

EXACT void handler(int signal_number)
{
    (void)signal_number;
    if (nested)
        nest();
    else
        handler_spin();
    zero = 0;
}

EXACT void second_handler(int signal_number)
{
    (void)signal_number;
    handler_spin();
    zero = 0;
}

EXACT void deep_1(void)
{
    trap();
    zero = 0;
}

EXACT void deep_2(void)
{
    deep_1();
    zero = 0;
}

EXACT void deep_3(void)
{
    deep_2();
    zero = 0;
}

EXACT void run(void)
{
    if (alternate_stack) {
        stack_t stack = {.ss_sp = alternate_stack, .ss_size = alternate_bytes};
        if (sigaltstack(&stack, NULL) != 0)
            fail("sigaltstack");
    }
    deep_3();
    zero = 0;
}

EXACT void *thread_fn(void *argument)
{
    run();
    return argument;
}

/* The thread's stack in the middle of three, which are not next to each other. */
static void run_thread(const char *place)
{
    size_t distance = STACK_BYTES + GAP_BYTES;
    char *space = mmap(NULL, 3 * distance, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (space == MAP_FAILED)
        fail("mmap");
    for (size_t i = 0; i < 3; i++)
        if (mprotect(space + i * distance, STACK_BYTES, PROT_READ | PROT_WRITE) != 0)
            fail("mprotect");
    if (strcmp(place, "below") == 0)
        alternate_stack = space;
    if (strcmp(place, "above") == 0)
        alternate_stack = space + 2 * distance;
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0 || pthread_attr_setstack(&attributes, space + distance, STACK_BYTES) != 0 ||
        pthread_create(&thread, &attributes, thread_fn, NULL) != 0)
        fail("pthread_create");
    pthread_join(thread, NULL);
}

static void set_handlers(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    struct sigaction second = {.sa_handler = second_handler, .sa_flags = SA_ONSTACK};
    if (sigaction(SIGILL, &action, NULL) != 0 || sigaction(SIGSEGV, &second, NULL) != 0)
        fail("sigaction");
}

static void choose_trap(const char *name)
{
    nested = strcmp(name, "nested") == 0;
    trap = trap_first;
    if (strcmp(name, "trap_after_push") == 0)
        trap = trap_after_push;
    else if (strcmp(name, "trap_last") == 0)
        trap = trap_last;
    else if (strcmp(name, "trap_call") == 0)
        trap = trap_call;
}

int main(int argc, char **argv)
{
    char own_stack[OWN_BYTES];
    const char *place = argc > 1 ? argv[1] : "none";
    choose_trap(argc > 2 ? argv[2] : "trap_first");
    set_handlers();
    stop_after(number_argument(argc, argv, 3, 60));
    ready("");
    if (strcmp(place, "thread") == 0 || strcmp(place, "below") == 0 || strcmp(place, "above") == 0) {
        run_thread(place);
        return 0;
    }
    if (strcmp(place, "own") == 0) {
        alternate_stack = own_stack;
        alternate_bytes = sizeof own_stack;
    }
    if (strcmp(place, "low") == 0) {
        alternate_stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (alternate_stack == MAP_FAILED)
            fail("mmap");
    }
    run();
    __asm__ volatile("" : : "r"(own_stack) : "memory");
    return 0;
}
