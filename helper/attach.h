/*
 * How the helper begins: loaded before the program (LD_PRELOAD), where the environment says where the shared memory is,
 * or into a running one, where a call says what is wanted and the shared memory is made here.
 */
#ifndef HELPER_ATTACH_H
#define HELPER_ATTACH_H

#include <stdint.h>

/*
 * The call (HELPER_FUNCTION) that a sampler makes in a process into which it has loaded this library; `argument` by
 * helper_argument. Returns the number of a descriptor of the shared memory, for the sampler to open through /proc (it
 * is closed when report.is_fd_taken says that it may go), or a negative errno: -EBUSY: another sampler is at work here.
 */
__attribute__((visibility("default"))) int64_t sampler_helper_attach(uint64_t argument);

#endif
