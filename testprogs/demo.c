/*
 * demo [SECONDS]: something to look at: two threads, "demo" and "worker", each half of its time in parse, three tenths
 * in render and two tenths in compress, each with a few functions below.
 */
#include "testprog.h"

#include <pthread.h>

enum { UNIT = 200000 };

/* So many turns of a loop whose time does not depend on where the compiler puts it: each turn waits for the one before.
 */
#define WORK(turns)                                                                                                    \
    for (unsigned long i_ = 0, x_ = 1; i_ < (turns); i_++) {                                                           \
        x_ = x_ * 25214903917u + 11;                                                                                   \
        __asm__ volatile("" : "+r"(x_));                                                                               \
    }

EXACT void read_token(void){WORK(2 * UNIT)}

EXACT void build_tree(int depth)
{
    WORK(UNIT)
    if (depth > 1)
        build_tree(depth - 1);
}

EXACT void parse(void)
{
    read_token();
    build_tree(3);
}

EXACT void draw_line(void){WORK(2 * UNIT)}

EXACT void fill_area(void){WORK(UNIT)}

EXACT void render(void)
{
    draw_line();
    fill_area();
}

EXACT void compress(void){WORK(2 * UNIT)}

EXACT void handle_request(void)
{
    parse();
    render();
    compress();
}

EXACT void serve(void)
{
    while (!stop)
        handle_request();
}

static void *worker_main(void *argument)
{
    pthread_setname_np(pthread_self(), "worker");
    serve();
    return argument;
}

int main(int argc, char **argv)
{
    stop_after(number_argument(argc, argv, 1, 3));
    pthread_t worker;
    if (pthread_create(&worker, NULL, worker_main, NULL) != 0)
        fail("pthread_create");
    ready("");
    serve();
    pthread_join(worker, NULL);
    return 0;
}
