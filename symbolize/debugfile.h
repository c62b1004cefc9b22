/*
 * The separate debug file of an image: the one that was made of the same build, or none.
 *
 * By build-id: /usr/lib/debug/.build-id/xx/yyyy.debug. By .gnu_debuglink (a file name and a CRC): in the image's
 * directory, in .debug there, in /usr/lib/debug/DIRECTORY (and with or without /usr before it, for packages from before
 * directories were merged). Another directory may stand for /usr/lib/debug. A file under the build-id's name must have
 * that build-id; one under the link's name the CRC, and the build-id if both have one. Then from a server, if wanted.
 * The image itself, under whatever name, is none. Only regular files are opened.
 *
 * Formats: GDB's manual, "Debugging Information in Separate Files".
 */
#ifndef SYMBOLIZE_DEBUGFILE_H
#define SYMBOLIZE_DEBUGFILE_H

#include "symbolize/debuginfod.h"
#include "symbolize/image.h"

/* Where to look, and whom to tell. */
struct debugfile_search {
    const char *directory;                         /* "/usr/lib/debug", or another that is laid out as that. Borrowed */
    struct debuginfod *debuginfod;                 /* asked where none is found; NULL: nobody is. Borrowed */
    void (*warn)(void *context, const char *text); /* of a file of another build; may be NULL */
    void *context;
};

/* The debug file, for the caller to free; NULL: there is none. Returns 0 or -ENOMEM. */
int debugfile_find(const struct debugfile_search *search, const struct image *image, struct image **ret_debug);

/*
 * The file that has what several debug files share (dwz), which `name` and `build_id` say; `image` is the one that says
 * it. A path that is not absolute is from that one's directory.
 */
int debugfile_find_alternate(const struct debugfile_search *search, const struct image *image, const char *name,
                             const uint8_t *build_id, size_t build_id_bytes, struct image **ret_alternate);

#endif
