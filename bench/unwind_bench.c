/* unwind_bench warm PID ROUNDS | varied STACKS PROGRAM ARGS | cold LIBRARY FUNCTIONS STRIDE: see unwind_bench.h. */
#include "unwind_bench.h"

#include "common/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void bench_print_counters(const char *name, struct unwind_counters counters)
{
    printf("%s rule_hits %" PRIu64 " rule_row_hits %" PRIu64 " rules_compiled %" PRIu64 " rules_uncovered %" PRIu64
           " rules_bad %" PRIu64 " rules_foreign %" PRIu64 " rule_flushes %" PRIu64 " rules %" PRIu64
           " rule_bytes %" PRIu64 "\n",
           name, counters.rule_hits, counters.rule_row_hits, counters.rules_compiled, counters.rules_uncovered,
           counters.rules_bad, counters.rules_foreign, counters.rule_flushes, counters.rules, counters.rule_bytes);
}

static int usage(void)
{
    fputs("usage: unwind_bench warm PID ROUNDS | varied STACKS PROGRAM [ARGS] | cold LIBRARY FUNCTIONS STRIDE\n",
          stderr);
    return 2;
}

int main(int argc, char **argv)
{
    uint64_t a;
    uint64_t b;
    int error;
    if (argc == 4 && strcmp(argv[1], "warm") == 0 && parse_number(argv[2], &a) && parse_number(argv[3], &b))
        error = bench_warm((pid_t)a, b);
    else if (argc >= 4 && strcmp(argv[1], "varied") == 0 && parse_number(argv[2], &a))
        error = bench_varied(argv + 3, a);
    else if (argc == 5 && strcmp(argv[1], "cold") == 0 && parse_number(argv[3], &a) && parse_number(argv[4], &b))
        error = bench_cold(argv[2], a, b);
    else
        return usage();
    if (error)
        fprintf(stderr, "unwind_bench: %s\n", strerror(-error));
    return error ? 1 : 0;
}
