#include "sampler/bpflook.h"

/* Built without libbpf or without a clang that compiles for BPF: there is never one to ask. */

struct bpflook *bpflook_start(void)
{
    return NULL;
}

void bpflook_hurry(struct bpflook *bpflook)
{
    (void)bpflook;
}

void bpflook_free(struct bpflook *bpflook)
{
    (void)bpflook;
}

bool bpflook_is_ready(const struct bpflook *bpflook)
{
    (void)bpflook;
    return false;
}

bool bpflook_has_failed(const struct bpflook *bpflook)
{
    (void)bpflook;
    return true;
}

uint64_t bpflook_load_ns(const struct bpflook *bpflook)
{
    (void)bpflook;
    return 0;
}

struct bpf_look *bpflook_slot(struct bpflook *bpflook, size_t index)
{
    (void)bpflook;
    (void)index;
    return NULL;
}

const unsigned char *bpflook_stack(const struct bpflook *bpflook, size_t index)
{
    (void)bpflook;
    (void)index;
    return NULL;
}

bool bpflook_ask(struct bpflook *bpflook, size_t count)
{
    (void)bpflook;
    (void)count;
    return false;
}

bool bpflook_read_running(struct bpflook *bpflook, size_t slot, int cpu)
{
    (void)bpflook;
    (void)slot;
    (void)cpu;
    return false;
}

char bpflook_state(const struct bpf_look *look)
{
    (void)look;
    return '?';
}
