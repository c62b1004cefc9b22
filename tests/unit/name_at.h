/* The name of one address, for tests. */
#ifndef TESTS_UNIT_NAME_AT_H
#define TESTS_UNIT_NAME_AT_H

#include "cmocka_all.h"

#include "symbolize/symbolize.h"

static const struct symbolizer_options names_only;

static int take_name(void *context, size_t index, const struct called *called, size_t count)
{
    const char **name = context;
    assert_int_equal(index, 0);
    *name = count ? called[0].function : NULL;
    return 0;
}

/* NULL: it has none. */
static const char *name_at(struct symbolizer *symbolizer, const struct image *image, uint64_t off)
{
    const char *name = NULL;
    assert_int_equal(symbolizer_resolve(symbolizer, image, &off, 1, take_name, &name), 0);
    return name;
}

#endif
