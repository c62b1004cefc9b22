#include "sampler/injectnames.h"

#include <stddef.h>
#include <string.h>

/* Of the C library, behind underscores: beginnings. "free" is freelocale, too: a moment later will do as well. */
static const char *const libc_families[] = {
    "malloc", "calloc", "realloc", "free", "cfree", "memalign", "aligned_alloc", "posix_memalign", "valloc", "pvalloc",
    "mallopt", "mallinfo", "libc_malloc", "libc_calloc", "libc_realloc", "libc_free", "libc_memalign", "libc_valloc",
    "libc_pvalloc", "libc_alloc", "int_", "mid_memalign", "tcache", "arena", "sysmalloc", "systrim", "munmap_chunk",
    "dl", "libc_dl", "do_dl", "tls_", "gconv", "iconv", "nss_",
    /* processes, threads, ends */
    "fork", "vfork", "libc_fork", "libc_vfork", "clone", "posix_spawn", "spawn", "popen", "system", "libc_system",
    "wordexp", "exec", "fexecve", "exit", "Exit", "quick_exit", "abort", "cxa_", "atexit", "on_exit", "at_quick_exit",
    "libc_start_call", "run_exit", "pthread_create", "pthread_exit", "pthread_join", "pthread_tryjoin",
    "pthread_timedjoin", "pthread_clockjoin", "pthread_detach", "pthread_cancel", "pthread_getattr_np", "pthread_key",
    "pthread_setspecific", "pthread_atfork", "register_atfork", "unregister_atfork", "pthread_once", "call_once",
    "thrd_", "nptl", "set", /* setuid and its relatives lock the list of threads; setlocale, setenv */
    "putenv", "unsetenv", "clearenv", "newlocale", "duplocale", "uselocale", "textdomain", "bindtextdomain",
    "bind_textdomain", "gettext", "dgettext", "dcgettext", "ngettext", "dngettext", "dcngettext", "catopen",
    "sigaction", "libc_sigaction", "longjmp", "register_frame", "deregister_frame", "mtrace", "muntrace"};

/* Elsewhere: allocators and loaders that programs bring along, whole names... */
static const char *const elsewhere[] = {"malloc",
                                        "calloc",
                                        "realloc",
                                        "reallocarray",
                                        "reallocf",
                                        "free",
                                        "cfree",
                                        "memalign",
                                        "aligned_alloc",
                                        "posix_memalign",
                                        "valloc",
                                        "pvalloc",
                                        "malloc_usable_size",
                                        "malloc_trim",
                                        "mallopt",
                                        "mallocx",
                                        "rallocx",
                                        "xallocx",
                                        "sallocx",
                                        "dallocx",
                                        "sdallocx",
                                        "nallocx",
                                        "mallctl",
                                        "free_sized",
                                        "free_aligned_sized",
                                        "dlopen",
                                        "dlmopen",
                                        "dlclose",
                                        "dlsym",
                                        "dlvsym",
                                        "dlerror",
                                        "dladdr",
                                        "dladdr1",
                                        "dlinfo",
                                        "dl_iterate_phdr",
                                        "fork",
                                        "vfork",
                                        "pthread_create",
                                        "pthread_exit",
                                        "exit",
                                        "_exit",
                                        "atexit",
                                        "__cxa_atexit",
                                        "__cxa_finalize",
                                        "__register_frame",
                                        "__deregister_frame",
                                        "_dl_runtime_resolve"};

/* ...and beginnings: operator new and delete, jemalloc, tcmalloc, mimalloc and others, sanitizers, unwinders. */
static const char *const elsewhere_families[] = {"_Znw",
                                                 "_Zna",
                                                 "_ZdlPv",
                                                 "_ZdaPv",
                                                 "je_",
                                                 "_rjem_",
                                                 "jemalloc",
                                                 "tc_",
                                                 "tcmalloc",
                                                 "_ZN8tcmalloc",
                                                 "TCMalloc",
                                                 "mi_",
                                                 "_mi_",
                                                 "sn_",
                                                 "rpmalloc",
                                                 "rpfree",
                                                 "nedmalloc",
                                                 "scalloc",
                                                 "hoard",
                                                 "xxmalloc",
                                                 "xxfree",
                                                 "__interceptor_",
                                                 "__asan",
                                                 "__lsan",
                                                 "__msan",
                                                 "__tsan",
                                                 "__sanitizer",
                                                 "_ZN6__asan",
                                                 "_ZN6__lsan",
                                                 "_ZN6__msan",
                                                 "_ZN6__tsan",
                                                 "_ZN11__sanitizer",
                                                 "_ZN14__interception",
                                                 "_Unwind_",
                                                 "__register_frame",
                                                 "__deregister_frame",
                                                 "__gthread_once"};

/* They lock for a moment, and wait for long; asleep in their call they hold nothing. */
static const char *const waiting[] = {"pthread_join", "pthread_timedjoin_np", "pthread_clockjoin_np", "thrd_join"};

#define COUNT(list) (sizeof(list) / sizeof((list)[0]))

static bool is_one_of(const char *name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, list[i]) == 0)
            return true;
    return false;
}

static bool begins_like(const char *name, const char *const *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(name, list[i], strlen(list[i])) == 0)
            return true;
    return false;
}

bool injectnames_is_harmless(const char *name, bool in_libc, bool is_waiting)
{
    const char *bare = name + strspn(name, "_");
    if (!in_libc)
        return !is_one_of(name, elsewhere, COUNT(elsewhere)) &&
               !begins_like(name, elsewhere_families, COUNT(elsewhere_families));
    if (is_waiting && is_one_of(bare, waiting, COUNT(waiting)))
        return true;
    return !begins_like(bare, libc_families, COUNT(libc_families));
}

bool injectnames_is_allocator(const char *path)
{
    static const char *const parts[] = {"malloc", "libasan", "libtsan", "liblsan", "libhoard", "libclang_rt"};
    const char *slash = strrchr(path, '/');
    for (size_t i = 0; i < COUNT(parts); i++)
        if (strstr(slash ? slash + 1 : path, parts[i]))
            return true;
    return false;
}
