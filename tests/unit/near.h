/* cmocka 1.1.5 compares floats only. */
#ifndef TESTS_UNIT_NEAR_H
#define TESTS_UNIT_NEAR_H

#include "cmocka_all.h"

#include <math.h>

/* NAN is near to nothing. */
#define assert_near(value, expected, most)                                                                             \
    do {                                                                                                               \
        double value_ = (value);                                                                                       \
        double expected_ = (expected);                                                                                 \
        if (!(fabs(value_ - expected_) <= (most)))                                                                     \
            fail_msg("%s is %g, not %g", #value, value_, expected_);                                                   \
    } while (0)

#endif
