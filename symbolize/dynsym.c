#include "symbolize/dynsym.h"

#include "symbolize/dynamic.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SYMBOLS_MAX = 1 << 20, NAMES_MAX_BYTES = 16 << 20, SYMBOLS_AT_ONCE = 512 };

static int read_image(void *context, uint64_t svma, void *buffer, size_t size)
{
    return image_read_svma(context, svma, buffer, size);
}

static int read_dynamic(const struct image *image, struct dynamic *ret)
{
    struct image_section section;
    uint8_t bytes[DYNAMIC_BYTES_MAX];
    if (!image_find_dynamic(image, &section))
        return -ENODATA;
    size_t size = section.bytes < sizeof(bytes) ? (size_t)section.bytes : sizeof(bytes);
    if (image_read_off(image, section.off, bytes, size) != 0 || !dynamic_parse(bytes, size, ret))
        return -ENODATA;
    return ret->strings_bytes <= NAMES_MAX_BYTES ? 0 : -ENODATA;
}

static bool is_defined_function(const Elf64_Sym *symbol)
{
    unsigned binding = ELF64_ST_BIND(symbol->st_info);
    return symbol->st_shndx != SHN_UNDEF && ELF64_ST_TYPE(symbol->st_info) == STT_FUNC && symbol->st_value != 0 &&
           (binding == STB_GLOBAL || binding == STB_WEAK);
}

/* The names end with a NUL that we have put there. */
static void match(const Elf64_Sym *symbol, const char *strings, const char *const *names, size_t count, uint64_t *svmas)
{
    for (size_t i = 0; i < count; i++)
        if (!svmas[i] && strcmp(strings + symbol->st_name, names[i]) == 0)
            svmas[i] = symbol->st_value;
}

static int search(const struct image *image, const struct dynamic *dynamic, uint64_t symbols, const char *strings,
                  const char *const *names, size_t count, uint64_t *svmas)
{
    Elf64_Sym some[SYMBOLS_AT_ONCE];
    for (uint64_t at = 0; at < symbols;) {
        size_t part = symbols - at < SYMBOLS_AT_ONCE ? (size_t)(symbols - at) : SYMBOLS_AT_ONCE;
        if (image_read_svma(image, dynamic->symbols_svma + at * sizeof(*some), some, part * sizeof(*some)) != 0)
            return -ENODATA;
        for (size_t i = 0; i < part; i++)
            if (some[i].st_name < dynamic->strings_bytes && is_defined_function(&some[i]))
                match(&some[i], strings, names, count, svmas);
        at += part;
    }
    return 0;
}

int dynsym_find(const struct image *image, const char *const *names, size_t count, uint64_t *ret_svmas)
{
    struct dynamic dynamic;
    uint64_t symbols;
    uint64_t hash_bytes;
    struct svma_reader reader = {.read = read_image, .context = (void *)image};
    memset(ret_svmas, 0, count * sizeof(*ret_svmas));
    int error = read_dynamic(image, &dynamic);
    if (error)
        return error;
    if (!dynamic_count(&dynamic, &reader, &symbols, &hash_bytes) || symbols > SYMBOLS_MAX)
        return -ENODATA;
    char *strings = malloc((size_t)dynamic.strings_bytes + 1);
    if (!strings)
        return -ENOMEM;
    strings[dynamic.strings_bytes] = '\0';
    error = image_read_svma(image, dynamic.strings_svma, strings, (size_t)dynamic.strings_bytes) != 0 ? -ENODATA : 0;
    if (!error)
        error = search(image, &dynamic, symbols, strings, names, count, ret_svmas);
    free(strings);
    return error;
}
