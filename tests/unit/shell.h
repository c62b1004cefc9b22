/* Files that tests make with the tools of binutils and the like, in a directory of their own. */
#ifndef TESTS_UNIT_SHELL_H
#define TESTS_UNIT_SHELL_H

#include "cmocka_all.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The current directory of a test's commands; its symlinks are resolved. */
static char directory[64];

/* Runs a command there; it must succeed. */
__attribute__((format(printf, 1, 2))) static void shell(const char *format, ...)
{
    char command[4096];
    va_list arguments;
    va_start(arguments, format);
    int bytes = vsnprintf(command, sizeof(command), format, arguments);
    va_end(arguments);
    assert_true(bytes > 0 && (size_t)bytes < sizeof(command));
    if (system(command) != 0) // NOLINT(cert-env33-c,concurrency-mt-unsafe): the tests' own words
        fail_msg("%s", command);
}

/* For the group's setup and teardown. */
static int make_directory(void **state)
{
    (void)state;
    strcpy(directory, "/tmp/sampler-unit-XXXXXX");
    return mkdtemp(directory) && chdir(directory) == 0 ? 0 : -1;
}

static int remove_directory(void **state)
{
    (void)state;
    shell("cd / && rm -rf %s", directory);
    return 0;
}

#endif
