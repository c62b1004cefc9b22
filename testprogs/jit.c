/*
 * jit now|late|reuse|absent [SECONDS]: writes three functions with frame pointers into memory and runs them:
 * main;run_jit;jit_outer;jit_middle;jit_inner. The perf map /tmp/perf-PID.map
 *   now:    is there before the code runs;
 *   late:   comes 0.3 s after, the first line cut inside its hexadecimal field for 50 ms; jit_inner's line comes at 1
 * s; reuse:  has older lines with other names for the same bytes first; absent: is not written. The ready line gives
 * the addresses, so that a test can write a map of its own. The file is removed at the end.
 */
#include "testprog.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

enum { FUNCTIONS = 3, SPACE = 64 };

static const char *const names[FUNCTIONS] = {"jit_outer", "jit_middle", "jit_inner"};
static char map_path[64];
static unsigned char *code;

static void write_code(void)
{
    static const unsigned char call_next[] = {
        0x55,                        /* push %rbp */
        0x48, 0x89,      0xe5,       /* mov %rsp, %rbp */
        0xe8, SPACE - 9, 0,    0, 0, /* call the next function */
        0x5d,                        /* pop %rbp */
        0xc3,                        /* ret */
    };
    static const unsigned char spin[] = {
        0x55,             /* push %rbp */
        0x48, 0x89, 0xe5, /* mov %rsp, %rbp */
        0x48, 0xff, 0xc0, /* 1: inc %rax */
        0x80, 0x3f, 0x00, /* cmpb $0, (%rdi) */
        0x74, 0xf8,       /* je 1b */
        0x5d,             /* pop %rbp */
        0xc3,             /* ret */
    };
    code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (code == MAP_FAILED)
        fail("mmap");
    memcpy(code, call_next, sizeof call_next);
    memcpy(code + SPACE, call_next, sizeof call_next);
    memcpy(code + 2 * SPACE, spin, sizeof spin);
    if (mprotect(code, 4096, PROT_READ | PROT_EXEC) != 0)
        fail("mprotect");
}

static FILE *open_map(void)
{
    FILE *map = fopen(map_path, "w");
    if (map == NULL)
        fail(map_path);
    setvbuf(map, NULL, _IONBF, 0);
    return map;
}

static void write_line(FILE *map, int function, const char *name)
{
    char line[128];
    int length = snprintf(line, sizeof line, "%lx %x %s\n", (unsigned long)(code + function * SPACE), SPACE, name);
    fwrite(line, 1, (size_t)length, map);
}

static void *write_late(void *argument)
{
    FILE *map = argument;
    char line[128];
    int length = snprintf(line, sizeof line, "%lx %x %s\n", (unsigned long)code, SPACE, names[0]);
    sleep_ns(300000000);
    fwrite(line, 1, 6, map);
    sleep_ns(50000000);
    fwrite(line + 6, 1, (size_t)length - 6, map);
    write_line(map, 1, names[1]);
    sleep_ns(650000000);
    write_line(map, 2, names[2]);
    fclose(map);
    return NULL;
}

static void write_map(const char *mode)
{
    if (strcmp(mode, "absent") == 0)
        return;
    FILE *map = open_map();
    if (strcmp(mode, "late") == 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, write_late, map) != 0)
            fail("pthread_create");
        pthread_detach(thread);
        return;
    }
    if (strcmp(mode, "reuse") == 0) {
        fprintf(map, "%lx %x stale_all\n", (unsigned long)code, FUNCTIONS * SPACE);
        write_line(map, 2, "stale_inner");
    }
    for (int i = 0; i < FUNCTIONS; i++)
        write_line(map, i, names[i]);
    fclose(map);
}

EXACT void run_jit(void)
{
    void (*entry)(volatile sig_atomic_t *) = (void (*)(volatile sig_atomic_t *))(uintptr_t)code;
    entry(&stop);
    stop = 1;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "now";
    snprintf(map_path, sizeof map_path, "/tmp/perf-%d.map", (int)getpid());
    write_code();
    stop_after(number_argument(argc, argv, 2, 60));
    write_map(mode);
    ready("jit_outer=%lx jit_middle=%lx jit_inner=%lx size=%x", (unsigned long)code, (unsigned long)(code + SPACE),
          (unsigned long)(code + 2 * SPACE), SPACE);
    run_jit();
    if (strcmp(mode, "absent") != 0)
        unlink(map_path);
    return 0;
}
