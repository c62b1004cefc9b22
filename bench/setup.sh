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
need google-perftools google-pprof
need libgoogle-perftools4 "/usr/lib/*/libprofiler.so.0"
need openssl openssl
need perl perl
need rustc rustc
need sqlite3 sqlite3
need elfutils eu-stack
need gdb gdb
need llvm llvm-symbolizer
need libc6-dbg /usr/share/doc/libc6-dbg/copyright
need libstdc++6-12-dbg /usr/lib/x86_64-linux-gnu/debug/libstdc++.so.6
need python3.11-dbg /usr/bin/python3.11d
need lld ld.lld
need redis-tools redis-benchmark
need strace strace
need wrk wrk

# The measurements run servers of their own: being installed is not to start one, now or at the next boot.
new_services=()
need_server() {
    local package=$1 probe=$2 service=$3 before=${#missing[@]}
    need "$package" "$probe"
    [ ${#missing[@]} -eq "$before" ] || new_services+=("$service")
}
need_server memcached memcached memcached
need_server nginx-light /usr/sbin/nginx nginx
need_server postgresql "/usr/lib/postgresql/*/bin/postgres" postgresql
need_server redis-server redis-server redis-server

as_root=()
[ "$(id -u)" -eq 0 ] || as_root=(sudo)
policy=/usr/sbin/policy-rc.d
if [ ${#new_services[@]} -gt 0 ] && [ ! -e $policy ]; then
    trap '"${as_root[@]}" rm -f $policy' EXIT
    printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee $policy >/dev/null
    "${as_root[@]}" chmod 755 $policy
fi
install_missing
for service in "${new_services[@]}"; do
    "${as_root[@]}" update-rc.d "$service" disable >/dev/null
done
cmake --preset release -DSAMPLER_E2E=ON >/dev/null
cmake --build --preset release -j "$(nproc)"
mkdir -p build/bench
cmake --build --preset release --target blocked_target blocked_target_fp memcached_load naive_tracer
g++ -O2 -g -pthread -o build/bench/cxx_work bench/cxx_work.cc
