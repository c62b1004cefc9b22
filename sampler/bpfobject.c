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

struct bpf_object *bpfobject_load(const void *bytes, size_t size, const char *program, int *ret_program_fd)
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
        bpf_program__set_autoload(each, strcmp(bpf_program__name(each), program) == 0);
    }
    struct bpf_program *loaded = bpf_object__find_program_by_name(object, program);
    if (bpf_object__load(object) || !loaded) {
        bpf_object__close(object);
        return NULL;
    }
    *ret_program_fd = bpf_program__fd(loaded);
    return object;
}
