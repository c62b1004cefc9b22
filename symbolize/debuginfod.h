/*
 * Debug files from the servers of DEBUGINFOD_URLS, through libdebuginfod (elfutils), which is loaded when first asked:
 * it brings a client for HTTP along. Files are kept in its cache. One thread.
 */
#ifndef SYMBOLIZE_DEBUGINFOD_H
#define SYMBOLIZE_DEBUGINFOD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct debuginfod;

/* `is_cancelled` (or NULL) is asked now and then while a file is fetched; true ends that, and all to come. NULL: it
 * cannot be used, and `*ret_why` (static) says why. */
struct debuginfod *debuginfod_new(bool (*is_cancelled)(void *context), void *context, const char **ret_why);
void debuginfod_free(struct debuginfod *debuginfod);

/*
 * Opens the debug file of that build-id, fetching it if it must. Returns a descriptor, or a negative errno. After a
 * server that did not answer in time (-ETIME) nobody is asked any more.
 */
int debuginfod_open(struct debuginfod *debuginfod, const uint8_t *build_id, size_t bytes);

#endif
