#include "symbolize/demangle.h"

#include <ctype.h>
#include <libiberty/demangle.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    /* libiberty recurses once per character at worst: this many need less than 2 MiB of stack. */
    MAX_MANGLED_BYTES = 8 << 10,
    MAX_READABLE_BYTES = 64 << 10,
    MAX_TREE_STEPS = 100 * 1000,
    MAX_SAVED_SCOPES = 32 * 1000,
    MAX_CONVERSION_ARGS = 6,
    MAX_PUNYCODE_BYTES = 2000, /* of one identifier: each character of it moves those behind */
    MAX_D_REFERENCES = 16      /* a D name may name an earlier part of itself twice, and that one another: 2^16 parts */
};

struct output {
    char text[MAX_READABLE_BYTES];
    size_t bytes;
    bool exceeded;
    jmp_buf give_up;
};

static bool append(struct output *output, const char *text, size_t bytes)
{
    if (output->exceeded || bytes >= sizeof(output->text) - output->bytes) {
        output->exceeded = true;
        return false;
    }
    memcpy(output->text + output->bytes, text, bytes);
    output->bytes += bytes;
    return true;
}

/* The C++ printer holds no memory of its own, so it can be left at any time. */
static void append_cxx(const char *text, size_t bytes, void *opaque)
{
    struct output *output = opaque;
    if (!append(output, text, bytes))
        longjmp(output->give_up, 1);
}

/*
 * The Rust printer holds memory while it prints the characters of a punycode identifier, and only then: these are
 * letters, digits, '_' or not ASCII. Whatever grows without end prints punctuation again and again.
 */
static void append_rust(const char *text, size_t bytes, void *opaque)
{
    struct output *output = opaque;
    if (!append(output, text, bytes) && bytes > 0 && ispunct((unsigned char)text[0]) && text[0] != '_')
        longjmp(output->give_up, 1);
}

/* What printing a tree may cost: shared subtrees count each time they are reached. */
struct cost {
    const struct demangle_component *first;
    const struct demangle_component *end;
    size_t steps;
    size_t templates;
    size_t scopes;
};

static bool measure(struct cost *cost, const struct demangle_component *node)
{
    if (node < cost->first || node >= cost->end)
        return true;
    if (++cost->steps > MAX_TREE_STEPS)
        return false;
    switch (node->type) {
    case DEMANGLE_COMPONENT_NAME:
    case DEMANGLE_COMPONENT_OPERATOR:
    case DEMANGLE_COMPONENT_BUILTIN_TYPE:
    case DEMANGLE_COMPONENT_EXTENDED_BUILTIN_TYPE:
    case DEMANGLE_COMPONENT_SUB_STD:
    case DEMANGLE_COMPONENT_TEMPLATE_PARAM:
    case DEMANGLE_COMPONENT_FUNCTION_PARAM:
    case DEMANGLE_COMPONENT_UNNAMED_TYPE:
    case DEMANGLE_COMPONENT_NUMBER:
    case DEMANGLE_COMPONENT_CHARACTER:
        return true;
    case DEMANGLE_COMPONENT_CTOR:
        return measure(cost, node->u.s_ctor.name);
    case DEMANGLE_COMPONENT_DTOR:
        return measure(cost, node->u.s_dtor.name);
    case DEMANGLE_COMPONENT_EXTENDED_OPERATOR:
        return measure(cost, node->u.s_extended_operator.name);
    case DEMANGLE_COMPONENT_FIXED_TYPE:
        return measure(cost, node->u.s_fixed.length);
    case DEMANGLE_COMPONENT_LAMBDA:
    case DEMANGLE_COMPONENT_DEFAULT_ARG:
        return measure(cost, node->u.s_unary_num.sub);
    case DEMANGLE_COMPONENT_TEMPLATE:
        cost->templates++;
        break;
    case DEMANGLE_COMPONENT_REFERENCE:
    case DEMANGLE_COMPONENT_RVALUE_REFERENCE:
        cost->scopes++;
        break;
    default:
        break;
    }
    return measure(cost, node->u.s_binary.left) && measure(cost, node->u.s_binary.right);
}

/*
 * Not a hostile tree. Without this, a search for parameter packs walks shared subtrees again and again without printing
 * anything, and the printer puts (templates x references) elements on the stack.
 */
static bool is_printable(const struct demangle_component *tree, const void *memory, size_t mangled_bytes)
{
    struct cost cost = {.first = memory};
    cost.end = cost.first + 2 * mangled_bytes; /* as many as libiberty allots */
    return measure(&cost, tree) && cost.templates * cost.scopes <= MAX_SAVED_SCOPES;
}

/*
 * A template parameter with arguments ("T_I..E") inside a conversion operator ("cv") is parsed twice, and so is what it
 * holds: nested ones take time exponential in their number. Real names have one or two.
 */
static bool is_parsable(const char *mangled)
{
    if (!strstr(mangled, "cv"))
        return true;
    size_t found = 0;
    for (const char *p = strchr(mangled, 'T'); p; p = strchr(p, 'T')) {
        p++;
        p += strspn(p, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        if (p[0] == '_' && p[1] == 'I')
            found++;
    }
    return found <= MAX_CONVERSION_ARGS;
}

static bool print_cxx(struct output *output, struct demangle_component *tree)
{
    if (setjmp(output->give_up))
        return false;
    return cplus_demangle_print_callback(DMGL_NO_OPTS, tree, append_cxx, output) != 0;
}

static bool demangle_cxx(const char *mangled, struct output *output)
{
    if (!is_parsable(mangled))
        return false;
    void *memory = NULL;
    struct demangle_component *tree = cplus_demangle_v3_components(mangled, DMGL_NO_OPTS, &memory);
    if (!tree)
        return false;
    bool done = is_printable(tree, memory, strlen(mangled)) && print_cxx(output, tree);
    free(memory);
    return done;
}

/* "u1500_...": an identifier in punycode, of so many bytes. In a short name "u1500" is only part of another one. */
static bool has_long_punycode(const char *mangled)
{
    for (const char *p = strchr(mangled, 'u'); p; p = strchr(p, 'u')) {
        if (!isdigit((unsigned char)*++p))
            continue;
        char *end;
        unsigned long bytes = strtoul(p, &end, 10);
        if (bytes > MAX_PUNYCODE_BYTES && bytes <= strlen(end))
            return true;
    }
    return false;
}

static bool demangle_rust(const char *mangled, struct output *output)
{
    if (mangled[1] == 'R' && has_long_punycode(mangled))
        return false;
    if (setjmp(output->give_up))
        return false;
    return rust_demangle_callback(mangled, DMGL_NO_OPTS, append_rust, output) != 0 && !output->exceeded;
}

/* Without ".cold" at its end, or ".cold.0" as older gcc has it. */
static size_t without_cold(const char *name, size_t bytes)
{
    static const char cold[] = ".cold";
    size_t end = bytes;
    while (end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9')
        end--;
    if (end > 0 && end < bytes && name[end - 1] == '.')
        end--;
    else
        end = bytes;
    if (end <= sizeof(cold) - 1 || memcmp(name + end - (sizeof(cold) - 1), cold, sizeof(cold) - 1) != 0)
        return bytes;
    return end - (sizeof(cold) - 1);
}

/*
 * What compilers append: ".constprop.0", ".part.1.isra.0" tell another piece of code and are shown as
 * " [clone .part.1.isra.0]"; ".llvm.123456789" only makes the name unique.
 */
static void append_suffix(struct output *output, const char *suffix)
{
    const char *unique = strstr(suffix, ".llvm.");
    size_t bytes = unique ? (size_t)(unique - suffix) : strlen(suffix);
    if (bytes == 0)
        return;
    append(output, " [clone ", 8);
    append(output, suffix, bytes);
    append(output, "]", 1);
}

/* `name` has the suffix at `suffix`; both are one NUL-ended copy that may be changed. */
static char *demangle_parts(char *name, char *suffix)
{
    struct output *output = malloc(sizeof(*output));
    if (!output)
        return NULL;
    output->bytes = 0;
    output->exceeded = false;
    char first = *suffix;
    *suffix = '\0';
    /* Legacy Rust names are C++ names with a hash; only the Rust demangler knows it. */
    bool done = demangle_rust(name, output);
    if (!done && name[1] == 'Z') {
        output->bytes = 0;
        output->exceeded = false;
        done = demangle_cxx(name, output);
    }
    *suffix = first;
    char *readable = NULL;
    if (done && output->bytes > 0) {
        append_suffix(output, suffix);
        if (!output->exceeded)
            readable = strndup(output->text, output->bytes);
    }
    free(output);
    return readable;
}

/* "_Dmain", "_D4demo3runFiZi": behind "_D" the length of a part. */
static bool is_d(const char *name)
{
    return name[0] == '_' && name[1] == 'D' && (isdigit((unsigned char)name[2]) || strcmp(name, "_Dmain") == 0);
}

static char *demangle_d(const char *name)
{
    size_t references = 0;
    for (const char *p = name; (p = strchr(p, 'Q')); p++)
        references++;
    char *readable = references <= MAX_D_REFERENCES ? dlang_demangle(name, DMGL_NO_OPTS) : NULL;
    if (readable && strlen(readable) < MAX_READABLE_BYTES)
        return readable;
    free(readable);
    return NULL;
}

/* Where the compiler's suffix begins. Legacy Rust names have dots inside, and end with the 'E' behind their hash. */
static char *find_suffix(char *name)
{
    char *hash = strstr(name, "17h");
    while (hash && (strspn(hash + 3, "0123456789abcdef") != 16 || hash[19] != 'E'))
        hash = strstr(hash + 1, "17h");
    return strchrnul(hash ? hash + 19 : name, '.');
}

char *demangle_name(const char *mangled)
{
    size_t bytes = strnlen(mangled, MAX_MANGLED_BYTES + 1);
    if (bytes > MAX_MANGLED_BYTES)
        return NULL;
    const char *version = memchr(mangled, '@', bytes);
    if (version && version > mangled)
        bytes = (size_t)(version - mangled);
    bytes = without_cold(mangled, bytes);
    char *name = strndup(mangled, bytes);
    if (!name)
        return NULL;
    char *readable = NULL;
    if (name[0] == '_' && (name[1] == 'Z' || name[1] == 'R'))
        readable = demangle_parts(name, find_suffix(name));
    else if (is_d(name))
        readable = demangle_d(name);
    if (!readable && mangled[bytes])
        return name; /* is shorter */
    free(name);
    return readable;
}
