/*
 * counters FILE [SECONDS]: 8 threads; each adds to its own counter, which stands in FILE as a 64-bit number every 64
 * bytes, and sleeps a millisecond now and then. Who maps FILE sees whether each thread lives.
 */
#include "testprog.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

enum { THREADS = 8, STRIDE = 64, BURST = 100000 };

EXACT void count(volatile uint64_t *counter)
{
    while (!stop) {
        for (int i = 0; i < BURST && !stop; i++)
            (*counter)++;
        sleep_ns(1000000);
    }
}

static void *counter_main(void *argument)
{
    count(argument);
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 99;
    stop_after(number_argument(argc, argv, 2, 120));
    int fd = open(argv[1], O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0 || ftruncate(fd, THREADS * STRIDE) != 0)
        fail(argv[1]);
    char *shared = mmap(NULL, THREADS * STRIDE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared == MAP_FAILED)
        fail("mmap");
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, counter_main, shared + i * STRIDE) != 0)
            fail("pthread_create");
    ready("threads=%d", THREADS);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
