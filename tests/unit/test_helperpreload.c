/* Into which programs the helper can be preloaded, told from their files. */
#include "cmocka_all.h"

#include "sampler/helperpreload.h"

#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char directory[64];

static const char *write_file(const char *name, const void *bytes, size_t size)
{
    static char path[128];
    snprintf(path, sizeof(path), "%s/%s", directory, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    fclose(file);
    assert_int_equal(chmod(path, 0755), 0);
    return path;
}

/* An ELF program with that dynamic linker; "": none. */
static const char *write_elf(const char *name, unsigned char class, const char *linker)
{
    struct {
        Elf64_Ehdr header;
        Elf64_Phdr program;
        char linker[64];
    } file = {.header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, class},
                         .e_machine = class == ELFCLASS64 ? EM_X86_64 : EM_386,
                         .e_phoff = sizeof(Elf64_Ehdr),
                         .e_phnum = *linker ? 1 : 0},
              .program = {.p_type = PT_INTERP, .p_offset = sizeof(Elf64_Ehdr) + sizeof(Elf64_Phdr)}};
    snprintf(file.linker, sizeof(file.linker), "%s", linker);
    file.program.p_filesz = strlen(linker) + 1;
    return write_file(name, &file, sizeof(file));
}

static void assert_refused(const char *path, const char *word)
{
    struct strbuf why = {0};
    assert_true(helperpreload_check(path, &why) < 0);
    assert_non_null(why.data);
    if (!strstr(why.data, word))
        fail_msg("no '%s' in '%s'", word, why.data);
    assert_null(strchr(why.data, '\n'));
    strbuf_deinit(&why);
}

static void assert_taken(const char *path)
{
    struct strbuf why = {0};
    assert_int_equal(helperpreload_check(path, &why), 0);
    strbuf_deinit(&why);
}

static void programs_are_told_apart(void **state)
{
    (void)state;
    assert_taken("/bin/sh");
    assert_taken("sh");
    assert_taken("no-such-program-anywhere");
    assert_taken(write_elf("glibc", ELFCLASS64, "/lib64/ld-linux-x86-64.so.2"));
    assert_refused(write_elf("static", ELFCLASS64, ""), "static");
    assert_refused(write_elf("musl", ELFCLASS64, "/lib/ld-musl-x86_64.so.1"), "ld-musl");
    assert_refused(write_elf("32", ELFCLASS32, "/lib/ld-linux.so.2"), "32-bit");
    assert_refused(write_elf("newline", ELFCLASS64, "/lib/a\nb"), "dynamic linker");
}

static void scripts_are_their_interpreters(void **state)
{
    (void)state;
    char text[256];
    char inner[128];
    snprintf(inner, sizeof(inner), "%s", write_elf("static", ELFCLASS64, ""));
    snprintf(text, sizeof(text), "#! %s -x\n", inner);
    snprintf(inner, sizeof(inner), "%s", write_file("script", text, strlen(text)));
    assert_refused(inner, "static");
    snprintf(text, sizeof(text), "#!%s\n", inner);
    assert_refused(write_file("outer", text, strlen(text)), "static");
    assert_taken(write_file("empty", "", 0));
    assert_taken(write_file("text", "echo\n", 5));
    assert_taken(write_file("only", "#!", 2));
    snprintf(text, sizeof(text), "#!%s/loop\n", directory);
    assert_taken(write_file("loop", text, strlen(text))); /* exec will say so itself */
}

static void more_rights_are_told(void **state)
{
    (void)state;
    if (getuid() != 0)
        skip();
    const char *path = write_elf("setuid", ELFCLASS64, "/lib64/ld-linux-x86-64.so.2");
    assert_int_equal(chown(path, 12345, 0), 0);
    assert_int_equal(chmod(path, 04755), 0);
    assert_refused(path, "set-uid");
}

static int make_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof(directory), "/tmp/helperpreload-XXXXXX");
    return mkdtemp(directory) ? 0 : -1;
}

static int remove_directory(void **state)
{
    static const char *const names[] = {"glibc", "static", "musl", "32",   "newline", "script",
                                        "outer", "empty",  "text", "only", "loop",    "setuid"};
    char path[128];
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", directory, names[i]);
        unlink(path);
    }
    return rmdir(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(programs_are_told_apart),
        cmocka_unit_test(scripts_are_their_interpreters),
        cmocka_unit_test(more_rights_are_told),
    };
    return cmocka_run_group_tests(tests, make_directory, remove_directory) ? 1 : 0;
}
