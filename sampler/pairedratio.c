#include "sampler/pairedratio.h"

#include <math.h>

/* The 97.5th percentile of Student's distribution. */
static double student(size_t freedom)
{
    static const double table[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
                                   2.201,  2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086};
    size_t known = sizeof(table) / sizeof(table[0]);
    if (freedom <= known)
        return table[freedom - 1];
    return 1.96 + 2.5 / (double)freedom; /* within 0.005 of it from there on */
}

static double neighbours(const struct pairedrate *rates, size_t count, size_t at)
{
    double total = 0;
    int found = 0;
    for (size_t i = at; i-- > 0 && found == 0;)
        if (rates[i].plain > 0) {
            total += rates[i].plain;
            found++;
        }
    int before = found;
    for (size_t i = at + 1; i < count && found == before; i++)
        if (rates[i].plain > 0) {
            total += rates[i].plain;
            found++;
        }
    return found ? total / found : NAN;
}

struct pairedratio pairedratio_of(const struct pairedrate *rates, size_t count)
{
    struct pairedratio result = {.ratio = NAN, .low = NAN, .high = NAN};
    double sum = 0;
    double squares = 0;
    for (size_t i = 0; i < count; i++) {
        double change = log(rates[i].measured / neighbours(rates, count, i));
        if (!isfinite(change))
            continue;
        result.pairs++;
        double before = sum / (result.pairs > 1 ? (double)(result.pairs - 1) : 1);
        sum += change;
        squares += (change - before) * (change - sum / (double)result.pairs) * (result.pairs > 1);
    }
    if (result.pairs == 0)
        return result;
    double mean = sum / (double)result.pairs;
    result.ratio = exp(mean);
    if (result.pairs < 2)
        return result;
    double freedom = (double)(result.pairs - 1);
    double half = student(result.pairs - 1) * sqrt(squares / freedom / (double)result.pairs);
    result.low = exp(mean - half);
    result.high = exp(mean + half);
    return result;
}
