/* Names as text formats may show them: one line, valid UTF-8, no separator inside. The rules are the collapsed
 * format's. */
#ifndef OUTPUT_CLEAN_H
#define OUTPUT_CLEAN_H

#include "common/strbuf.h"
#include "profile/profile.h"

#include <stdbool.h>

/*
 * Appends `name` cleaned, in this order: ';' becomes ':'; every control byte (newline and DEL too) a blank; bytes that
 * are not valid UTF-8 '?'; leading and trailing blanks go; an empty name becomes "[unknown]". `is_last`: a name that
 * ends in blanks and a number gets '_' for the last of those blanks, so that nobody reads the number as a count.
 */
void clean_name(struct strbuf *to, const char *name, bool is_last);

/* The mark behind a cleaned name: "_[i]", "_[j]", "_[k]" or "". */
const char *clean_suffix(enum name_kind kind);

#endif
