/*
 * Debug files from the servers of DEBUGINFOD_URLS, through libdebuginfod (elfutils), which is loaded when first asked:
 * it brings a client for HTTP along. Files are kept in its cache. One thread.
 */
#ifndef SYMBOLIZE_DEBUGINFOD_H
#define SYMBOLIZE_DEBUGINFOD_H

#include <stddef.h>
#include <stdint.h>

struct debuginfod;

/* NULL: it cannot be used, and `*ret_why` (static) says why. */
struct debuginfod *debuginfod_new(const char **ret_why);
void debuginfod_free(struct debuginfod *debuginfod);

/* Opens the debug file of that build-id, fetching it if it must. Returns a descriptor, or a negative errno. */
int debuginfod_open(struct debuginfod *debuginfod, const uint8_t *build_id, size_t bytes);

#endif
