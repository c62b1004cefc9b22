/*
 * One stop as text: an example in a report, or a file that has all that is needed to walk it again.
 *
 * Lines of a file, numbers in hexadecimal:
 *   register NAME VALUE                              17 of them, DWARF's order
 *   stack-mapping START END
 *   region START END OFFSET BIAS|- PATH|-            executable mappings
 *   ours|libdwfl|libunwind N AVMA [exact] [fp|cfi] PLACE
 *   ours-end|libdwfl-end|libunwind-end HOW
 *   code N AVMA BYTES                                around the pc of the frame before the difference, and of the
 * others stack AVMA BYTES                                 32 a line, from the red zone on to what the walks used
 */
#ifndef ORACLE_FIXTURE_H
#define ORACLE_FIXTURE_H

#include "common/strbuf.h"
#include "tally.h"

/* What is needed to understand it: registers, the three answers, words of the stack, bytes of the code. */
void fixture_example(const struct comparison *comparison, size_t at, struct strbuf *ret_text);

/* Writes DIR/NAME. Returns 0 or a negative errno. */
int fixture_write(const struct comparison *comparison, const char *dir, const char *name, const char *key);

#endif
