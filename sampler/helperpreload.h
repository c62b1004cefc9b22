/*
 * A program that is launched with the helper in it: by LD_PRELOAD, which the dynamic linker of glibc reads. Others must
 * not get it (musl's would refuse to start the program), so the program's file is looked at before.
 */
#ifndef SAMPLER_HELPERPRELOAD_H
#define SAMPLER_HELPERPRELOAD_H

#include "common/strbuf.h"
#include "sampler/helperlink.h"
#include "sampler/options.h"

struct helperpreload {
    struct helperlink *link; /* owned */
    struct strbuf texts[2];
    char *variables[3]; /* for launch_prepare; NULL-ended, into `texts` */
};

/* 0, or a negative errno with the reason in `ret_why`, and nothing in *ret. */
int helperpreload_prepare(const struct options *options, struct helperpreload *ret, struct strbuf *ret_why);
void helperpreload_deinit(struct helperpreload *preload);

/* Can a helper be loaded into that program by LD_PRELOAD? `name` is looked for as execvp(3) does. 0, or a negative
 * errno with the reason. A program that cannot be found is none of our business: 0. */
int helperpreload_check(const char *name, struct strbuf *ret_why);

#endif
