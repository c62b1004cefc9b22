#include "sampler/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

static bool is_ignored(int signal)
{
    struct sigaction action;
    return sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

/* Blocked in all threads, so this one gets them, when it waits for them. */
static void *signals_loop(void *context)
{
    const struct signals *signals = context;
    pthread_setname_np(pthread_self(), "signals");
    for (;;) {
        int signal = sigwaitinfo(&signals->read_set, NULL);
        if (signal > 0)
            (void)!write(signals->write_fd, &signal, sizeof(signal));
    }
    return NULL;
}

static int begin(struct signals *signals)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    signals->fd = fds[0];
    signals->write_fd = fds[1];
    int error = pthread_create(&signals->thread, NULL, signals_loop, signals);
    signals->has_thread = error == 0;
    if (error)
        signals_deinit(signals);
    return -error;
}

int signals_init(struct signals *signals, bool hold_quit)
{
    *signals = (struct signals){.fd = -1, .write_fd = -1};
    sigset_t read_set;
    sigemptyset(&read_set);
    /* Shells start background jobs with SIGINT ignored; who sends one to a sampler means it. nohup means it too. */
    sigaddset(&read_set, SIGINT);
    sigaddset(&read_set, SIGTERM);
    if (!is_ignored(SIGHUP))
        sigaddset(&read_set, SIGHUP);
    if (!is_ignored(SIGTSTP))
        sigaddset(&read_set, SIGTSTP);
    if (hold_quit && !is_ignored(SIGQUIT))
        sigaddset(&read_set, SIGQUIT);
    sigset_t blocked = read_set;
    sigaddset(&blocked,
              SIGTTOU); /* blocked, a write to the terminal from the background goes through instead of stopping us */
    sigaddset(&blocked, SIGTTIN);
    sigaddset(&blocked, SIGCHLD); /* read by the tracer */
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    struct sigaction by_default = {.sa_handler = SIG_DFL};
    if (sigaction(SIGPIPE, &ignore, NULL) < 0 || /* what they stand for are errors of write, and told as such */
        sigaction(SIGXFSZ, &ignore, NULL) < 0 ||
        sigaction(SIGCHLD, &by_default, NULL) < 0) /* ignored, it would lose the program's status */
        return -errno;
    if (sigprocmask(SIG_BLOCK, &blocked, NULL) < 0)
        return -errno;
    signals->read_set = read_set;
    return begin(signals);
}

void signals_deinit(struct signals *signals)
{
    if (signals->has_thread) {
        pthread_cancel(signals->thread);
        pthread_join(signals->thread, NULL);
    }
    if (signals->fd >= 0)
        close(signals->fd);
    if (signals->write_fd >= 0)
        close(signals->write_fd);
    *signals = (struct signals){.fd = -1, .write_fd = -1};
}

static void mask_one(int how, int signal)
{
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signal);
    pthread_sigmask(how, &one, NULL);
}

void signals_stop_self(void)
{
    raise(SIGTSTP);
    mask_one(SIG_UNBLOCK, SIGTSTP);
    mask_one(SIG_BLOCK, SIGTSTP);
}

void signals_allow_quit(void)
{
    mask_one(SIG_UNBLOCK, SIGQUIT);
}

void signals_quit(void)
{
    raise(SIGQUIT);
    signals_allow_quit();
    _exit(128 + SIGQUIT); /* not reached */
}

int signals_next(struct signals *signals)
{
    int signal;
    if (read(signals->fd, &signal, sizeof(signal)) != (ssize_t)sizeof(signal))
        return 0;
    if (signal != SIGTSTP && signal != SIGQUIT)
        signals->received++;
    return signal;
}
