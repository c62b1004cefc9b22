/* The ring between a helper and the sampler: whole records arrive in order, and nothing that is in it can do harm. */
#include "cmocka_all.h"

#include "common/clock.h"
#include "common/rng.h"
#include "helper/ring.h"
#include "sampler/helperring.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct fixture {
    struct helper_ring *ring;
    struct helperring reader;
    uint8_t *buffer;
};

static int set_up(void **state)
{
    struct fixture *fixture = calloc(1, sizeof(*fixture));
    fixture->ring = aligned_alloc(64, sizeof(*fixture->ring));
    memset(fixture->ring, 0, sizeof(*fixture->ring));
    fixture->reader.ring = fixture->ring;
    fixture->buffer = malloc(HELPERRING_BUFFER_BYTES);
    *state = fixture;
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *fixture = *state;
    free(fixture->ring);
    free(fixture->buffer);
    free(fixture);
    return 0;
}

/* A stack of `count` frames first, first + 1, ... false: no room. */
static bool write_frames(struct helper_ring *ring, int32_t tid, uint64_t first, uint32_t count)
{
    uint64_t position;
    struct helper_record *record = ring_reserve(ring, count * sizeof(uint64_t), &position);
    if (!record)
        return false;
    record->kind = HELPER_RECORD_FRAMES_LAST;
    record->tid = tid;
    record->slot = HELPER_SLOTS;
    record->ticks = 1;
    record->blocked_ticks = 0;
    record->handler_tsc = 7;
    record->part = 0;
    record->unloads = 0;
    record->count = count;
    uint64_t *frames = (uint64_t *)(void *)(record + 1);
    for (uint32_t i = 0; i < count; i++)
        frames[i] = first + i;
    ring_commit(record, position);
    return true;
}

/* All that is there by now is to be read. */
static bool next(struct fixture *fixture, struct helper_event *ret)
{
    helperring_begin(&fixture->reader, 1);
    return helperring_next(&fixture->reader, fixture->buffer, ret);
}

static void assert_frames(struct fixture *fixture, int32_t tid, uint64_t first, uint32_t count)
{
    struct helper_event event;
    assert_true(next(fixture, &event));
    assert_int_equal(event.kind, HELPER_RECORD_FRAMES_LAST);
    assert_int_equal(event.tid, tid);
    assert_int_equal(event.count, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(((uint64_t *)(void *)fixture->buffer)[i], first + i);
}

/* Many turns of the ring, with records of all sizes, so that each way of meeting its end occurs. */
static void records_arrive_in_order(void **state)
{
    struct fixture *fixture = *state;
    struct rng rng = {.state = 1};
    struct helper_event event;
    uint64_t written = 0;
    uint64_t bytes = 0;
    while (bytes < 5 * (uint64_t)HELPER_RING_BYTES) {
        uint32_t counts[64];
        uint32_t batch = 1 + (uint32_t)rng_below(&rng, 64);
        for (uint32_t i = 0; i < batch; i++) {
            counts[i] = 1 + (uint32_t)rng_below(&rng, HELPER_RECORD_FRAMES);
            assert_true(write_frames(fixture->ring, 1 + (int32_t)i, written + i, counts[i]));
            bytes += counts[i] * sizeof(uint64_t);
        }
        for (uint32_t i = 0; i < batch; i++)
            assert_frames(fixture, 1 + (int32_t)i, written + i, counts[i]);
        written += batch;
        assert_false(next(fixture, &event));
    }
    assert_int_equal(fixture->reader.resets, 0);
}

static void full_ring_takes_no_more(void **state)
{
    struct fixture *fixture = *state;
    uint64_t written = 0;
    while (write_frames(fixture->ring, 1, written, HELPER_RECORD_FRAMES))
        written++;
    assert_true(written > 1000);
    for (uint64_t i = 0; i < written; i++)
        assert_frames(fixture, 1, i, HELPER_RECORD_FRAMES);
    assert_true(write_frames(fixture->ring, 1, 5, 3));
    assert_frames(fixture, 1, 5, 3);
}

/* A handler that was interrupted between the two: the reader waits for it. */
static void unfinished_record_is_waited_for(void **state)
{
    struct fixture *fixture = *state;
    struct helper_event event;
    uint64_t position;
    struct helper_record *record = ring_reserve(fixture->ring, 0, &position);
    assert_non_null(record);
    assert_true(write_frames(fixture->ring, 2, 10, 1));
    assert_false(next(fixture, &event));
    record->kind = HELPER_RECORD_NO_ROOM;
    record->tid = 1;
    record->slot = 0;
    record->ticks = 3;
    record->blocked_ticks = 0;
    record->count = 0;
    ring_commit(record, position);
    assert_true(next(fixture, &event));
    assert_int_equal(event.kind, HELPER_RECORD_NO_ROOM);
    assert_int_equal(event.ticks, 3);
    assert_frames(fixture, 2, 10, 1);
}

static void copy_arrives_whole(void **state)
{
    struct fixture *fixture = *state;
    struct helper_event event;
    uint64_t position;
    struct helper_record *record =
        ring_reserve(fixture->ring, sizeof(struct helper_copy) + HELPER_COPY_BYTES, &position);
    assert_non_null(record);
    record->kind = HELPER_RECORD_COPY;
    record->tid = 1;
    record->slot = 5;
    record->ticks = 1;
    record->blocked_ticks = 2;
    record->count = HELPER_COPY_BYTES;
    struct helper_copy *copy = (struct helper_copy *)(void *)(record + 1);
    copy->registers = (struct registers){.known = UINT32_MAX};
    copy->registers.value[REGISTER_PC] = 77;
    copy->avma = 4096;
    memset(copy + 1, 0x5a, HELPER_COPY_BYTES);
    ring_commit(record, position);
    assert_true(next(fixture, &event));
    assert_int_equal(event.kind, HELPER_RECORD_COPY);
    assert_int_equal(event.registers.known, REGISTERS_ALL);
    assert_int_equal(event.registers.value[REGISTER_PC], 77);
    assert_int_equal(event.avma, 4096);
    assert_int_equal(event.blocked_ticks, 2);
    assert_int_equal(event.count, HELPER_COPY_BYTES);
    for (size_t i = 0; i < HELPER_COPY_BYTES; i++)
        assert_int_equal(fixture->buffer[i], 0x5a);
}

/* Handlers of several threads at once, and the reader beside them: each thread's records come in its order, or were
 * refused. */
struct writer {
    _Atomic int *finished;
    struct helper_ring *ring;
    int32_t tid;
    uint64_t written;
    uint64_t lost;
};
enum { WRITERS = 3, WRITES = 20000 };

static void *write_many(void *context)
{
    struct writer *writer = context;
    struct rng rng = {.state = (uint64_t)writer->tid};
    for (uint64_t i = 0; i < WRITES; i++) {
        if (write_frames(writer->ring, writer->tid, i, 1 + (uint32_t)rng_below(&rng, 40)))
            writer->written++;
        else
            writer->lost++;
    }
    atomic_fetch_add(writer->finished, 1);
    return NULL;
}

static void writers_do_not_disturb_each_other(void **state)
{
    struct fixture *fixture = *state;
    struct writer writers[WRITERS] = {0};
    pthread_t threads[WRITERS];
    uint64_t expected[WRITERS] = {0};
    uint64_t got[WRITERS] = {0};
    _Atomic int finished = 0;
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.finished = &finished, .ring = fixture->ring, .tid = i + 1};
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, &writers[i]), 0);
    }
    for (bool is_last = false; !is_last;) {
        is_last = atomic_load(&finished) == WRITERS;
        struct helper_event event;
        while (next(fixture, &event)) {
            const uint64_t *frames = (const uint64_t *)(const void *)fixture->buffer;
            assert_in_range(event.tid, 1, WRITERS);
            assert_true(frames[0] >= expected[event.tid - 1]);
            assert_int_equal(frames[event.count - 1], frames[0] + event.count - 1);
            expected[event.tid - 1] = frames[0] + 1;
            got[event.tid - 1]++;
        }
    }
    for (int i = 0; i < WRITERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(got[i], writers[i].written);
    }
    assert_int_equal(fixture->reader.resets, 0);
}

static void assert_bounded(const struct helper_event *event)
{
    assert_true(event->kind > HELPER_RECORD_PAD && event->kind <= HELPER_RECORD_NO_ROOM);
    assert_true(event->slot <= HELPER_SLOTS);
    assert_true(event->tid > 0);
    assert_in_range(event->ticks, 1, HELPERRING_TICKS_MAX);
    assert_true(event->count <= HELPERRING_BUFFER_BYTES);
}

/* Its handler was jumped out of: it will never be whole, and what is behind it must not be lost for ever. */
static void record_that_stays_unfinished_is_given_up(void **state)
{
    struct fixture *fixture = *state;
    struct helper_event event;
    uint64_t position;
    assert_non_null(ring_reserve(fixture->ring, 0, &position));
    assert_true(write_frames(fixture->ring, 2, 10, 1));
    for (uint64_t now_ns = NS_PER_SEC; now_ns <= 2 * NS_PER_SEC; now_ns += NS_PER_SEC / 10) {
        helperring_begin(&fixture->reader, now_ns);
        assert_false(helperring_next(&fixture->reader, fixture->buffer, &event));
        assert_int_equal(fixture->reader.resets, 0);
    }
    helperring_begin(&fixture->reader, 2 * NS_PER_SEC + NS_PER_SEC / 10);
    assert_false(helperring_next(&fixture->reader, fixture->buffer, &event));
    assert_int_equal(fixture->reader.resets, 1);
    assert_true(write_frames(fixture->ring, 3, 20, 2));
    assert_frames(fixture, 3, 20, 2);
}

/* Who writes as fast as we read does not keep us. */
static void reading_ends_where_it_was_to_end(void **state)
{
    struct fixture *fixture = *state;
    struct helper_event event;
    unsigned count = 0;
    for (int i = 0; i < 10; i++)
        assert_true(write_frames(fixture->ring, 1, (uint64_t)i, 3));
    helperring_begin(&fixture->reader, 1);
    while (helperring_next(&fixture->reader, fixture->buffer, &event)) {
        assert_true(++count <= 10);
        assert_true(write_frames(fixture->ring, 1, 100 + count, 3));
    }
    assert_int_equal(count, 10);
    assert_frames(fixture, 1, 101, 3);
}

/* A record that says of itself what cannot be: given up, with all that is there. */
static void impossible_records_are_given_up(void **state)
{
    struct fixture *fixture = *state;
    struct helper_event event;
    static const struct {
        size_t off;
        uint32_t value;
    } lies[] = {{offsetof(struct helper_record, size), 0},
                {offsetof(struct helper_record, size), 33},
                {offsetof(struct helper_record, size), HELPER_RING_BYTES + 32},
                {offsetof(struct helper_record, size), UINT32_MAX},
                {offsetof(struct helper_record, kind), 99},
                {offsetof(struct helper_record, kind), HELPER_RECORD_COPY},
                {offsetof(struct helper_record, count), 0},
                {offsetof(struct helper_record, count), 65},
                {offsetof(struct helper_record, count), UINT32_MAX},
                {offsetof(struct helper_record, tid), 0},
                {offsetof(struct helper_record, tid), UINT32_MAX},
                {offsetof(struct helper_record, slot), HELPER_SLOTS + 1},
                {offsetof(struct helper_record, ticks), 0},
                {offsetof(struct helper_record, ticks), UINT32_MAX},
                {offsetof(struct helper_record, blocked_ticks), UINT32_MAX}};
    for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
        uint64_t at = atomic_load(&fixture->ring->head) % HELPER_RING_BYTES;
        uint64_t resets = fixture->reader.resets;
        assert_true(write_frames(fixture->ring, 1, 0, 2));
        memcpy(fixture->ring->bytes + at + lies[i].off, &lies[i].value, sizeof(lies[i].value));
        if (next(fixture, &event))
            fail_msg("lie %zu was believed", i);
        assert_int_equal(fixture->reader.resets, resets + 1);
        assert_true(write_frames(fixture->ring, 1, 40 + i, 2));
        assert_frames(fixture, 1, 40 + i, 2);
    }
}

/* Whatever is written anywhere, what is read is within its bounds and the reader comes to an end. */
static void garbage_does_no_harm(void **state)
{
    struct fixture *fixture = *state;
    struct rng rng = {.state = 42};
    for (int round = 0; round < 3000; round++) {
        struct helper_event event;
        for (int i = 0; i < 5; i++)
            write_frames(fixture->ring, 1, (uint64_t)i, 1 + (uint32_t)rng_below(&rng, 60));
        for (uint64_t i = rng_below(&rng, 20); i > 0; i--) {
            uint64_t at = fixture->reader.tail + rng_below(&rng, 2048);
            fixture->ring->bytes[at % HELPER_RING_BYTES] = (uint8_t)rng_next(&rng);
        }
        if (rng_below(&rng, 10) == 0)
            atomic_store(&fixture->ring->head, rng_next(&rng) >> rng_below(&rng, 64));
        if (rng_below(&rng, 10) == 0)
            atomic_store(&fixture->ring->tail, rng_next(&rng));
        uint64_t count = 0;
        while (next(fixture, &event)) {
            assert_bounded(&event);
            assert_true(++count < HELPER_RING_BYTES / HELPER_RECORD_ALIGN);
        }
        atomic_store(&fixture->ring->head, fixture->reader.tail);
        atomic_store(&fixture->ring->tail, fixture->reader.tail);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(records_arrive_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(full_ring_takes_no_more, set_up, tear_down),
        cmocka_unit_test_setup_teardown(unfinished_record_is_waited_for, set_up, tear_down),
        cmocka_unit_test_setup_teardown(copy_arrives_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(writers_do_not_disturb_each_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(record_that_stays_unfinished_is_given_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(reading_ends_where_it_was_to_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(impossible_records_are_given_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(garbage_does_no_harm, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
