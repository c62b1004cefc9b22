/* How many entry points there are for the kernel, and how large each is. Read by C and by the assembler. */
#ifndef HELPER_DISPOSITION_ENTRIES_H
#define HELPER_DISPOSITION_ENTRIES_H

#define DISPOSITION_OWNED_MAX   4
#define DISPOSITION_RECORDS     64 /* different dispositions of one signal */
#define DISPOSITION_ENTRY_BYTES 16

#endif
