#!/usr/bin/env bash
# Installs what is needed, builds the sampler, samples a bundled program and leaves a flame graph in out/.
set -euo pipefail
cd "$(dirname "$0")/.."
. dev/packages.sh
need_build
need_demo
install_missing

cmake --preset release -DSAMPLER_TESTS=OFF -DSAMPLER_E2E=OFF -DSAMPLER_DEMO=ON >/dev/null
cmake --build --preset release --target sampler demo -j "$(nproc)"

mkdir -p out
echo
echo "sampling build/release/testprogs/demo for 3 seconds ..."
build/release/sampler/sampler -r 499 -o out/demo.collapsed -- build/release/testprogs/demo 3
perl "$flamegraph" --title "demo" out/demo.collapsed >out/demo.svg

echo
echo "hottest functions (share of samples):"
awk '{ count = $NF; sub(/ [0-9]+$/, ""); n = split($0, frame, ";"); self[frame[n]] += count; all += count }
     END { for (f in self) printf "%6.1f %%  %s\n", 100 * self[f] / all, f }' out/demo.collapsed | sort -rn | head -8
echo
echo "collapsed stacks: $PWD/out/demo.collapsed"
echo "flame graph:      $PWD/out/demo.svg"
