/*
 * The snapshot file: numbers and names of the format that snapfile.h writes and snapread.h reads. The layout of each
 * chunk stands in docs/snapshots.md.
 *
 * A preamble (magic, version, 0), then chunks: kind (u32), bytes of payload (u32), payload. All numbers are
 * little-endian. A chunk refers only to what stands before it, so that a file which ends anywhere is good up to there.
 * Images, spaces, maps, readings and threads are numbered from 1 in the order of their chunks; 0 is none. Chunks of an
 * unknown kind are skipped; what changes the meaning of a known one raises the version.
 */
#ifndef SAMPLER_SNAPFORMAT_H
#define SAMPLER_SNAPFORMAT_H

#define SNAP_MAGIC "SMPLSNAP"

enum {
    SNAP_MAGIC_BYTES = 8,
    SNAP_VERSION = 2,
    SNAP_PREAMBLE_BYTES = SNAP_MAGIC_BYTES + 8,
    SNAP_CHUNK_HEAD_BYTES = 8,

    SNAP_CHUNK_LIMIT_BYTES = 1 << 30,
    SNAP_PATH_LIMIT_BYTES = 4096,
    SNAP_BUILD_ID_LIMIT_BYTES = 64,
    SNAP_IMAGE_LIMIT_BYTES = 1 << 20, /* of an image in memory */
    SNAP_CODE_LIMIT_BYTES = 4096,
    SNAP_JIT_LIMIT_BYTES = 1 << 20,
    SNAP_RANGE_LIMIT_BYTES = 64 << 20
};

enum snap_chunk {
    SNAP_RUN = 1,   /* how the run was made: first, once */
    SNAP_IMAGE,     /* a file or a piece of memory that code was mapped from */
    SNAP_SPACE,     /* an address space */
    SNAP_MAP,       /* what was mapped: code regions and readable extents */
    SNAP_READING,   /* the maps of a space were read, and were as that map says */
    SNAP_THREAD,    /* a thread */
    SNAP_CODE,      /* bytes of code that is in no image, or that they could not be read */
    SNAP_ITEM,      /* a sample */
    SNAP_SPACE_END, /* no more of this space, but for names */
    SNAP_JIT,       /* lines of a space's perf map */
    SNAP_TOTAL,     /* CPU time of a thread */
    SNAP_COUNTERS,  /* the run's counters */
    SNAP_END,       /* the file is whole; nothing follows */
    SNAP_REPEAT     /* more ticks of a thread's last sample */
};

/* Of a sample, where it slept in no system call. */
#define SNAP_NO_CALL UINT32_MAX

/* What an image is identified by when it is opened again. */
enum snap_image {
    SNAP_IMAGE_ELF = 1, /* a file: build-id, or else device, inode, size and time */
    SNAP_IMAGE_MEMORY,  /* the bytes themselves: the vDSO */
    SNAP_IMAGE_OTHER    /* no ELF file, or one that could not be opened: it has a name only */
};

enum {
    SNAP_REGION_IS_ELF = 1,   /* the region's code is the image's; else the image gives a name only */
    SNAP_REGION_HAS_BIAS = 2, /* and a segment of it explains the mapping */
    SNAP_REGION_FLAGS = 3
};

enum { SNAP_CODE_UNREADABLE = 1 };

#endif
