/* Instructions that say where the return address is, at every place of a region; and all others, which say nothing. */
#include "cmocka_all.h"

#include "unwind/inspect.h"

#include <string.h>

enum { REGION_BYTES = 256 };

static const uint64_t START = 0x400000;

/* The region's bytes; a read outside of it is a failure of the test, and one beyond `readable` fails. */
static uint8_t code[REGION_BYTES];
static size_t readable = REGION_BYTES;

static bool read_code(void *context, uint64_t avma, void *buffer, size_t size)
{
    (void)context;
    assert_true(avma >= START && avma - START <= REGION_BYTES && size <= REGION_BYTES - (avma - START));
    if (avma - START + size > readable)
        return false;
    memcpy(buffer, code + (avma - START), size);
    return true;
}

static const struct memory_reader reader = {.read = read_code};
static const struct code_region region = {.start_avma = START, .end_avma = START + REGION_BYTES};
static const struct codemap map = {.generation = 1, .regions = &region, .count = 1};
static const struct snapshot snapshot;

static bool find(size_t off, struct inspection *ret)
{
    struct view view = {.map = &map, .snapshot = &snapshot, .reader = &reader};
    return inspect_find(&view, &region, START + off, ret);
}

static bool is_sigreturn(size_t off)
{
    struct view view = {.map = &map, .snapshot = &snapshot, .reader = &reader};
    return inspect_is_sigreturn(&view, &region, START + off);
}

struct example {
    uint8_t bytes[20];
    size_t size;
    size_t pc; /* index into the bytes */
    unsigned return_words;
    bool rbp_at_sp;
};

/* Written by an assembler. */
static const struct example telling[] = {
    /* entry */
    {{0x55}, 1, 0, 0, false},                         /* push %rbp */
    {{0x55, 0x48, 0x89, 0xe5}, 4, 0, 0, false},       /* push %rbp; mov %rsp,%rbp */
    {{0xf3, 0x0f, 0x1e, 0xfa, 0x55}, 5, 0, 0, false}, /* endbr64; push %rbp */
    {{0xf3, 0x0f, 0x1e, 0xfa, 0x55}, 5, 4, 0, false}, /* at the push */
    /* behind the push, in both encodings */
    {{0x55, 0x48, 0x89, 0xe5}, 4, 1, 1, false},
    {{0x55, 0x48, 0x8b, 0xec}, 4, 1, 1, false},
    {{0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5}, 8, 5, 1, false},
    /* ret, in all forms */
    {{0xc3}, 1, 0, 0, false},
    {{0xf3, 0xc3}, 2, 0, 0, false}, /* rep ret */
    {{0xc2, 0x10, 0x00}, 3, 0, 0, false},
    /* before a ret */
    {{0x5d, 0xc3}, 2, 0, 1, true},
    {{0x5d, 0xf3, 0xc3}, 3, 0, 1, true},
    {{0x5d, 0xc2, 0x10, 0x00}, 4, 0, 1, true},
    {{0x5d, 0xc3}, 2, 1, 0, false},
    {{0xc9, 0xc3}, 2, 1, 0, false}, /* leave; ret: at the ret */
    /* entry of a HotSpot method: mov %eax,-0x14000(%rsp); push %rbp; mov %rsp,%rbp */
    {{0x89, 0x84, 0x24, 0x00, 0xc0, 0xfe, 0xff, 0x55, 0x48, 0x89, 0xe5}, 11, 0, 0, false},
    {{0x89, 0x84, 0x24, 0x00, 0xc0, 0xfe, 0xff, 0x55, 0x48, 0x89, 0xe5}, 11, 7, 0, false},
    {{0x89, 0x84, 0x24, 0x00, 0xc0, 0xfe, 0xff, 0x55, 0x48, 0x89, 0xe5}, 11, 8, 1, false},
    /* its end: pop %rbp; cmp 0x358(%r15),%rsp; ja; ret */
    {{0x5d, 0x49, 0x3b, 0xa7, 0x58, 0x03, 0, 0, 0x0f, 0x87, 0x01, 0x02, 0, 0, 0xc3}, 15, 0, 1, true},
    {{0x5d, 0x49, 0x3b, 0xa7, 0x58, 0x03, 0, 0, 0x0f, 0x87, 0x01, 0x02, 0, 0, 0xc3}, 15, 1, 0, false},
    {{0x5d, 0x49, 0x3b, 0xa7, 0x58, 0x03, 0, 0, 0x0f, 0x87, 0x01, 0x02, 0, 0, 0xc3}, 15, 8, 0, false},
    {{0x5d, 0x49, 0x3b, 0xa7, 0x58, 0x03, 0, 0, 0x0f, 0x87, 0x01, 0x02, 0, 0, 0xc3}, 15, 14, 0, false},
    {{0x0f, 0x87, 0x01, 0x02, 0x00, 0x00, 0xc3}, 7, 0, 0, false}, /* ja; ret alone */
    {{0x5d, 0x0f, 0x87, 0x01, 0x02, 0x00, 0x00, 0xc3}, 8, 0, 1, true},
    /* PLT entries: jmp *slot(%rip), with bnd and endbr64 */
    {{0xff, 0x25, 0x01, 0x02, 0x03, 0x00}, 6, 0, 0, false},
    {{0xf2, 0xff, 0x25, 0x01, 0x02, 0x03, 0x00}, 7, 0, 0, false},
    {{0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x01, 0x02, 0x03, 0x00}, 10, 0, 0, false},
    {{0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x01, 0x02, 0x03, 0x00}, 11, 0, 0, false},
    {{0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0x01, 0x02, 0x03, 0x00}, 11, 4, 0, false},
    /* push $index; jmp PLT0 */
    {{0x68, 0x05, 0x00, 0x00, 0x00, 0xe9, 0xa0, 0xff, 0xff, 0xff}, 10, 0, 0, false},
    {{0x68, 0x05, 0x00, 0x00, 0x00, 0xe9, 0xa0, 0xff, 0xff, 0xff}, 10, 5, 1, false},
    /* PLT0: push link_map(%rip); jmp *resolver(%rip) */
    {{0xff, 0x35, 0x02, 0x2f, 0x00, 0x00, 0xff, 0x25, 0x04, 0x2f, 0x00, 0x00}, 12, 0, 1, false},
    {{0xff, 0x35, 0x02, 0x2f, 0x00, 0x00, 0xff, 0x25, 0x04, 0x2f, 0x00, 0x00}, 12, 6, 2, false},
    {{0xff, 0x35, 0x02, 0x2f, 0x00, 0x00, 0xf2, 0xff, 0x25, 0x04, 0x2f, 0x00, 0x00}, 13, 0, 1, false},
    {{0xff, 0x35, 0x02, 0x2f, 0x00, 0x00, 0xf2, 0xff, 0x25, 0x04, 0x2f, 0x00, 0x00}, 13, 6, 2, false},
};

/* The example at `off`, everything else filled with `filler`. */
static void lay_out(const struct example *example, size_t off, uint8_t filler)
{
    memset(code, filler, sizeof(code));
    memcpy(code + off, example->bytes, example->size);
}

/* From the first byte of the region to the last, among nops and among zeros. */
static void instructions_tell_wherever_they_stand(void **state)
{
    (void)state;
    static const uint8_t fillers[] = {0x90, 0x00};
    for (size_t i = 0; i < sizeof(telling) / sizeof(telling[0]); i++) {
        const struct example *example = &telling[i];
        for (size_t off = 0; off + example->size <= REGION_BYTES; off++) {
            lay_out(example, off, fillers[off % 2]);
            struct inspection inspection = {.return_words = 99};
            if (!find(off + example->pc, &inspection) || inspection.return_words != example->return_words ||
                inspection.rbp_at_sp != example->rbp_at_sp)
                fail_msg("example %zu at +%zu: %u words", i, off, inspection.return_words);
        }
    }
}

static const struct example silent[] = {
    {{0x48, 0x8b, 0x42, 0x58}, 4, 0, 0, false},       /* mov 0x58(%rdx),%rax */
    {{0x48, 0x8b, 0x42, 0x5d, 0xc3}, 5, 0, 0, false}, /* mov 0x5d(%rdx),%rax; ret */
    {{0x48, 0x8b, 0x42, 0x55, 0x90}, 5, 4, 0, false}, /* behind what looks like a push */
    {{0x90}, 1, 0, 0, false},
    {{0xcc}, 1, 0, 0, false},
    {{0xe8, 0x00, 0x00, 0x00, 0x00}, 5, 0, 0, false}, /* call */
    {{0xe9, 0x00, 0x00, 0x00, 0x00}, 5, 0, 0, false}, /* jmp: perhaps a tail call, perhaps not */
    {{0xeb, 0xfe}, 2, 0, 0, false},
    {{0xff, 0xe0}, 2, 0, 0, false},                         /* jmp *%rax */
    {{0xff, 0x24, 0xc5, 0, 0, 0, 0}, 7, 0, 0, false},       /* jmp *table(,%rax,8) */
    {{0xff, 0x15, 0, 0, 0, 0}, 6, 0, 0, false},             /* call *slot(%rip) */
    {{0xff, 0x35, 0, 0, 0, 0}, 6, 0, 0, false},             /* push slot(%rip) */
    {{0xff, 0x35, 0, 0, 0, 0, 0xff, 0x15}, 8, 0, 0, false}, /* push slot(%rip); call */
    {{0x68, 0x05, 0x00, 0x00, 0x00, 0xe8}, 6, 0, 0, false}, /* push $5; call */
    {{0x68, 0x05, 0x00, 0x00, 0x00, 0x90}, 6, 0, 0, false},
    {{0x5b, 0xc3}, 2, 0, 0, false},       /* pop %rbx; ret */
    {{0x41, 0x5d, 0xc3}, 3, 0, 0, false}, /* pop %r13; ret */
    {{0x5d, 0x5b, 0xc3}, 3, 0, 0, false}, /* pop %rbp; pop %rbx; ret */
    {{0x5d, 0x41, 0x5c}, 3, 0, 0, false},
    {{0xc9, 0xc3}, 2, 0, 0, false},       /* leave; ret: rbp tells */
    {{0x53}, 1, 0, 0, false},             /* push %rbx */
    {{0x41, 0x55}, 2, 0, 0, false},       /* push %r13 */
    {{0x48, 0x89, 0xe5}, 3, 0, 0, false}, /* mov %rsp,%rbp, not behind a push */
    {{0x48, 0x8b, 0xec}, 3, 0, 0, false},
    {{0x55, 0x48, 0x89, 0xec}, 4, 1, 0, false}, /* mov %rbp,%rsp */
    {{0x55, 0x48, 0x8d, 0x6c, 0x24}, 5, 1, 0, false},
    {{0x55, 0x48, 0x89, 0xe5, 0x53}, 5, 4, 0, false},       /* the record is complete */
    {{0xf3, 0x0f, 0x1e, 0xfa}, 4, 0, 0, false},             /* endbr64 alone */
    {{0xf3, 0x0f, 0x1e, 0xfb, 0x55}, 5, 0, 0, false},       /* endbr32 */
    {{0xf3, 0x0f, 0x1e, 0xfa, 0x53}, 5, 0, 0, false},       /* endbr64; push %rbx */
    {{0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0xe0}, 6, 0, 0, false}, /* endbr64; jmp *%rax */
    {{0xf3, 0xa4}, 2, 0, 0, false},                         /* rep movsb */
    {{0xcb}, 1, 0, 0, false},                               /* far ret */
    {{0x48, 0xcf}, 2, 0, 0, false},                         /* iretq */
    /* like a HotSpot method's entry: another displacement, size, register, direction; no push behind */
    {{0x89, 0x44, 0x24, 0xf8, 0x55}, 5, 0, 0, false},
    {{0x89, 0x04, 0x24, 0x55}, 4, 0, 0, false},
    {{0x48, 0x89, 0x84, 0x24, 0x00, 0xc0, 0xfe, 0xff, 0x55}, 9, 0, 0, false},
    {{0x89, 0x84, 0x25, 0x00, 0xc0, 0xfe, 0xff, 0x55}, 8, 0, 0, false},
    {{0x8b, 0x84, 0x24, 0x00, 0xc0, 0xfe, 0xff, 0x55}, 8, 0, 0, false},
    {{0x89, 0x84, 0x24, 0x00, 0xc0, 0xfe, 0xff, 0x53}, 8, 0, 0, false},
    {{0x89, 0x84, 0x24, 0x00, 0xc0, 0xfe, 0xff, 0x41, 0x55}, 9, 0, 0, false},
    /* like its end: another displacement, registers, jump; no jump, no ret behind */
    {{0x49, 0x3b, 0x67, 0x58, 0x0f, 0x87, 0x01, 0x02, 0, 0, 0xc3}, 11, 0, 0, false},
    {{0x49, 0x3b, 0x27, 0x0f, 0x87, 0x01, 0x02, 0, 0, 0xc3}, 10, 0, 0, false},
    {{0x49, 0x3b, 0xa6, 0x58, 0x03, 0, 0, 0x0f, 0x87, 0x01, 0x02, 0, 0, 0xc3}, 14, 0, 0, false},
    {{0x48, 0x3b, 0xa7, 0x58, 0x03, 0, 0, 0x0f, 0x87, 0x01, 0x02, 0, 0, 0xc3}, 14, 0, 0, false},
    {{0x4d, 0x3b, 0xa7, 0x58, 0x03, 0, 0, 0x0f, 0x87, 0x01, 0x02, 0, 0, 0xc3}, 14, 0, 0, false},
    {{0x49, 0x3b, 0xa7, 0x58, 0x03, 0, 0, 0x77, 0x05, 0xc3}, 10, 0, 0, false},
    {{0x49, 0x3b, 0xa7, 0x58, 0x03, 0, 0, 0x0f, 0x82, 0x01, 0x02, 0, 0, 0xc3}, 14, 0, 0, false},
    {{0x49, 0x3b, 0xa7, 0x58, 0x03, 0, 0, 0xc3}, 8, 0, 0, false},
    {{0x49, 0x3b, 0xa7, 0x58, 0x03, 0, 0, 0x0f, 0x87, 0x01, 0x02, 0, 0, 0x90}, 14, 0, 0, false},
    {{0x5d, 0x49, 0x3b, 0xa7, 0x58, 0x03, 0, 0, 0x0f, 0x87, 0x01, 0x02, 0, 0, 0x90}, 15, 0, 0, false},
    {{0x5d, 0x49, 0x3b, 0xa7, 0x58, 0x03, 0, 0, 0xc3}, 9, 0, 0, false},
    {{0x0f, 0x87, 0x01, 0x02, 0, 0, 0x90, 0xc3}, 8, 0, 0, false},
    {{0x0f, 0x86, 0x01, 0x02, 0, 0, 0xc3}, 7, 0, 0, false},
    {{0x77, 0x05, 0xc3}, 3, 0, 0, false},
};

static void other_instructions_say_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(silent) / sizeof(silent[0]); i++) {
        const struct example *example = &silent[i];
        for (size_t off = 0; off + example->size <= REGION_BYTES; off++) {
            lay_out(example, off, 0x90);
            struct inspection inspection = {.return_words = 99};
            if (find(off + example->pc, &inspection) || inspection.return_words != 99)
                fail_msg("example %zu at +%zu: %u words", i, off, inspection.return_words);
        }
    }
}

/* An instruction whose last byte the region does not have is none, and what stands before its first byte is not seen.
 */
static void what_the_edge_of_a_region_cuts_says_nothing(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(telling) / sizeof(telling[0]); i++) {
        const struct example *example = &telling[i];
        struct inspection inspection;
        /* From the pc's own instruction backwards: the bytes before are outside. */
        memset(code, 0x90, sizeof(code));
        size_t rest = example->size - example->pc;
        memcpy(code, example->bytes + example->pc, rest);
        bool needs_before = example->return_words > 0 && example->pc > 0;
        struct inspection alone = {.return_words = 99};
        bool found = find(0, &alone);
        if (needs_before)
            assert_true(!found || alone.return_words < example->return_words);
        else
            assert_true(found);
        /* Only the first byte of an instruction of two or more is there. */
        memset(code, 0x90, sizeof(code));
        code[REGION_BYTES - 1] = example->bytes[example->pc];
        found = find(REGION_BYTES - 1, &inspection);
        bool is_one_byte = example->bytes[example->pc] == 0x55 || example->bytes[example->pc] == 0xc3;
        bool is_ret_n = example->bytes[example->pc] == 0xc2; /* its operand is not looked at */
        assert_int_equal(found, is_one_byte || is_ret_n);
    }
}

/*
 * Bytes of which all are needed: with all of them they tell, at the region's end as well as
 * where only what a segment has can be read; with one less it is not.
 */
static void the_end_of_a_segment_cuts_as_well(void **state)
{
    (void)state;
    static const struct {
        uint8_t bytes[16];
        size_t size;
    } whole[] = {
        {{0x55}, 1},
        {{0xc3}, 1},
        {{0x5d, 0xc3}, 2},
        {{0xf3, 0xc3}, 2},
        {{0xf3, 0x0f, 0x1e, 0xfa, 0x55}, 5},
        {{0x89, 0x84, 0x24, 0x00, 0xc0, 0xfe, 0xff, 0x55}, 8},
        {{0x5d, 0x49, 0x3b, 0xa7, 0x58, 0x03, 0, 0, 0x0f, 0x87, 0x01, 0x02, 0, 0, 0xc3}, 15},
        {{0x49, 0x3b, 0xa7, 0x58, 0x03, 0, 0, 0x0f, 0x87, 0x01, 0x02, 0, 0, 0xc3}, 14},
        {{0x0f, 0x87, 0x01, 0x02, 0, 0, 0xc3}, 7},
    };
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        for (size_t behind = 0; behind <= 20; behind++) {
            /* Some bytes of the page follow the segment; what they hold is not for us to know. */
            size_t end = REGION_BYTES - behind;
            memset(code, 0x90, sizeof(code));
            memcpy(code + end - whole[i].size, whole[i].bytes, whole[i].size);
            struct inspection inspection;
            readable = end;
            bool is_found = find(end - whole[i].size, &inspection);
            readable = end - 1;
            bool is_found_cut = find(end - whole[i].size, &inspection);
            readable = REGION_BYTES;
            if (!is_found || is_found_cut)
                fail_msg("example %zu, %zu bytes behind it", i, behind);
        }
    }
}

static void outside_of_the_region_nothing_is_said(void **state)
{
    (void)state;
    memset(code, 0xc3, sizeof(code));
    struct inspection inspection;
    assert_true(find(0, &inspection));
    assert_true(find(REGION_BYTES - 1, &inspection));
    assert_false(find(REGION_BYTES, &inspection));
    assert_false(is_sigreturn(REGION_BYTES));
    /* Nor where the code cannot be read. */
    struct view view = {.map = &map, .snapshot = &snapshot};
    assert_false(inspect_find(&view, &region, START, &inspection));
    assert_false(inspect_is_sigreturn(&view, &region, START));
}

/* ---- sigreturn ---- */

static const uint8_t wide[] = {0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};
static const uint8_t narrow[] = {0xb8, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05};

static void assert_sigreturn(const uint8_t *bytes, size_t size)
{
    for (size_t off = 0; off + size <= REGION_BYTES; off++) {
        memset(code, off % 2 ? 0x90 : 0, sizeof(code));
        memcpy(code + off, bytes, size);
        for (size_t at = 0; at < size; at++) {
            /* At its two instructions, and nowhere between. */
            bool is_start = at == 0 || at == size - 2;
            if (is_sigreturn(off + at) != is_start)
                fail_msg("+%zu of %zu bytes at +%zu", at, size, off);
        }
        assert_false(off + size < REGION_BYTES && is_sigreturn(off + size));
    }
}

static void knows_where_a_signal_handler_returns_to(void **state)
{
    (void)state;
    assert_sigreturn(wide, sizeof(wide));
    assert_sigreturn(narrow, sizeof(narrow));
}

/* Each byte counts. */
static void other_system_calls_are_none(void **state)
{
    (void)state;
    for (unsigned form = 0; form < 2; form++) {
        const uint8_t *bytes = form ? wide : narrow;
        size_t size = form ? sizeof(wide) : sizeof(narrow);
        for (size_t at = 0; at < size; at++) {
            memset(code, 0x90, sizeof(code));
            memcpy(code + 100, bytes, size);
            code[100 + at] ^= 1;
            if (is_sigreturn(100) || is_sigreturn(100 + size - 2))
                fail_msg("form %u without byte %zu", form, at);
        }
        /* Cut by either edge of the region. */
        memset(code, 0x90, sizeof(code));
        memcpy(code, bytes + 1, size - 1);
        assert_false(is_sigreturn(size - 3));
        memcpy(code + REGION_BYTES - size + 1, bytes, size - 1);
        assert_false(is_sigreturn(REGION_BYTES - size + 1));
    }
}

/* ---- the end of a thread ---- */

static bool is_thread_end(size_t off)
{
    struct view view = {.map = &map, .snapshot = &snapshot, .reader = &reader};
    return inspect_is_thread_end(&view, &region, START + off);
}

static void the_system_call_exit_ends_a_thread(void **state)
{
    (void)state;
    static const uint8_t forms[][7] = {{0xb0, 0x3c, 0x0f, 0x05}, {0xb8, 0x3c, 0x00, 0x00, 0x00, 0x0f, 0x05}};
    static const size_t sizes[] = {4, 7};
    enum { LOOK_BYTES = 9 };
    for (size_t form = 0; form < 2; form++) {
        for (size_t off = 0; off + sizes[form] <= REGION_BYTES; off++) {
            memset(code, 0x90, sizeof(code));
            memcpy(code + off, forms[form], sizes[form]);
            /* From a few instructions before it, and no more. */
            for (size_t before = 0; before <= off && before <= LOOK_BYTES + 3; before++) {
                if (is_thread_end(off - before) != (before <= LOOK_BYTES))
                    fail_msg("form %zu at +%zu, %zu before", form, off, before);
            }
            assert_false(off + 1 < REGION_BYTES && is_thread_end(off + 1));
        }
        for (size_t at = 0; at < sizes[form]; at++) {
            memset(code, 0x90, sizeof(code));
            memcpy(code + 100, forms[form], sizes[form]);
            code[100 + at] ^= 1;
            assert_false(is_thread_end(100));
        }
        /* Without its last byte. */
        memset(code, 0x90, sizeof(code));
        memcpy(code + REGION_BYTES - sizes[form] + 1, forms[form], sizes[form] - 1);
        assert_false(is_thread_end(REGION_BYTES - sizes[form] + 1));
    }
}

/* int3; nop; call goexit1; nop: the return address is that of the call. */
static void goexit_ends_a_goroutine(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0xcc, 0x90, 0xe8, 0x11, 0x22, 0x33, 0x00, 0x90};
    for (size_t off = 0; off + sizeof(bytes) <= REGION_BYTES; off++) {
        memset(code, 0, sizeof(code));
        memcpy(code + off, bytes, sizeof(bytes));
        for (size_t at = 0; at < sizeof(bytes); at++)
            assert_int_equal(is_thread_end(off + at), at == 2);
    }
    memset(code, 0x90, sizeof(code));
    memcpy(code + REGION_BYTES - sizeof(bytes) + 1, bytes, sizeof(bytes) - 1);
    assert_false(is_thread_end(REGION_BYTES - sizeof(bytes) + 3));
    memset(code, 0x90, sizeof(code));
    memcpy(code, bytes + 1, sizeof(bytes) - 1);
    assert_false(is_thread_end(1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instructions_tell_wherever_they_stand),
        cmocka_unit_test(other_instructions_say_nothing),
        cmocka_unit_test(what_the_edge_of_a_region_cuts_says_nothing),
        cmocka_unit_test(the_end_of_a_segment_cuts_as_well),
        cmocka_unit_test(outside_of_the_region_nothing_is_said),
        cmocka_unit_test(knows_where_a_signal_handler_returns_to),
        cmocka_unit_test(other_system_calls_are_none),
        cmocka_unit_test(the_system_call_exit_ends_a_thread),
        cmocka_unit_test(goexit_ends_a_goroutine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
