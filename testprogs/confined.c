/*
 * confined HOW [SECONDS]: confines itself, spins in confined_spin while its thread "sleeper" takes naps in
 * confined_nap, and ends with status 0:
 *   filter       a seccomp filter kills it at any call that it does not make itself;
 *   bare         the same, and restart_syscall is not among them: the kernel makes that one after a stop in a nap;
 *   strict       seccomp's strict mode (read, write, exit, sigreturn); without the thread;
 *   undumpable   PR_SET_DUMPABLE 0;
 *   ptracer      PR_SET_PTRACER names process 1 as the only one that may trace it;
 *   ids          nothing.
 * The ready line tells the real and effective user id, the last line how many naps there were, as JSON.
 */
#include "testprog.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static unsigned long naps;
static pthread_barrier_t begun; /* a new thread makes calls that the filter is not for */

EXACT void confined_nap(void)
{
    while (!stop) {
        struct timespec pause = {0, 20000000};
        syscall(SYS_nanosleep, &pause, NULL);
        naps++;
    }
}

EXACT void confined_spin(void)
{
    SPIN();
}

static void *sleeper_main(void *argument)
{
    pthread_barrier_wait(&begun);
    confined_nap();
    return argument;
}

static void install_filter(int with_restart)
{
#define ALLOW(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        ALLOW(SYS_nanosleep),
        ALLOW(SYS_rt_sigreturn),
        ALLOW(SYS_write),
        ALLOW(SYS_futex),
        ALLOW(SYS_madvise),
        ALLOW(SYS_rt_sigprocmask),
        ALLOW(SYS_exit),
        ALLOW(SYS_exit_group),
        ALLOW(SYS_getpid), /* of ready() */
        ALLOW(SYS_getuid),
        ALLOW(SYS_geteuid),
        ALLOW(SYS_newfstatat),
        ALLOW(SYS_fstat),
        ALLOW(SYS_brk),
        ALLOW(with_restart ? SYS_restart_syscall : SYS_exit),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {.len = sizeof code / sizeof code[0], .filter = code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0)
        fail("seccomp");
}

static int spin_strictly(void)
{
    ready("");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT, 0, 0, 0) != 0)
        fail("PR_SET_SECCOMP");
    confined_spin();
    syscall(SYS_exit, 0);
    return 99;
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    stop_after(number_argument(argc, argv, 2, 60));
    if (strcmp(how, "strict") == 0)
        return spin_strictly();
    pthread_t sleeper;
    sigset_t alarm;
    sigset_t before;
    /* Of the two the main thread is told of the end, also while it is stopped. */
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, &before);
    pthread_barrier_init(&begun, NULL, 2);
    if (pthread_create(&sleeper, NULL, sleeper_main, NULL) != 0)
        fail("pthread_create");
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_setname_np(sleeper, "sleeper");
    pthread_barrier_wait(&begun);
    if (strcmp(how, "undumpable") == 0 && prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0)
        fail("PR_SET_DUMPABLE");
    if (strcmp(how, "ptracer") == 0)
        prctl(PR_SET_PTRACER, 1, 0, 0, 0); /* an error where there is no Yama */
    /* Before it is sampled: a stop in a nap may have come before the filter, and the call that follows it behind. */
    if (strcmp(how, "filter") == 0 || strcmp(how, "bare") == 0)
        install_filter(strcmp(how, "filter") == 0);
    ready("uid=%d euid=%d", (int)getuid(), (int)geteuid());
    confined_spin();
    pthread_join(sleeper, NULL);
    printf("{\"naps\": %lu}\n", naps);
    return 0;
}
