/* What the reader says to files that no writer makes; what it reads of good ones is in test_snapfile.c. */
#include "cmocka_all.h"

#include "common/fileio.h"
#include "common/wire.h"
#include "sampler/snapformat.h"
#include "snapconsume.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void put_head(struct strbuf *out)
{
    strbuf_add(out, SNAP_MAGIC, SNAP_MAGIC_BYTES);
    wire_put_u32(out, SNAP_VERSION);
    wire_put_u32(out, 0);
}

static void put_chunk(struct strbuf *out, uint32_t kind, const struct strbuf *payload)
{
    wire_put_u32(out, kind);
    wire_put_sized(out, payload->data, payload->size);
}

static void put_run(struct strbuf *out, uint32_t mode, uint32_t unwind, uint64_t depth, uint64_t rate)
{
    struct strbuf run = {0};
    wire_put_u32(&run, mode);
    wire_put_u32(&run, unwind);
    wire_put_u64(&run, depth);
    wire_put_u64(&run, rate);
    put_chunk(out, SNAP_RUN, &run);
    strbuf_deinit(&run);
}

/* Numbers of 4 and 8 bytes and text, as "4:1 8:ffff s:text z:3 b:text": s has its length before it, b has not, z is so
 * many zero bytes. Hexadecimal. */
static void put_words(struct strbuf *out, const char *words)
{
    while (*words) {
        char kind = *words;
        size_t length = strcspn(words, " ");
        const char *text = words + 2;
        uint64_t number = strtoull(text, NULL, 16);
        if (kind == '4')
            wire_put_u32(out, (uint32_t)number);
        else if (kind == '8')
            wire_put_u64(out, number);
        else if (kind == 's')
            wire_put_sized(out, text, length - 2);
        else if (kind == 'b')
            strbuf_add(out, text, length - 2);
        for (; kind == 'z' && number; number--)
            strbuf_add(out, "", 1);
        words += length + (words[length] == ' ');
    }
}

#define GOOD_IMAGE  "4:3 8:0 8:0 8:0 8:0 4:0 s:name 4:0"
#define GOOD_MAP    "4:1 4:1 8:1000 8:2000 8:0 8:0 4:1 4:0 8:1000 8:2000"
#define ITEM_START  "8:1 8:1 8:0 s:name"
#define NO_REGISTER "4:0 8:0 8:0"

/* Behind image 1, space 1, map 1, reading 1 and thread 1. */
static const struct bad_chunk {
    uint32_t kind;
    const char *words;
} bad_chunks[] = {
    {SNAP_RUN, "4:0 4:0 8:1 8:1 8:0 8:0"},
    {SNAP_IMAGE, ""},
    {SNAP_IMAGE, "4:0 8:0 8:0 8:0 8:0 4:0 s:name 4:0"},
    {SNAP_IMAGE, "4:4 8:0 8:0 8:0 8:0 4:0 s:name 4:0"},
    {SNAP_IMAGE, "4:3 8:0 8:0 8:0 8:0 4:0 4:0 4:0"},              /* no name */
    {SNAP_IMAGE, "4:3 8:0 8:0 8:0 8:0 4:0 4:4 b:a z:1 b:bc 4:0"}, /* NUL in the name */
    {SNAP_IMAGE, "4:3 8:0 8:0 8:0 8:0 4:ffffffff s:name 4:0"},
    {SNAP_IMAGE, "4:3 8:0 8:0 8:0 8:0 4:41 z:41 s:name 4:0"}, /* build-id of 65 bytes */
    {SNAP_IMAGE, "4:3 8:0 8:0 8:0 8:0 4:0 4:1001 z:1001 4:0"},
    {SNAP_IMAGE, "4:2 8:0 8:0 8:0 8:0 4:0 s:name 4:0"},     /* in memory, without bytes */
    {SNAP_IMAGE, "4:3 8:0 8:0 8:0 8:0 4:0 s:name s:bytes"}, /* bytes of no image in memory */
    {SNAP_SPACE, ""},
    {SNAP_SPACE, "4:0"},
    {SNAP_SPACE, "4:80000000"},
    {SNAP_MAP, ""},
    {SNAP_MAP, "4:ffffffff 4:ffffffff"},
    {SNAP_MAP, "4:1 4:0 8:1000 8:2000 8:0 8:0 4:1 4:0 4:0"},                           /* more than they take */
    {SNAP_MAP, "4:1 4:0 8:1000 8:2000 8:0 8:0 4:2 4:0"},                               /* no such image */
    {SNAP_MAP, "4:1 4:0 8:1000 8:2000 8:0 8:0 4:1 4:4"},                               /* no such flag */
    {SNAP_MAP, "4:1 4:0 8:2000 8:2000 8:0 8:0 4:1 4:0"},                               /* empty */
    {SNAP_MAP, "4:2 4:0 8:1000 8:2000 8:0 8:0 4:1 4:0 8:1fff 8:3000 8:0 8:0 4:1 4:0"}, /* overlap */
    {SNAP_MAP, "4:2 4:0 8:5000 8:6000 8:0 8:0 4:1 4:0 8:1000 8:2000 8:0 8:0 4:1 4:0"}, /* not sorted */
    {SNAP_MAP, "4:0 4:1 8:2000 8:1000"},
    {SNAP_MAP, "4:0 4:2 8:1000 8:2000 8:1800 8:2800"},
    {SNAP_READING, ""},
    {SNAP_READING, "4:0"},
    {SNAP_READING, "4:2"},
    {SNAP_THREAD, "4:1"},
    {SNAP_THREAD, "4:1 4:0"},
    {SNAP_THREAD, "4:ffffffff 4:1"},
    {SNAP_CODE, "4:0 4:0 8:1000 4:1 z:1"},
    {SNAP_CODE, "4:2 4:0 8:1000 4:1 z:1"},
    {SNAP_CODE, "4:1 4:2 8:1000 4:1 z:1"},
    {SNAP_CODE, "4:1 4:0 8:1000 4:0"},
    {SNAP_CODE, "4:1 4:0 8:1000 4:2 z:1"},
    {SNAP_CODE, "4:1 4:1 8:1000 4:ffffffff"},
    {SNAP_CODE, "4:1 4:0 8:ffffffffffffffff 4:1 z:1"},
    {SNAP_ITEM, ""},
    {SNAP_ITEM, "4:2 4:1 4:1 4:0 " ITEM_START " " NO_REGISTER " 4:0"},
    {SNAP_ITEM, "4:1 4:2 4:1 4:0 " ITEM_START " " NO_REGISTER " 4:0"},
    {SNAP_ITEM, "4:1 4:1 4:2 4:0 " ITEM_START " " NO_REGISTER " 4:0"},
    {SNAP_ITEM, "4:0 4:1 4:1 4:0 " ITEM_START " " NO_REGISTER " 4:0"},
    {SNAP_ITEM, "4:1 4:0 4:1 4:0 " ITEM_START " " NO_REGISTER " 4:0"},
    {SNAP_ITEM, "4:1 4:1 4:0 4:0 " ITEM_START " " NO_REGISTER " 4:0"},
    {SNAP_ITEM, "4:1 4:1 4:1 4:a " ITEM_START},        /* no such failure */
    {SNAP_ITEM, "4:1 4:1 4:1 4:1 8:1 8:0 8:0 s:name"}, /* stands for no tick */
    {SNAP_ITEM, "4:1 4:1 4:1 4:1 8:1 8:100000000 8:0 s:name"},
    {SNAP_ITEM, "4:1 4:1 4:1 4:1 8:1 8:1 8:ffffffffffffffff s:name"},
    {SNAP_ITEM, "4:1 4:1 4:1 4:1 8:1 8:1 8:0 4:40 z:40"},
    {SNAP_ITEM, "4:1 4:1 4:1 4:1 8:1 8:1 8:0 4:1 z:1"},                      /* NUL in the name */
    {SNAP_ITEM, "4:1 4:1 4:1 4:0 " ITEM_START " 4:20000 8:0 8:0 8:0 4:0"},   /* register 17 */
    {SNAP_ITEM, "4:1 4:1 4:1 4:0 " ITEM_START " 4:1 8:0 8:0 4:0"},           /* its value is missing */
    {SNAP_ITEM, "4:1 4:1 4:1 4:0 " ITEM_START " 4:0 8:2 8:1 4:0"},           /* stack that ends before it starts */
    {SNAP_ITEM, "4:1 4:1 4:1 4:0 " ITEM_START " " NO_REGISTER " 4:5 z:100"}, /* five ranges */
    {SNAP_ITEM, "4:1 4:1 4:1 4:0 " ITEM_START " " NO_REGISTER " 4:1 8:0 8:0 4:2 z:1"},
    {SNAP_ITEM, "4:1 4:1 4:1 4:0 " ITEM_START " " NO_REGISTER " 4:1 8:ffffffffffffffff 8:0 4:2 z:2"},
    {SNAP_REPEAT, "4:1 8:1 8:1"}, /* cut */
    {SNAP_REPEAT, "4:0 8:1 8:1 8:0"},
    {SNAP_REPEAT, "4:2 8:1 8:1 8:0"},
    {SNAP_REPEAT, "4:1 8:1 8:0 8:0"},
    {SNAP_REPEAT, "4:1 8:1 8:100000000 8:0"},
    {SNAP_REPEAT, "4:1 8:1 8:1 8:ffffffffffffffff"},
    {SNAP_SPACE_END, "4:0"},
    {SNAP_SPACE_END, "4:2"},
    {SNAP_JIT, "4:2 s:1\n"},
    {SNAP_JIT, "4:1 s:1000"}, /* no whole line */
    {SNAP_JIT, "4:1 4:0"},
    {SNAP_TOTAL, "4:0 8:1 s:name"},
    {SNAP_TOTAL, "4:2 8:1 s:name"},
    {SNAP_TOTAL, "4:1 8:ffffffffffffffff s:name"},
    {SNAP_TOTAL, "4:1 8:1"},
    {SNAP_COUNTERS, "8:0"},
    {SNAP_COUNTERS, "8:ffffffffffffffff z:78 8:0 8:0 8:0 4:0"},
    {SNAP_COUNTERS, "z:80 8:0 8:0 8:0 4:1 4:400 8:0"}, /* bucket 1024 */
    {SNAP_COUNTERS, "z:80 8:0 8:0 8:0 4:ffffffff"},
};

static void put_prelude(struct strbuf *out)
{
    static const struct bad_chunk good[] = {{SNAP_IMAGE, GOOD_IMAGE},
                                            {SNAP_SPACE, "4:1"},
                                            {SNAP_MAP, GOOD_MAP},
                                            {SNAP_READING, "4:1"},
                                            {SNAP_THREAD, "4:1 4:1"},
                                            {SNAP_ITEM, "4:1 4:1 4:1 4:0 " ITEM_START " " NO_REGISTER " 4:0"},
                                            {0xffff, "b:of_a_later_version"}};
    put_head(out);
    put_run(out, 0, 0, 1, 1);
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct strbuf payload = {0};
        put_words(&payload, good[i].words);
        put_chunk(out, good[i].kind, &payload);
        strbuf_deinit(&payload);
    }
}

static int consume_bytes(const struct strbuf *bytes, struct consumed *ret)
{
    int fd = memfd_create("snapshots", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fileio_write(fd, bytes->data, bytes->size), 0);
    int error = consume(fd, true, ret);
    close(fd);
    return error;
}

static void test_impossible_chunks(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(bad_chunks) / sizeof(bad_chunks[0]); i++) {
        struct strbuf file = {0};
        struct strbuf payload = {0};
        struct consumed outcome;
        put_prelude(&file);
        size_t good_bytes = file.size;
        put_words(&payload, bad_chunks[i].words);
        put_chunk(&file, bad_chunks[i].kind, &payload);
        assert_int_equal(consume_bytes(&file, &outcome), 0);
        if (outcome.answer != SNAPREAD_DAMAGED || outcome.offset != good_bytes || outcome.items != 1)
            fail_msg("chunk %zu: kind %u '%s': answer %d at %llu instead of %zu, %zu items", i, bad_chunks[i].kind,
                     bad_chunks[i].words, outcome.answer, (unsigned long long)outcome.offset, good_bytes,
                     outcome.items);
        strbuf_deinit(&payload);
        strbuf_deinit(&file);
    }
}

/* Lengths of chunks that lie: more than the file has is a cut, more than a chunk may have is damage. */
static void test_chunk_lengths(void **state)
{
    (void)state;
    static const struct {
        uint32_t size;
        enum snapread_answer answer;
    } cases[] = {
        {1, SNAPREAD_CUT}, {1 << 30, SNAPREAD_CUT}, {(1 << 30) + 1, SNAPREAD_DAMAGED}, {UINT32_MAX, SNAPREAD_DAMAGED}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct strbuf file = {0};
        struct consumed outcome;
        put_prelude(&file);
        wire_put_u32(&file, SNAP_ITEM);
        wire_put_u32(&file, cases[i].size);
        assert_int_equal(consume_bytes(&file, &outcome), 0);
        assert_int_equal(outcome.answer, cases[i].answer);
        assert_int_equal(outcome.items, 1);
        strbuf_deinit(&file);
    }
}

static void expect_open(const struct strbuf *file, int wanted)
{
    struct consumed outcome;
    assert_int_equal(consume_bytes(file, &outcome), wanted);
}

static void test_beginnings(void **state)
{
    (void)state;
    static const struct {
        uint32_t mode, unwind;
        uint64_t depth, rate;
        int error;
    } runs[] = {{0, 0, 1, 1, 0},        {1, 2, 1000000, 10000, 0},  {2, 0, 1, 1, -EBADMSG},
                {0, 3, 1, 1, -EBADMSG}, {0, 0, 0, 1, -EBADMSG},     {0, 0, 1000001, 1, -EBADMSG},
                {0, 0, 1, 0, -EBADMSG}, {0, 0, 1, 10001, -EBADMSG}, {0, 0, UINT64_MAX, 1, -EBADMSG}};
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) {
        struct strbuf file = {0};
        put_head(&file);
        put_run(&file, runs[i].mode, runs[i].unwind, runs[i].depth, runs[i].rate);
        expect_open(&file, runs[i].error);
        strbuf_deinit(&file);
    }
    struct strbuf file = {0};
    put_head(&file);
    put_run(&file, 0, 0, 1, 1);
    file.data[SNAP_MAGIC_BYTES] = 1; /* without repetitions, else the same */
    expect_open(&file, 0);
    file.data[SNAP_MAGIC_BYTES] = 3;
    expect_open(&file, -ENOTSUP);
    file.data[0] = 's';
    expect_open(&file, -ENOMSG);
    strbuf_deinit(&file);
    put_head(&file);
    struct strbuf space = {0};
    wire_put_u32(&space, 1);
    put_chunk(&file, SNAP_SPACE, &space); /* no run before it */
    expect_open(&file, -EBADMSG);
    strbuf_deinit(&space);
    strbuf_deinit(&file);
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct consumed outcome;
    assert_int_equal(consume(null, false, &outcome), -ENOMSG);
    close(null);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_impossible_chunks),
        cmocka_unit_test(test_chunk_lengths),
        cmocka_unit_test(test_beginnings),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
