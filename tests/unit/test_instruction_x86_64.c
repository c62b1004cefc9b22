/*
 * Lengths of instructions: encodings of all forms, and all instructions of real libraries against objdump's. No byte
 * behind the given ones is read.
 */
#include "cmocka_all.h"

#include "guarded.h"
#include "unwind/instruction_x86_64.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct example {
    const char *text;
    uint8_t bytes[INSTRUCTION_BYTES_MAX];
    uint8_t length;
};

/* Written by an assembler. */
static const struct example examples[] = {
    {"push %rbp", {0x55}, 1},
    {"push %r15", {0x41, 0x57}, 2},
    {"mov %rsp,%rbp", {0x48, 0x89, 0xe5}, 3},
    {"sub $0x18,%rsp", {0x48, 0x83, 0xec, 0x18}, 4},
    {"sub $0x1000,%rsp", {0x48, 0x81, 0xec, 0, 0x10, 0, 0}, 7},
    {"lea -0x28(%rbp),%rsp", {0x48, 0x8d, 0x65, 0xd8}, 4},
    {"lea 0x10(%rsp),%rsp", {0x48, 0x8d, 0x64, 0x24, 0x10}, 5},
    {"lea 0x0(,%rax,8),%rcx", {0x48, 0x8d, 0x0c, 0xc5, 0, 0, 0, 0}, 8},
    {"mov 0x1234(%rip),%rax", {0x48, 0x8b, 0x05, 0x34, 0x12, 0, 0}, 7},
    {"mov %fs:0x28,%rax", {0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0}, 9},
    {"movabs $n,%rax", {0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8}, 10},
    {"mov $n,%eax", {0xb8, 1, 0, 0, 0}, 5},
    {"mov $n,%ax", {0x66, 0xb8, 1, 0}, 4},
    {"movabs n,%al", {0xa0, 1, 2, 3, 4, 5, 6, 7, 8}, 9},
    {"addr32 mov n,%eax", {0x67, 0xa1, 1, 2, 3, 4}, 6},
    {"test $1,%al", {0xa8, 1}, 2},
    {"testb $1,(%rax)", {0xf6, 0x00, 1}, 3},
    {"neg %eax", {0xf7, 0xd8}, 2},
    {"test $n,%eax", {0xf7, 0xc0, 1, 0, 0, 0}, 6},
    {"testw $n,%ax", {0x66, 0xf7, 0xc0, 1, 0}, 5},
    {"mov %rax,n(%rsp)", {0x48, 0x89, 0x84, 0x24, 0, 1, 0, 0}, 8},
    {"movw $1,(%rax)", {0x66, 0xc7, 0x00, 1, 0}, 5},
    {"movq $1,0x8(%rax)", {0x48, 0xc7, 0x40, 8, 1, 0, 0, 0}, 8},
    {"call n", {0xe8, 1, 2, 3, 4}, 5},
    {"call *(%rax)", {0xff, 0x10}, 2},
    {"jmp n, short", {0xeb, 5}, 2},
    {"bnd jmp n", {0xf2, 0xe9, 1, 0, 0, 0}, 6},
    {"jmp *n(%rip)", {0xff, 0x25, 1, 0, 0, 0}, 6},
    {"notrack jmp *%rax", {0x3e, 0xff, 0xe0}, 3},
    {"jne n", {0x0f, 0x85, 1, 0, 0, 0}, 6},
    {"ret $8", {0xc2, 8, 0}, 3},
    {"enter $16,$1", {0xc8, 16, 0, 1}, 4},
    {"imul $n,%rax,%rcx", {0x48, 0x69, 0xc8, 1, 0, 0, 0}, 7},
    {"endbr64", {0xf3, 0x0f, 0x1e, 0xfa}, 4},
    {"syscall", {0x0f, 0x05}, 2},
    {"ud2", {0x0f, 0x0b}, 2},
    {"nopw %cs:0x0(%rax,%rax,1)", {0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0}, 10},
    {"data16 lea n(%rip),%rdi", {0x66, 0x48, 0x8d, 0x3d, 1, 0, 0, 0}, 8},
    {"data16 data16 rex.W call n", {0x66, 0x66, 0x48, 0xe8, 1, 0, 0, 0}, 8},
    {"lock cmpxchg %edx,(%rdi)", {0xf0, 0x0f, 0xb1, 0x17}, 4},
    {"pshufd $n,%xmm0,%xmm1", {0x66, 0x0f, 0x70, 0xc8, 1}, 5},
    {"shufps $n,%xmm0,%xmm1", {0x0f, 0xc6, 0xc8, 1}, 4},
    {"psrldq $8,%xmm0", {0x66, 0x0f, 0x73, 0xd8, 8}, 5},
    {"bt $3,%rax", {0x48, 0x0f, 0xba, 0xe0, 3}, 5},
    {"shld $3,%rax,%rcx", {0x48, 0x0f, 0xa4, 0xc1, 3}, 5},
    {"pshufb %xmm0,%xmm1", {0x66, 0x0f, 0x38, 0x00, 0xc8}, 5},
    {"palignr $4,%xmm0,%xmm1", {0x66, 0x0f, 0x3a, 0x0f, 0xc8, 4}, 6},
    {"crc32q (%rax),%rcx", {0xf2, 0x48, 0x0f, 0x38, 0xf1, 0x08}, 6},
    {"xgetbv", {0x0f, 0x01, 0xd0}, 3},
    {"xbegin n", {0xc7, 0xf8, 1, 0, 0, 0}, 6},
    {"vzeroupper", {0xc5, 0xf8, 0x77}, 3},
    {"vmovdqu (%rsi),%ymm0", {0xc5, 0xfe, 0x6f, 0x06}, 4},
    {"vpshufd $n,%ymm0,%ymm1", {0xc5, 0xfd, 0x70, 0xc8, 1}, 5},
    {"vpbroadcastb %xmm0,%ymm0", {0xc4, 0xe2, 0x7d, 0x78, 0xc0}, 5},
    {"vextracti128 $1,%ymm0,%xmm1", {0xc4, 0xe3, 0x7d, 0x39, 0xc1, 1}, 6},
    {"shlx %rax,%rcx,%rdx", {0xc4, 0xe2, 0xf9, 0xf7, 0xd1}, 5},
    {"rorx $5,%rax,%rcx", {0xc4, 0xe3, 0xfb, 0xf0, 0xc8, 5}, 6},
    {"vmovdqu64 0x40(%rsi),%zmm0", {0x62, 0xf1, 0xfe, 0x48, 0x6f, 0x46, 1}, 7},
    {"vpternlogd $n,%zmm0,%zmm1,%zmm2", {0x62, 0xf3, 0x75, 0x48, 0x25, 0xd0, 0x55}, 7},
    {"vpcmpub $4,(%rdi),%ymm17,%k1", {0x62, 0xf3, 0x75, 0x20, 0x3e, 0x0f, 4}, 7},
    {"vaddph %zmm0,%zmm1,%zmm2", {0x62, 0xf5, 0x74, 0x48, 0x58, 0xd0}, 6},
    {"pop (%rax)", {0x8f, 0x00}, 2},
};

/* Opcodes that 64-bit mode does not have, and groups of instructions that are not known here. */
static const struct example unknown[] = {{"push %es", {0x06}, 1},
                                         {"aaa", {0x37}, 1},
                                         {"pusha", {0x60}, 1},
                                         {"group 82", {0x82, 0xc0, 1}, 3},
                                         {"callf", {0x9a, 0, 0, 0}, 4},
                                         {"into", {0xce}, 1},
                                         {"salc", {0xd6}, 1},
                                         {"jmpf", {0xea, 0, 0, 0}, 4},
                                         {"0f 04", {0x0f, 0x04}, 2},
                                         {"0f 24", {0x0f, 0x24, 0}, 3},
                                         {"3DNow!", {0x0f, 0x0f, 0}, 3},
                                         {"XOP", {0x8f, 0xe8, 0x78, 0xc0, 0xc1, 0}, 6},
                                         {"vmread", {0x0f, 0x78, 0}, 3},
                                         {"map 4", {0x62, 0xf4, 0x7c, 0x18, 0x01, 0xc0}, 6},
                                         {"prefixes", {0x66, 0x66, 2}, 2}};

static void test_lengths(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        const struct example *example = &examples[i];
        struct instruction instruction;
        if (!instruction_decode(example->bytes, sizeof(example->bytes), &instruction) ||
            instruction.bytes != example->length)
            fail_msg("%s", example->text);
    }
}

static void test_unknown(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        struct instruction instruction;
        if (instruction_decode(unknown[i].bytes, unknown[i].length, &instruction))
            fail_msg("%s", unknown[i].text);
    }
}

/* At the end of what can be read; and none that is cut short is one. */
static void test_bounds(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(examples) / sizeof(examples[0]); i++) {
        const struct example *example = &examples[i];
        for (size_t size = 0; size <= example->length; size++) {
            struct instruction instruction;
            struct guarded guarded = guarded_new(example->bytes, size);
            assert_non_null(guarded.bytes);
            assert_int_equal(instruction_decode(guarded.bytes, size, &instruction), size == example->length);
            guarded_free(&guarded);
        }
    }
    /* Longer than an instruction may be. */
    uint8_t prefixes[INSTRUCTION_BYTES_MAX + 1];
    memset(prefixes, 0x66, sizeof(prefixes));
    prefixes[INSTRUCTION_BYTES_MAX] = 0x90;
    struct instruction instruction;
    assert_false(instruction_decode(prefixes, sizeof(prefixes), &instruction));
    assert_true(instruction_decode(prefixes + 1, sizeof(prefixes) - 1, &instruction));
}

static void test_parts(void **state)
{
    (void)state;
    struct instruction got;
    static const uint8_t lea[] = {0x4c, 0x8d, 0x9c, 0x24, 0x00, 0xf0, 0xff, 0xff}; /* lea -0x1000(%rsp),%r11 */
    assert_true(instruction_decode(lea, sizeof(lea), &got));
    assert_int_equal(got.rex, REX_W | REX_R);
    assert_int_equal(got.reg, 3);
    assert_int_equal(got.rm, 4);
    assert_int_equal(got.sib, 0x24);
    assert_int_equal(got.displacement, -0x1000);
    static const uint8_t jump[] = {0x0f, 0x84, 0xfa, 0xff, 0xff, 0xff}; /* je to itself */
    assert_true(instruction_decode(jump, sizeof(jump), &got));
    assert_int_equal(got.map, MAP_0F);
    assert_int_equal(got.immediate, -6);
    static const uint8_t void_rex[] = {0x48, 0x66, 0x90}; /* a REX before another prefix does not count */
    assert_true(instruction_decode(void_rex, sizeof(void_rex), &got));
    assert_int_equal(got.rex, 0);
    assert_true(got.has_operand_prefix);
}

/* ---- objdump ---- */

/* The text section of a file that is loaded as it is there. */
struct text {
    uint8_t *bytes;
    uint64_t svma;
    size_t size;
};

static bool read_text(const char *path, struct text *ret)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    Elf64_Ehdr header;
    bool is_read = fd >= 0 && pread(fd, &header, sizeof(header), 0) == sizeof(header);
    for (unsigned i = 0; is_read && i < header.e_phnum; i++) {
        Elf64_Phdr segment;
        is_read =
            pread(fd, &segment, sizeof(segment), (off_t)(header.e_phoff + i * sizeof(segment))) == sizeof(segment);
        if (!is_read || segment.p_type != PT_LOAD || !(segment.p_flags & PF_X))
            continue;
        *ret = (struct text){.bytes = malloc(segment.p_filesz), .svma = segment.p_vaddr, .size = segment.p_filesz};
        is_read = ret->bytes && pread(fd, ret->bytes, ret->size, (off_t)segment.p_offset) == (ssize_t)ret->size;
        break;
    }
    close(fd);
    return is_read;
}

struct tally {
    size_t compared;
    size_t unknown;
    size_t wrong;
};

/* A line is  "   1030:\tpush   %rbp"; "\t..." stands for zeros, what is no instruction is "(bad)" or ".byte". */
static void compare_with_line(const struct text *text, uint64_t avma, uint64_t next, const char *what,
                              struct tally *tally)
{
    struct instruction instruction;
    /* It shows fwait and an instruction behind it as one. */
    if (avma >= text->svma && next <= text->svma + text->size && next - avma > 1 &&
        text->bytes[avma - text->svma] == 0x9b)
        avma++;
    if (avma < text->svma || next > text->svma + text->size || strstr(what, "(bad)") || strstr(what, ".byte"))
        return;
    tally->compared++;
    if (!instruction_decode(text->bytes + (avma - text->svma), text->size - (avma - text->svma), &instruction))
        tally->unknown++;
    else if (instruction.bytes != next - avma && tally->wrong++ < 10)
        print_message("%" PRIx64 ": %u bytes, not %" PRIu64 ": %s", avma, instruction.bytes, next - avma, what);
}

static struct tally compare_with_objdump(const char *path)
{
    char command[1024], line[512], before[512] = "";
    struct text text = {0};
    struct tally tally = {0};
    uint64_t last = 0;
    assert_true(read_text(path, &text));
    snprintf(command, sizeof(command), "objdump -d -w -j .text --no-show-raw-insn '%s'", path);
    FILE *objdump = popen(command, "re");
    assert_non_null(objdump);
    while (fgets(line, sizeof(line), objdump)) {
        uint64_t avma;
        int read = 0;
        if (sscanf(line, " %" SCNx64 ":\t%n", &avma, &read) != 1 || read == 0) {
            last = 0;
            continue;
        }
        if (last)
            compare_with_line(&text, last, avma, before, &tally);
        last = avma;
        snprintf(before, sizeof(before), "%s", line + read);
    }
    assert_int_equal(pclose(objdump), 0);
    free(text.bytes);
    return tally;
}

/* The loaded file of a library. */
static const char *library_path(const char *name)
{
    struct link_map *map;
    void *library = dlopen(name, RTLD_LAZY);
    return library && dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : NULL;
}

static void test_against_objdump(void **state)
{
    (void)state;
    /* NULL: this program. */
    static const char *const names[] = {"libc.so.6", NULL};
    if (system("objdump --version > /dev/null 2>&1") != 0) {
        print_message("no objdump here\n");
        skip();
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char self[4096] = "";
        assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
        const char *path = names[i] ? library_path(names[i]) : self;
        if (!path)
            continue;
        struct tally tally = compare_with_objdump(path);
        print_message("%s: %zu instructions, %zu of unknown length, %zu wrong\n", names[i] ? names[i] : "this program",
                      tally.compared, tally.unknown, tally.wrong);
        assert_true(tally.compared > 1000);
        assert_int_equal(tally.wrong, 0);
        assert_true(tally.unknown <= tally.compared / 10000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lengths), cmocka_unit_test(test_unknown),         cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_parts),   cmocka_unit_test(test_against_objdump),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
