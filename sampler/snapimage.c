#include "sampler/snapimage.h"

#include "common/clock.h"
#include "common/fileio.h"
#include "sampler/images.h"
#include "sampler/snapformat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct saved_image {
    uint32_t kind; /* enum snap_image */
    uint64_t dev;
    uint64_t inode;
    uint64_t size;
    uint64_t mtime_ns;
    const uint8_t *build_id;
    size_t build_id_bytes;
    char path[SNAP_PATH_LIMIT_BYTES + 1];
    const uint8_t *memory;
    size_t memory_bytes;
};

static bool get_image(struct wire *wire, struct saved_image *saved)
{
    saved->kind = wire_get_u32(wire);
    saved->dev = wire_get_u64(wire);
    saved->inode = wire_get_u64(wire);
    saved->size = wire_get_u64(wire);
    saved->mtime_ns = wire_get_u64(wire);
    saved->build_id = wire_get_sized(wire, SNAP_BUILD_ID_LIMIT_BYTES, &saved->build_id_bytes);
    size_t path_bytes;
    const uint8_t *path = wire_get_sized(wire, SNAP_PATH_LIMIT_BYTES, &path_bytes);
    saved->memory = wire_get_sized(wire, SNAP_IMAGE_LIMIT_BYTES, &saved->memory_bytes);
    if (wire->failed || path_bytes == 0 || memchr(path, '\0', path_bytes))
        return false;
    memcpy(saved->path, path, path_bytes);
    saved->path[path_bytes] = '\0';
    bool has_memory = saved->memory_bytes > 0;
    return saved->kind >= SNAP_IMAGE_ELF && saved->kind <= SNAP_IMAGE_OTHER &&
           has_memory == (saved->kind == SNAP_IMAGE_MEMORY);
}

static bool is_same(const struct saved_image *saved, const struct image *image, const struct stat *st)
{
    size_t bytes;
    const uint8_t *build_id = image_build_id(image, &bytes);
    if (image_kind(image) != IMAGE_ELF || bytes != saved->build_id_bytes)
        return false;
    if (bytes)
        return memcmp(build_id, saved->build_id, bytes) == 0;
    uint64_t mtime_ns = (uint64_t)st->st_mtim.tv_sec * NS_PER_SEC + (uint64_t)st->st_mtim.tv_nsec;
    return st->st_dev == saved->dev && st->st_ino == saved->inode && image_size(image) == saved->size &&
           mtime_ns == saved->mtime_ns;
}

/* *ret_why: what is wrong with the file at its path; untouched when it is the one. Returns 0 or -ENOMEM. */
static int open_file(const struct saved_image *saved, struct image **ret_image, const char **ret_why)
{
    if (saved->path[0] != '/') {
        *ret_why = "its path is not known";
        return image_open(-1, saved->path, ret_image);
    }
    errno = 0;
    int fd = fileio_open_regular(AT_FDCWD, saved->path);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        *ret_why = errno ? strerror(errno) : "not a regular file";
        return image_open(fd < 0 ? -1 : fd, saved->path, ret_image);
    }
    struct image *image;
    int error = image_open(fd, saved->path, &image);
    if (error)
        return error;
    if (is_same(saved, image, &st)) {
        *ret_image = image;
        return 0;
    }
    image_free(image);
    *ret_why = "another build than the one that ran";
    return image_open(-1, saved->path, ret_image);
}

static void tell(const struct saved_image *saved, const char *why, void (*warn)(void *context, const char *text),
                 void *context)
{
    const char *slash = strrchr(saved->path, '/');
    struct strbuf text = {0};
    strbuf_addf(&text, "%s: %s: its frames are named [%s]", saved->path, why, slash ? slash + 1 : saved->path);
    if (!strbuf_error(&text))
        warn(context, text.data);
    strbuf_deinit(&text);
}

static int open_memory(const struct saved_image *saved, struct image **ret_image)
{
    void *bytes = malloc(saved->memory_bytes);
    if (!bytes)
        return -ENOMEM;
    memcpy(bytes, saved->memory, saved->memory_bytes);
    return image_open_memory(bytes, saved->memory_bytes, saved->path, ret_image);
}

int snapimage_open(struct wire *wire, void (*warn)(void *context, const char *text), void *context,
                   struct image **ret_image)
{
    struct saved_image saved;
    if (!get_image(wire, &saved))
        return -EBADMSG;
    if (saved.kind == SNAP_IMAGE_MEMORY)
        return open_memory(&saved, ret_image);
    if (saved.kind == SNAP_IMAGE_OTHER)
        return image_open(-1, saved.path, ret_image);
    const char *why = NULL;
    int error = open_file(&saved, ret_image, &why);
    if (!error && why)
        tell(&saved, why, warn, context);
    return error;
}
