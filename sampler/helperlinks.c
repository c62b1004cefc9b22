#include "sampler/helperlinks.h"

#include "common/array.h"
#include "common/clock.h"

#include <stdlib.h>

int helperlinks_add(struct helperlinks *links, struct helperlink *link)
{
    int error = array_room(&links->all, &links->capacity, links->count + 1);
    if (error)
        helperlink_free(link);
    else
        links->all[links->count++] = link;
    return error;
}

int helperlinks_inject(struct helperlinks *links, const struct options *options, const struct attached *attached,
                       size_t count, struct strbuf *ret_why)
{
    int error = 0;
    for (size_t i = 0; i < count && !error; i++) {
        struct helperlink *link = NULL;
        error = helperlink_inject(options, attached[i].pid, attached[i].proc_fd, HELPERLINK_INJECT_TIMEOUT_NS, &link,
                                  ret_why);
        if (!error)
            error = helperlinks_add(links, link);
        for (size_t j = 0; j < links->count; j++)
            helperlink_beat(links->all[j], clock_now_ns()); /* they may have waited for this one for long */
    }
    return error;
}

struct helperlink *helperlinks_get(const struct helperlinks *links, size_t index)
{
    return index < links->count ? links->all[index] : NULL;
}

void helperlinks_deinit(struct helperlinks *links, bool are_unused)
{
    for (size_t i = 0; i < links->count; i++) {
        if (are_unused)
            helperlink_ask_withdraw(links->all[i]);
        helperlink_free(links->all[i]);
    }
    free(links->all);
    *links = (struct helperlinks){0};
}
