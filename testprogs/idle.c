/* idle COUNT [SECONDS]: COUNT threads that wait for ever, and the main thread that spins. */
#include "testprog.h"

#include <pthread.h>

EXACT void *wait_for_ever(void *argument)
{
    for (;;)
        pause();
    return argument;
}

EXACT void busy_main(void)
{
    SPIN();
}

int main(int argc, char **argv)
{
    int count = (int)number_argument(argc, argv, 1, 100);
    stop_after(number_argument(argc, argv, 2, 60));
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    for (int i = 0; i < count; i++) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, wait_for_ever, NULL) != 0)
            fail("pthread_create");
    }
    ready("");
    busy_main();
    return 0;
}
