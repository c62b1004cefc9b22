/* threadends [SECONDS]: two threads, each <start-up code>;thread_fn;leaf. Built with several C libraries. */
#include "testprog.h"

#include <pthread.h>

EXACT void leaf(void)
{
    SPIN();
}

EXACT void *thread_fn(void *argument)
{
    leaf();
    return argument;
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    stop_after(number_argument(argc, argv, 1, 60));
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, thread_fn, NULL) != 0)
            fail("pthread_create");
    }
    ready("");
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
