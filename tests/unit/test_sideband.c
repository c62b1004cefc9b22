#include "child.h"
#include "guarded.h"

#include "common/rng.h"
#include "sampler/sideband.h"

#include <linux/perf_event.h>
#include <stdlib.h>

/* Records are written as the kernel does: at the head, around the ring's end, never over what was not read. */
struct writer {
    struct guarded memory;
    struct sideband_ring ring;
};

static void writer_init(struct writer *writer, size_t size, uint64_t position)
{
    writer->memory = guarded_new(NULL, size);
    assert_non_null(writer->memory.bytes);
    writer->ring =
        (struct sideband_ring){.bytes = writer->memory.bytes, .size = size, .tail = position, .head = position};
}

static void put(struct writer *writer, const void *data, size_t size)
{
    for (size_t i = 0; i < size; i++)
        writer->memory.bytes[(writer->ring.head + i) % writer->ring.size] = ((const uint8_t *)data)[i];
    writer->ring.head += size;
}

static void put_record(struct writer *writer, uint32_t type, const void *body, size_t body_size, size_t record_size)
{
    static const uint8_t rest[256];
    struct perf_event_header header = {.type = type, .size = (uint16_t)record_size};
    put(writer, &header, sizeof(header));
    put(writer, body, body_size);
    put(writer, rest, record_size - sizeof(header) - body_size);
}

struct task_body {
    uint32_t pid, parent_pid, tid, parent_tid;
    uint64_t time_ns;
};

static void put_task(struct writer *writer, uint32_t type, uint32_t pid, uint32_t parent_pid, uint32_t tid,
                     uint64_t time_ns)
{
    struct task_body body = {.pid = pid, .parent_pid = parent_pid, .tid = tid, .parent_tid = 1, .time_ns = time_ns};
    put_record(writer, type, &body, sizeof(body), sizeof(struct perf_event_header) + sizeof(body));
}

static void expect(struct writer *writer, struct sideband_record wanted)
{
    struct sideband_record record;
    assert_int_equal(sideband_ring_next(&writer->ring, &record), SIDEBAND_NEXT);
    assert_int_equal(record.kind, wanted.kind);
    assert_int_equal(record.pid, wanted.pid);
    assert_int_equal(record.tid, wanted.tid);
    assert_int_equal(record.parent_pid, wanted.parent_pid);
    assert_int_equal(record.time_ns, wanted.time_ns);
    assert_int_equal(record.lost, wanted.lost);
}

static void expect_end(struct writer *writer)
{
    struct sideband_record record;
    assert_int_equal(sideband_ring_next(&writer->ring, &record), SIDEBAND_END);
    assert_int_equal(writer->ring.tail, writer->ring.head);
}

static void test_every_kind(void **state)
{
    (void)state;
    struct writer writer;
    writer_init(&writer, 4096, 0);
    put_task(&writer, PERF_RECORD_FORK, 10, 10, 11, 1000);
    put_task(&writer, PERF_RECORD_FORK, 20, 10, 20, 2000);
    put_task(&writer, PERF_RECORD_EXIT, 10, 10, 11, 3000);
    uint32_t map[2] = {10, 11};
    put_record(&writer, PERF_RECORD_MMAP2, map, sizeof(map), 120);
    put_record(&writer, PERF_RECORD_MMAP, map, sizeof(map), 80);
    put_record(&writer, PERF_RECORD_COMM, map, sizeof(map), 32);
    uint64_t lost[2] = {7, 42};
    put_record(&writer, PERF_RECORD_LOST, lost, sizeof(lost), 24);
    put_record(&writer, PERF_RECORD_LOST_SAMPLES, lost, 8, 16);
    put_record(&writer, 99, NULL, 0, 8);
    expect(&writer,
           (struct sideband_record){.kind = SIDEBAND_FORK, .pid = 10, .parent_pid = 10, .tid = 11, .time_ns = 1000});
    expect(&writer,
           (struct sideband_record){.kind = SIDEBAND_FORK, .pid = 20, .parent_pid = 10, .tid = 20, .time_ns = 2000});
    expect(&writer,
           (struct sideband_record){.kind = SIDEBAND_EXIT, .pid = 10, .parent_pid = 10, .tid = 11, .time_ns = 3000});
    expect(&writer, (struct sideband_record){.kind = SIDEBAND_MAP, .pid = 10, .tid = 11});
    expect(&writer, (struct sideband_record){.kind = SIDEBAND_MAP, .pid = 10, .tid = 11});
    expect(&writer, (struct sideband_record){.kind = SIDEBAND_OTHER});
    expect(&writer, (struct sideband_record){.kind = SIDEBAND_LOST, .lost = 42});
    expect(&writer, (struct sideband_record){.kind = SIDEBAND_LOST, .lost = 7});
    expect(&writer, (struct sideband_record){.kind = SIDEBAND_OTHER});
    expect_end(&writer);
    guarded_free(&writer.memory);
}

/* A record may stand around the end of the ring at each of its bytes, and numbers may pass any limit. */
static void test_wraps_everywhere(void **state)
{
    (void)state;
    for (uint64_t start = 0; start < 64; start++) {
        struct writer writer;
        writer_init(&writer, 64, UINT64_MAX - 31 - start);
        for (uint32_t i = 1; i < 40; i++) {
            put_task(&writer, PERF_RECORD_FORK, i, i, i + 1, i * 10);
            expect(&writer, (struct sideband_record){.kind = SIDEBAND_FORK,
                                                     .pid = (pid_t)i,
                                                     .parent_pid = (pid_t)i,
                                                     .tid = (pid_t)i + 1,
                                                     .time_ns = i * 10});
            expect_end(&writer);
        }
        guarded_free(&writer.memory);
    }
}

static void test_damaged(void **state)
{
    (void)state;
    struct task_body body = {.pid = 1, .parent_pid = 1, .tid = 2};
    const struct {
        uint32_t type;
        uint16_t size;
        size_t there;
    } cases[] = {
        {PERF_RECORD_FORK, 0, 64},  {PERF_RECORD_FORK, 7, 64},   {PERF_RECORD_FORK, 33, 32},
        {PERF_RECORD_FORK, 31, 64}, {PERF_RECORD_FORK, 32, 8},   {PERF_RECORD_FORK, 32, 7},
        {PERF_RECORD_LOST, 16, 64}, {PERF_RECORD_MMAP2, 12, 64}, {PERF_RECORD_FORK, UINT16_MAX, 64},
        {PERF_RECORD_FORK, 32, 65}, /* more than the ring holds: it was written over */
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct writer writer;
        writer_init(&writer, 64, 0);
        struct perf_event_header header = {.type = cases[i].type, .size = cases[i].size};
        put(&writer, &header, sizeof(header));
        put(&writer, &body, sizeof(body));
        writer.ring.head = cases[i].there;
        struct sideband_record record;
        assert_int_equal(sideband_ring_next(&writer.ring, &record), SIDEBAND_DAMAGED);
        expect_end(&writer);
        writer.ring.tail = 0;
        struct sideband_batch batch = {0};
        sideband_batch_take(&batch, &writer.ring);
        assert_true(batch.incomplete);
        assert_int_equal(batch.count, 0);
        sideband_batch_deinit(&batch);
        guarded_free(&writer.memory);
    }
}

/* Whatever bytes stand there: it ends, and reads nothing outside. */
static void test_noise(void **state)
{
    (void)state;
    struct rng rng = {.state = 1};
    for (int round = 0; round < 20000; round++) {
        struct writer writer;
        writer_init(&writer, 256, rng_next(&rng));
        for (size_t i = 0; i < 256; i++)
            writer.memory.bytes[i] = (uint8_t)rng_next(&rng);
        for (size_t i = 0; i + 8 <= 256; i += 8) /* sizes that lead on, most of them */
            if (rng_next(&rng) % 4) {
                struct perf_event_header header = {.type = (uint32_t)rng_below(&rng, 20),
                                                   .size = (uint16_t)(8 + 8 * rng_below(&rng, 6))};
                memcpy(writer.memory.bytes + i, &header, sizeof(header));
            }
        writer.ring.head += rng_next(&rng) % 300;
        struct sideband_batch batch = {0};
        sideband_batch_take(&batch, &writer.ring);
        assert_true(batch.count <= 256 / sizeof(struct perf_event_header));
        expect_end(&writer);
        sideband_batch_deinit(&batch);
        guarded_free(&writer.memory);
    }
}

static void test_batch(void **state)
{
    (void)state;
    struct writer writers[2];
    struct sideband_batch batch = {0};
    for (uint32_t i = 0; i < 2; i++) {
        writer_init(&writers[i], 1024, 0);
        for (uint32_t j = 0; j < 5; j++)
            put_task(&writers[i], PERF_RECORD_FORK, 1, 1, 10 * i + j, 100 + 2 * j + i);
        sideband_batch_take(&batch, &writers[i].ring);
    }
    assert_false(batch.incomplete);
    assert_int_equal(batch.count, 10);
    sideband_batch_sort(&batch);
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(batch.records[i].time_ns, 100 + i);
    uint64_t lost[2] = {0, 3};
    put_record(&writers[0], PERF_RECORD_LOST, lost, sizeof(lost), 24);
    put_record(&writers[0], PERF_RECORD_LOST, lost, sizeof(lost), 24);
    sideband_batch_take(&batch, &writers[0].ring);
    assert_true(batch.incomplete);
    assert_int_equal(batch.lost, 6);
    assert_int_equal(batch.count, 10);
    sideband_batch_clear(&batch);
    assert_int_equal(batch.count + batch.lost, 0);
    assert_false(batch.incomplete);
    sideband_batch_deinit(&batch);
    guarded_free(&writers[0].memory);
    guarded_free(&writers[1].memory);
}

/* ---- with the kernel ---- */

_Noreturn static void fork_and_thread(struct child_page *page)
{
    page->ready = 1;
    child_wait(&page->go, 1);
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    page->tids[0] = (int)pid;
    waitpid(pid, NULL, 0);
    mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page->ready = 2;
    for (;;)
        pause();
}

static size_t count_kind(const struct sideband_batch *batch, enum sideband_kind kind, pid_t pid)
{
    size_t count = 0;
    for (size_t i = 0; i < batch->count; i++)
        count += batch->records[i].kind == kind && batch->records[i].pid == pid;
    return count;
}

static void expect_told(bool machine)
{
    struct sideband *sideband;
    struct child child = child_start(fork_and_thread);
    int error = sideband_new(machine, true, &sideband);
    if (!error && !machine)
        error = sideband_add_thread(sideband, child.pid);
    if (error) { /* the kernel does not let us: that is no matter of ours */
        print_message("not allowed: %s\n", strerror(-error));
        child_end(&child);
        skip();
    }
    assert_int_equal(sideband_has_thread(sideband, child.pid), !machine);
    child.page->go = 1;
    child_wait(&child.page->ready, 2);
    struct sideband_batch batch = {0};
    sideband_read(sideband, &batch);
    assert_false(batch.incomplete);
    pid_t forked = child.page->tids[0];
    assert_int_equal(count_kind(&batch, SIDEBAND_FORK, forked), 1);
    assert_int_equal(count_kind(&batch, SIDEBAND_EXIT, forked), 1);
    assert_int_equal(count_kind(&batch, SIDEBAND_MAP, child.pid), 1);
    sideband_batch_clear(&batch);
    sideband_read(sideband, &batch);
    assert_int_equal(count_kind(&batch, SIDEBAND_FORK, forked), 0); /* each once */
    sideband_batch_deinit(&batch);
    sideband_free(sideband);
    child_end(&child);
}

static void test_machine(void **state)
{
    (void)state;
    expect_told(true);
}

static void test_thread(void **state)
{
    (void)state;
    expect_told(false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_kind), cmocka_unit_test(test_wraps_everywhere),
        cmocka_unit_test(test_damaged),    cmocka_unit_test(test_noise),
        cmocka_unit_test(test_batch),      cmocka_unit_test(test_machine),
        cmocka_unit_test(test_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
