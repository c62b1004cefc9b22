/* A comparison as text and as JSON; both say the same. */
#ifndef SAMPLER_COMPARETABLE_H
#define SAMPLER_COMPARETABLE_H

#include "common/strbuf.h"
#include "sampler/comparesummary.h"

/* What is told of the run beside its numbers. */
struct comparetable {
    const struct comparerun *run;
    const struct comparesummary *summary;
    const struct comparewindow *windows;
    size_t window_count;
    const char *target; /* the process's name */
};

/* `ret_text` gets the whole; its error says whether something is missing. */
void comparetable_text(const struct comparetable *table, struct strbuf *ret_text);

/* Returns 0 or -ENOMEM. */
int comparetable_json(const struct comparetable *table, struct strbuf *ret_text);

#endif
