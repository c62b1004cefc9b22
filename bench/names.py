#!/usr/bin/env python3
"""How long names take and how much memory, in one run.

    bench/setup.sh && bench/names.py [--rounds N] [--only clang|functions|debug]...

clang:     clang -O2 on a generated C file of 3,000 functions under the sampler at 999 Hz: time from the end of the program to the end of the sampler, CPU
           time for names, memory. Beside it `perf script` on the samples of shorter work, with and without inlined functions, as time for a sample.
functions: 5,000, 10,000 and 20,000 addresses in a library of 400,000 functions with names of 60 to 120 characters and no debug information; beside it
           eu-addr2line and addr2line on the 5,000. Growth from 5,000 to 20,000 must be at most fourfold (a tenth of a second and a fifth are let pass).
debug:     5,000 addresses in a library with more than 500 MB of debug information, inlined functions and lines, with the file in the page
           cache and without; beside it eu-addr2line, addr2line and llvm-symbolizer.

Files are generated once and kept. Runs are whole programs, interleaved in rounds: wall time, CPU time, the largest resident memory and the largest part of
it that is not of files; medians (least - most). A peer that is not done in time is run once, and its time scaled by the answers that it gave. Status 1 when
a limit is passed.
"""

import argparse
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from sampling import BUILD, ROOT, SAMPLER, Verdict, build

NAMES = os.path.join(BUILD, "bench/names")
KEPT = os.path.join(ROOT, "build/bench")
PEER_SECONDS = 40
C_FUNCTIONS, C_FUNCTIONS_OF_PERF = 3000, 300
FUNCTIONS, COUNTS = 400_000, (5_000, 10_000, 20_000)
DEBUG_BYTES_MIN, DEBUG_COPIES, DEBUG_ADDRESSES = 500_000_000, 170, 5_000
POLL_SECONDS = 0.005
verdict = Verdict()


class Run:
    """One run of a program: what it took, and what it wrote until it ended or `seconds` were over."""

    def __init__(self, command, given=os.devnull, seconds=None):
        self.is_cut, self.peak_mb, self.anonymous_mb = False, 0, 0
        with open(given, "rb") as stdin, tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            start = time.monotonic()
            process = subprocess.Popen(list(map(str, command)), stdin=stdin, stdout=stdout, stderr=stderr)
            status, usage = self._wait(process, start, seconds)
            self.wall = time.monotonic() - start
            process.returncode = os.waitstatus_to_exitcode(status)
            self.ended = time.clock_gettime(time.CLOCK_BOOTTIME)
            self.cpu = usage.ru_utime + usage.ru_stime
            self.read_mb = usage.ru_inblock * 512 / 1e6
            self.output, self.errors = (self._text(file) for file in (stdout, stderr))
        if process.returncode and not self.is_cut:
            sys.exit(f"{command}: status {process.returncode}: {self.errors[-500:]}")

    @staticmethod
    def _text(file):
        file.seek(0)
        return file.read().decode(errors="replace")

    def _wait(self, process, start, seconds):
        while True:
            self._look(process.pid)
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                return status, usage
            if seconds and not self.is_cut and time.monotonic() > start + seconds:
                self.is_cut = True
                process.kill()
            time.sleep(POLL_SECONDS)

    def _look(self, pid):
        """(What wait4 tells counts the children's memory, too.)"""
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            fields = dict(line.split(":", 1) for line in file)
        if "VmHWM" in fields:
            self.peak_mb = max(self.peak_mb, int(fields["VmHWM"].split()[0]) / 1024)
            self.anonymous_mb = max(self.anonymous_mb, int(fields["RssAnon"].split()[0]) / 1024)


def spread(values, digits=2):
    values = list(values)
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} - {max(values):.{digits}f})"


def median(runs, name):
    return statistics.median(getattr(run, name) for run in runs)


def show(what, runs):
    print(f"  {what:44} {spread(run.wall for run in runs):>22} s   CPU {spread(run.cpu for run in runs):>22} s   "
          f"{median(runs, 'peak_mb'):5.0f} MB, {median(runs, 'anonymous_mb'):5.0f} of them anonymous", flush=True)


def limit(what, value, at_most, unit):
    verdict.say(value <= at_most, f"{what}: {value:.2f} {unit}, limit {at_most:.4g} {unit}")


class Peers:
    """Other programs on the same addresses: in each round those that were in time so far."""

    def __init__(self, commands):
        self.runs = {name: [] for name in commands}
        self.commands = commands

    def round(self, given):
        for name, command in self.commands.items():
            if not self.runs[name] or not self.runs[name][-1].is_cut:
                self.runs[name].append(Run(command, given, PEER_SECONDS))

    def show(self, count):
        for name, runs in self.runs.items():
            if not runs[-1].is_cut:
                show(name, runs)
                continue
            answers = len(re.findall("^0x[0-9a-f]+$", runs[-1].output, re.M))
            scaled = f"{runs[-1].wall * count / answers:.0f} s for all at that rate" if answers else "none answered"
            print(f"  {name:44} cut after {runs[-1].wall:.0f} s with {answers} of {count}: {scaled}; {runs[-1].peak_mb:.0f} MB", flush=True)


# ---- files ----

def kept(name, make):
    """The path of that file, made by `make(path of a part, directory for other files)` if it is not there."""
    path = os.path.join(KEPT, name)
    if not os.path.exists(path):
        os.makedirs(KEPT, exist_ok=True)
        start = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="names-", dir=KEPT) as directory:
            make(path + ".part", directory)
        os.rename(path + ".part", path)
        print(f"made {name}, {os.path.getsize(path) / 1e6:.0f} MB, in {time.monotonic() - start:.0f} s", flush=True)
    return path


def run(*command):
    subprocess.run(list(map(str, command)), check=True)


def c_file(functions):
    """Functions that keep a compiler busy for some milliseconds each, and are not inlined."""
    def make(path, _):
        generator = random.Random(2)
        with open(path, "w", encoding="ascii") as file:
            file.write("struct node { struct node *next; long key, value; };\n")
            for n in range(functions):
                a, b, c = (generator.randrange(1, 1000) for _ in range(3))
                call = f"work_{generator.randrange(n)}(at, x - 1)" if n else "x"
                file.write(f"""
__attribute__((noinline)) long work_{n}(struct node *list, long x)
{{
    long sum = {a};
    for (struct node *at = list; at; at = at->next) {{
        if (at->key > x)
            sum += (at->value ^ x) * {b};
        else
            at->value = sum / {c} + {call};
    }}
    return sum ^ x;
}}
""")
    return kept(f"names-{functions}.c", make)


WORDS = ("account", "balance", "channel", "dispatch", "element", "fragment", "gateway", "handler", "iterator", "journal", "keyring", "listener", "manager",
         "network", "operation", "partition", "queue", "registry", "scheduler", "transaction")
TYPES = ("i", "NS0_4PageE", "St6vectorIiSaIiEE", "St4pairIKmPKcE", "St10shared_ptrIvE", "St3mapIjjSt4lessIjESaISt4pairIKjjEEE")


def long_name(n, generator):
    """As in C, in C++ namespaces, or a member of a C++ template."""
    def words(least):
        text = f"{n:06d}"
        while len(text) < least:
            text = f"{generator.choice(WORDS)}_{text}"
        return text
    if n % 4 == 0:
        return words(generator.randrange(60, 110))
    if n % 4 == 1:
        scope, method = generator.choice(WORDS), words(generator.randrange(40, 80))
        return f"_ZN4acme{len(scope)}{scope}{len(method)}{method}EPKci"
    method = words(generator.randrange(20, 50))
    return f"_ZN4acme7storage5TableI{generator.choice(TYPES)}{generator.choice(TYPES)}E{len(method)}{method}Em"


def library_of_functions(path, directory):
    generator = random.Random(3)
    source = os.path.join(directory, "functions.s")
    with open(source, "w", encoding="ascii") as file:
        file.write(".text\n")
        for n in range(FUNCTIONS):
            name = long_name(n, generator)
            file.write(f".globl {name}\n.type {name},@function\n{name}:\n.skip 15,0x90\nret\n.size {name},16\n")
        file.write('.section .note.GNU-stack,"",@progbits\n')
    run("as", "-o", source + ".o", source)
    run("ld", "-shared", "-o", path, source + ".o")


CXX_SOURCES = {
    "containers": """
#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>
template <int N> struct Step {
    std::map<int, std::vector<std::string>> texts;
    std::function<int(int)> count;
    int run(int x)
    {
        texts[x].push_back(std::to_string(N + x));
        std::sort(texts[x].begin(), texts[x].end());
        count = [this, x](int y) { return (int)texts[x + y].size(); };
        return count(N) + (N > 0 ? Step<(N > 0 ? N - 1 : 0)>().run(x - 1) : 0);
    }
};
int run(int x) { return Step<40>().run(x); }
""",
    "patterns": """
#include <iostream>
#include <regex>
#include <sstream>
#include <string>
bool matches(const std::string &text) { return std::regex_search(text, std::regex("a(b|c)*d")); }
std::string replaced(const std::string &text)
{
    std::ostringstream out;
    std::regex word("[a-z]+");
    for (std::sregex_iterator at(text.begin(), text.end(), word), end; at != end; ++at)
        out << at->str() << std::endl;
    return std::regex_replace(out.str(), std::regex("x|y"), "z");
}
""",
    "pointers": """
#include <deque>
#include <list>
#include <memory>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
template <int N> struct Graph {
    std::unordered_map<std::string, std::shared_ptr<std::set<std::tuple<int, long, std::string>>>> edges;
    std::deque<std::list<double>> weights;
    double add(const std::string &from, const std::string &to)
    {
        auto &set = edges[from];
        if (!set)
            set = std::make_shared<std::set<std::tuple<int, long, std::string>>>();
        set->emplace(N, (long)to.size(), to);
        weights.emplace_back(std::list<double>(N + 1, 1.5)).sort();
        double sum = std::accumulate(weights.back().begin(), weights.back().end(), 0.0);
        return sum + (N > 0 ? Graph<(N > 0 ? N - 1 : 0)>().add(to, from) : 0);
    }
};
double add(const std::string &from, const std::string &to) { return Graph<25>().add(from, to); }
""",
}


def library_with_debug(path, directory):
    """Objects of C++ with all symbols made local, so that the linker takes each many times."""
    objects = []
    for name, text in CXX_SOURCES.items():
        base = os.path.join(directory, name)
        with open(base + ".cc", "w", encoding="ascii") as file:
            file.write(text)
        run("g++", "-O2", "-g", "-fPIC", "-fno-gnu-unique", "-c", "-o", base + ".o", base + ".cc")
        run("ld", "-r", "--force-group-allocation", "-o", base + ".one.o", base + ".o")
        run("objcopy", "--keep-global-symbol=none", base + ".one.o", base + ".local.o")
        objects.append(base + ".local.o")
    run("g++", "-shared", "-o", path, *objects * DEBUG_COPIES)


def sections(path):
    """Sizes and addresses by name."""
    text = subprocess.run(["readelf", "-SW", path], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = re.findall(r"\] (\S+) +\S+ +([0-9a-f]+) [0-9a-f]+ ([0-9a-f]+)", text)
    return {name: (int(bytes_, 16), int(address, 16)) for name, address, bytes_ in found}


def addresses(name, of, count, step=1):
    """A file with so many addresses of .text, each in a stretch of `step` bytes of its own."""
    def make(path, _):
        bytes_, start = sections(of)[".text"]
        chosen = random.Random(4).sample(range(bytes_ // step), count)
        with open(path, "w", encoding="ascii") as file:
            file.writelines(f"0x{start + step * at + step // 2:x}\n" for at in chosen)
    return kept(name, make)


# ---- cases ----

def share_named(frames):
    """Of (name, count)."""
    named = sum(count for name, count in frames if not re.fullmatch(r"\[.*\]", name))
    return 100 * named / max(1, sum(count for _, count in frames))


def collapsed_frames(text):
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        for name in stack.split(";")[1:]:
            if name != "[truncated]":
                yield name, int(count)


def sampled(source, directory):
    """The run, with `after`: from the end of the program to the end of the sampler."""
    profile, stats, mark = (os.path.join(directory, name) for name in ("profile", "stats", "mark"))
    program = 'clang -O2 -c "$1" -o /dev/null; read up rest </proc/uptime; echo $up >"$2"'
    done = Run([SAMPLER, "-q", "-r", 999, "-o", profile, "--stats", stats, "--", "sh", "-c", program, "sh", source, mark])
    with open(mark, encoding="ascii") as file:
        done.after = done.ended - float(file.read())
    with open(stats, encoding="utf-8") as file:
        done.stats = json.load(file)
    done.names_cpu = done.stats["symbol_ns"] / 1e9
    with open(profile, encoding="utf-8") as file:
        done.named = share_named(list(collapsed_frames(file.read())))
    return done


def perf_scripts(source, directory):
    data = os.path.join(directory, "perf.data")
    Run(["perf", "record", "-q", "-F", 999, "-e", "cpu-clock:u", "--call-graph", "dwarf", "-o", data, "clang", "-O2", "-c", source, "-o", "/dev/null"])
    for what, options in (("perf script --no-inline", ["--no-inline"]), ("perf script", [])):
        done = Run(["perf", "script", "-i", data, "-F", "comm,pid,time,ip,sym,dso", *options], seconds=PEER_SECONDS)
        samples = len(re.findall("^$", done.output, re.M))
        frames = [(name, 1) for name in re.findall(r"^\s+[0-9a-f]+ (\S+).*\)$", done.output, re.M)]
        print(f"  {what:44} {1000 * done.wall / max(1, samples):.2f} ms a sample ({samples} samples in {done.wall:.1f} s{', cut' if done.is_cut else ''}), CPU "
              f"{1000 * done.cpu / max(1, samples):.2f} ms, {done.peak_mb:.0f} MB; {share_named(frames):.2f} % of the frames have a name", flush=True)


def clang(arguments):
    source, short = c_file(C_FUNCTIONS), c_file(C_FUNCTIONS_OF_PERF)
    with tempfile.TemporaryDirectory(prefix="sampler-bench-") as directory:
        runs = [sampled(source, directory) for _ in range(arguments.rounds)]
        samples = statistics.median(run.stats["samples"] for run in runs)
        print(f"\nclang: {C_FUNCTIONS} functions of C, {samples:.0f} samples at 999 Hz, inlined functions on")
        print(f"  {'from the end of the program to ours':44} {spread(run.after for run in runs):>22} s   CPU for names {spread(run.names_cpu for run in runs)} s")
        print(f"  {'a sample':44} {spread(1000 * run.after / run.stats['samples'] for run in runs):>22} ms")
        print(f"  {'memory':44} {spread((run.peak_mb for run in runs), 0):>22} MB, {median(runs, 'anonymous_mb'):.0f} of them anonymous")
        print(f"  {'frames with a name':44} {spread(run.named for run in runs):>22} %")
        print(f"  on {C_FUNCTIONS_OF_PERF} functions: {sampled(short, directory).named:.2f} % of our frames have a name")
        perf_scripts(short, directory)
    limit("from the end of the program to ours", median(runs, "after"), 1, "s")
    limit("memory", median(runs, "peak_mb"), 300, "MB")


def functions(arguments):
    library = kept(f"names-{FUNCTIONS}.so", library_of_functions)
    given = {count: addresses(f"names-{FUNCTIONS}-{count}", library, count, 16) for count in COUNTS}
    ours = {count: [] for count in COUNTS}
    peers = Peers({"eu-addr2line -f": ["eu-addr2line", "-a", "-f", "-e", library], "addr2line -f": ["addr2line", "-a", "-f", "-e", library]})
    for _ in range(arguments.rounds):
        for count in COUNTS:
            ours[count].append(Run([NAMES, library, "--quiet"], given[count]))
        peers.round(given[COUNTS[0]])
    print(f"\nfunctions: a library of {FUNCTIONS} functions, {os.path.getsize(library) / 1e6:.0f} MB, no debug information")
    for count in COUNTS:
        show(f"ours, {count} addresses", ours[count])
        print(f"    {ours[count][-1].errors.strip()}")
    peers.show(COUNTS[0])
    for count in COUNTS:
        limit(f"{count} addresses", median(ours[count], "wall"), 1, "s")
    few, many = median(ours[COUNTS[0]], "wall"), median(ours[COUNTS[-1]], "wall")
    limit("growth to four times as many", many, 4 * 1.2 * few + 0.1, "s")


def out_of_cache(path):
    with open(path, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def debug(arguments):
    library = kept(f"names-debug-{DEBUG_COPIES}.so", library_with_debug)
    total = sum(bytes_ for name, (bytes_, _) in sections(library).items() if name.startswith(".debug_"))
    if total < DEBUG_BYTES_MIN:
        sys.exit(f"{library} has {total} bytes of debug information only")
    given = addresses(f"names-debug-{DEBUG_COPIES}-{DEBUG_ADDRESSES}", library, DEBUG_ADDRESSES)
    cold, warm = [], []
    peers = Peers({"eu-addr2line -i -f": ["eu-addr2line", "-a", "-i", "-f", "-e", library],
                   "llvm-symbolizer": ["llvm-symbolizer", "-a", "-i", f"--obj={library}"],
                   "addr2line -i -f": ["addr2line", "-a", "-i", "-f", "-e", library]})
    os.sync()
    for _ in range(arguments.rounds):
        out_of_cache(library)
        for runs in (cold, warm):
            runs.append(Run([NAMES, library, "--lines", "--quiet"], given))
        peers.round(given)
    print(f"\ndebug: {total / 1e6:.0f} MB of debug information, {3 * DEBUG_COPIES} units, {DEBUG_ADDRESSES} addresses, inlined functions and lines")
    show("ours, file not in the page cache", cold)
    print(f"    {spread((run.read_mb for run in cold), 0)} MB read from disk")
    show("ours, file in the page cache", warm)
    print(f"    {warm[-1].errors.strip()}")
    peers.show(DEBUG_ADDRESSES)
    for what, runs in (("not in the page cache", cold), ("in the page cache", warm)):
        limit(what, median(runs, "wall"), 5, "s")
        limit(f"{what}, memory", median(runs, "peak_mb"), 1000, "MB")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", action="append", choices=("clang", "functions", "debug"))
    arguments = parser.parse_args()
    build("sampler", "names")
    for name, part in (("clang", clang), ("functions", functions), ("debug", debug)):
        if not arguments.only or name in arguments.only:
            part(arguments)
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
