#include "sampler/bpfregs.h"

#include "common/fileio.h"
#include "sampler/bpf/record.h"
#include "sampler/bpfobject.h"
#include "sampler/capture_arch.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

BPFOBJECT_INCLUDE(bpfregs_object, SAMPLER_BPF_REGISTERS_OBJECT);

struct bpfregs {
    struct bpf_object *object;
    int program_fd;
};

static bool load(struct bpfregs *bpfregs)
{
    static const char *const program = "tell_registers";
    bpfregs->object = bpfobject_load(bpfregs_object, (size_t)(bpfregs_object_end - bpfregs_object), &program, 1,
                                     &bpfregs->program_fd);
    /* An iterator for one thread: older kernels do not have it. */
    struct registers own;
    return bpfregs->object && bpfregs_read(bpfregs, gettid(), &own);
}

struct bpfregs *bpfregs_new(void)
{
    struct bpfregs *bpfregs = calloc(1, sizeof(*bpfregs));
    if (!bpfregs)
        return NULL;
    if (load(bpfregs))
        return bpfregs;
    bpfregs_free(bpfregs);
    return NULL;
}

void bpfregs_free(struct bpfregs *bpfregs)
{
    if (!bpfregs)
        return;
    bpf_object__close(bpfregs->object);
    free(bpfregs);
}

bool bpfregs_read(struct bpfregs *bpfregs, pid_t tid, struct registers *ret)
{
    union bpf_iter_link_info info = {.task = {.tid = (uint32_t)tid}};
    LIBBPF_OPTS(bpf_link_create_opts, options, .iter_info = &info, .iter_info_len = sizeof(info));
    autoclose int link_fd = bpf_link_create(bpfregs->program_fd, 0, BPF_TRACE_ITER, &options);
    if (link_fd < 0)
        return false;
    autoclose int iter_fd = bpf_iter_create(link_fd);
    struct bpf_registers_record record;
    if (iter_fd < 0 || read(iter_fd, &record, sizeof(record)) != (ssize_t)sizeof(record))
        return false;
    return capture_arch.registers_at_entry(record.words, ret);
}
