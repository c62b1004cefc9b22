#include "cmocka_all.h"

#include "sampler/stackcopy.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RED_ZONE = 128, PIECE_BYTES = 128 << 10, AREA_BYTES = 10 * PIECE_BYTES + 12345 };

struct fixture {
    uint8_t *area; /* its last page is followed by one that cannot be read */
    uint8_t *copy;
    int mem_fd;
    uint64_t sp;
    uint64_t end;
};

static int setup(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    size_t bytes = ((size_t)AREA_BYTES + 8191) / 4096 * 4096;
    fixture->area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fixture->area == MAP_FAILED || mprotect(fixture->area + bytes - 4096, 4096, PROT_NONE))
        return -1;
    fixture->copy = malloc(2 * (size_t)AREA_BYTES);
    for (size_t i = 0; i < bytes - 4096; i++)
        fixture->area[i] = (uint8_t)(i * 31 + i / 4096);
    fixture->sp = (uintptr_t)fixture->area + 1000;
    fixture->end = (uintptr_t)fixture->area + bytes - 4096;
    fixture->mem_fd = -1;
    *state = fixture;
    return 0;
}

static int setup_by_memory(void **state)
{
    if (setup(state))
        return -1;
    struct fixture *fixture = *state;
    fixture->mem_fd = open("/proc/self/mem", O_RDONLY | O_CLOEXEC);
    return fixture->mem_fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
    struct fixture *fixture = *state;
    munmap(fixture->area, ((size_t)AREA_BYTES + 8191) / 4096 * 4096);
    if (fixture->mem_fd >= 0)
        close(fixture->mem_fd);
    free(fixture->copy);
    free(fixture);
    return 0;
}

static size_t copy(struct fixture *fixture, uint64_t limit, uint64_t until_ns, size_t size, bool *ret_cut)
{
    uint64_t start = 0;
    memset(fixture->copy, 0, 2 * (size_t)AREA_BYTES);
    struct stackcopy copy = {.tid = getpid(), .mem_fd = fixture->mem_fd, .until_ns = until_ns};
    size_t got = stackcopy_read(&copy, fixture->sp, limit, fixture->copy, size, &start);
    *ret_cut = copy.is_cut;
    assert_int_equal(start, fixture->sp - RED_ZONE);
    assert_memory_equal(fixture->copy, (const void *)(uintptr_t)start, got);
    return got;
}

static void all_of_it_when_there_is_time(void **state)
{
    struct fixture *fixture = *state;
    static const size_t sizes[] = {
        1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, AREA_BYTES - 1000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        bool cut = true;
        assert_int_equal(copy(fixture, 0, UINT64_MAX, sizes[i], &cut), sizes[i]);
        assert_false(cut);
        /* The same by the limit. */
        assert_int_equal(copy(fixture, fixture->sp - RED_ZONE + sizes[i], UINT64_MAX, AREA_BYTES, &cut), sizes[i]);
        assert_false(cut);
    }
}

static void one_piece_when_there_is_none(void **state)
{
    struct fixture *fixture = *state;
    bool cut = false;
    assert_int_equal(copy(fixture, 0, 0, AREA_BYTES, &cut), PIECE_BYTES);
    assert_true(cut);
    /* What fits into one piece is whole. */
    assert_int_equal(copy(fixture, 0, 0, PIECE_BYTES, &cut), PIECE_BYTES);
    assert_false(cut);
    assert_int_equal(copy(fixture, 0, 0, 100, &cut), 100);
    assert_false(cut);
}

static void a_hole_ends_it(void **state)
{
    struct fixture *fixture = *state;
    bool cut = true;
    assert_int_equal(copy(fixture, 0, UINT64_MAX, 2 * (size_t)AREA_BYTES, &cut), fixture->end - fixture->sp + RED_ZONE);
    assert_false(cut);
}

/* What a small copy through the memory's descriptor tells beside the bytes. */
static void tells_of_the_memory(void **state)
{
    struct fixture *fixture = *state;
    uint64_t start;
    struct stackcopy copy = {.tid = getpid(), .mem_fd = fixture->mem_fd};
    assert_int_equal(stackcopy_read(&copy, fixture->sp, fixture->end, fixture->copy, 5000, &start), 5000);
    assert_true(copy.has_memory);
    assert_false(copy.memory_gone);
    /* No memory at that place is another matter. */
    munmap((void *)(uintptr_t)fixture->end, 4096);
    assert_int_equal(stackcopy_read(&copy, fixture->end + 500, fixture->end + 4000, fixture->copy, 300, &start), 0);
    assert_false(copy.has_memory);
    assert_false(copy.memory_gone);
    /* A large one asks the kernel by another way. */
    assert_int_equal(stackcopy_read(&copy, fixture->sp, fixture->end, fixture->copy, PIECE_BYTES, &start), PIECE_BYTES);
    assert_false(copy.has_memory);
    assert_false(copy.memory_gone);

    pid_t child = fork();
    if (child == 0) {
        pause();
        _exit(0);
    }
    char path[32];
    snprintf(path, sizeof(path), "/proc/%d/mem", (int)child);
    copy.mem_fd = open(path, O_RDONLY | O_CLOEXEC);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    assert_int_equal(stackcopy_read(&copy, fixture->sp, fixture->end, fixture->copy, 5000, &start), 0);
    assert_true(copy.memory_gone);
    close(copy.mem_fd);
}

static void ends_above_what_was_needed(void **state)
{
    (void)state;
    assert_int_equal(stackcopy_end(0x7000, 0, 0x20000), 0x20000);
    assert_int_equal(stackcopy_end(0x7000, 0x8000, 0x20000), 0x8400);
    assert_int_equal(stackcopy_end(0x7000, 0x1fc00, 0x20000), 0x20000); /* not beyond the end */
    assert_int_equal(stackcopy_end(0x7000, 0x7000, 0x20000), 0x20000);  /* the top of another stack below */
    assert_int_equal(stackcopy_end(0x7000, 0x30000, 0x20000), 0x20000); /* and above */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(all_of_it_when_there_is_time, setup, teardown),
        cmocka_unit_test_setup_teardown(one_piece_when_there_is_none, setup, teardown),
        cmocka_unit_test_setup_teardown(a_hole_ends_it, setup, teardown),
        cmocka_unit_test(ends_above_what_was_needed),
        cmocka_unit_test_setup_teardown(all_of_it_when_there_is_time, setup_by_memory, teardown),
        cmocka_unit_test_setup_teardown(one_piece_when_there_is_none, setup_by_memory, teardown),
        cmocka_unit_test_setup_teardown(a_hole_ends_it, setup_by_memory, teardown),
        cmocka_unit_test_setup_teardown(tells_of_the_memory, setup_by_memory, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
