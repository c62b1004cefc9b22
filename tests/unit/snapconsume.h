/* Reads a whole snapshot file as a report does. */
#ifndef TESTS_UNIT_SNAPCONSUME_H
#define TESTS_UNIT_SNAPCONSUME_H

#include "cmocka_all.h"

#include "sampler/digest.h"
#include "sampler/snapread.h"

static inline void count_warning(void *context, const char *text)
{
    (void)text;
    ++*(int *)context;
}

struct consumed {
    size_t items;
    enum snapread_answer answer;
    uint64_t offset;
};

/* Reads all and makes a profile of it, as a report does. Returns what opening or reading returned. */
static inline int consume(int fd, bool unwinds, struct consumed *ret)
{
    int warnings = 0;
    struct snapread *read;
    int error = snapread_open(fd, count_warning, &warnings, &read);
    if (error)
        return error;
    struct profile *profile = profile_new();
    struct digest digest;
    assert_int_equal(digest_init(&digest, snapread_run(read)->unwind, 64, profile), 0);
    *ret = (struct consumed){0};
    for (;;) {
        struct item item;
        error = snapread_next(read, &item, &ret->answer);
        if (error || ret->answer != SNAPREAD_ITEM)
            break;
        ret->items++;
        struct memory_reader reader = snapread_reader(read, item.space);
        if (item.kind == ITEM_SPACE_END)
            space_close(item.space);
        else if (item.kind == ITEM_REPEAT)
            assert_int_equal(digest_repeat(&digest, &item), 0);
        else if (unwinds)
            assert_int_equal(digest_add(&digest, &item, &reader), 0);
    }
    ret->offset = snapread_offset(read);
    digest_deinit(&digest);
    profile_free(profile);
    snapread_free(read);
    return error;
}

#endif
