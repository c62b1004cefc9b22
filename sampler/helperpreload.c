#include "sampler/helperpreload.h"

#include "common/fileio.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { SCRIPT_DEPTH_MAX = 5, PROGRAM_HEADERS_MAX = 512, LINE_BYTES = 256 };

static int open_below(const char *directory, size_t length, const char *name)
{
    struct strbuf path = {0};
    strbuf_add(&path, directory, length);
    strbuf_addf(&path, "%s%s", length ? "/" : "", name);
    int fd = -1;
    if (strbuf_error(&path) == 0 && access(path.data, X_OK) == 0)
        fd = fileio_open_regular(AT_FDCWD, path.data);
    strbuf_deinit(&path);
    return fd;
}

/* Opens the file that execvp would run. -1: there is none. */
static int open_program(const char *name)
{
    const char *list = getenv("PATH");
    if (strchr(name, '/'))
        return fileio_open_regular(AT_FDCWD, name);
    if (!list)
        list = "/bin:/usr/bin";
    for (;;) {
        size_t length = strcspn(list, ":");
        int fd = open_below(list, length, name);
        list += length;
        if (fd >= 0 || !*list)
            return fd;
        list++;
    }
}

/* "#!/bin/sh -e": its program. */
static bool find_script_program(const char *text, size_t size, char *ret_name, size_t name_size)
{
    if (size < 2 || text[0] != '#' || text[1] != '!')
        return false;
    const char *start = text + 2;
    start += strspn(start, " \t");
    snprintf(ret_name, name_size, "%.*s", (int)strcspn(start, " \t\r\n"), start);
    return *ret_name != 0;
}

static bool has_more_rights(int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return false;
    return ((st.st_mode & S_ISUID) && st.st_uid != getuid()) || ((st.st_mode & S_ISGID) && st.st_gid != getgid()) ||
           (getuid() != 0 && fgetxattr(fd, "security.capability", NULL, 0) > 0);
}

static bool is_glibc_linker(const char *path)
{
    const char *name = strrchr(path, '/');
    return strcmp(name ? name + 1 : path, "ld-linux-x86-64.so.2") == 0;
}

static int check_elf(int fd, const Elf64_Ehdr *header, struct strbuf *ret_why)
{
    char linker[PATH_MAX] = "";
    if (header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_machine != EM_X86_64) {
        strbuf_adds(ret_why, "a 32-bit or foreign program, and the helper is for x86-64; sample it without --helper");
        return -ENOEXEC;
    }
    for (unsigned i = 0; i < header->e_phnum && i < PROGRAM_HEADERS_MAX; i++) {
        Elf64_Phdr program;
        if (fileio_pread(fd, &program, sizeof(program), header->e_phoff + i * sizeof(program)) != sizeof(program))
            break;
        if (program.p_type != PT_INTERP || program.p_filesz >= sizeof(linker))
            continue;
        ssize_t size = fileio_pread(fd, linker, (size_t)program.p_filesz, program.p_offset);
        linker[size > 0 ? size : 0] = 0;
    }
    if (!linker[0]) {
        strbuf_adds(ret_why, "a static program, into which no library can be loaded; sample it without --helper");
        return -ENOEXEC;
    }
    if (!is_glibc_linker(linker)) {
        strbuf_addf(ret_why, "its dynamic linker is %s, and the helper is for glibc's; sample it without --helper",
                    linker);
        strbuf_make_line(ret_why);
        return -ENOEXEC;
    }
    return 0;
}

int helperpreload_check(const char *name, struct strbuf *ret_why)
{
    char path[PATH_MAX];
    char next[LINE_BYTES];
    snprintf(path, sizeof(path), "%s", name);
    for (int depth = 0; depth < SCRIPT_DEPTH_MAX; depth++) {
        union {
            Elf64_Ehdr elf;
            char text[LINE_BYTES];
        } head = {0};
        autoclose int fd = open_program(path);
        ssize_t size = fd < 0 ? -1 : fileio_pread(fd, &head, sizeof(head) - 1, 0);
        if (size < 0)
            return 0;
        if (has_more_rights(fd)) {
            strbuf_adds(ret_why,
                        "it gets rights by its file (set-uid, set-gid or capabilities), and such programs load no "
                        "foreign library; sample it without --helper");
            return -EPERM;
        }
        if ((size_t)size >= sizeof(head.elf) && memcmp(head.elf.e_ident, ELFMAG, SELFMAG) == 0)
            return check_elf(fd, &head.elf, ret_why);
        if (!find_script_program(head.text, (size_t)size, next, sizeof(next)))
            return 0;
        snprintf(path, sizeof(path), "%s", next);
    }
    return 0;
}

static int set_variables(struct helperpreload *preload, const char *library)
{
    const char *others = getenv("LD_PRELOAD");
    strbuf_addf(&preload->texts[0], "LD_PRELOAD=%s%s%s", library, others && *others ? ":" : "", others ? others : "");
    strbuf_addf(&preload->texts[1], "%s=", HELPER_VARIABLE);
    helperlink_path(preload->link, &preload->texts[1]);
    for (size_t i = 0; i < 2; i++) {
        if (strbuf_error(&preload->texts[i]))
            return -ENOMEM;
        preload->variables[i] = preload->texts[i].data;
    }
    return 0;
}

int helperpreload_prepare(const struct options *options, struct helperpreload *ret, struct strbuf *ret_why)
{
    struct strbuf library = {0};
    int error = helperpreload_check(options->program[0], ret_why);
    if (error)
        return error;
    error = helperlink_find_library(&library);
    if (error) {
        strbuf_addf(ret_why, "%s is not beside the sampler, nor where it is installed", HELPER_LIBRARY);
    } else if (strpbrk(library.data, " :")) { /* LD_PRELOAD has no way to write these */
        strbuf_addf(ret_why, "the path of %s must have no blank and no colon", HELPER_LIBRARY);
        error = -EINVAL;
    }
    if (!error)
        error = helperlink_new(options, &ret->link);
    if (!error)
        error = set_variables(ret, library.data);
    strbuf_deinit(&library);
    if (error) {
        if (!ret_why->size)
            strbuf_adds(ret_why, strerror(-error));
        helperpreload_deinit(ret);
    }
    return error;
}

void helperpreload_deinit(struct helperpreload *preload)
{
    helperlink_free(preload->link);
    for (size_t i = 0; i < 2; i++)
        strbuf_deinit(&preload->texts[i]);
    *preload = (struct helperpreload){0};
}
