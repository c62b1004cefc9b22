#include "cmocka_all.h"

#include "guarded.h"
#include "unwind/callsite.h"
#include "unwind/patterns.h"

#include <stdlib.h>
#include <string.h>

struct example {
    uint8_t bytes[8];
    size_t size;
    bool call;
};

/* Each call was written by an assembler. */
static const struct example examples[] = {
    {{0xe8, 0x00, 0x00, 0x00, 0x00}, 5, true},                   /* call rel32 */
    {{0x66, 0x48, 0xe8, 0x11, 0x22, 0x33, 0x44}, 7, true},       /* data16 rex.W call, of TLS sequences */
    {{0xff, 0xd0}, 2, true},                                     /* call *%rax */
    {{0x41, 0xff, 0xd7}, 3, true},                               /* call *%r15 */
    {{0x3e, 0xff, 0xd0}, 3, true},                               /* notrack call *%rax */
    {{0xff, 0x10}, 2, true},                                     /* call *(%rax) */
    {{0x41, 0xff, 0x14, 0x24}, 4, true},                         /* call *(%r12) */
    {{0xff, 0x14, 0xc3}, 3, true},                               /* call *(%rbx,%rax,8) */
    {{0xff, 0x15, 0x01, 0x02, 0x03, 0x04}, 6, true},             /* call *0x4030201(%rip) */
    {{0xff, 0x14, 0x25, 0x01, 0x02, 0x03, 0x04}, 7, true},       /* call *0x4030201 */
    {{0xff, 0x14, 0xc5, 0x01, 0x02, 0x03, 0x04}, 7, true},       /* call *0x4030201(,%rax,8) */
    {{0xff, 0x50, 0x10}, 3, true},                               /* call *0x10(%rax) */
    {{0x41, 0xff, 0x54, 0x24, 0x10}, 5, true},                   /* call *0x10(%r12) */
    {{0xff, 0x90, 0x00, 0x01, 0x00, 0x00}, 6, true},             /* call *0x100(%rax) */
    {{0x41, 0xff, 0x94, 0x24, 0x00, 0x01, 0x00, 0x00}, 8, true}, /* call *0x100(%r12) */
    {{0xff, 0xe0}, 2, false},                                    /* jmp *%rax */
    {{0xff, 0x25, 0x01, 0x02, 0x03, 0x04}, 6, false},            /* jmp *0x4030201(%rip) */
    {{0xff, 0x30}, 2, false},                                    /* push (%rax) */
    {{0xff, 0x18}, 2, false},                                    /* lcall *(%rax) */
    {{0xe9, 0x00, 0x00, 0x00, 0x00}, 5, false},                  /* jmp rel32 */
    {{0xe8, 0x00, 0x00, 0x00}, 4, false},                        /* cut */
    {{0xff, 0x15, 0x01, 0x02, 0x03}, 5, false},                  /* cut */
    {{0xff, 0x14, 0x25}, 3, false},                              /* cut: base 5 needs a displacement */
    {{0x9a, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00}, 7, false},      /* lcall: not in 64-bit mode */
    {{0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, 7, false},      /* nop */
    {{0x48, 0x89, 0xe5}, 3, false},                              /* mov %rsp,%rbp */
    {{0xd0}, 1, false},
    {{0}, 0, false},
};

static void knows_calls_by_their_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        const struct example *example = &examples[i];
        struct guarded bytes = guarded_new(example->bytes, example->size);
        assert_non_null(bytes.bytes);
        if (patterns_end_with_call(bytes.bytes, example->size) != example->call)
            fail_msg("example %zu", i);
        guarded_free(&bytes);
    }
}

struct fake_memory {
    uint64_t avma;
    const uint8_t *bytes;
    size_t size;
    unsigned reads;
};

static bool fake_read(void *context, uint64_t avma, void *buffer, size_t size)
{
    struct fake_memory *memory = context;
    memory->reads++;
    if (avma < memory->avma || avma - memory->avma > memory->size || size > memory->size - (avma - memory->avma))
        return false;
    memcpy(buffer, memory->bytes + (avma - memory->avma), size);
    return true;
}

static void reads_anonymous_code_once(void **state)
{
    (void)state;
    static const uint8_t code[] = {0xff, 0xd0, 0x90, 0x90, 0xe8, 0, 0, 0, 0, 0xc3};
    struct fake_memory memory = {.avma = 0x5000, .bytes = code, .size = sizeof(code)};
    struct memory_reader reader = {.read = fake_read, .context = &memory};
    struct code_region region = {.start_avma = 0x5000, .end_avma = 0x6000};
    struct codemap map = {.generation = 1, .regions = &region, .count = 1};
    struct snapshot snapshot = {0};
    struct view view = {.map = &map, .snapshot = &snapshot, .reader = &reader};
    struct callsite_cache *cache = calloc(1, sizeof(*cache));
    assert_non_null(cache);

    /* Fewer bytes than the longest call before it. */
    assert_int_equal(callsite_find(cache, &view, &region, 0x5002), CALLSITE_CALL);
    assert_int_equal(callsite_find(cache, &view, &region, 0x5009), CALLSITE_CALL);
    assert_int_equal(callsite_find(cache, &view, &region, 0x500a), CALLSITE_OTHER);
    unsigned reads = memory.reads;
    assert_int_equal(callsite_find(cache, &view, &region, 0x5009), CALLSITE_CALL);
    assert_int_equal(callsite_find(cache, &view, &region, 0x500a), CALLSITE_OTHER);
    assert_int_equal(memory.reads, reads);

    /* The region is larger than what can be read. That is not remembered. */
    assert_int_equal(callsite_find(cache, &view, &region, 0x5100), CALLSITE_UNREADABLE);
    assert_int_equal(callsite_find(cache, &view, &region, 0x5100), CALLSITE_UNREADABLE);
    assert_int_equal(memory.reads, reads + 2);
    view.reader = NULL;
    assert_int_equal(callsite_find(cache, &view, &region, 0x5004), CALLSITE_UNREADABLE);
    free(cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_calls_by_their_bytes),
        cmocka_unit_test(reads_anonymous_code_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
