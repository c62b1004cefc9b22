#include "sampler/overhead.h"

#include "common/clock.h"

/* Maps are read and images opened in these. */
enum { FIRST_TICKS = 3 };

/* A tick's cost is a mean over about so many of them. */
enum { MEMORY_TICKS = 16 };

/* Between two ticks, at most. */
#define LONGEST_NS (10 * NS_PER_SEC)

/* Costs vary, and the limit is one. */
static const double margin = 0.9;

void overhead_init(struct overhead *overhead, double limit)
{
    *overhead = (struct overhead){.limit = limit};
}

static void learn(struct overhead *overhead, uint64_t cost_ns)
{
    /* Clocks that are read one after the other may take more off than there was. */
    double tick_cost_ns = cost_ns > overhead->last_cost_ns ? (double)(cost_ns - overhead->last_cost_ns) : 0;
    double weight = overhead->ticks < MEMORY_TICKS ? (double)(overhead->ticks - FIRST_TICKS) : (double)MEMORY_TICKS;
    overhead->tick_cost_ns += (tick_cost_ns - overhead->tick_cost_ns) / weight;
    overhead->last_cost_ns = cost_ns;
}

/* Spent beyond the allowance so far. */
static double debt_ns(const struct overhead *overhead, uint64_t cost_ns, uint64_t now_ns)
{
    double allowed_ns = overhead->limit * margin * (double)(now_ns - overhead->start_ns);
    double spent_ns = (double)cost_ns - (double)overhead->start_cost_ns;
    return spent_ns > allowed_ns ? spent_ns - allowed_ns : 0;
}

unsigned overhead_stride(struct overhead *overhead, uint64_t cost_ns, uint64_t now_ns, uint64_t period_ns)
{
    if (overhead->limit <= 0)
        return 1;
    overhead->ticks++;
    if (overhead->ticks <= FIRST_TICKS) {
        overhead->start_ns = now_ns;
        overhead->start_cost_ns = cost_ns;
        overhead->last_cost_ns = cost_ns;
        return 1;
    }
    learn(overhead, cost_ns);
    double allowance_ns = overhead->limit * margin * (double)NS_PER_SEC;
    double left_ns = allowance_ns - debt_ns(overhead, cost_ns, now_ns);
    if (left_ns < allowance_ns / 10)
        left_ns = allowance_ns / 10;
    double ticks = left_ns / (overhead->tick_cost_ns > 1 ? overhead->tick_cost_ns : 1);
    double periods = (double)NS_PER_SEC / (double)period_ns / ticks;
    double most = (double)LONGEST_NS / (double)period_ns;
    if (periods > most)
        periods = most;
    unsigned stride = (unsigned)periods;
    return stride < periods || stride == 0 ? stride + 1 : stride;
}

double overhead_used(const struct overhead *overhead, uint64_t cost_ns, uint64_t now_ns)
{
    if (overhead->ticks <= FIRST_TICKS || now_ns <= overhead->start_ns || cost_ns <= overhead->start_cost_ns)
        return 0;
    return (double)(cost_ns - overhead->start_cost_ns) / (double)(now_ns - overhead->start_ns);
}
