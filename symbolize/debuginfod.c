#include "symbolize/debuginfod.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* As elfutils/debuginfod.h has them. */
typedef void *begin_function(void);
typedef void end_function(void *client);
typedef int find_function(void *client, const unsigned char *build_id, int bytes, char **ret_path);

struct debuginfod {
    void *library;
    void *client;
    end_function *end;
    find_function *find;
};

/* A function as dlsym gives it. */
static void *find_symbol(void *library, const char *name, void *to)
{
    void *symbol = dlsym(library, name);
    memcpy(to, &symbol, sizeof(symbol));
    return symbol;
}

static const char *load(struct debuginfod *debuginfod)
{
    begin_function *begin;
    const char *urls = getenv("DEBUGINFOD_URLS");
    if (!urls || !*urls)
        return "DEBUGINFOD_URLS is not set";
    debuginfod->library = dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!debuginfod->library || !find_symbol(debuginfod->library, "debuginfod_begin", &begin) ||
        !find_symbol(debuginfod->library, "debuginfod_end", &debuginfod->end) ||
        !find_symbol(debuginfod->library, "debuginfod_find_debuginfo", &debuginfod->find))
        return "libdebuginfod.so.1 is not installed";
    debuginfod->client = begin();
    return debuginfod->client ? NULL : "out of memory";
}

struct debuginfod *debuginfod_new(const char **ret_why)
{
    struct debuginfod *debuginfod = calloc(1, sizeof(*debuginfod));
    *ret_why = debuginfod ? load(debuginfod) : "out of memory";
    if (!*ret_why)
        return debuginfod;
    debuginfod_free(debuginfod);
    return NULL;
}

void debuginfod_free(struct debuginfod *debuginfod)
{
    if (!debuginfod)
        return;
    if (debuginfod->client)
        debuginfod->end(debuginfod->client);
    if (debuginfod->library)
        dlclose(debuginfod->library);
    free(debuginfod);
}

int debuginfod_open(struct debuginfod *debuginfod, const uint8_t *build_id, size_t bytes)
{
    if (bytes == 0 || bytes > INT_MAX)
        return -ENOENT;
    return debuginfod->find(debuginfod->client, build_id, (int)bytes, NULL);
}
