/* Growth of arrays that a plain pointer, a count and a capacity describe. */
#ifndef COMMON_ARRAY_H
#define COMMON_ARRAY_H

#include <stddef.h>

/*
 * Makes room for `needed` elements of `element_bytes` each. `*data` (from malloc, or NULL) and `*capacity` are updated
 * together, and stay as they were on failure. Capacity at least doubles, so that pushing is O(1) amortised.
 * Returns 0 or -ENOMEM (also when the size in bytes does not fit size_t).
 */
int array_reserve(void **data, size_t *capacity, size_t needed, size_t element_bytes);

/* The same for a typed pointer: array_room(&v->items, &v->capacity, v->count + 1). */
#define array_room(data, capacity, needed) array_reserve((void **)(data), (capacity), (needed), sizeof(**(data)))

#endif
