/*
 * spinners N [SECONDS]: N threads "spin-0", "spin-1", … in spin_main;spin_loop. Prints at the end the CPU time of each
 * as
 * {"cpu_ns": {"spin-0": …}}.
 */
#include "testprog.h"

#include <pthread.h>

enum { MAX_THREADS = 64 };

static pthread_barrier_t named;

struct spinner {
    pthread_t thread;
    char name[16];
    uint64_t cpu_ns;
};

EXACT void spin_loop(void)
{
    SPIN();
}

EXACT void *spin_main(void *argument)
{
    struct spinner *self = argument;
    pthread_setname_np(pthread_self(), self->name);
    pthread_barrier_wait(&named);
    spin_loop();
    self->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    return NULL;
}

int main(int argc, char **argv)
{
    static struct spinner spinners[MAX_THREADS];
    int count = (int)number_argument(argc, argv, 1, 2);
    if (count < 1 || count > MAX_THREADS)
        return 99;
    stop_after(number_argument(argc, argv, 2, 60));
    pthread_barrier_init(&named, NULL, (unsigned)count + 1);
    for (int i = 0; i < count; i++) {
        snprintf(spinners[i].name, sizeof spinners[i].name, "spin-%d", i);
        if (pthread_create(&spinners[i].thread, NULL, spin_main, &spinners[i]) != 0)
            fail("pthread_create");
    }
    pthread_barrier_wait(&named);
    ready("threads=%d", count);
    for (int i = 0; i < count; i++)
        pthread_join(spinners[i].thread, NULL);
    printf("{\"cpu_ns\": {");
    for (int i = 0; i < count; i++)
        printf("%s\"%s\": %llu", i == 0 ? "" : ", ", spinners[i].name, (unsigned long long)spinners[i].cpu_ns);
    printf("}}\n");
    return 0;
}
