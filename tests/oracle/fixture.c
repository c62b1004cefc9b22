#include "fixture.h"

#include "common/fileio.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { CODE_BEFORE = 24, CODE_BYTES = 48, WORDS_BEFORE = 4, WORDS = 20, LINE_BYTES = 32, STACK_SLACK_BYTES = 1024 };

static const char *const register_names[REGISTER_COUNT] = {"rax", "rdx", "rcx", "rbx", "rsi", "rdi", "rbp", "rsp", "r8",
                                                           "r9",  "r10", "r11", "r12", "r13", "r14", "r15", "pc"};

static void add_bytes(struct strbuf *text, const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++)
        strbuf_addf(text, "%02x", bytes[i]);
}

static void add_code(const struct target *target, uint64_t avma, struct strbuf *text)
{
    uint8_t bytes[CODE_BYTES];
    if (!target_read(target, avma - CODE_BEFORE, bytes, sizeof(bytes)))
        return;
    strbuf_adds(text, " ");
    add_bytes(text, bytes, CODE_BEFORE);
    strbuf_adds(text, "|");
    add_bytes(text, bytes + CODE_BEFORE, CODE_BYTES - CODE_BEFORE);
}

static void add_answer(const struct target *target, const char *who, const struct trace *trace, size_t at,
                       struct strbuf *text)
{
    char place[128];
    strbuf_addf(text, "  %-9s", who);
    if (at >= trace->count) {
        strbuf_addf(text, " ends: %s%s\n", trace->end, trace->at_root ? "" : " (not the root)");
        return;
    }
    const struct trace_frame *frame = &trace->frames[at];
    strbuf_addf(text, " %016" PRIx64 " %s%s%s; %zu frames, then %s\n", frame->avma,
                target_place(target, frame->avma, place, sizeof(place)),
                frame->by == FRAME_BY_FP ? " by frame pointer" : "", frame->by == FRAME_BY_CFI ? " by cfi" : "",
                trace->count, trace->end);
}

static void add_words(const struct comparison *comparison, size_t at, struct strbuf *text)
{
    uint64_t sp = 0;
    for (int p = 0; p < PEER_COUNT && at > 0; p++)
        if (!sp && at <= comparison->peers[p]->count)
            sp = comparison->peers[p]->frames[at - 1].sp;
    if (!sp)
        return;
    strbuf_addf(text, "  stack of frame %zu, from sp %016" PRIx64 " - %d words:", at - 1, sp, WORDS_BEFORE);
    for (int i = -WORDS_BEFORE; i < WORDS - WORDS_BEFORE; i++) {
        uint64_t word;
        if (snapshot_read(&comparison->target->snapshot, sp + 8 * (uint64_t)(int64_t)i, &word, sizeof(word)))
            strbuf_addf(text, "%s%" PRIx64, i == 0 ? " | " : " ", word);
    }
    strbuf_adds(text, "\n");
}

void fixture_example(const struct comparison *comparison, size_t at, struct strbuf *ret_text)
{
    const struct target *target = comparison->target;
    const struct registers *registers = &target->snapshot.registers;
    char place[128];
    if (at > 0) {
        uint64_t avma = comparison->ours->frames[at - 1].avma;
        strbuf_addf(ret_text, "  frame %zu is %016" PRIx64 " %s, %s\n  code", at - 1, avma,
                    target_place(target, avma, place, sizeof(place)),
                    comparison->judgement.covered ? "covered by unwind information"
                                                  : "not covered by unwind information");
        add_code(target, avma, ret_text);
        strbuf_adds(ret_text, "\n");
    }
    add_answer(target, "ours", comparison->ours, at, ret_text);
    add_answer(target, "libdwfl", comparison->peers[PEER_LIBDWFL], at, ret_text);
    add_answer(target, "libunwind", comparison->peers[PEER_LIBUNWIND], at, ret_text);
    strbuf_adds(ret_text, "  registers at the stop:");
    for (int i = 0; i < REGISTER_COUNT; i++)
        strbuf_addf(ret_text, " %s=%" PRIx64, register_names[i], registers->value[i]);
    strbuf_adds(ret_text, "\n");
    add_words(comparison, at, ret_text);
}

/* ---- the file ---- */

static void add_trace(const struct target *target, const char *who, const struct trace *trace, struct strbuf *text)
{
    static const char *const by[] = {[FRAME_INNERMOST] = "", [FRAME_BY_FP] = " fp", [FRAME_BY_CFI] = " cfi"};
    char place[128];
    for (size_t i = 0; i < trace->count; i++) {
        const struct trace_frame *frame = &trace->frames[i];
        strbuf_addf(text, "%s %zx %" PRIx64 "%s%s %s\n", who, i, frame->avma, frame->exact ? " exact" : "",
                    by[frame->by], target_place(target, frame->avma, place, sizeof(place)));
    }
    strbuf_addf(text, "%s-end %s\n", who, trace->end);
}

static void add_regions(const struct codemap *map, struct strbuf *text)
{
    for (size_t i = 0; i < map->count; i++) {
        const struct code_region *region = &map->regions[i];
        strbuf_addf(text, "region %" PRIx64 " %" PRIx64 " %" PRIx64, region->start_avma, region->end_avma,
                    region->map_off);
        if (region->has_bias)
            strbuf_addf(text, " %" PRIx64, region->bias);
        else
            strbuf_adds(text, " -");
        strbuf_addf(text, " %s\n", region->image ? image_path(region->image) : "-");
    }
}

/* Up to the highest address that one of the three used, and a little more. */
static size_t stack_bytes(const struct comparison *comparison)
{
    const struct memory_range *range = &comparison->target->snapshot.ranges[0];
    uint64_t top_avma = comparison->target->stack.top_avma;
    for (int p = 0; p < PEER_COUNT; p++) {
        const struct trace *trace = comparison->peers[p];
        for (size_t i = 0; i < trace->count; i++) {
            uint64_t sp = trace->frames[i].sp;
            if (sp > top_avma && sp >= range->avma && sp - range->avma < range->size)
                top_avma = sp;
        }
    }
    uint64_t size = top_avma > range->avma ? top_avma - range->avma : 0;
    return size + STACK_SLACK_BYTES < range->size ? size + STACK_SLACK_BYTES : range->size;
}

int fixture_write(const struct comparison *comparison, const char *dir, const char *name, const char *key)
{
    const struct target *target = comparison->target;
    const struct snapshot *snapshot = &target->snapshot;
    struct strbuf text = {0};
    strbuf_addf(&text, "# %s\n", key);
    for (int i = 0; i < REGISTER_COUNT; i++)
        strbuf_addf(&text, "register %s %" PRIx64 "\n", register_names[i], snapshot->registers.value[i]);
    strbuf_addf(&text, "stack-mapping %" PRIx64 " %" PRIx64 "\n", snapshot->stack_start_avma, snapshot->stack_end_avma);
    add_regions(&target->map->code, &text);
    add_trace(target, "ours", comparison->ours, &text);
    add_trace(target, "libdwfl", comparison->peers[PEER_LIBDWFL], &text);
    add_trace(target, "libunwind", comparison->peers[PEER_LIBUNWIND], &text);
    for (size_t i = 0; i < comparison->ours->count; i++) {
        strbuf_addf(&text, "code %zx %" PRIx64, i, comparison->ours->frames[i].avma);
        add_code(target, comparison->ours->frames[i].avma, &text);
        strbuf_adds(&text, "\n");
    }
    size_t size = snapshot->range_count ? stack_bytes(comparison) : 0;
    for (size_t at = 0; at < size; at += LINE_BYTES) {
        strbuf_addf(&text, "stack %" PRIx64 " ", snapshot->ranges[0].avma + at);
        add_bytes(&text, snapshot->ranges[0].bytes + at, size - at < LINE_BYTES ? size - at : LINE_BYTES);
        strbuf_adds(&text, "\n");
    }
    int error = strbuf_error(&text);
    char path[4096];
    if (!error && snprintf(path, sizeof(path), "%s/%s", dir, name) >= (int)sizeof(path))
        error = -ENAMETOOLONG;
    autoclose int fd = error ? -1 : open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (!error)
        error = fd < 0 ? -errno : fileio_write(fd, text.data, text.size);
    strbuf_deinit(&text);
    return error;
}
