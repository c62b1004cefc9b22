/*
 * A malloc for LD_PRELOAD that handlers cannot enter unnoticed: it holds one lock, which is not recursive, around each
 * call of the C library's allocator, and ends the program with a message if a thread that holds it comes again. That
 * is what a signal handler does that allocates and has interrupted an allocation.
 */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *memory);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local volatile bool is_inside __attribute__((tls_model("initial-exec")));

static void enter(void)
{
    static const char message[] = "malloctrap: entered by a thread that is inside\n";
    if (is_inside) {
        if (write(STDERR_FILENO, message, sizeof message - 1) < 0)
            _exit(98);
        abort();
    }
    is_inside = true;
    pthread_mutex_lock(&lock);
}

static void leave(void)
{
    pthread_mutex_unlock(&lock);
    is_inside = false;
}

void *malloc(size_t size)
{
    enter();
    void *memory = __libc_malloc(size);
    leave();
    return memory;
}

void *calloc(size_t count, size_t size)
{
    enter();
    void *memory = __libc_calloc(count, size);
    leave();
    return memory;
}

void *realloc(void *memory, size_t size)
{
    enter();
    void *moved = __libc_realloc(memory, size);
    leave();
    return moved;
}

void *memalign(size_t alignment, size_t size)
{
    enter();
    void *memory = __libc_memalign(alignment, size);
    leave();
    return memory;
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

int posix_memalign(void **ret_memory, size_t alignment, size_t size)
{
    if (alignment < sizeof(void *) || (alignment & (alignment - 1)) != 0)
        return EINVAL;
    int before = errno;
    void *memory = memalign(alignment, size);
    errno = before;
    if (!memory)
        return ENOMEM;
    *ret_memory = memory;
    return 0;
}

void free(void *memory)
{
    enter();
    __libc_free(memory);
    leave();
}

/* A child of fork has no other thread that could leave. Registered first, so it is the last to be called before. */
__attribute__((constructor)) static void prepare_fork(void)
{
    pthread_atfork(enter, leave, leave);
}
