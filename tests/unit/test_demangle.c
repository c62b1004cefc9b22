#include "cmocka_all.h"

#include "symbolize/demangle.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* CPU time a name may cost; sanitizers and slow machines included. */
static const double LIMIT_S = 0.05;

/* The name at the end of a page, before one that cannot be read. */
static char *demangle_guarded(const char *mangled)
{
    size_t size = strlen(mangled) + 1;
    size_t room = (size + 4095) & ~(size_t)4095;
    char *pages = mmap(NULL, room + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(pages != MAP_FAILED);
    assert_int_equal(mprotect(pages + room, 4096, PROT_NONE), 0);
    char *copy = pages + room - size;
    memcpy(copy, mangled, size);
    char *readable = demangle_name(copy);
    munmap(pages, room + 4096);
    return readable;
}

static void expect(const char *mangled, const char *expected)
{
    char *readable = demangle_guarded(mangled);
    if (!expected) {
        if (readable)
            fail_msg("%s: %s, expected to stay", mangled, readable);
        return;
    }
    if (!readable)
        fail_msg("%s stays, expected %s", mangled, expected);
    assert_string_equal(readable, expected);
    free(readable);
}

static void test_cxx(void **state)
{
    (void)state;
    expect("_ZN2ns5ClassIiE6methodEv", "ns::Class<int>::method");
    expect("_ZN12_GLOBAL__N_11fEi", "(anonymous namespace)::f");
    expect("_ZZ4mainENKUliE_clEi", "main::{lambda(int)#1}::operator()");
    expect("_Z1fIiEvT_", "f<int>");
    expect("_ZN3fooC2Ev", "foo::foo");
    expect("_ZN3fooD0Ev", "foo::~foo");
    expect("_ZNK3fooeqERKS_", "foo::operator==");
    expect("_ZN3foocviEv", "foo::operator int");
    expect("_ZN3foocvT_IiEEv", "foo::operator int<int>");
    expect("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back");
    expect("_ZNKRSt8optionalIiE5valueEv", "std::optional<int>::value");
    expect("_ZZ3fooiENKUlT_E_clIiEEDaS_", "foo(int)::{lambda(auto:1)#1}::operator()<int>");
    expect("_ZL3barv", "bar");
    expect("_ZThn16_N1A1fEv", "non-virtual thunk to A::f()");
}

static void test_rust(void **state)
{
    (void)state;
    expect("_ZN7mycrate6module3hot17h0123456789abcdefE", "mycrate::module::hot");
    expect("_ZN70_$LT$mycrate..Thing$u20$as$u20$core..ops..function..Fn$LT$Args$GT$$GT$4call17h0123456789abcdefE",
           "<mycrate::Thing as core::ops::function::Fn<Args>>::call");
    expect("_ZN4core3fmt5write17h0123456789abcdefE.llvm.1234567890", "core::fmt::write");
    expect("_RNvNtCs1234_7mycrate6module3hot", "mycrate::module::hot");
    expect("_RNvNtCs1234_7mycrate6module3hot.llvm.1234567890", "mycrate::module::hot");
    expect("_RNCNvC4main4mains_0B3_", "main::main::{closure#1}");
    expect("_RINvNtC7mycrate6module3hotmjE", "mycrate::module::hot::<u32, usize>");
    expect("_RNvC7mycrateu8gdel_5qa", "mycrate::g\303\266del");
    expect("_RNvC1a5u9999", "a::u9999");
}

static void test_d(void **state)
{
    (void)state;
    expect("_Dmain", "D main");
    expect("_D8demangle4testFZv", "demangle.test()");
    expect("_D8demangle4test6memberMFZv", "demangle.test.member()");
    expect("_D", NULL);
    expect("_Data", NULL);
    expect("_D9", NULL);
    expect("$s4main3runyyF", NULL); /* Swift */
    /* Each part names the one before twice. */
    char bomb[4096] = "_D1aFHiiZv";
    for (size_t at = strlen(bomb); at + 8 < sizeof(bomb); at += 5)
        memcpy(bomb + at, "HQbQb", 6);
    clock_t before = clock();
    free(demangle_guarded(bomb));
    assert_true((double)(clock() - before) / CLOCKS_PER_SEC < LIMIT_S);
}

static void test_suffixes(void **state)
{
    (void)state;
    expect("_Z4spinv.cold", "spin");
    expect("_Z4spinv.cold.12", "spin");
    expect("spin.cold", "spin");
    expect("spin.cold.3", "spin");
    expect("spin.isra.0.cold@@V1", "spin.isra.0");
    expect("_Z4spinv.constprop.0", "spin [clone .constprop.0]");
    expect("_Z4spini.part.0.isra.0.cold", "spin [clone .part.0.isra.0]");
    expect("_Z4spinv.lto_priv.0", "spin [clone .lto_priv.0]");
    expect("_ZN4core3fmt5write17h0123456789abcdefE.cold", "core::fmt::write");
    expect("_Z4spinv@@LIB_1.0", "spin");
    expect("_Z4spinv.cold@LIB_1.0", "spin");
    expect("memcpy@@GLIBC_2.14", "memcpy");
    expect("memcpy@GLIBC_2.2.5", "memcpy");
}

static void test_unchanged(void **state)
{
    (void)state;
    static const char *const names[] = {"",      "_",       "_Z",          "_R",          "__Z3foov",  "main",
                                        ".cold", ".cold.0", "spin.colder", "spin.cold.x", "Z3f",       "_Zx",
                                        "_RX",   "_Z99foo", "_RNvC99a",    "@",           "@VERSION",  "_ZN",
                                        ".",     "_Z.",     "_R.",         "_Z1",         "_ZNSt17h.E"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        expect(names[i], NULL);
}

static char *join(const char *head, const char *piece, size_t count, const char *tail)
{
    size_t piece_bytes = strlen(piece);
    char *text = malloc(strlen(head) + piece_bytes * count + strlen(tail) + 1);
    assert_non_null(text);
    char *to = stpcpy(text, head);
    for (size_t i = 0; i < count; i++, to += piece_bytes)
        memcpy(to, piece, piece_bytes);
    strcpy(to, tail);
    return text;
}

static double cpu_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Takes `mangled`. The answer may be anything that is short; the time may not. */
static void expect_fast(const char *what, char *mangled)
{
    double start = cpu_now_s();
    char *readable = demangle_guarded(mangled);
    double took = cpu_now_s() - start;
    print_message("%-28s %7zu bytes -> %6zu, %.3f ms\n", what, strlen(mangled), readable ? strlen(readable) : 0,
                  took * 1e3);
    assert_true(took < LIMIT_S);
    if (readable)
        assert_true(strlen(readable) <= 64 << 10);
    free(readable);
    free(mangled);
}

static char *repeat(const char *open, size_t depth, const char *middle, const char *close)
{
    char *head = join("", open, depth, middle);
    char *all = join(head, close, depth, "");
    free(head);
    return all;
}

static void test_long(void **state)
{
    (void)state;
    expect_fast("C++ 100 kB", join("_ZN", "3abc", 25000, "Ev"));
    expect_fast("Rust v0 100 kB", join("_RNvC", "3abc", 25000, ""));
    expect_fast("Rust legacy 100 kB", join("_ZN", "3abc", 25000, "17h0123456789abcdefE"));
    expect_fast("C++ names", join("_ZN", "3abc", 2000, "Ev"));
    expect_fast("C++ pointers", join("_Z1fI", "P", 8100, "iEvv"));
    expect_fast("C++ nested templates", repeat("1aI", 2000, "i", "E"));
    expect_fast("C++ expressions", join("_Z1fIX", "ng", 4000, "Li1EEEvv"));
    expect_fast("C++ local names", repeat("Z", 1600, "1f", "vE1f"));
    expect_fast("Rust references", join("_RINvC1a1b", "R", 8100, "uE"));
    expect_fast("Rust punycode", join("_RNvC1au8100", "z", 8100, ""));
    char *part = join("u2000", "z", 2000, "");
    expect_fast("Rust punycode, in parts", join("_RNvNtNtC1a", part, 3, ""));
    free(part);
    char *head = join("_Z1fI", "RT_", 1300, "");
    expect_fast("C++ scopes times templates", join(head, "1aIiE", 800, "Evv"));
    free(head);
}

/* Names that stand for as many characters as 2 to the power of their length: "1a<int, int>", then pairs of the one
 * before. */
static char *cxx_bomb(const char *head, size_t depth, const char *tail)
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char text[1024];
    char *to = stpcpy(text, head);
    for (size_t i = 0; i < depth; i++)
        to += sprintf(to, "S_IS%c_S%c_E", digits[i], digits[i]);
    strcpy(to, tail);
    return strdup(text);
}

static char *rust_bomb(size_t depth)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    char text[1024] = "_RINvC1a1bTuuE";
    size_t before = 8; /* offset of the tuple behind "_R" */
    char *to = text + strlen(text);
    for (size_t i = 0; i < depth; i++) {
        size_t at = (size_t)(to - text) - 2;
        size_t value = before - 1;
        char back[8];
        if (value < 62)
            sprintf(back, "B%c_", digits[value]);
        else
            sprintf(back, "B%c%c_", digits[value / 62], digits[value % 62]);
        to += sprintf(to, "T%s%sE", back, back);
        before = at;
    }
    strcpy(to, "E");
    return strdup(text);
}

static void test_bombs(void **state)
{
    (void)state;
    expect_fast("C++ substitutions", cxx_bomb("_Z1fI1aIiiE", 30, "Evv"));
    expect_fast("C++ substitutions in a pack", cxx_bomb("_Z1fI1aIiiE", 30, "DpSS_Evv"));
    expect_fast("C++ conversion operators", join("_ZN1acv", "T_I", 40, "iEv"));
    char *head = join("_ZN1acv", "T_I", 40, "i");
    expect_fast("C++ conversion operators", join(head, "E", 41, "v"));
    free(head);
    head = join("_ZN1acv", "T_I", 6, "");
    char *middle = join(head, "1b", 3900, "i");
    expect_fast("C++ conversions, long", join(middle, "E", 7, "v"));
    free(middle);
    free(head);
    expect_fast("Rust back references", rust_bomb(25));
    expect_fast("Rust lifetimes", strdup("_RINvC1a1bFGzzzzzzzzzz_EuE"));
    expect_fast("Rust lifetimes", strdup("_RINvC1a1bFGzzz_EuE"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cxx),      cmocka_unit_test(test_rust),      cmocka_unit_test(test_d),
        cmocka_unit_test(test_suffixes), cmocka_unit_test(test_unchanged), cmocka_unit_test(test_long),
        cmocka_unit_test(test_bombs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL) ? 1 : 0;
}
