#include "sampler/images.h"

#include "common/array.h"
#include "common/fileio.h"
#include "common/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

/* A vDSO is two pages; a mapping that calls itself so and is huge is none of ours. */
enum { VDSO_LIMIT_BYTES = 1 << 20 };

struct known_image {
    struct image *image; /* owned */
    uint64_t dev;
    uint64_t inode;
    uint64_t content_hash; /* images from memory: of their bytes */
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

static bool is_stacked_fs(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 &&
           ((unsigned long)fs.f_type == OVERLAYFS_SUPER_MAGIC || (unsigned long)fs.f_type == BTRFS_SUPER_MAGIC);
}

int images_open_regular(int dirfd, const char *path)
{
    int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat st;
    if (fd >= 0 && (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))) {
        close(fd);
        return -1;
    }
    return fd;
}

static int open_mapped_file(int proc_fd, pid_t tid, const struct mapping *mapping, const char *path)
{
    char link[PATH_MAX + 32];
    snprintf(link, sizeof(link), "map_files/%llx-%llx", (unsigned long long)mapping->start_avma,
             (unsigned long long)mapping->end_avma);
    int fd = images_open_regular(proc_fd, link);
    if (fd >= 0)
        return fd;
    snprintf(link, sizeof(link), "task/%d/root%s", (int)tid, path);
    fd = images_open_regular(proc_fd, link);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0)
        return fd;
    /* Stacked file systems show another device, and some another inode, in maps than in stat. */
    if (st.st_ino == mapping->inode || is_stacked_fs(fd))
        return fd;
    close(fd);
    return -1;
}

/* The newest image of this file, 0 for none: one that could not be opened at first may have been later. */
static uint32_t find_file(const struct images *images, const struct mapping *mapping)
{
    for (size_t i = images->count; i-- > 0;) {
        const struct known_image *known = &images->items[i];
        if (known->inode == mapping->inode && known->dev == mapping->dev)
            return (uint32_t)(i + 1);
    }
    return 0;
}

int images_add_file(struct images *images, int proc_fd, pid_t tid, const struct mapping *mapping, uint32_t *ret_number)
{
    uint32_t number = find_file(images, mapping);
    const struct image *image = images_get(images, number);
    bool is_retry = image && image_kind(image) == IMAGE_UNREADABLE;
    if (image && !is_retry) {
        *ret_number = number;
        return 0;
    }
    char path[PATH_MAX];
    mapping_path(mapping, path, sizeof(path));
    int fd = open_mapped_file(proc_fd, tid, mapping, path);
    if (is_retry && fd < 0) {
        *ret_number = number;
        return 0;
    }
    struct known_image known = {.dev = mapping->dev, .inode = mapping->inode};
    int error = image_open(fd, path, &known.image);
    return error ? error : images_push(images, &known, ret_number);
}

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
