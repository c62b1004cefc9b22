#include "common/array.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

int array_reserve(void **data, size_t *capacity, size_t needed, size_t element_bytes)
{
    if (needed <= *capacity)
        return 0;
    size_t wanted = *capacity < 8 ? 8 : *capacity;
    while (wanted < needed) {
        if (wanted > SIZE_MAX / 2)
            return -ENOMEM;
        wanted *= 2;
    }
    if (wanted > SIZE_MAX / element_bytes)
        return -ENOMEM;
    void *grown = realloc(*data, wanted * element_bytes);
    if (!grown)
        return -ENOMEM;
    *data = grown;
    *capacity = wanted;
    return 0;
}
