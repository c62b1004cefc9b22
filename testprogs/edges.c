/*
 * edges sit|tiny|leaf|step [SECONDS]: main;outer;mid_caller;X, X in turn all functions of a kind:
 *   sit:  sit_at_entry, sit_after_push, …: each spins in one state of its frame.
 *   tiny: tiny_plain, tiny_endbr, …: a few instructions each, called over and over. tiny_tail ends in a jump to
 *         tail_target.
 *   leaf: leaf_in_c, a leaf that a compiler made without a frame among functions with frame pointers.
 *   step: main;outer;step_caller;X;…;step_handler;step_spin: SIGTRAP interrupts the functions of `tiny` at each of
 * their instructions. All callers have frame pointers. Built with unwind information; without for X; and without in the
 * whole program.
 */
#include "testprog.h"

#include <string.h>

typedef unsigned edge_function(unsigned turns, unsigned odd);

edge_function sit_at_entry, sit_after_push, sit_after_mov, sit_in_body, sit_after_pop, sit_after_leave;
edge_function tiny_plain, tiny_other_mov, tiny_endbr, tiny_leave, tiny_saved, tiny_repz_ret, tiny_two_ends, tiny_tail,
    tiny_frameless;
edge_function leaf_in_c;

static edge_function *const sit[] = {sit_at_entry, sit_after_push, sit_after_mov,
                                     sit_in_body,  sit_after_pop,  sit_after_leave};
static edge_function *const tiny[] = {tiny_plain,    tiny_other_mov, tiny_endbr, tiny_leave,    tiny_saved,
                                      tiny_repz_ret, tiny_two_ends,  tiny_tail,  tiny_frameless};
static edge_function *const leaf[] = {leaf_in_c};

static volatile unsigned stepped;

struct plan {
    edge_function *const *functions;
    unsigned count;
    unsigned calls; /* of each function in a row; 0: one, step by step */
    unsigned turns;
};

EXACT unsigned mid_caller(edge_function *function, unsigned calls, unsigned turns)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < calls; i++)
        sum += function(turns, i);
    return sum;
}

EXACT void step_spin(void)
{
    for (volatile unsigned turns = 0; turns < 500000; turns++)
        ;
}

EXACT void step_handler(int signal_number)
{
    (void)signal_number;
    step_spin();
    stepped++;
}

/* With the trap flag set, each instruction is followed by SIGTRAP; handlers run without it. */
EXACT unsigned step_caller(edge_function *function)
{
    __asm__ volatile("pushfq; orq $0x100, (%%rsp); popfq" ::: "memory", "cc");
    unsigned result = function(1, stepped & 1);
    __asm__ volatile("pushfq; andq $~0x100, (%%rsp); popfq" ::: "memory", "cc");
    return result;
}

EXACT unsigned outer(const struct plan *plan)
{
    unsigned sum = 0;
    for (unsigned next = 0; !stop; next = (next + 1) % plan->count) {
        if (plan->calls == 0)
            sum += step_caller(plan->functions[next]);
        else
            sum += mid_caller(plan->functions[next], plan->calls, plan->turns);
    }
    return sum;
}

int main(int argc, char **argv)
{
    const char *kind = argc > 1 ? argv[1] : "sit";
    struct plan plan = {sit, sizeof sit / sizeof sit[0], 1, 3000000};
    if (strcmp(kind, "tiny") == 0)
        plan = (struct plan){tiny, sizeof tiny / sizeof tiny[0], 1000000, 1};
    else if (strcmp(kind, "leaf") == 0)
        plan = (struct plan){leaf, 1, 10000, 1000};
    else if (strcmp(kind, "step") == 0)
        plan = (struct plan){tiny, sizeof tiny / sizeof tiny[0], 0, 1};
    if (signal(SIGTRAP, step_handler) == SIG_ERR)
        fail("signal");
    stop_after(number_argument(argc, argv, 2, 60));
    ready("");
    volatile unsigned result = outer(&plan);
    (void)result;
    return 0;
}
