#ifndef SAMPLER_INJECT_H
#define SAMPLER_INJECT_H
#include "common/strbuf.h"
#include <stdint.h>
#include <sys/types.h>
int inject_call(pid_t pid, int proc_fd, const char *library_path, const char *function, uint64_t argument,
                uint64_t timeout_ns, int64_t *ret_value, struct strbuf *ret_why);
#endif
