#include "symbolize/debugfile.h"

#include "common/fileio.h"
#include "common/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum { CHUNK_BYTES = 1 << 18, LINK_BYTES_MAX = 4096 + 8 };

static bool has_build_id(const struct image *image, const uint8_t *build_id, size_t bytes)
{
    size_t other_bytes;
    const uint8_t *other = image_build_id(image, &other_bytes);
    return bytes > 0 && other_bytes == bytes && memcmp(other, build_id, bytes) == 0;
}

static bool is_same_file(const struct image *a, const struct image *b)
{
    struct stat x;
    struct stat y;
    return image_fd(a) >= 0 && image_fd(b) >= 0 && fstat(image_fd(a), &x) == 0 && fstat(image_fd(b), &y) == 0 &&
           x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* The ELF file at that path; NULL: there is none. */
static int open_candidate(const struct strbuf *path, struct image **ret_candidate)
{
    *ret_candidate = NULL;
    int error = strbuf_error(path);
    int fd = error ? -1 : fileio_open_regular(AT_FDCWD, path->data);
    if (fd < 0)
        return error;
    error = image_open(fd, path->data, ret_candidate);
    if (!error && image_kind(*ret_candidate) != IMAGE_ELF) {
        image_free(*ret_candidate);
        *ret_candidate = NULL;
    }
    return error;
}

static void warn_of(const struct debugfile_search *search, const struct image *image, const struct image *candidate)
{
    struct strbuf text = {0};
    strbuf_addf(&text, "%s is the debug file of another build of %s, and not used", image_path(candidate),
                image_path(image));
    if (search->warn && text.data)
        search->warn(search->context, text.data);
    strbuf_deinit(&text);
}

/* ---- by build-id ---- */

static void add_build_id_path(struct strbuf *path, const char *directory, const uint8_t *build_id, size_t bytes)
{
    strbuf_addf(path, "%s/.build-id/%02x/", directory, build_id[0]);
    for (size_t i = 1; i < bytes; i++)
        strbuf_addf(path, "%02x", build_id[i]);
    strbuf_adds(path, ".debug");
}

/* The file of that build-id; NULL: there is none. */
static int find_by_build_id(const struct debugfile_search *search, const struct image *image, const uint8_t *build_id,
                            size_t bytes, struct image **ret_debug)
{
    struct strbuf path = {0};
    struct image *candidate;
    if (bytes < 2)
        return 0;
    add_build_id_path(&path, search->directory, build_id, bytes);
    int error = open_candidate(&path, &candidate);
    strbuf_deinit(&path);
    if (!candidate || is_same_file(candidate, image)) {
        image_free(candidate);
        return error;
    }
    if (!has_build_id(candidate, build_id, bytes)) {
        warn_of(search, image, candidate);
        image_free(candidate);
        return 0;
    }
    *ret_debug = candidate;
    return 0;
}

/* ---- by link ---- */

struct link {
    char name[LINK_BYTES_MAX]; /* without a directory */
    uint32_t crc;
};

/* The section: a name, its NUL, up to three more, the CRC. */
static bool read_link(const struct image *image, struct link *ret_link)
{
    struct image_section section;
    uint8_t bytes[LINK_BYTES_MAX];
    if (!image_find_section(image, ".gnu_debuglink", &section) || section.compression != IMAGE_STORED ||
        section.bytes > sizeof(bytes) || section.bytes < 8 ||
        image_read_off(image, section.off, bytes, (size_t)section.bytes) < 0)
        return false;
    size_t name_bytes = strnlen((const char *)bytes, (size_t)section.bytes - 4);
    size_t crc_at = (name_bytes + 4) & ~(size_t)3;
    if (name_bytes == 0 || bytes[name_bytes] || crc_at > section.bytes - 4 || memchr(bytes, '/', name_bytes))
        return false;
    memcpy(ret_link->name, bytes, name_bytes + 1);
    memcpy(&ret_link->crc, bytes + crc_at, sizeof(ret_link->crc));
    return true;
}

/* The link's CRC is zlib's. */
static bool has_crc(const struct image *candidate, uint32_t wanted)
{
    uint8_t *chunk = malloc(CHUNK_BYTES);
    uint64_t size = image_size(candidate);
    uLong crc = crc32(0, NULL, 0);
    uint64_t off = 0;
    for (size_t bytes; chunk && off < size; off += bytes) {
        bytes = size - off < CHUNK_BYTES ? (size_t)(size - off) : CHUNK_BYTES;
        if (image_read_off(candidate, off, chunk, bytes) < 0)
            break;
        crc = crc32(crc, chunk, (uInt)bytes);
    }
    free(chunk);
    return off == size && crc == wanted;
}

static bool is_of(const struct image *candidate, const struct image *image, uint32_t crc)
{
    size_t bytes;
    size_t candidate_bytes;
    const uint8_t *build_id = image_build_id(image, &bytes);
    image_build_id(candidate, &candidate_bytes);
    if (bytes && candidate_bytes && !has_build_id(candidate, build_id, bytes))
        return false;
    return has_crc(candidate, crc);
}

/* The image's directory, ending in '/'; 0 when its path has none. */
static size_t directory_bytes(const char *path)
{
    const char *slash = strrchr(path, '/');
    return path[0] == '/' && slash ? (size_t)(slash - path) + 1 : 0;
}

/* The image's directory, below one of debug files. */
static void add_below(struct strbuf *path, const char *directory, const char *own, size_t own_bytes, bool as_it_is)
{
    bool is_in_usr = strncmp(own, "/usr/", 5) == 0;
    size_t skipped = 0;
    strbuf_adds(path, directory);
    if (!as_it_is) { /* /lib/x is in a file system without that link as /usr/lib/x, and the other way round */
        strbuf_adds(path, is_in_usr ? "" : "/usr");
        skipped = is_in_usr ? 4 : 0;
    }
    strbuf_add(path, own + skipped, own_bytes - skipped);
}

/* In the image's directory, in .debug there, then two in the directory of debug files. */
enum { LINK_PLACES = 4 };

static void add_link_path(struct strbuf *path, const struct debugfile_search *search, const struct image *image,
                          const char *name, int place)
{
    const char *own = image_path(image);
    size_t bytes = directory_bytes(own);
    if (place < 2) {
        strbuf_add(path, own, bytes);
        strbuf_adds(path, place ? ".debug/" : "");
    } else {
        add_below(path, search->directory, own, bytes, place == 2);
    }
    strbuf_adds(path, name);
}

/* The file in that place, if it is the image's; NULL: it is not, or there is none. */
static int find_in_place(const struct debugfile_search *search, const struct image *image, const struct link *link,
                         int place, struct image **ret_debug)
{
    struct strbuf path = {0};
    struct image *candidate = NULL;
    add_link_path(&path, search, image, link->name, place);
    int error = open_candidate(&path, &candidate);
    strbuf_deinit(&path);
    if (!candidate)
        return error;
    bool is_itself = is_same_file(candidate, image);
    if (!is_itself && is_of(candidate, image, link->crc)) {
        *ret_debug = candidate;
        return 0;
    }
    if (!is_itself)
        warn_of(search, image, candidate);
    image_free(candidate);
    return 0;
}

static int find_by_link(const struct debugfile_search *search, const struct image *image, struct image **ret_debug)
{
    struct link link;
    int error = 0;
    if (directory_bytes(image_path(image)) == 0 || !read_link(image, &link))
        return 0;
    for (int place = 0; place < LINK_PLACES && !error && !*ret_debug; place++)
        error = find_in_place(search, image, &link, place, ret_debug);
    return error;
}

/* What the server says is checked as a file here would be. Only of what lies in a file somewhere: not of the vDSO. */
static int fetch(const struct debugfile_search *search, const struct image *image, const uint8_t *build_id,
                 size_t bytes, struct image **ret_debug)
{
    struct image *candidate;
    *ret_debug = NULL;
    if (!search->debuginfod || directory_bytes(image_path(image)) == 0)
        return 0;
    int fd = debuginfod_open(search->debuginfod, build_id, bytes);
    if (fd < 0)
        return 0;
    int error = image_open(fd, image_path(image), &candidate);
    if (error)
        return error;
    if (image_kind(candidate) == IMAGE_ELF && has_build_id(candidate, build_id, bytes)) {
        *ret_debug = candidate;
        return 0;
    }
    warn_of(search, image, candidate);
    image_free(candidate);
    return 0;
}

int debugfile_find(const struct debugfile_search *search, const struct image *image, struct image **ret_debug)
{
    size_t bytes;
    const uint8_t *build_id = image_build_id(image, &bytes);
    *ret_debug = NULL;
    int error = find_by_build_id(search, image, build_id, bytes, ret_debug);
    if (!error && !*ret_debug)
        error = find_by_link(search, image, ret_debug);
    if (!error && !*ret_debug)
        error = fetch(search, image, build_id, bytes, ret_debug);
    return error;
}

int debugfile_find_alternate(const struct debugfile_search *search, const struct image *image, const char *name,
                             const uint8_t *build_id, size_t build_id_bytes, struct image **ret_alternate)
{
    struct strbuf path = {0};
    struct image *candidate;
    *ret_alternate = NULL;
    if (name[0] != '/')
        strbuf_add(&path, image_path(image), directory_bytes(image_path(image)));
    strbuf_adds(&path, name);
    int error = open_candidate(&path, &candidate);
    strbuf_deinit(&path);
    if (candidate && has_build_id(candidate, build_id, build_id_bytes)) {
        *ret_alternate = candidate;
        return 0;
    }
    image_free(candidate);
    if (!error)
        error = find_by_build_id(search, image, build_id, build_id_bytes, ret_alternate);
    if (!error && !*ret_alternate)
        error = fetch(search, image, build_id, build_id_bytes, ret_alternate);
    return error;
}
