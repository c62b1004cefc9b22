#include "sampler/outfile.h"

#include "common/strbuf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A link is followed to the file it names, so that the file is replaced and not the link. */
static char *final_path(const char *path)
{
    char *real = realpath(path, NULL);
    return real ? real : strdup(path);
}

/* mkostemp gives 0600; a new profile is a file like any other, a replaced one keeps its mode. umask can only be read by
 * setting it. */
static mode_t mode_of(const struct stat *existing)
{
    if (existing)
        return existing->st_mode & 07777;
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

static int open_temporary(struct outfile *file, const struct stat *existing)
{
    if (existing && faccessat(AT_FDCWD, file->path, W_OK, AT_EACCESS) < 0)
        return -errno; /* the directory would let us replace it, but its owner has said no */
    struct strbuf name = {0};
    strbuf_addf(&name, "%s.XXXXXX", file->path);
    if (strbuf_error(&name))
        return -ENOMEM;
    file->temporary_path = name.data;
    file->fd = mkostemp(file->temporary_path, O_CLOEXEC);
    if (file->fd < 0) {
        int error = -errno;
        free(file->temporary_path);
        file->temporary_path = NULL;
        return error;
    }
    return fchmod(file->fd, mode_of(existing)) < 0 ? -errno : 0;
}

int outfile_open(const char *path, struct outfile *ret_file)
{
    *ret_file = (struct outfile){.fd = STDOUT_FILENO};
    if (!path || strcmp(path, "-") == 0)
        return fcntl(STDOUT_FILENO, F_GETFD) < 0 ? -errno : 0;
    ret_file->fd = -1;
    ret_file->path = final_path(path);
    if (!ret_file->path)
        return -ENOMEM;
    struct stat st;
    int error = 0;
    bool exists = stat(ret_file->path, &st) == 0;
    if (exists && !S_ISREG(st.st_mode)) {
        ret_file->fd = open(ret_file->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
        error = ret_file->fd < 0 ? -errno : 0;
    } else {
        error = open_temporary(ret_file, exists ? &st : NULL);
    }
    if (error)
        outfile_deinit(ret_file);
    return error;
}

int outfile_commit(struct outfile *file)
{
    int error = 0;
    if (file->path && close(file->fd) < 0)
        error = -errno; /* some file systems tell of a full disk only here */
    file->fd = -1;
    if (!error && file->temporary_path && rename(file->temporary_path, file->path) < 0)
        error = -errno;
    if (!error) {
        free(file->temporary_path);
        file->temporary_path = NULL;
    }
    outfile_deinit(file);
    return error;
}

void outfile_deinit(struct outfile *file)
{
    if (file->path && file->fd >= 0)
        close(file->fd);
    if (file->temporary_path)
        unlink(file->temporary_path);
    free(file->temporary_path);
    free(file->path);
    *file = (struct outfile){.fd = -1};
}
