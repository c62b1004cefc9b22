/* What the commands' command lines have in common. For options.c, which has these functions, and compareoptions.c. */
#ifndef SAMPLER_OPTIONPARSE_H
#define SAMPLER_OPTIONPARSE_H

#include "sampler/options.h"

struct optionparse {
    struct options *options;
    struct strbuf *error;
    size_t pid_capacity;
    size_t thread_capacity;
    const char *format_name;
    int children; /* -1: by default */
};

/* Takes one option of the main job, `option` being its letter. False: its value is wrong, and the error says how. */
bool optionparse_take(struct optionparse *parse, int option, const char *value);

/* "10", "0.5", "30s", "5m"; false for anything else and for 0. */
bool optionparse_duration(const char *text, uint64_t *ret_ns);

/* Says that a value is wrong. Always false. */
bool optionparse_wrong(struct strbuf *error, const char *option, const char *value, const char *expected);

/* What getopt did not understand, in words: its result, and the word that it was about. */
void optionparse_tell_unknown(struct strbuf *error, int result, const char *argument);

#endif
