/* The helpers of a run: one for each process that the user named, or the one in the program that is launched. */
#ifndef SAMPLER_HELPERLINKS_H
#define SAMPLER_HELPERLINKS_H

#include "sampler/attach.h"
#include "sampler/helperlink.h"

#include <stddef.h>

/* All zero is empty. */
struct helperlinks {
    struct helperlink **all; /* owned, and so are they */
    size_t count;
    size_t capacity;
};

/* Consumed, also on failure. 0 or -ENOMEM. */
int helperlinks_add(struct helperlinks *links, struct helperlink *link);

/* Into each of them, in their order. 0, or a negative errno and one line in `ret_why`: some may have one then. */
int helperlinks_inject(struct helperlinks *links, const struct options *options, const struct attached *attached,
                       size_t count, struct strbuf *ret_why);

/* Borrowed; NULL: there is none for that process. */
struct helperlink *helperlinks_get(const struct helperlinks *links, size_t index);

/* `are_unused`: sampling has not begun, so nobody has asked them to withdraw. */
void helperlinks_deinit(struct helperlinks *links, bool are_unused);

#endif
