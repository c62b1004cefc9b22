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
typedef int progress_function(void *client, long done, long all);
typedef void set_progress_function(void *client, progress_function *progress);
typedef void set_data_function(void *client, void *data);
typedef void *get_data_function(void *client);

struct debuginfod {
    bool (*is_cancelled)(void *context);
    void *context;
    bool has_failed; /* nobody is asked any more */
    void *library;   /* stays loaded: a thread of it may still wait for a name server */
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

static get_data_function *get_data;

/* Not 0: give up. */
static int on_progress(void *client, long done, long all)
{
    (void)done;
    (void)all;
    const struct debuginfod *debuginfod = get_data(client);
    return debuginfod->is_cancelled && debuginfod->is_cancelled(debuginfod->context);
}

static const char *load(struct debuginfod *debuginfod)
{
    begin_function *begin;
    set_progress_function *set_progress;
    set_data_function *set_data;
    const char *urls = getenv("DEBUGINFOD_URLS");
    if (!urls || !*urls)
        return "DEBUGINFOD_URLS is not set";
    debuginfod->library = dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!debuginfod->library || !find_symbol(debuginfod->library, "debuginfod_begin", &begin) ||
        !find_symbol(debuginfod->library, "debuginfod_end", &debuginfod->end) ||
        !find_symbol(debuginfod->library, "debuginfod_set_progressfn", &set_progress) ||
        !find_symbol(debuginfod->library, "debuginfod_set_user_data", &set_data) ||
        !find_symbol(debuginfod->library, "debuginfod_get_user_data", &get_data) ||
        !find_symbol(debuginfod->library, "debuginfod_find_debuginfo", &debuginfod->find))
        return "libdebuginfod.so.1 is not installed";
    debuginfod->client = begin();
    if (!debuginfod->client)
        return "out of memory";
    set_data(debuginfod->client, debuginfod);
    set_progress(debuginfod->client, on_progress);
    return NULL;
}

struct debuginfod *debuginfod_new(bool (*is_cancelled)(void *context), void *context, const char **ret_why)
{
    struct debuginfod *debuginfod = calloc(1, sizeof(*debuginfod));
    *ret_why = "out of memory";
    if (!debuginfod)
        return NULL;
    debuginfod->is_cancelled = is_cancelled;
    debuginfod->context = context;
    *ret_why = load(debuginfod);
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
    free(debuginfod);
}

int debuginfod_open(struct debuginfod *debuginfod, const uint8_t *build_id, size_t bytes)
{
    if (bytes == 0 || bytes > INT_MAX || debuginfod->has_failed)
        return -ENOENT;
    int fd = debuginfod->find(debuginfod->client, build_id, (int)bytes, NULL);
    bool is_over = debuginfod->is_cancelled && debuginfod->is_cancelled(debuginfod->context);
    debuginfod->has_failed = fd == -ETIME || is_over;
    return fd;
}
