/*
 * memcached_load SOCKET CONNECTIONS SECONDS: keeps one request on the way on each connection, nine gets for one set, of
 * 1,000 keys with 100 bytes each. Prints "requests_per_second p50_us p99_us".
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { KEYS = 1000, VALUE_BYTES = 100, BUCKETS = 1000000, CONNECTIONS_MAX = 1000 };

struct connection {
    int fd;
    uint64_t sent_ns;
    size_t got;
    char answer[512];
};

static uint32_t buckets[BUCKETS]; /* by microsecond */
static uint64_t answers;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void ask(struct connection *connection)
{
    static unsigned turn;
    char text[256];
    unsigned key = turn * 7919u % KEYS;
    int size = snprintf(text, sizeof text, "get key-%u\r\n", key);
    if (turn < KEYS || turn % 10 == 0)
        size = snprintf(text, sizeof text, "set key-%u 0 0 %d\r\n%0*d\r\n", key, VALUE_BYTES, VALUE_BYTES, (int)turn);
    turn++;
    connection->got = 0;
    connection->sent_ns = now_ns();
    if (write(connection->fd, text, (size_t)size) != size)
        fail("write");
}

/* Answers end in one of these. */
static int is_whole(const struct connection *connection)
{
    const char *const ends[] = {"END\r\n", "STORED\r\n"};
    for (size_t i = 0; i < 2; i++) {
        size_t size = strlen(ends[i]);
        if (connection->got >= size && memcmp(connection->answer + connection->got - size, ends[i], size) == 0)
            return 1;
    }
    return 0;
}

static void hear(struct connection *connection)
{
    ssize_t size =
        read(connection->fd, connection->answer + connection->got, sizeof connection->answer - connection->got);
    if (size <= 0)
        fail("read");
    connection->got += (size_t)size;
    if (!is_whole(connection))
        return;
    uint64_t us = (now_ns() - connection->sent_ns) / 1000;
    buckets[us < BUCKETS ? us : BUCKETS - 1]++;
    answers++;
    ask(connection);
}

static unsigned percentile(double share)
{
    uint64_t seen = 0;
    for (unsigned us = 0; us < BUCKETS; us++)
        if ((double)(seen += buckets[us]) >= share * (double)answers)
            return us;
    return BUCKETS;
}

int main(int argc, char **argv)
{
    static struct connection connections[CONNECTIONS_MAX];
    int count = argc == 4 ? atoi(argv[2]) : 0;
    if (count < 1 || count > CONNECTIONS_MAX) {
        fprintf(stderr, "memcached_load SOCKET CONNECTIONS SECONDS\n");
        return 2;
    }
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "%s", argv[1]);
    int epoll = epoll_create1(0);
    for (int i = 0; i < count; i++) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = &connections[i]};
        connections[i].fd = socket(AF_UNIX, SOCK_STREAM, 0);
        if (connect(connections[i].fd, (struct sockaddr *)&address, sizeof address) != 0 ||
            epoll_ctl(epoll, EPOLL_CTL_ADD, connections[i].fd, &event) != 0)
            fail(argv[1]);
        ask(&connections[i]);
    }
    uint64_t start_ns = now_ns(), end_ns = start_ns + (uint64_t)(atof(argv[3]) * 1e9);
    while (now_ns() < end_ns) {
        struct epoll_event events[64];
        int ready = epoll_wait(epoll, events, 64, 100);
        for (int i = 0; i < ready; i++)
            hear(events[i].data.ptr);
    }
    printf("%.1f %u %u\n", (double)answers / ((double)(now_ns() - start_ns) / 1e9), percentile(0.5), percentile(0.99));
    return 0;
}
