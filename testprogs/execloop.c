/*
 * execloop_a COUNT THREADS main|worker: executes its sister execloop_b, which executes execloop_a, and so on, COUNT
 * times, each time with THREADS spinning threads alive, from the main thread or from another one. The last one prints
 * {"execs": COUNT}. Stacks are thread_a;spin_in_a in the one, thread_b;spin_in_b in the other, at different addresses.
 */
#include "testprog.h"

#include <pthread.h>
#include <string.h>

#ifdef IMAGE_B
#define thread_function thread_b
#define spin_function   spin_in_b
/* Shifts all that follows, so that a name taken from the sister's image would be another one. */
__asm__(".text\n.skip 8192, 0x90\n");
#else
#define thread_function thread_a
#define spin_function   spin_in_a
#endif

enum { MAX_THREADS = 64 };

static char **arguments;
static char next_path[4096];

EXACT void spin_function(void)
{
    SPIN();
}

EXACT void *thread_function(void *argument)
{
    (void)argument;
    spin_function();
    return NULL;
}

/* Looked up before the main thread may end: after that there is no /proc/self/exe. */
static void find_sister(void)
{
    ssize_t length = readlink("/proc/self/exe", next_path, sizeof next_path - 1);
    if (length <= 0)
        fail("/proc/self/exe");
    next_path[length] = '\0';
    next_path[length - 1] = next_path[length - 1] == 'a' ? 'b' : 'a';
}

static void *execute_next(void *argument)
{
    (void)argument;
    char done[24];
    snprintf(done, sizeof done, "%ld", strtol(arguments[4], NULL, 10) + 1);
    sleep_ns(5000000);
    execl(next_path, next_path, arguments[1], arguments[2], arguments[3], done, (char *)NULL);
    fail(next_path);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 99;
    char *first[] = {argv[0], argv[1], argv[2], argv[3], "0", NULL};
    arguments = argc > 4 ? argv : first;
    if (argc == 4)
        ready("");
    if (strtol(arguments[4], NULL, 10) >= strtol(arguments[1], NULL, 10)) {
        printf("{\"execs\": %s}\n", arguments[4]);
        return 0;
    }
    find_sister();
    pthread_t thread;
    int threads = (int)strtol(arguments[2], NULL, 10);
    for (int i = 0; i < threads && i < MAX_THREADS; i++)
        if (pthread_create(&thread, NULL, thread_function, NULL) != 0)
            fail("pthread_create");
    if (strcmp(arguments[3], "worker") != 0)
        execute_next(NULL);
    if (pthread_create(&thread, NULL, execute_next, NULL) != 0)
        fail("pthread_create");
    pthread_exit(NULL);
}
