#include "cmocka_all.h"

#include "symbolize/dynsym.h"

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* An image: one segment at address 0, a dynamic section, symbols, names, and a hash table that counts the symbols. */
struct file {
    Elf64_Ehdr header;
    Elf64_Phdr programs[2];
    Elf64_Dyn dynamic[6];
    uint32_t hash[2 + 1 + 5];
    Elf64_Sym symbols[5];
    char names[24];
};

#define AT(field) offsetof(struct file, field)

static struct file make_file(void)
{
    struct file file = {.names = "\0first\0second\0third"};
    memcpy(file.header.e_ident, ELFMAG, SELFMAG);
    file.header.e_ident[EI_CLASS] = ELFCLASS64;
    file.header.e_ident[EI_DATA] = ELFDATA2LSB;
    file.header.e_ident[EI_VERSION] = EV_CURRENT;
    file.header.e_type = ET_DYN;
    file.header.e_machine = EM_X86_64;
    file.header.e_version = EV_CURRENT;
    file.header.e_phoff = AT(programs);
    file.header.e_ehsize = sizeof(Elf64_Ehdr);
    file.header.e_phentsize = sizeof(Elf64_Phdr);
    file.header.e_phnum = 2;
    file.programs[0] =
        (Elf64_Phdr){.p_type = PT_LOAD, .p_flags = PF_R, .p_filesz = sizeof(file), .p_memsz = sizeof(file)};
    file.programs[1] = (Elf64_Phdr){.p_type = PT_DYNAMIC,
                                    .p_offset = AT(dynamic),
                                    .p_vaddr = AT(dynamic),
                                    .p_filesz = sizeof(file.dynamic),
                                    .p_memsz = sizeof(file.dynamic)};
    file.dynamic[0] = (Elf64_Dyn){.d_tag = DT_SYMTAB, .d_un.d_ptr = AT(symbols)};
    file.dynamic[1] = (Elf64_Dyn){.d_tag = DT_STRTAB, .d_un.d_ptr = AT(names)};
    file.dynamic[2] = (Elf64_Dyn){.d_tag = DT_STRSZ, .d_un.d_val = sizeof(file.names)};
    file.dynamic[3] = (Elf64_Dyn){.d_tag = DT_HASH, .d_un.d_ptr = AT(hash)};
    file.hash[0] = 1;
    file.hash[1] = 5;
    Elf64_Sym function = {
        .st_name = 1, .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC), .st_shndx = 1, .st_value = 0x1000};
    file.symbols[1] = function;
    file.symbols[1].st_shndx = SHN_UNDEF; /* "first", wanted from elsewhere */
    file.symbols[2] = function;
    file.symbols[2].st_value = 0x2000; /* "first" */
    file.symbols[3] = function;
    file.symbols[3].st_name = 7; /* "second" */
    file.symbols[3].st_info = ELF64_ST_INFO(STB_WEAK, STT_FUNC);
    file.symbols[4] = function;
    file.symbols[4].st_name = 14; /* "third", data */
    file.symbols[4].st_info = ELF64_ST_INFO(STB_GLOBAL, STT_OBJECT);
    return file;
}

static int find(const void *bytes, size_t size, uint64_t *ret_svmas)
{
    static const char *const names[] = {"first", "second", "third", "fourth"};
    struct image *image;
    void *copy = malloc(size);
    assert_non_null(copy);
    memcpy(copy, bytes, size);
    assert_int_equal(image_open_memory(copy, size, "made", &image), 0);
    int error = dynsym_find(image, names, 4, ret_svmas);
    image_free(image);
    return error;
}

static void test_finds_functions(void **state)
{
    (void)state;
    struct file file = make_file();
    uint64_t svmas[4];
    assert_int_equal(find(&file, sizeof(file), svmas), 0);
    assert_int_equal(svmas[0], 0x2000);
    assert_int_equal(svmas[1], 0x1000);
    assert_int_equal(svmas[2], 0);
    assert_int_equal(svmas[3], 0);
}

static void test_names_beyond_the_table(void **state)
{
    (void)state;
    struct file file = make_file();
    uint64_t svmas[4];
    file.symbols[2].st_name = sizeof(file.names);
    file.symbols[3].st_name = UINT32_MAX;
    memset(file.names + 14, 'x', sizeof(file.names) - 14); /* no end */
    file.symbols[4].st_info = file.symbols[2].st_info;
    assert_int_equal(find(&file, sizeof(file), svmas), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(svmas[i], 0);
}

static void test_tables_that_lie(void **state)
{
    (void)state;
    uint64_t svmas[4];
    struct file file = make_file();
    file.hash[1] = 6; /* one symbol more than there is room for in the file, with the names in its place */
    file.dynamic[0].d_un.d_ptr = AT(names);
    assert_int_equal(find(&file, sizeof(file), svmas), -ENODATA);
    file = make_file();
    file.dynamic[2].d_un.d_val = UINT64_MAX;
    assert_int_equal(find(&file, sizeof(file), svmas), -ENODATA);
    file = make_file();
    file.dynamic[1].d_un.d_ptr = UINT64_MAX - 3;
    assert_int_equal(find(&file, sizeof(file), svmas), -ENODATA);
    file = make_file();
    file.hash[1] = UINT32_MAX;
    assert_int_equal(find(&file, sizeof(file), svmas), -ENODATA);
    file = make_file();
    file.programs[1].p_type = PT_NOTE;
    assert_int_equal(find(&file, sizeof(file), svmas), -ENODATA);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_finds_functions),
        cmocka_unit_test(test_names_beyond_the_table),
        cmocka_unit_test(test_tables_that_lie),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
