#include "sampler/bpfobject.h"

#include "common/fileio.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <stdbool.h>
#include <string.h>

static int say_nothing(enum libbpf_print_level level, const char *format, va_list args)
{
    (void)level;
    (void)format;
    (void)args;
    return 0;
}

/*
 * Is it permitted at all? To find out by loading the whole program takes 20 ms, most of it for the kernel's type
 * information.
 */
static bool may_load(void)
{
    static const struct bpf_insn nothing[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
        {.code = BPF_JMP | BPF_EXIT},
    };
    LIBBPF_OPTS(bpf_prog_load_opts, options, .prog_flags = BPF_F_SLEEPABLE);
    autoclose int fd = bpf_prog_load(BPF_PROG_TYPE_SYSCALL, "may_load", "GPL", nothing, 2, &options);
    return fd >= 0;
}

static bool is_among(const char *const *programs, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(programs[i], name) == 0)
            return true;
    return false;
}

struct bpf_object *bpfobject_load(const void *bytes, size_t size, const char *const *programs, size_t count,
                                  int *ret_program_fds)
{
    LIBBPF_OPTS(bpf_object_open_opts, options, .object_name = "sampler");
    libbpf_set_print(say_nothing);
    if (!may_load())
        return NULL;
    struct bpf_object *object = bpf_object__open_mem(bytes, size, &options);
    if (!object)
        return NULL;
    struct bpf_program *each;
    bpf_object__for_each_program(each, object)
    {
        bpf_program__set_autoload(each, is_among(programs, count, bpf_program__name(each)));
    }
    if (bpf_object__load(object)) {
        bpf_object__close(object);
        return NULL;
    }
    for (size_t i = 0; i < count; i++)
        ret_program_fds[i] = bpf_program__fd(bpf_object__find_program_by_name(object, programs[i]));
    return object;
}
