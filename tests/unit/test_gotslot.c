/* The slots of this program's calls of library functions, and functions that they lead to or not. */
#include "cmocka_all.h"

#include "self_target.h"
#include "unwind/gotslot.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct self_target self;

/* The image of an address, and the address in it. */
static const struct image *find_image(const void *place, uint64_t *ret_svma)
{
    const struct code_region *region = codemap_find(&self.map, (uintptr_t)place);
    assert_true(region && region->has_bias);
    *ret_svma = (uintptr_t)place - region->bias;
    return region->image;
}

/* The slots that lead to a function, of all that the program has. Nothing else is FUNCTION. */
static size_t count_slots(const struct image *program, const char *section_name, const struct image *image,
                          uint64_t svma, size_t *ret_unknown)
{
    struct image_section section;
    size_t found = 0;
    if (!image_find_section(program, section_name, &section))
        return 0;
    for (uint64_t off = 0; off < section.bytes; off += sizeof(Elf64_Rela)) {
        Elf64_Rela relocation;
        assert_int_equal(image_read_off(program, section.off + off, &relocation, sizeof(relocation)), 0);
        enum gotslot_answer answer = gotslot_find(program, relocation.r_offset, image, svma);
        found += answer == GOTSLOT_FUNCTION;
        *ret_unknown += answer == GOTSLOT_UNKNOWN;
    }
    return found;
}

static size_t count_all_slots(const struct image *image, uint64_t svma)
{
    uint64_t here;
    size_t unknown = 0;
    const struct image *program = find_image((const void *)(uintptr_t)count_slots, &here);
    size_t count = count_slots(program, ".rela.plt", image, svma, &unknown) +
                   count_slots(program, ".rela.dyn", image, svma, &unknown);
    assert_true(unknown < 16);
    return count;
}

/* This program calls it by one slot. Its address is that of the function, since the program's code is no library's. */
static void test_library_function(void **state)
{
    (void)state;
    uint64_t svma;
    const void *volatile function = (const void *)(uintptr_t)getppid;
    assert_true(getppid() >= 0);
    const struct image *image = find_image(function, &svma);
    if (!strstr(image_path(image), "libc.so")) {
        print_message("the program has its own stub for it\n");
        skip();
    }
    assert_true(count_all_slots(image, svma) >= 1);
    assert_int_equal(count_all_slots(image, svma + 1), 0);
    /* Another image has another function there, if any. */
    uint64_t here;
    assert_int_equal(count_all_slots(find_image((const void *)(uintptr_t)count_slots, &here), svma), 0);
}

static void (*volatile own_pointer)(void **) = test_library_function;

/* A function of the program itself: its slots are relocated by the load address alone. */
static void test_own_function(void **state)
{
    (void)state;
    uint64_t svma;
    const struct image *image = find_image((const void *)(uintptr_t)own_pointer, &svma);
    Elf64_Ehdr header;
    assert_int_equal(image_read_off(image, 0, &header, sizeof(header)), 0);
    if (header.e_type != ET_DYN)
        skip();
    assert_true(count_all_slots(image, svma) >= 1);
    assert_int_equal(count_all_slots(image, svma + 4), 0);
}

static void test_no_slot(void **state)
{
    (void)state;
    uint64_t svma;
    const struct image *image = find_image((const void *)(uintptr_t)count_slots, &svma);
    assert_int_equal(gotslot_find(image, 1, image, svma), GOTSLOT_UNKNOWN);
    assert_int_equal(gotslot_find(image, svma, image, svma), GOTSLOT_UNKNOWN);
}

static int set_up(void **state)
{
    (void)state;
    return self_target_load(&self);
}

static int tear_down(void **state)
{
    (void)state;
    self_target_unload(&self);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_library_function),
        cmocka_unit_test(test_own_function),
        cmocka_unit_test(test_no_slot),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down) ? 1 : 0;
}
