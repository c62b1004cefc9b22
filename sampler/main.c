#include "sampler/compare.h"
#include "sampler/options.h"
#include "sampler/report.h"
#include "sampler/session.h"

#include <stdio.h>

enum { EXIT_USAGE = 2 };

/* Text that was asked for goes to standard output, and a full disk is an error there too. */
static int print(const char *text)
{
    return fputs(text, stdout) < 0 || fflush(stdout) != 0 ? 1 : 0;
}

static int run(const struct options *options)
{
    switch (options->command) {
    case COMMAND_REPORT:
        return report_run(options);
    case COMMAND_COMPARE:
        return compare_run(options);
    default:
        return session_run(options);
    }
}

int main(int argc, char **argv)
{
    struct options options;
    struct strbuf error = {0};
    int status = 0;
    switch (options_parse(argc, argv, &options, &error)) {
    case OPTIONS_RUN:
        status = run(&options);
        break;
    case OPTIONS_HELP:
        status = print(options_help());
        break;
    case OPTIONS_VERSION:
        status = print("sampler " SAMPLER_VERSION "\n");
        break;
    case OPTIONS_WRONG:
        fprintf(stderr, "sampler: %s (see sampler --help)\n", error.data ? error.data : "out of memory");
        status = EXIT_USAGE;
        break;
    }
    strbuf_deinit(&error);
    options_deinit(&options);
    return status;
}
