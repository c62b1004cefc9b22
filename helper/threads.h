/*
 * Threads that come and go: their timers are made and deleted at once, so that short ones do not lose their share. Only
 * where the helper was loaded before the program, whose calls of pthread_create(3) are ours then. Threads that come
 * otherwise the sampler finds.
 */
#ifndef HELPER_THREADS_H
#define HELPER_THREADS_H

#include <stdbool.h>

/* From now on. Not in a handler. */
void threads_follow(void);

/* Was the helper loaded before the program, whose calls so are ours? */
bool threads_are_followed(void);

#endif
