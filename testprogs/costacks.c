/*
 * costacks KIND [SECONDS]: coroutines on stacks of their own. Built with frame pointers and without.
 *   edge:    start_on_stack;co_outer;co_middle;co_leaf: the top word of the stack is the last one before a page that
 *            cannot be read.
 *   back:    main;leave_stack;run_on_stack;co_outer;co_middle;co_leaf: the same, called from the main stack.
 *   grow:    start_on_stack;co_grow;co_deep × N;grow_leaf: the stack is a MAP_GROWSDOWN mapping that grows meanwhile.
 *   context: <__start_context>;co_outer;co_middle;co_leaf: by makecontext, called by another coroutine, whose stack
 *            (neighbour_fn;neighbour_maker) is next to it in the same mapping. In between lie look-alikes of frames of
 *            decoy_fn.
 */
#include "testprog.h"

#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { PAGE = 4096, STACK_BYTES = 64 * 1024, GROW_BYTES = 4 << 20, GROW_DEPTH = 1500, LEVEL_BYTES = 200 };

void start_on_stack(void *top, void (*function)(void)) __attribute__((noreturn));
void run_on_stack(void *top, void (*function)(void));
void decoy_fn(void);

static volatile int zero;
static ucontext_t main_context, neighbour_context, co_context;
static char *stacks; /* co_context's, then neighbour_context's */

EXACT void co_leaf(void)
{
    SPIN();
    _exit(0);
}

EXACT void co_middle(void)
{
    co_leaf();
    zero = 0;
}

EXACT void co_outer(void)
{
    co_middle();
    zero = 0;
}

static char *map(size_t bytes, int flags)
{
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    if (memory == MAP_FAILED)
        fail("mmap");
    return memory;
}

static char *stack_before_a_hole(void)
{
    char *memory = map(STACK_BYTES + PAGE, 0);
    if (mprotect(memory + STACK_BYTES, PAGE, PROT_NONE) != 0)
        fail("mprotect");
    return memory + STACK_BYTES;
}

EXACT void leave_stack(void)
{
    run_on_stack(stack_before_a_hole(), co_outer);
    zero = 0;
}

EXACT void grow_leaf(void)
{
    for (volatile unsigned turns = 0; turns < 2000000; turns++)
        ;
}

EXACT void co_deep(unsigned depth)
{
    volatile char bytes[LEVEL_BYTES];
    bytes[0] = 0;
    if (depth > 1)
        co_deep(depth - 1);
    else
        grow_leaf();
    bytes[1] = bytes[0];
}

EXACT void co_grow(void)
{
    for (unsigned depth = 1; !stop; depth = depth % GROW_DEPTH + 1)
        co_deep(depth);
    _exit(0);
}

/* One page at the end of free space that it can grow into. */
static char *growing_stack(void)
{
    char *space = map(GROW_BYTES, 0);
    if (munmap(space, GROW_BYTES) != 0)
        fail("munmap");
    char *page = mmap(space + GROW_BYTES - PAGE, PAGE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_GROWSDOWN | MAP_FIXED, -1, 0);
    if (page == MAP_FAILED)
        fail("mmap");
    return page + PAGE;
}

/* Frames that look as if they called what lies below, as many as half of the neighbour's stack holds. */
static void lay_look_alikes(uint64_t *cells, size_t count)
{
    for (size_t i = 0; i + 1 < count; i += 2) {
        cells[i] = (uintptr_t)(cells + i + 2);
        cells[i + 1] = (uintptr_t)decoy_fn + 5;
    }
}

static void make_context(ucontext_t *context, char *stack, ucontext_t *link, void (*function)(void))
{
    if (getcontext(context) != 0)
        fail("getcontext");
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = STACK_BYTES;
    context->uc_link = link;
    makecontext(context, function, 0);
}

EXACT void neighbour_maker(void)
{
    make_context(&co_context, stacks, &neighbour_context, co_outer);
    swapcontext(&neighbour_context, &co_context);
    zero = 0;
}

EXACT void neighbour_fn(void)
{
    neighbour_maker();
    zero = 0;
}

static void run_contexts(void)
{
    stacks = map(2 * STACK_BYTES, 0);
    lay_look_alikes((uint64_t *)(stacks + STACK_BYTES), STACK_BYTES / 2 / sizeof(uint64_t));
    make_context(&neighbour_context, stacks + STACK_BYTES, &main_context, neighbour_fn);
    swapcontext(&main_context, &neighbour_context);
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "edge";
    stop_after(number_argument(argc, argv, 2, 60));
    ready("");
    if (strcmp(kind, "edge") == 0)
        start_on_stack(stack_before_a_hole(), co_outer);
    else if (strcmp(kind, "back") == 0)
        leave_stack();
    else if (strcmp(kind, "grow") == 0)
        start_on_stack(growing_stack(), co_grow);
    else
        run_contexts();
    return 0;
}
