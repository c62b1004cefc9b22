#include "sampler/bpfregs.h"

#include <stddef.h>

/* Built without libbpf or without a clang that compiles for BPF. */

struct bpfregs *bpfregs_new(void)
{
    return NULL;
}

void bpfregs_free(struct bpfregs *bpfregs)
{
    (void)bpfregs;
}

bool bpfregs_read(struct bpfregs *bpfregs, pid_t tid, struct registers *ret)
{
    (void)bpfregs;
    (void)tid;
    (void)ret;
    return false;
}
