/*
 * Mapped files that may shrink meanwhile. A page that the file has no more is read as zeros, where it would kill the
 * program by SIGBUS: whoever reads must take damaged content anyway.
 *
 * A handler for SIGBUS is set with the first mapping; other faults are left to what was there before. Any thread.
 */
#ifndef SYMBOLIZE_MAPGUARD_H
#define SYMBOLIZE_MAPGUARD_H

#include <stddef.h>

/* Guards a private mapping, from its first page on. Returns 0 or a negative errno; -EMFILE when there are too many. */
int mapguard_add(const void *mapping, size_t bytes);
void mapguard_remove(const void *mapping); /* before it is unmapped; NULL, or not guarded, is fine */

#endif
