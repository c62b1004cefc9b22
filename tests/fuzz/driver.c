/*
 * Runs a fuzz target without libFuzzer: every file of the given directories, then changes of them from a generator with
 * a fixed seed. Knows nothing of coverage, but finds the same mistakes each time and needs no special compiler.
 *
 *   fuzz_TARGET [--seconds N] [--runs N] [--seed N] [--slow-ms N] DIRECTORY|FILE...
 *
 * The input in work when the target dies, or takes too long (in CPU time), is written to fuzz_TARGET-failed.bin.
 */
#include "common/rng.h"
#include "fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { INPUT_BYTES_MAX = 1 << 16, SEEDS_MAX = 4096, HANG_S = 10 };

struct seed {
    uint8_t *bytes;
    size_t size;
    char name[80];
};

static struct options {
    unsigned seconds;
    uint64_t runs;
    uint64_t seed;
    unsigned slow_ms;
} options = {.seconds = 3, .runs = UINT64_MAX, .seed = 1, .slow_ms = 1000};

static struct seed seeds[SEEDS_MAX];
static size_t seed_count;

/* The input in work; read by the handlers below. */
static uint8_t input[INPUT_BYTES_MAX];
static size_t input_bytes;
static char input_name[160];
static const char *program_name;

/* ---- when something is wrong ---- */

static void save_input(const char *kind)
{
    char path[256];
    snprintf(path, sizeof(path), "%s-%s.bin", program_name, kind);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool written = fd >= 0 && write(fd, input, input_bytes) == (ssize_t)input_bytes;
    fprintf(stderr, "%s: %s: %s (%zu bytes)%s%s\n", program_name, kind, input_name, input_bytes,
            written ? ", written to " : ", could not be written", written ? path : "");
    if (fd >= 0)
        close(fd);
}

/* The sanitizers call it before they end the program. */
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

static void at_death(void)
{
    save_input("failed");
}

static void at_signal(int number)
{
    signal(number, SIG_DFL);
    save_input(number == SIGPROF ? "hanging" : "failed");
    raise(number);
}

static void watch_for_death(void)
{
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(at_death);
    static const int signals[] = {SIGABRT, SIGPROF, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    /* Those that a sanitizer reports itself are left to it. */
    size_t count = __sanitizer_set_death_callback ? 2 : sizeof(signals) / sizeof(signals[0]);
    for (size_t i = 0; i < count; i++)
        signal(signals[i], at_signal);
}

/* ---- seeds ---- */

static void read_seed(const char *path, const char *name)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) < 0 || !S_ISREG(info.st_mode) || seed_count == SEEDS_MAX) {
        if (fd >= 0)
            close(fd);
        return;
    }
    struct seed *seed = &seeds[seed_count];
    size_t size = info.st_size < INPUT_BYTES_MAX ? (size_t)info.st_size : INPUT_BYTES_MAX;
    seed->bytes = malloc(size + 1);
    if (seed->bytes && read(fd, seed->bytes, size) == (ssize_t)size) {
        seed->size = size;
        snprintf(seed->name, sizeof(seed->name), "%s", name);
        seed_count++;
    }
    close(fd);
}

static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void read_seeds(const char *path)
{
    struct dirent **names;
    int count = scandir(path, &names, NULL, compare_names);
    if (count < 0) {
        read_seed(path, path);
        return;
    }
    for (int i = 0; i < count; i++) {
        char file[4096];
        if (names[i]->d_name[0] != '.' &&
            snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name) < (int)sizeof(file))
            read_seed(file, names[i]->d_name);
        free(names[i]);
    }
    free(names);
}

/* ---- changes ---- */

static const uint64_t interesting[] = {0,
                                       1,
                                       2,
                                       7,
                                       8,
                                       15,
                                       16,
                                       17,
                                       0x1b,
                                       0x3f,
                                       0x40,
                                       0x7f,
                                       0x80,
                                       0xff,
                                       0x100,
                                       0x7fff,
                                       0x8000,
                                       0xffff,
                                       0x10000,
                                       0x7fffffff,
                                       0x80000000,
                                       0xffffffff,
                                       UINT64_C(1) << 32,
                                       UINT64_MAX / 2,
                                       UINT64_C(1) << 63,
                                       UINT64_MAX};

/* Moves what is behind `at` so that `size` bytes are free there; as many as fit. */
static size_t open_gap(size_t at, size_t size)
{
    if (size > INPUT_BYTES_MAX - input_bytes)
        size = INPUT_BYTES_MAX - input_bytes;
    memmove(input + at + size, input + at, input_bytes - at);
    input_bytes += size;
    return size;
}

static void overwrite_number(struct rng *rng, size_t at)
{
    uint64_t value = interesting[rng_below(rng, sizeof(interesting) / sizeof(interesting[0]))];
    size_t size = (size_t)1 << rng_below(rng, 4);
    if (size <= input_bytes - at)
        memcpy(input + at, &value, size);
}

static void insert_part(struct rng *rng, size_t at)
{
    const struct seed *from = &seeds[rng_below(rng, seed_count)];
    size_t start = rng_below(rng, from->size + 1);
    size_t size = open_gap(at, rng_below(rng, (from->size - start < 64 ? from->size - start : 64) + 1));
    memcpy(input + at, from->bytes + start, size);
}

/* The rest from another seed. */
static void splice_rest(struct rng *rng, size_t at)
{
    const struct seed *from = &seeds[rng_below(rng, seed_count)];
    size_t start = rng_below(rng, from->size + 1);
    size_t size = from->size - start;
    if (size > INPUT_BYTES_MAX - at)
        size = INPUT_BYTES_MAX - at;
    memcpy(input + at, from->bytes + start, size);
    input_bytes = at + size;
}

static void insert_noise(struct rng *rng, size_t at)
{
    size_t size = open_gap(at, rng_below(rng, 16) + 1);
    uint8_t same = (uint8_t)rng_next(rng);
    bool repeat = rng_below(rng, 2) == 1;
    for (size_t i = 0; i < size; i++)
        input[at + i] = repeat ? same : (uint8_t)rng_next(rng);
}

static void remove_part(struct rng *rng, size_t at)
{
    size_t size = rng_below(rng, 16) + 1;
    if (size > input_bytes - at)
        size = input_bytes - at;
    memmove(input + at, input + at + size, input_bytes - at - size);
    input_bytes -= size;
}

/* A part of the input once more, many times. */
static void repeat_part(struct rng *rng, size_t at)
{
    uint8_t part[32];
    size_t size = input_bytes - at < sizeof(part) ? input_bytes - at : sizeof(part);
    size = rng_below(rng, size) + 1;
    memcpy(part, input + at, size);
    for (uint64_t n = rng_below(rng, 200); n > 0 && open_gap(at, size) == size; n--)
        memcpy(input + at, part, size);
}

static void change(struct rng *rng)
{
    if (input_bytes == 0) {
        insert_noise(rng, 0);
        return;
    }
    size_t at = rng_below(rng, input_bytes);
    uint64_t kind = rng_below(rng, 32);
    if (kind < 10)
        input[at] ^= (uint8_t)(1U << rng_below(rng, 8));
    else if (kind < 14)
        input[at] = (uint8_t)rng_next(rng);
    else if (kind < 20)
        overwrite_number(rng, at);
    else if (kind < 23)
        insert_noise(rng, at);
    else if (kind < 26)
        remove_part(rng, at);
    else if (kind < 28)
        insert_part(rng, at);
    else if (kind < 29)
        repeat_part(rng, at);
    else if (kind < 31)
        splice_rest(rng, at);
    else
        input_bytes = at;
}

/* ---- runs ---- */

static uint64_t clock_ms(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint64_t slowest_ms;

/* false: it took too long. */
static bool run(void)
{
    struct itimerval limit = {.it_value.tv_sec = HANG_S};
    setitimer(ITIMER_PROF, &limit, NULL);
    uint64_t start_ms = clock_ms(CLOCK_PROCESS_CPUTIME_ID);
    LLVMFuzzerTestOneInput(input, input_bytes);
    uint64_t took_ms = clock_ms(CLOCK_PROCESS_CPUTIME_ID) - start_ms;
    if (took_ms > slowest_ms) {
        slowest_ms = took_ms;
        if (took_ms > 50)
            printf("%s: %llu ms (%zu bytes)\n", input_name, (unsigned long long)took_ms, input_bytes);
    }
    if (took_ms <= options.slow_ms)
        return true;
    save_input("slow");
    return false;
}

static void load(const struct seed *seed)
{
    memcpy(input, seed->bytes, seed->size);
    input_bytes = seed->size;
    snprintf(input_name, sizeof(input_name), "seed %s", seed->name);
}

/* Each run has a generator of its own, so that one run can be made again by itself. */
static void load_changed(uint64_t number)
{
    struct rng rng = {.state = hash_pair(options.seed, number)};
    const struct seed *seed = &seeds[rng_below(&rng, seed_count)];
    load(seed);
    uint64_t changes = (uint64_t)1 << rng_below(&rng, 5);
    for (uint64_t i = 0; i < changes; i++)
        change(&rng);
    snprintf(input_name, sizeof(input_name), "run %llu of --seed %llu, from seed %s", (unsigned long long)number,
             (unsigned long long)options.seed, seed->name);
}

static bool run_all(uint64_t *ret_runs)
{
    bool good = true;
    uint64_t end_ms = clock_ms(CLOCK_MONOTONIC) + options.seconds * UINT64_C(1000);
    for (size_t i = 0; i < seed_count; i++) {
        load(&seeds[i]);
        good = run() && good;
    }
    uint64_t number = 0;
    for (; number < options.runs && clock_ms(CLOCK_MONOTONIC) < end_ms; number++) {
        load_changed(number);
        good = run() && good;
    }
    *ret_runs = number;
    return good;
}

static bool parse_options(int argc, char **argv)
{
    int i = 1;
    for (; i + 1 < argc && argv[i][0] == '-'; i += 2) {
        uint64_t value = strtoull(argv[i + 1], NULL, 0);
        if (strcmp(argv[i], "--seconds") == 0)
            options.seconds = (unsigned)value;
        else if (strcmp(argv[i], "--runs") == 0)
            options.runs = value;
        else if (strcmp(argv[i], "--seed") == 0)
            options.seed = value;
        else if (strcmp(argv[i], "--slow-ms") == 0)
            options.slow_ms = (unsigned)value;
        else
            return false;
    }
    for (; i < argc; i++)
        read_seeds(argv[i]);
    return seed_count > 0;
}

int main(int argc, char **argv)
{
    program_name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];
    if (!parse_options(argc, argv)) {
        fprintf(stderr, "usage: %s [--seconds N] [--runs N] [--seed N] [--slow-ms N] DIRECTORY|FILE...\n(no seeds)\n",
                program_name);
        return 2;
    }
    watch_for_death();
    uint64_t runs;
    bool good = run_all(&runs);
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    printf("%s: %zu seeds, %llu changes of them, slowest %llu ms, %ld MB\n", program_name, seed_count,
           (unsigned long long)runs, (unsigned long long)slowest_ms, usage.ru_maxrss / 1024);
    for (size_t i = 0; i < seed_count; i++)
        free(seeds[i].bytes);
    return good ? 0 : 1;
}
