#include "sampler/samefile.h"

#include "common/fileio.h"
#include "sampler/memimage.h"

#include <linux/magic.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>

enum { PAGE_BYTES = 4096, PAGES_MAX = 16 };

static bool is_stacked_fs(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 &&
           ((unsigned long)fs.f_type == OVERLAYFS_SUPER_MAGIC || (unsigned long)fs.f_type == BTRFS_SUPER_MAGIC);
}

bool samefile_has_numbers(int fd, const struct mapping *mapping, bool *ret_maybe)
{
    struct stat st;
    *ret_maybe = false;
    if (fstat(fd, &st) < 0)
        return false;
    if (st.st_ino == mapping->inode && st.st_dev == mapping->dev)
        return true;
    *ret_maybe = is_stacked_fs(fd);
    return false;
}

/* The bytes of a page that lie in one segment: [*ret_svma, *ret_svma + result). */
static size_t part_in_segment(const struct image *image, uint64_t page_svma, uint64_t *ret_svma)
{
    size_t count;
    const struct image_segment *segments = image_segments(image, &count);
    for (size_t i = 0; i < count; i++) {
        uint64_t end = segments[i].svma + segments[i].file_bytes;
        uint64_t start = segments[i].svma > page_svma ? segments[i].svma : page_svma;
        if (!segments[i].executable || start - page_svma >= PAGE_BYTES || end <= start)
            continue;
        uint64_t left = PAGE_BYTES - (start - page_svma);
        *ret_svma = start;
        return end - start < left ? (size_t)(end - start) : (size_t)left;
    }
    return 0;
}

/* -1: they differ; 0: nothing to compare; 1: they are the same. */
static int compare_page(const struct image *image, int mem_fd, uint64_t page_avma, uint64_t bias)
{
    uint8_t ours[PAGE_BYTES];
    uint8_t theirs[PAGE_BYTES];
    uint64_t svma = 0;
    size_t size = part_in_segment(image, page_avma - bias, &svma);
    if (size == 0)
        return 0;
    if (image_read_svma(image, svma, ours, size) || fileio_pread(mem_fd, theirs, size, svma + bias) != (ssize_t)size)
        return -1;
    return memcmp(ours, theirs, size) == 0 ? 1 : -1;
}

bool samefile_has_code(const struct image *image, int mem_fd, uint64_t avma, uint64_t bytes, uint64_t bias)
{
    uint64_t pages = bytes / PAGE_BYTES;
    uint64_t looks = pages < PAGES_MAX ? pages : PAGES_MAX;
    bool is_same = false;
    for (uint64_t i = 0; i < looks; i++) {
        uint64_t page = looks == 1 ? 0 : i * (pages - 1) / (looks - 1);
        int answer = compare_page(image, mem_fd, avma + page * PAGE_BYTES, bias);
        if (answer < 0)
            return false;
        is_same |= answer > 0;
    }
    return is_same;
}

/* -1: one of them has no build-id. */
static int compare_build_id(const struct image *image, int mem_fd, const struct mapping *base)
{
    size_t bytes;
    size_t head_bytes;
    const uint8_t *id = image_build_id(image, &bytes);
    struct image *head;
    if (!base || bytes == 0 || memimage_open_head(mem_fd, base, &head))
        return -1;
    const uint8_t *head_id = image_build_id(head, &head_bytes);
    int answer = head_bytes == 0 ? -1 : head_bytes == bytes && memcmp(id, head_id, bytes) == 0;
    image_free(head);
    return answer;
}

bool samefile_has_other_id(const struct image *image, int mem_fd, const struct mapping *base)
{
    return compare_build_id(image, mem_fd, base) == 0;
}

enum samefile samefile_check(const struct image *image, int mem_fd, const struct mapping *mapping,
                             const struct mapping *base)
{
    bool maybe;
    uint64_t bias;
    bool has_numbers = samefile_has_numbers(image_fd(image), mapping, &maybe);
    int same_id = compare_build_id(image, mem_fd, base);
    if (same_id == 0)
        return SAMEFILE_NO;
    if (has_numbers)
        return SAMEFILE_NUMBERS;
    if (same_id == 1)
        return SAMEFILE_YES;
    if (maybe && mapping->executable && image_bias(image, mapping->start_avma, mapping->off, true, &bias) &&
        samefile_has_code(image, mem_fd, mapping->start_avma, mapping->end_avma - mapping->start_avma, bias))
        return SAMEFILE_YES;
    return SAMEFILE_NO;
}
