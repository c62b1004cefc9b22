/* The command line of `sampler compare`. */
#ifndef SAMPLER_COMPAREOPTIONS_H
#define SAMPLER_COMPAREOPTIONS_H

#include "sampler/options.h"

/* As options_parse, which calls it when argv[1] is "compare". */
enum options_result compareoptions_parse(int argc, char **argv, struct options *ret_options, struct strbuf *ret_error);

#endif
