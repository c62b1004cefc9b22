/*
 * injector PID LIBRARY FUNCTION ARGUMENT [COUNT [TIMEOUT_MS]]: inject_call so many times, the argument one more each
 * time. One line for each:
 *   value=V tid=T stops=N longest_us=U call_us=U unmapped=0|1
 *   error=NAME why
 * Status 0 when all succeeded, 1 else.
 */
#include "common/clock.h"
#include "common/fileio.h"
#include "common/parse.h"
#include "sampler/inject.h"
#include "sampler/procfs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static bool call(struct inject_request *request)
{
    struct inject_result result;
    struct strbuf why = {0};
    int error = inject_call(request, &result, &why);
    if (error)
        printf("error=%s %s\n", strerrorname_np(-error), why.data ? why.data : "");
    else
        printf("value=%" PRId64 " tid=%d stops=%u longest_us=%.1f call_us=%.1f unmapped=%d\n", result.value,
               (int)result.tid, result.stops, (double)result.longest_stop_ns / NS_PER_US,
               (double)result.call_ns / NS_PER_US, result.is_unmapped);
    fflush(stdout);
    strbuf_deinit(&why);
    return error == 0;
}

int main(int argc, char **argv)
{
    uint64_t pid;
    uint64_t argument;
    uint64_t count = 1;
    uint64_t timeout_ms = 5000;
    if (argc < 5 || !parse_number(argv[1], &pid) || pid > INT32_MAX || !parse_number(argv[4], &argument) ||
        (argc > 5 && !parse_number(argv[5], &count)) || (argc > 6 && !parse_number(argv[6], &timeout_ms)))
        return 2;
    autoclose int proc_fd = procfs_open_process((pid_t)pid);
    if (proc_fd < 0) {
        printf("error=%s\n", strerrorname_np(-proc_fd));
        return 1;
    }
    struct inject_request request = {.pid = (pid_t)pid,
                                     .proc_fd = proc_fd,
                                     .library_path = argv[2],
                                     .function = argv[3],
                                     .argument = argument,
                                     .timeout_ns = timeout_ms * NS_PER_MS};
    bool good = true;
    for (uint64_t i = 0; i < count; i++, request.argument++)
        good &= call(&request);
    return good ? 0 : 1;
}
