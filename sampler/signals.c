#include "sampler/signals.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/signalfd.h>
#include <unistd.h>

static bool is_ignored(int signal)
{
    struct sigaction action;
    return sigaction(signal, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

int signals_init(struct signals *signals)
{
    *signals = (struct signals){.fd = -1};
    sigset_t read_set;
    sigemptyset(&read_set);
    /* Shells start background jobs with SIGINT ignored; who sends one to a sampler means it. nohup means it too. */
    sigaddset(&read_set, SIGINT);
    sigaddset(&read_set, SIGTERM);
    if (!is_ignored(SIGHUP))
        sigaddset(&read_set, SIGHUP);
    if (!is_ignored(SIGTSTP))
        sigaddset(&read_set, SIGTSTP);
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
    signals->fd = signalfd(-1, &read_set, SFD_CLOEXEC | SFD_NONBLOCK);
    return signals->fd < 0 ? -errno : 0;
}

void signals_deinit(struct signals *signals)
{
    if (signals->fd >= 0)
        close(signals->fd);
    signals->fd = -1;
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

int signals_hold_quit(struct signals *signals)
{
    if (is_ignored(SIGQUIT))
        return 0;
    mask_one(SIG_BLOCK, SIGQUIT);
    sigaddset(&signals->read_set, SIGQUIT);
    return signalfd(signals->fd, &signals->read_set, 0) < 0 ? -errno : 0;
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
    struct signalfd_siginfo info;
    if (read(signals->fd, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return 0;
    if (info.ssi_signo != SIGTSTP && info.ssi_signo != SIGQUIT)
        signals->received++;
    return (int)info.ssi_signo;
}
