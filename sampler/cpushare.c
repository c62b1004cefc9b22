#include "sampler/cpushare.h"

#include "common/clock.h"

#define MEMORY_NS (250 * NS_PER_MS)

/* The past before the first look weighs little: as much as the first millisecond. */
#define PAST_WEIGHT_NS ((double)NS_PER_MS)

void cpushare_init(struct cpushare *share, double start, uint64_t run_ns, uint64_t wait_ns, uint64_t now_ns)
{
    *share = (struct cpushare){.credit = start, .updated_ns = now_ns};
    double life_ns = (double)run_ns + (double)wait_ns;
    if (life_ns > 0) {
        share->run_ns = PAST_WEIGHT_NS * (double)run_ns / life_ns;
        share->wait_ns = PAST_WEIGHT_NS * (double)wait_ns / life_ns;
        share->ratio = (double)run_ns / life_ns;
    }
}

/* How much of our stops is to be counted as waiting. The counters lag behind, so both sides are summed up before they
 * are compared. */
static double take_stopped(struct cpushare *share, double elapsed_ns, double accounted_ns)
{
    if (!share->was_runnable) { /* it may have slept: what is unaccounted is not ours */
        share->stopped_ns = 0;
        share->unaccounted_ns = 0;
        return 0;
    }
    share->was_runnable = false;
    share->unaccounted_ns += elapsed_ns - accounted_ns;
    double taken_ns = share->stopped_ns < share->unaccounted_ns ? share->stopped_ns : share->unaccounted_ns;
    if (taken_ns < 0)
        return 0;
    share->stopped_ns -= taken_ns;
    share->unaccounted_ns -= taken_ns;
    return taken_ns;
}

void cpushare_add(struct cpushare *share, uint64_t run_ns, uint64_t wait_ns, uint64_t now_ns)
{
    double elapsed_ns = (double)(now_ns - share->updated_ns);
    double not_running_ns = (double)wait_ns + take_stopped(share, elapsed_ns, (double)run_ns + (double)wait_ns);
    /* 1 / (1 + x) falls like exp(-x) where it matters and needs no libm. */
    double kept = 1.0 / (1.0 + elapsed_ns / (double)MEMORY_NS);
    share->run_ns = share->run_ns * kept + (double)run_ns;
    share->wait_ns = share->wait_ns * kept + not_running_ns;
    share->updated_ns = now_ns;
    double sum_ns = share->run_ns + share->wait_ns;
    if (sum_ns > 0)
        share->ratio = share->run_ns / sum_ns;
}

void cpushare_stopped(struct cpushare *share, uint64_t stopped_ns)
{
    share->stopped_ns += (double)stopped_ns;
}

bool cpushare_tick(struct cpushare *share)
{
    share->was_runnable = true;
    share->credit += share->ratio;
    if (share->credit < 1.0)
        return false;
    share->credit -= 1.0;
    return true;
}
