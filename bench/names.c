/*
 * names FILE [--no-inlines] [--lines] [--quiet]: reads addresses of that ELF file as its linker gave them (hexadecimal,
 * one a line, in any order) and prints for each what the sampler's symbolizer says of it, innermost first:
 * "address function|file:line" and for the functions around an inlined one " function|file:line" each; then how long
 * that took and the most memory it had, on standard error.
 */
#include "common/clock.h"
#include "common/fileio.h"
#include "symbolize/symbolize.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { ADDRESSES_MAX = 1 << 20 };

struct asked {
    uint64_t svma;
    uint64_t off;
};

struct answers {
    const struct asked *asked;
    size_t named;
    size_t inlined;
    bool quiet;
};

static int compare(const void *left, const void *right)
{
    const struct asked *a = left;
    const struct asked *b = right;
    return (a->off > b->off) - (a->off < b->off);
}

static int take(void *context, size_t index, const struct called *called, size_t count)
{
    struct answers *answers = context;
    answers->named += count > 0;
    answers->inlined += count > 1 ? count - 1 : 0;
    if (answers->quiet)
        return 0;
    printf("%" PRIx64, answers->asked[index].svma);
    for (size_t i = count; i-- > 0;)
        printf("\t%s|%s:%u", called[i].function, called[i].file ? called[i].file : "??", called[i].line);
    printf(count ? "\n" : "\t??|??:0\n");
    return 0;
}

static void warn(void *context, const char *text)
{
    (void)context;
    fprintf(stderr, "%s\n", text);
}

static size_t read_asked(const struct image *image, struct asked *asked)
{
    char line[64];
    size_t count = 0;
    while (count < ADDRESSES_MAX && fgets(line, sizeof(line), stdin)) {
        asked[count].svma = strtoull(line, NULL, 16);
        count += image_svma_to_off(image, asked[count].svma, &asked[count].off);
    }
    qsort(asked, count, sizeof(*asked), compare);
    return count;
}

int main(int argc, char **argv)
{
    struct symbolizer_options options = {.inlines = true, .warn = warn};
    struct answers answers = {0};
    for (int i = 2; i < argc; i++) {
        options.inlines &= strcmp(argv[i], "--no-inlines") != 0;
        options.lines |= strcmp(argv[i], "--lines") == 0;
        answers.quiet |= strcmp(argv[i], "--quiet") == 0;
    }
    char *path = argc > 1 ? realpath(argv[1], NULL) : NULL;
    struct image *image;
    struct asked *asked = calloc(ADDRESSES_MAX, sizeof(*asked));
    uint64_t *offs = calloc(ADDRESSES_MAX, sizeof(*offs));
    if (!path || !asked || !offs || image_open(fileio_open_regular(AT_FDCWD, path), path, &image) ||
        image_kind(image) != IMAGE_ELF) {
        fprintf(stderr, "usage: names FILE [--no-inlines] [--lines] [--quiet]\n");
        return 2;
    }
    size_t count = read_asked(image, asked);
    for (size_t i = 0; i < count; i++)
        offs[i] = asked[i].off;
    answers.asked = asked;
    struct symbolizer *symbolizer = symbolizer_new(&options);
    uint64_t before_ns = clock_now_ns();
    int error = symbolizer ? symbolizer_resolve(symbolizer, image, offs, count, take, &answers) : -1;
    uint64_t after_ns = clock_now_ns();
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    fprintf(stderr, "%zu addresses, %zu named, %zu inlined, %.3f s, %ld MB\n", count, answers.named, answers.inlined,
            (double)(after_ns - before_ns) / 1e9, usage.ru_maxrss >> 10);
    symbolizer_free(symbolizer);
    image_free(image);
    free(offs);
    free(asked);
    free(path);
    return error ? 1 : 0;
}
