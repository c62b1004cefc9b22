/* Numbers out of bounded text. The cursor moves only on success; nothing is read at or beyond `end`. */
#ifndef COMMON_PARSE_H
#define COMMON_PARSE_H

#include <stdbool.h>
#include <stdint.h>

/* One or more digits; false when there is none or the value does not fit. No sign, no prefix, no leading blank. */
bool parse_u64(const char **cursor, const char *end, uint64_t *ret);
bool parse_hex(const char **cursor, const char *end, uint64_t *ret);

/* A NUL-ended string that is a decimal number and nothing else. */
bool parse_number(const char *text, uint64_t *ret);

/* Skips blanks (space, tab); false when there was none. */
bool parse_blanks(const char **cursor, const char *end);

#endif
