#include "sampler/helpedparts.h"

#include "common/array.h"

#include <stdlib.h>
#include <string.h>

void helpedparts_deinit(struct helpedparts *parts)
{
    for (size_t i = 0; i < HELPEDPARTS; i++)
        free(parts->all[i].frames);
    *parts = (struct helpedparts){0};
}

static struct helpedpart *find(struct helpedparts *parts, const void *owner, pid_t tid)
{
    for (size_t i = 0; i < HELPEDPARTS; i++)
        if (parts->all[i].owner == owner && parts->all[i].tid == tid)
            return &parts->all[i];
    return NULL;
}

static void give_up(struct helpedparts *parts, struct helpedpart *part)
{
    if (part && part->owner)
        parts->lost++;
    if (part)
        part->owner = NULL;
}

const struct helpedpart *helpedparts_add(struct helpedparts *parts, const void *owner, const struct helper_event *event,
                                         const uint8_t *bytes, size_t max_depth)
{
    struct helpedpart *part = find(parts, owner, event->tid);
    if (part && event->part != part->next) {
        give_up(parts, part);
        part = NULL;
    }
    if (!part && event->part != 0)
        return NULL;
    if (!part) {
        part = &parts->all[parts->next++ % HELPEDPARTS];
        give_up(parts, part);
        part->owner = owner;
        part->tid = event->tid;
        part->next = 0;
        part->count = 0;
    }
    size_t count = part->count + event->count;
    if (count > max_depth + HELPER_RECORD_FRAMES || array_room(&part->frames, &part->capacity, count)) {
        give_up(parts, part);
        return NULL;
    }
    memcpy(part->frames + part->count, bytes, event->count * sizeof(uint64_t));
    part->count = count;
    part->next++;
    return part;
}

void helpedparts_take(struct helpedparts *parts, const struct helpedpart *part)
{
    parts->all[part - parts->all].owner = NULL;
}

void helpedparts_give_up(struct helpedparts *parts, const void *owner, pid_t tid)
{
    give_up(parts, find(parts, owner, tid));
}

void helpedparts_drop(struct helpedparts *parts, const void *owner, pid_t tid)
{
    struct helpedpart *part = find(parts, owner, tid);
    if (part)
        part->owner = NULL;
}
