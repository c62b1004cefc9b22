#include "self_target.h"

#include <execinfo.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <ucontext.h>
#include <unistd.h>

/* Through the kernel: a sanitizer objects to copying a whole stack with memcpy. */
static bool read_self(void *context, uint64_t avma, void *buffer, size_t size)
{
    (void)context;
    struct iovec local = {.iov_base = buffer, .iov_len = size};
    struct iovec remote = {.iov_base = (void *)(uintptr_t)avma, .iov_len = size};
    return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == (ssize_t)size;
}

struct map_line {
    uint64_t start;
    uint64_t end;
    uint64_t off;
    bool executable;
    const char *path;
};

/* 7f0000001000-7f0000002000 r-xp 00001000 08:01 1234     /usr/lib/libc.so.6 */
static bool parse_line(char *line, struct map_line *ret)
{
    char mode[8];
    int path = 0;
    if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %" SCNx64 " %*s %*s %n", &ret->start, &ret->end, mode, &ret->off,
               &path) < 4)
        return false;
    line[strcspn(line, "\n")] = '\0';
    ret->executable = mode[2] == 'x';
    ret->path = line + path;
    return true;
}

static struct image *open_image(const struct map_line *line)
{
    struct image *image = NULL;
    if (strcmp(line->path, "[vdso]") == 0) {
        size_t size = (size_t)(line->end - line->start);
        void *bytes = malloc(size);
        if (bytes && read_self(NULL, line->start, bytes, size))
            image_open_memory(bytes, size, line->path, &image);
        else
            free(bytes);
    } else if (line->path[0] == '/') {
        image_open(open(line->path, O_RDONLY | O_CLOEXEC), line->path, &image);
    }
    return image;
}

int self_target_load(struct self_target *target)
{
    static uint64_t generation;
    memset(target, 0, sizeof(*target));
    target->reader.read = read_self;
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        return -1;
    char text[4096];
    size_t count = 0;
    while (fgets(text, sizeof(text), maps) && count < SELF_REGIONS_MAX) {
        struct map_line line;
        if (!parse_line(text, &line) || !line.executable || strcmp(line.path, "[vsyscall]") == 0)
            continue;
        struct code_region *region = &target->regions[count++];
        *region = (struct code_region){.start_avma = line.start, .end_avma = line.end, .map_off = line.off};
        struct image *image = open_image(&line);
        if (image) {
            target->images[target->image_count++] = image;
            region->image = image;
            region->has_bias = image_bias(image, line.start, line.off, true, &region->bias);
        }
    }
    fclose(maps);
    target->map = (struct codemap){.generation = ++generation, .regions = target->regions, .count = count};
    return count > 0 ? 0 : -1;
}

void self_target_unload(struct self_target *target)
{
    for (size_t i = 0; i < target->image_count; i++)
        image_free(target->images[i]);
    target->image_count = 0;
    target->map.count = 0;
}

static bool find_mapping(uint64_t avma, uint64_t *ret_start, uint64_t *ret_end)
{
    FILE *maps = fopen("/proc/self/maps", "re");
    if (!maps)
        return false;
    char text[4096];
    bool found = false;
    while (!found && fgets(text, sizeof(text), maps)) {
        struct map_line line;
        if (parse_line(text, &line) && avma >= line.start && avma < line.end) {
            *ret_start = line.start;
            *ret_end = line.end;
            found = true;
        }
    }
    fclose(maps);
    return found;
}

static void copy_stack(struct moment *moment, uint64_t avma)
{
    uint64_t start, end;
    size_t n = moment->snapshot.range_count;
    if (!find_mapping(avma, &start, &end))
        return;
    size_t size = end - avma < SELF_COPY_MAX ? (size_t)(end - avma) : SELF_COPY_MAX;
    moment->bytes[n] = malloc(size);
    if (!moment->bytes[n] || !read_self(NULL, avma, moment->bytes[n], size))
        return;
    moment->snapshot.ranges[n] = (struct memory_range){.avma = avma, .bytes = moment->bytes[n], .size = size};
    moment->snapshot.range_count++;
    if (n == 0) {
        moment->snapshot.stack_start_avma = start;
        moment->snapshot.stack_end_avma = end;
    }
}

/* A sanitizer wraps backtrace() in a frame of its own. */
static void drop_frames_below(struct moment *moment, const void *caller)
{
    size_t n = 0;
    while (n < moment->backtrace_count && moment->backtrace[n] != caller)
        n++;
    if (n < 2 || n == moment->backtrace_count)
        return;
    memmove(moment->backtrace, moment->backtrace + n - 1, (moment->backtrace_count - n + 1) * sizeof(void *));
    moment->backtrace_count -= n - 1;
}

__attribute__((noinline)) void moment_take(struct moment *moment)
{
    static const int gregs[REGISTER_COUNT] = {
        [REGISTER_RAX] = REG_RAX, [REGISTER_RDX] = REG_RDX, [REGISTER_RCX] = REG_RCX, [REGISTER_RBX] = REG_RBX,
        [REGISTER_RSI] = REG_RSI, [REGISTER_RDI] = REG_RDI, [REGISTER_RBP] = REG_RBP, [REGISTER_RSP] = REG_RSP,
        [REGISTER_R8] = REG_R8,   [REGISTER_R9] = REG_R9,   [REGISTER_R10] = REG_R10, [REGISTER_R11] = REG_R11,
        [REGISTER_R12] = REG_R12, [REGISTER_R13] = REG_R13, [REGISTER_R14] = REG_R14, [REGISTER_R15] = REG_R15,
        [REGISTER_PC] = REG_RIP,
    };
    uint64_t other_stack_avma = moment->other_stack_avma;
    memset(moment, 0, sizeof(*moment));
    moment->backtrace_count = (size_t)backtrace(moment->backtrace, SELF_BACKTRACE_MAX);
    drop_frames_below(moment, __builtin_return_address(0));
    ucontext_t context;
    if (getcontext(&context) != 0)
        return;
    for (unsigned reg = 0; reg < REGISTER_COUNT; reg++)
        moment->snapshot.registers.value[reg] = (uint64_t)context.uc_mcontext.gregs[gregs[reg]];
    moment->snapshot.registers.known = (1U << REGISTER_COUNT) - 1;
    copy_stack(moment, moment->snapshot.registers.value[REGISTER_RSP] - 128);
    if (other_stack_avma)
        copy_stack(moment, other_stack_avma);
}

void moment_release(struct moment *moment)
{
    free(moment->bytes[0]);
    free(moment->bytes[1]);
    moment->bytes[0] = moment->bytes[1] = NULL;
}
