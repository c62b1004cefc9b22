#!/usr/bin/env bash
# Installs what is needed, builds and runs all tests: the unit and fuzz tests with AddressSanitizer and UndefinedBehaviorSanitizer, then
# the unit and end-to-end tests of the release build. ctest's closing line is the last thing printed.
set -euo pipefail
cd "$(dirname "$0")/.."
. dev/packages.sh
need_build
need_tests
install_missing

jobs=$(nproc)
cmake --preset debug -DSAMPLER_WERROR=ON >/dev/null
cmake --build --preset debug -j "$jobs"
cmake --preset release -DSAMPLER_TESTS=ON -DSAMPLER_E2E=ON -DSAMPLER_WERROR=ON >/dev/null
cmake --build --preset release -j "$jobs"

ctest --preset debug -j "$jobs"
ctest --preset release -j "$jobs"
