#include "sampler/injectlibc.h"

#include "common/fileio.h"
#include "symbolize/dynsym.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

enum { CODE_MAX_BYTES = 16 << 20, CODE_AT_ONCE = 64 << 10, PATTERN_MAX_BYTES = 16 };

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

bool injectlibc_is_libc(const char *path)
{
    const char *base = base_name(path);
    return begins(base, "libc.so.6") || begins(base, "libc-2.");
}

bool injectlibc_is_loader(const char *path)
{
    const char *base = base_name(path);
    return begins(base, "ld-linux") || begins(base, "ld-2.") || begins(base, "ld.so");
}

static bool is_libdl(const char *path)
{
    const char *base = base_name(path);
    return begins(base, "libdl.so.2") || begins(base, "libdl-2.");
}

static bool is_musl(const char *path)
{
    const char *base = base_name(path);
    return begins(base, "ld-musl") || begins(base, "libc.musl") || strcmp(base, "libc.so") == 0;
}

/* The first region of code of such an image. */
static const struct code_region *find_region(const struct address_map *map, bool (*is_it)(const char *path))
{
    for (size_t i = 0; i < map->code.count; i++) {
        const struct code_region *region = &map->code.regions[i];
        if (region->image && region->has_bias && is_it(image_path(region->image)))
            return region;
    }
    return NULL;
}

/* A second one, of a namespace of its own: which of them is the program's is not told by the maps. */
static bool has_another_libc(const struct address_map *map, const struct code_region *libc)
{
    for (size_t i = 0; i < map->code.count; i++) {
        const struct code_region *region = &map->code.regions[i];
        if (region->image && region->has_bias && region->bias != libc->bias &&
            injectlibc_is_libc(image_path(region->image)))
            return true;
    }
    return false;
}

static bool has_musl(const struct address_map *map)
{
    for (size_t i = 0; i < map->code.count; i++)
        if (map->code.regions[i].image && is_musl(image_path(map->code.regions[i].image)))
            return true;
    return false;
}

/* ---- functions ---- */

static int find_functions(const struct code_region *region, const char *const *names, size_t count, uint64_t *avmas)
{
    int error = dynsym_find(region->image, names, count, avmas);
    for (size_t i = 0; i < count && !error; i++)
        avmas[i] += avmas[i] ? region->bias : 0;
    return error;
}

static int find_loading(const struct address_map *map, const struct code_region *libc, struct inject_libc *ret)
{
    enum { RTLD_DLOPEN = (int)0x80000000 }; /* of glibc's include/dlfcn.h: the call is from outside of it */
    static const char *const usual[] = {"dlopen", "dlsym", "dlerror"};
    static const char *const kept[] = {"__libc_dlopen_mode", "__libc_dlsym"};
    const struct code_region *regions[] = {libc, find_region(map, is_libdl)};
    uint64_t avmas[3];
    ret->dlopen_mode = RTLD_NOW;
    for (size_t i = 0; i < 2 && regions[i]; i++) {
        int error = find_functions(regions[i], usual, 3, avmas);
        if (error == -ENOMEM)
            return error;
        ret->dlopen_avma = avmas[0];
        ret->dlsym_avma = avmas[1];
        ret->dlerror_avma = avmas[2];
        if (!error && avmas[0] && avmas[1])
            return 0;
    }
    int error = find_functions(libc, kept, 2, avmas);
    ret->dlopen_avma = avmas[0];
    ret->dlsym_avma = avmas[1];
    ret->dlerror_avma = 0;
    ret->dlopen_mode = (uint32_t)(RTLD_NOW | RTLD_DLOPEN);
    return error ? error : avmas[0] && avmas[1] ? 0 : -ENOEXEC;
}

/* ---- places in the code ---- */

struct pattern {
    uint8_t bytes[PATTERN_MAX_BYTES];
    size_t size;
};

/* In the process's memory, not in the file: that is what is executed. 0: not there. */
static uint64_t find_code(const struct space *space, const struct code_region *region, const struct pattern *pattern)
{
    uint8_t bytes[CODE_AT_ONCE];
    uint64_t end_avma = region->end_avma;
    if (end_avma - region->start_avma > CODE_MAX_BYTES)
        end_avma = region->start_avma + CODE_MAX_BYTES;
    for (uint64_t avma = region->start_avma; avma + pattern->size <= end_avma;) {
        size_t size = end_avma - avma < sizeof(bytes) ? (size_t)(end_avma - avma) : sizeof(bytes);
        if (fileio_pread(space->mem_fd, bytes, size, avma) != (ssize_t)size)
            return 0;
        const uint8_t *found = memmem(bytes, size, pattern->bytes, pattern->size);
        if (found)
            return avma + (uint64_t)(found - bytes);
        avma += size == sizeof(bytes) ? size - pattern->size + 1 : size;
    }
    return 0;
}

static bool find_places(const struct space *space, const struct code_region *libc, struct inject_libc *ret)
{
    static const struct pattern call = {.bytes = {0x0f, 0x05, 0xc3}, .size = 3};
    static const struct pattern wide = {.bytes = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05}, .size = 9};
    static const struct pattern narrow = {.bytes = {0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05}, .size = 7};
    ret->syscall_avma = find_code(space, libc, &call);
    ret->sigreturn_avma = find_code(space, libc, &wide);
    if (!ret->sigreturn_avma)
        ret->sigreturn_avma = find_code(space, libc, &narrow);
    return ret->syscall_avma && ret->sigreturn_avma;
}

static int refuse(struct strbuf *why, const char *text)
{
    strbuf_adds(why, text);
    return -ENOEXEC;
}

int injectlibc_find(const struct space *space, const struct address_map *map, struct inject_libc *ret,
                    struct strbuf *ret_why)
{
    static const char *const errno_location[] = {"__errno_location"};
    const struct code_region *libc = find_region(map, injectlibc_is_libc);
    struct inject_libc found = {0};
    if (!libc && has_musl(map))
        return refuse(ret_why, "it uses the C library musl; the helper needs glibc");
    if (!libc)
        return refuse(ret_why, "it has no C library mapped (linked statically?), so nothing that could load another "
                               "one; sample it without the helper");
    if (has_another_libc(map, libc))
        return refuse(ret_why, "it has loaded a second C library; sample it without the helper");
    int error = find_loading(map, libc, &found);
    if (!error)
        error = find_functions(libc, errno_location, 1, &found.errno_location_avma);
    if (error == -ENOMEM)
        return error;
    if (error || !found.errno_location_avma || !find_places(space, libc, &found))
        return refuse(ret_why, "its C library has no dlopen that can be found; sample it without the helper");
    *ret = found;
    return 0;
}
