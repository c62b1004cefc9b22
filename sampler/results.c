#include "sampler/results.h"

#include "common/fileio.h"

#include <errno.h>
#include <string.h>

static const char *output_name(const struct options *options)
{
    return options->output_path ? options->output_path : "standard output";
}

int results_open(struct results *results, const struct options *options, const char **ret_name)
{
    *results = (struct results){.options = options, .output = {.fd = -1}, .stats_file = {.fd = -1}};
    *ret_name = output_name(options);
    int error = outfile_open(options->output_path, &results->output);
    if (error || !options->stats_path)
        return error;
    *ret_name = options->stats_path;
    return outfile_open(options->stats_path, &results->stats_file);
}

void results_deinit(struct results *results)
{
    outfile_deinit(&results->output);
    outfile_deinit(&results->stats_file);
}

int results_write_profile(struct results *results, const struct profile *profile, struct sink *sink)
{
    const struct options *options = results->options;
    sink->fd = results->output.fd;
    options->format->write(profile, &options->output, sink);
    int error = sink_finish(sink);
    return error ? error : outfile_commit(&results->output);
}

int results_write_stats(struct results *results, const struct stats *stats)
{
    if (!results->options->stats_path)
        return 0;
    struct strbuf text = {0};
    stats_json(stats, &text);
    int error = strbuf_error(&text);
    if (!error)
        error = fileio_write(results->stats_file.fd, text.data, text.size);
    strbuf_deinit(&text);
    return error ? error : outfile_commit(&results->stats_file);
}

int results_explain(const struct results *results, int error, struct strbuf *ret_line)
{
    if (error == -EPIPE)
        return STATUS_BROKEN_PIPE; /* quiet, as programs are whose reader left */
    if (error == -ECANCELED)
        strbuf_adds(ret_line, "interrupted: no profile was written");
    else
        strbuf_addf(ret_line, "cannot write to %s: %s", output_name(results->options), strerror(-error));
    return STATUS_TROUBLE;
}
