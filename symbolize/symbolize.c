#include "symbolize/symbolize.h"

#include "common/array.h"
#include "common/strings.h"
#include "symbolize/debugdata.h"
#include "symbolize/debugfile.h"
#include "symbolize/debuginfo.h"
#include "symbolize/demangle.h"
#include "symbolize/dwarffile.h"
#include "symbolize/gopclntab.h"
#include "symbolize/symtab.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So many addresses between two questions whether to give up. */
enum { ASK_ADDRESSES = 64 };

/* What is known of one image. */
struct module {
    const struct image *image;
    struct image *debug;     /* owned; its debug file, or NULL */
    struct image *debugdata; /* owned; what its .gnu_debugdata is, or NULL */
    struct symtab *symbols;
    struct symtab *go_symbols;   /* NULL: `symbols` has all that there are */
    struct debuginfo *debuginfo; /* NULL: none, or not wanted */
    uint64_t debug_bias;         /* what the image's addresses have more than those of the debug information */
};

struct symbolizer {
    struct symbolizer_options options;
    struct debugfile_search search;
    struct strings texts; /* names as they are in files, readable ones, paths */
    uint32_t *readable;   /* by the number of a text: that of the readable name + 1; 0: not asked for yet */
    size_t readable_capacity;
    struct called *called; /* what was found last */
    size_t called_capacity;
};

struct symbolizer *symbolizer_new(const struct symbolizer_options *options)
{
    struct symbolizer *symbolizer = calloc(1, sizeof(*symbolizer));
    if (!symbolizer || strings_init(&symbolizer->texts)) {
        free(symbolizer);
        return NULL;
    }
    symbolizer->options = *options;
    const char *why = NULL;
    struct debuginfod *debuginfod =
        options->debuginfod ? debuginfod_new(options->is_cancelled, options->context, &why) : NULL;
    if (why && options->warn) {
        char text[96];
        snprintf(text, sizeof(text), "no debug files are fetched: %s", why);
        options->warn(options->context, text);
    }
    symbolizer->search =
        (struct debugfile_search){.directory = options->debug_directory ? options->debug_directory : "/usr/lib/debug",
                                  .debuginfod = debuginfod,
                                  .warn = options->warn,
                                  .context = options->context};
    return symbolizer;
}

void symbolizer_free(struct symbolizer *symbolizer)
{
    if (!symbolizer)
        return;
    debuginfod_free(symbolizer->search.debuginfod);
    strings_deinit(&symbolizer->texts);
    free(symbolizer->readable);
    free(symbolizer->called);
    free(symbolizer);
}

/* ---- what is known of an image ---- */

static int read_symbols(struct module *module)
{
    const struct image *images[SYMTAB_IMAGES_MAX] = {module->image};
    size_t count = 1;
    if (module->debug)
        images[count++] = module->debug;
    if (module->debugdata)
        images[count++] = module->debugdata;
    int error = symtab_new_merged(images, count, &module->symbols);
    if (!error && !symtab_has_locals(module->symbols))
        error = gopclntab_symbols(module->image, &module->go_symbols);
    return error;
}

static int read_debuginfo(struct module *module, const struct symbolizer *symbolizer)
{
    uint64_t svma;
    uint64_t debug_svma;
    int error = debuginfo_new(module->image, &symbolizer->search, symbolizer->options.lines, &module->debuginfo);
    if (error || module->debuginfo || !module->debug)
        return error;
    if (image_code_start(module->image, &svma) && image_code_start(module->debug, &debug_svma))
        module->debug_bias = svma - debug_svma;
    return debuginfo_new(module->debug, &symbolizer->search, symbolizer->options.lines, &module->debuginfo);
}

static int read_module(struct module *module, const struct symbolizer *symbolizer)
{
    struct image_section section;
    bool is_stripped = !image_find_section(module->image, ".symtab", &section);
    bool wants_debuginfo = symbolizer->options.inlines || symbolizer->options.lines;
    bool lacks = is_stripped || (wants_debuginfo && !dwarffile_has_any(module->image));
    int error = lacks ? debugfile_find(&symbolizer->search, module->image, &module->debug) : 0;
    if (!error && is_stripped && !module->debug)
        error = debugdata_open(module->image, &module->debugdata);
    if (!error)
        error = read_symbols(module);
    if (!error && wants_debuginfo)
        error = read_debuginfo(module, symbolizer);
    return error;
}

static void module_deinit(struct module *module)
{
    debuginfo_free(module->debuginfo);
    symtab_free(module->symbols);
    symtab_free(module->go_symbols);
    image_free(module->debug);
    image_free(module->debugdata);
}

/* ---- texts ---- */

static int keep_text(struct symbolizer *symbolizer, const char *text, const char **ret_text)
{
    uint32_t number;
    int error = strings_add(&symbolizer->texts, text, &number);
    if (!error)
        *ret_text = strings_get(&symbolizer->texts, number);
    return error;
}

static int room_for_readable(struct symbolizer *symbolizer, size_t count)
{
    size_t had = symbolizer->readable_capacity;
    int error = array_room(&symbolizer->readable, &symbolizer->readable_capacity, count);
    if (!error)
        memset(symbolizer->readable + had, 0, (symbolizer->readable_capacity - had) * sizeof(*symbolizer->readable));
    return error;
}

/* Each name is demangled once. */
static int keep_readable(struct symbolizer *symbolizer, const char *name, const char **ret_name)
{
    uint32_t number;
    int error = strings_add(&symbolizer->texts, name, &number);
    if (!error)
        error = room_for_readable(symbolizer, symbolizer->texts.count);
    if (error)
        return error;
    if (!symbolizer->readable[number]) {
        uint32_t readable = number;
        char *demangled = demangle_name(name);
        if (demangled)
            error = strings_add(&symbolizer->texts, demangled, &readable);
        free(demangled);
        symbolizer->readable[number] = readable + 1;
    }
    *ret_name = strings_get(&symbolizer->texts, symbolizer->readable[number] - 1);
    return error;
}

/* ---- addresses ---- */

static int set_place(struct symbolizer *symbolizer, const struct source_frame *frame, struct called *called)
{
    called->line = frame->line;
    return frame->file ? keep_text(symbolizer, frame->file, &called->file) : 0;
}

/*
 * Of the function itself: the symbol's name, so that it is the same with and without debug information. But that a
 * symbol without a size reaches as far as the address is but likely; of its function debug information knows it.
 */
static int set_function(struct symbolizer *symbolizer, const struct module *module, uint64_t svma,
                        const struct symbol *symbol, const struct source_frame *frame, struct called *called)
{
    struct symbol go_symbol;
    if (frame && frame->name && (!symbol || symbol->is_sizeless))
        return keep_readable(symbolizer, frame->name, &called->function);
    if (symbol)
        return keep_readable(symbolizer, symbol->name, &called->function);
    if (module->go_symbols && symtab_find(module->go_symbols, svma, &go_symbol))
        return keep_text(symbolizer, go_symbol.name, &called->function); /* readable as it is */
    return 0;
}

static int set_inlined(struct symbolizer *symbolizer, const struct source_frame *frame, struct called *called)
{
    *called = (struct called){.is_inlined = true};
    int error = keep_readable(symbolizer, frame->name, &called->function);
    return error ? error : set_place(symbolizer, frame, called);
}

static int resolve(struct symbolizer *symbolizer, const struct module *module, uint64_t svma, size_t *ret_count)
{
    const struct source_frame *frames = NULL;
    struct symbol found;
    size_t count = 0;
    int error = 0;
    *ret_count = 0;
    const struct symbol *symbol = symtab_find(module->symbols, svma, &found) ? &found : NULL;
    if (module->debuginfo)
        error = debuginfo_find(module->debuginfo, svma - module->debug_bias, !symbol || symbol->is_sizeless, &frames,
                               &count);
    if (!error)
        error = array_room(&symbolizer->called, &symbolizer->called_capacity, count + 1);
    if (error)
        return error;
    struct called *function = &symbolizer->called[0];
    *function = (struct called){0};
    error = set_function(symbolizer, module, svma, symbol, count ? &frames[0] : NULL, function);
    if (error || !function->function)
        return error;
    *ret_count = 1;
    /* Alone, its line is that of the code, wherever that comes from. */
    if (count)
        error = set_place(symbolizer, &frames[symbolizer->options.inlines ? 0 : count - 1], function);
    for (size_t i = 1; i < count && !error && symbolizer->options.inlines; i++) {
        if (frames[i].name)
            error = set_inlined(symbolizer, &frames[i], &symbolizer->called[(*ret_count)++]);
    }
    return error;
}

static int resolve_all(struct symbolizer *symbolizer, const struct module *module, const uint64_t *offs, size_t count,
                       symbolizer_found found, void *context)
{
    const struct symbolizer_options *options = &symbolizer->options;
    int error = 0;
    for (size_t i = 0; i < count && !error; i++) {
        uint64_t svma;
        size_t called = 0;
        if (i % ASK_ADDRESSES == 0 && options->is_cancelled && options->is_cancelled(options->context))
            return -ECANCELED;
        if (image_off_to_svma(module->image, offs[i], &svma))
            error = resolve(symbolizer, module, svma, &called);
        if (!error)
            error = found(context, i, symbolizer->called, called);
    }
    return error;
}

int symbolizer_resolve(struct symbolizer *symbolizer, const struct image *image, const uint64_t *offs, size_t count,
                       symbolizer_found found, void *context)
{
    struct module module = {.image = image};
    int error = read_module(&module, symbolizer);
    if (!error)
        error = resolve_all(symbolizer, &module, offs, count, found, context);
    module_deinit(&module);
    return error;
}
