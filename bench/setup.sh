#!/usr/bin/env bash
# Installs what the measurements need beyond the tests, builds the sampler and the programs that are measured.
set -euo pipefail
cd "$(dirname "$0")/.."
. dev/packages.sh
need_build
need_tests
need linux-perf perf
need libbpf-dev /usr/include/bpf/libbpf.h
need clang clang
need default-jdk javac
need git git
need golang-go go
need openssl openssl
need perl perl
need rustc rustc
need sqlite3 sqlite3
install_missing
cmake --preset release -DSAMPLER_E2E=ON >/dev/null
cmake --build --preset release -j "$(nproc)"
mkdir -p build/bench
g++ -O2 -g -pthread -o build/bench/cxx_work bench/cxx_work.cc
