/* Between addresses in a target and places in a profile, and from places to names. */
#ifndef SAMPLER_PLACE_H
#define SAMPLER_PLACE_H

#include "profile/profile.h"
#include "sampler/space.h"
#include "symbolize/symbolize.h"
#include "unwind/stack.h"

/* Where the code of this frame is, by the maps of its time. Any thread. */
struct place place_of_frame(const struct space *space, const struct address_map *map, const struct frame *frame);

/*
 * Gives every frame of the profile its names: from the image's symbols and debug information, or the perf map of its
 * space as far as it was read; else a stand-in in brackets. `spaces` is indexed by number - 1. Returns 0, -ENOMEM, or
 * -ECANCELED when the `is_cancelled` of the options, asked now and then, said so.
 */
int place_name_all(struct profile *profile, const struct images *images, struct space *const *spaces,
                   size_t space_count, const struct symbolizer_options *options);

#endif
