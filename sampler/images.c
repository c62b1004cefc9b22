#include "sampler/images.h"

#include "common/array.h"
#include "common/clock.h"
#include "common/fileio.h"
#include "common/hash.h"
#include "sampler/memimage.h"
#include "sampler/samefile.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file that cannot be had is looked for again, but not at each reading of the maps. */
#define RETRY_NS NS_PER_SEC

/* A vDSO is two pages; a mapping that calls itself so and is huge is none of ours. */
enum { VDSO_LIMIT_BYTES = 1 << 20 };

struct known_image {
    struct image *image; /* owned */
    uint64_t dev;
    uint64_t inode;
    uint64_t content_hash; /* the vDSO: of its bytes */
    uint64_t head_hash;    /* 0: the descriptor keeps device and inode its own; else of the first page in memory */
    uint64_t tried_ns;     /* unreadable: last */
};

struct images {
    pthread_mutex_t mutex;     /* only one thread adds; it takes the lock for that, and others to look */
    struct known_image *items; /* number - 1 */
    size_t count;
    size_t capacity;
};

struct images *images_new(void)
{
    struct images *images = calloc(1, sizeof(*images));
    if (images)
        pthread_mutex_init(&images->mutex, NULL);
    return images;
}

void images_free(struct images *images)
{
    if (!images)
        return;
    for (size_t i = 0; i < images->count; i++)
        image_free(images->items[i].image);
    free(images->items);
    pthread_mutex_destroy(&images->mutex);
    free(images);
}

const struct image *images_get(const struct images *images, uint32_t number)
{
    pthread_mutex_t *mutex = (pthread_mutex_t *)&images->mutex;
    pthread_mutex_lock(mutex);
    const struct image *image = number && number <= images->count ? images->items[number - 1].image : NULL;
    pthread_mutex_unlock(mutex);
    return image;
}

static int images_push(struct images *images, const struct known_image *known, uint32_t *ret_number)
{
    pthread_mutex_lock(&images->mutex);
    int error = array_room(&images->items, &images->capacity, images->count + 1);
    if (!error) {
        images->items[images->count++] = *known;
        *ret_number = (uint32_t)images->count;
    }
    pthread_mutex_unlock(&images->mutex);
    if (error)
        image_free(known->image);
    return error;
}

int images_add(struct images *images, struct image *image, uint32_t *ret_number)
{
    struct known_image known = {.image = image};
    return images_push(images, &known, ret_number);
}

/* ---- files ---- */

/* The name, with which of its readings (mapping_path_reading) names the open file from below `dirfd`; else the likely
 * one of a file that is gone. */
static void find_name(const struct mapped_file *file, int fd, const char *prefix, char *path)
{
    char full[PATH_MAX + 64];
    struct stat st;
    struct stat named;
    if (fstat(fd, &st) == 0)
        for (unsigned i = 0; mapping_path_reading(file->mapping, i, path, PATH_MAX); i++) {
            snprintf(full, sizeof(full), "%s%s", prefix, path);
            if (fstatat(file->proc_fd, full, &named, 0) == 0 && named.st_ino == st.st_ino && named.st_dev == st.st_dev)
                return;
        }
    mapping_path(file->mapping, path, PATH_MAX);
}

/* Opens what lies at `link` if it is the mapped file; *ret_image stays NULL if not. Returns 0 or -ENOMEM. */
static int try_file(const struct mapped_file *file, const char *link, const char *path, struct image **ret_image,
                    enum samefile *ret_same)
{
    int fd = fileio_open_regular(file->proc_fd, link);
    if (fd < 0)
        return 0;
    struct image *image;
    int error = image_open(fd, path, &image);
    if (error)
        return error;
    *ret_same = samefile_check(image, file->mem_fd, file->mapping, file->base);
    if (*ret_same == SAMEFILE_NO)
        image_free(image);
    else
        *ret_image = image;
    return 0;
}

/* map_files: the very file, unless another was mapped there meanwhile. */
static int try_map_files(const struct mapped_file *file, const char *root, struct image **ret_image,
                         enum samefile *ret_same)
{
    char link[64];
    char path[PATH_MAX];
    bool maybe;
    snprintf(link, sizeof(link), "map_files/%llx-%llx", (unsigned long long)file->mapping->start_avma,
             (unsigned long long)file->mapping->end_avma);
    int fd = fileio_open_regular(file->proc_fd, link);
    if (fd < 0)
        return 0;
    bool has_numbers = samefile_has_numbers(fd, file->mapping, &maybe);
    if (!has_numbers && !maybe) {
        close(fd);
        return 0;
    }
    find_name(file, fd, root, path);
    struct image *image;
    int error = image_open(fd, path, &image);
    if (error)
        return error;
    if (!has_numbers && samefile_has_other_id(image, file->mem_fd, file->base)) {
        image_free(image);
        return 0;
    }
    *ret_same = SAMEFILE_NUMBERS;
    *ret_image = image;
    return 0;
}

static int try_paths(const struct mapped_file *file, const char *prefix, struct image **ret_image,
                     enum samefile *ret_same)
{
    char path[PATH_MAX];
    char link[PATH_MAX + 64];
    int error = 0;
    for (unsigned i = 0; !error && !*ret_image && mapping_path_reading(file->mapping, i, path, sizeof(path)); i++) {
        snprintf(link, sizeof(link), "%s%s", prefix, path);
        if (path[0] == '/')
            error = try_file(file, link, path, ret_image, ret_same);
    }
    return error;
}

/* Each way to the file. *ret_image stays NULL when none leads to it. Returns 0 or -ENOMEM. */
static int open_mapped_file(const struct mapped_file *file, struct image **ret_image, enum samefile *ret_same)
{
    char root[64];
    snprintf(root, sizeof(root), "task/%d/root", (int)file->tid);
    int error = try_map_files(file, root, ret_image, ret_same);
    if (!error && !*ret_image)
        error = try_paths(file, root, ret_image, ret_same);
    /* Of a process with another root in our mounts, maps shows the path from our root. */
    if (!error && !*ret_image)
        error = try_paths(file, "", ret_image, ret_same);
    if (!error && !*ret_image) {
        char link[64];
        char path[PATH_MAX];
        snprintf(link, sizeof(link), "task/%d/exe", (int)file->tid);
        mapping_path(file->mapping, path, sizeof(path));
        error = try_file(file, link, path, ret_image, ret_same);
    }
    return error;
}

static uint64_t head_hash(const struct mapped_file *file)
{
    uint8_t page[4096] = {0};
    const struct mapping *mapping = file->mapping;
    /* Only of an ELF file: other memory with a name is written to as the program likes. */
    if (file->base &&
        (fileio_pread(file->mem_fd, page, sizeof(page), file->base->start_avma) != (ssize_t)sizeof(page) ||
         memcmp(page, ELFMAG, SELFMAG) != 0))
        memset(page, 0, sizeof(page));
    return hash_pair(hash_bytes(page, sizeof(page)), hash_bytes(mapping->path, mapping->path_size)) | 1;
}

/* The newest image of this file, 0 for none: one that could not be opened at first may have been later. */
static uint32_t find_file(const struct images *images, const struct mapped_file *file)
{
    uint64_t hash = 0;
    for (size_t i = images->count; i-- > 0;) {
        const struct known_image *known = &images->items[i];
        if (known->inode != file->mapping->inode || known->dev != file->mapping->dev)
            continue;
        if (known->head_hash && !hash)
            hash = head_hash(file);
        if (!known->head_hash || known->head_hash == hash)
            return (uint32_t)(i + 1);
    }
    return 0;
}

/* From memory; *ret_image stays NULL when that does not give an ELF image either. */
static int open_from_memory(const struct mapped_file *file, const char *path, struct image **ret_image)
{
    struct image *image = NULL;
    int error = file->base ? memimage_open(file->mem_fd, file->base, path, &image) : -ENODATA;
    if (!error && image_kind(image) != IMAGE_ELF) {
        image_free(image);
        error = -ENODATA;
    }
    if (!error)
        *ret_image = image;
    return error == -ENOMEM ? error : 0;
}

int images_add_file(struct images *images, const struct mapped_file *file, uint32_t *ret_number)
{
    uint32_t number = find_file(images, file);
    const struct image *image = images_get(images, number);
    bool is_retry = image && image_kind(image) == IMAGE_UNREADABLE;
    uint64_t now_ns = is_retry ? clock_now_ns() : 0;
    if (image && (!is_retry || now_ns - images->items[number - 1].tried_ns < RETRY_NS)) {
        *ret_number = number;
        return 0;
    }
    struct known_image known = {.dev = file->mapping->dev, .inode = file->mapping->inode};
    enum samefile same = SAMEFILE_NO;
    char path[PATH_MAX];
    mapping_path(file->mapping, path, sizeof(path));
    int error = open_mapped_file(file, &known.image, &same);
    if (!error && !known.image)
        error = open_from_memory(file, path, &known.image);
    if (!error && !known.image) {
        if (is_retry) {
            images->items[number - 1].tried_ns = now_ns;
            *ret_number = number;
            return 0;
        }
        known.tried_ns = clock_now_ns();
        error = image_open(-1, path, &known.image);
    }
    if (!error && same != SAMEFILE_NUMBERS)
        known.head_hash = head_hash(file);
    return error ? error : images_push(images, &known, ret_number);
}

/* ---- the vDSO ---- */

int images_add_vdso(struct images *images, int mem_fd, const struct mapping *mapping, uint32_t *ret_number)
{
    size_t size = mapping->end_avma - mapping->start_avma;
    uint8_t *bytes = size <= VDSO_LIMIT_BYTES ? calloc(1, size) : NULL;
    if (!bytes)
        return size <= VDSO_LIMIT_BYTES ? -ENOMEM : -EFBIG;
    ssize_t got = fileio_pread(mem_fd, bytes, size, mapping->start_avma);
    if (got != (ssize_t)size)
        memset(bytes, 0, size); /* an image without content: named "[vdso]" all the same */
    struct known_image known = {.content_hash = hash_bytes(bytes, size) | 1};
    for (size_t i = 0; i < images->count; i++) {
        size_t other_size;
        const void *other = images->items[i].content_hash == known.content_hash
                                ? image_memory(images->items[i].image, &other_size)
                                : NULL;
        if (other && other_size == size && memcmp(other, bytes, size) == 0) {
            free(bytes);
            *ret_number = (uint32_t)(i + 1);
            return 0;
        }
    }
    int error = image_open_memory(bytes, size, "[vdso]", &known.image);
    return error ? error : images_push(images, &known, ret_number);
}
