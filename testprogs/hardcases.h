/* What the parts of `hardcases` share: one thread for each load, which makes one operation again and again. */
#ifndef HARDCASES_H
#define HARDCASES_H

#include "testprog.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct load {
    const char *name;
    bool (*operation)(unsigned long turn); /* one operation; false: its result was wrong */
};

extern const struct load loads[];
extern const size_t load_count;

extern volatile int loads_objects; /* that the last dl_iterate_phdr(3) has visited */

/* Before there are threads: what the loads need. */
void loads_prepare(void);

/* An exception thrown at one of some depths and caught by its type (hardcases_throw.cc). */
bool load_throw(unsigned long turn);

#ifdef __cplusplus
}
#endif

#endif
