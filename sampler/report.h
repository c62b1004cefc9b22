/* `sampler report FILE`: a profile from what an earlier run saved. What kind of file it is, its first bytes say. */
#ifndef SAMPLER_REPORT_H
#define SAMPLER_REPORT_H

#include "sampler/options.h"

/* Does the whole job, and tells the user of trouble on standard error. Returns the exit status. */
int report_run(const struct options *options);

#endif
