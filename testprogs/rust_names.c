/*
 * rust_names [SECONDS]: functions whose symbols are what rustc writes, so that no rustc is needed here.
 * main;mycrate::hot (legacy);mycrate::inner::hot_v0 (v0);mycrate::run::{closure#0} (v0).
 */
#include "testprog.h"

int hot_legacy(int x) __asm__("_ZN7mycrate3hot17h0123456789abcdefE");
int hot_v0(int x) __asm__("_RNvNtCs1234_7mycrate5inner6hot_v0");
int closure_v0(int x) __asm__("_RNCNvCs1234_7mycrate3run0B3_");

EXACT int closure_v0(int x)
{
    SPIN();
    return x;
}

EXACT int hot_v0(int x)
{
    return closure_v0(x + 1) ^ x;
}

EXACT int hot_legacy(int x)
{
    return hot_v0(x + 1) ^ x;
}

int main(int argc, char **argv)
{
    stop_after(number_argument(argc, argv, 1, 60));
    ready("");
    volatile int result = hot_legacy(argc);
    (void)result;
    return 0;
}
