#!/usr/bin/env bash
# Installs what is needed, builds and runs all tests: the unit and fuzz tests with AddressSanitizer and UndefinedBehaviorSanitizer, then
# the unit and end-to-end tests of the release build. ctest's closing line is the last thing printed.
set -euo pipefail
cd "$(dirname "$0")/.."
# Some tests become an ordinary user.
if [ "$(id -u)" = 0 ] && ! setpriv --reuid 65534 --regid 65534 --clear-groups test -r "$PWD/dev/test.sh"; then
    echo "dev/test.sh: ordinary users cannot get into $PWD, as some tests have to: move it out of /root, or make it accessible" >&2
    exit 1
fi
. dev/packages.sh
need_build
need_tests
install_missing

jobs=$(nproc)
# make starts a cmake for each line that it says; and of debug information the sanitizers tell functions and lines only.
quiet=(-DCMAKE_RULE_MESSAGES=OFF -DCMAKE_TARGET_MESSAGES=OFF)
cmake --preset debug -DSAMPLER_WERROR=ON -DCMAKE_C_FLAGS_DEBUG=-g1 "${quiet[@]}" >/dev/null
cmake --build --preset debug -j "$jobs"
cmake --preset release -DSAMPLER_TESTS=ON -DSAMPLER_E2E=ON -DSAMPLER_WERROR=ON "${quiet[@]}" >/dev/null
cmake --build --preset release -j "$jobs"

ctest --preset debug -j "$jobs"
ctest --preset release -j "$jobs"
