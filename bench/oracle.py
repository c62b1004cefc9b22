#!/usr/bin/env python3
"""Our stacks against libdwfl's and libunwind's, of real programs while they work.

    bench/setup.sh && bench/oracle.py [--stops N] [--rate HZ] [--only NAME]... [--save DIR] [--json FILE] [-v]

Each program does the work of a file in bench/work (or what fits it) and is stopped N times, started anew when it ends. One line each: stops compared; shares
of stacks that are identical to the best of the two others, to libdwfl's, to libunwind's; where ours is better, where the difference is explained, where it is not;
return addresses that lie behind no call; frames a stack; stacks that reach their root by ours, libdwfl and libunwind. What the words mean
stands in tests/oracle/judge.h. Then the differences, most frequent first (-v: with registers, stack and code).
"""

import argparse
import collections
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ORACLE = os.path.join(ROOT, "build/release/tests/oracle/oracle")
WORK = os.path.join(ROOT, "bench/work")
BUILT = os.path.join(ROOT, "build/bench")
WARM_CPU_SECONDS = 0.1
STARTS_IN_VAIN = 50


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


def c_source(functions):
    """C that keeps a compiler busy: functions with loops, switches and calls of each other."""
    generator = random.Random(1)
    lines = ["#define NULL ((void *)0)", "struct node { struct node *next; long key, value; };"]
    for n in range(functions):
        constants = [generator.randrange(1, 1000) for _ in range(8)]
        call = f"work_{generator.randrange(n)}(list, x - 1)" if n else "x"
        lines.append(f"""
static long work_{n}(struct node *list, long x)
{{
    long table[16], sum = {constants[0]};
    for (int i = 0; i < 16; i++)
        table[i] = (x * {constants[1]} + i) ^ (sum >> {constants[2] % 13});
    for (struct node *at = list; at != NULL; at = at->next) {{
        switch ((at->key + x) % 6) {{
        case 0: sum += table[at->key & 15] * {constants[3]}; break;
        case 1: sum ^= at->value << {constants[4] % 7}; break;
        case 2: at->value = sum / {constants[5]}; break;
        case 3: for (int j = 0; j < {constants[6]}; j++) sum += table[j & 15] * j; break;
        default: sum -= x > 0 ? {call} : at->key;
        }}
    }}
    return sum + table[x & 15] * {constants[7]};
}}""")
    lines.append("long all(struct node *list) { return " + " + ".join(f"work_{n}(list, {n})" for n in range(functions)) + "; }")
    return "\n".join(lines) + "\n"


def cxx_source(classes):
    """C++ for a compiler: templates over templates."""
    parts = ["#include <algorithm>\n#include <map>\n#include <memory>\n#include <string>\n#include <vector>\n#include <functional>\n"]
    for n in range(classes):
        parts.append(f"""
template <int N> struct C{n} {{ std::map<int, std::vector<std::string>> m; std::function<int(int)> f;
  int run(int x) {{ m[x].push_back(std::to_string(N + x)); std::sort(m[x].begin(), m[x].end()); f = [this, x](int y) {{ return (int)m[x + y].size(); }};
    return f(N) + (N > 0 ? C{n}<(N > 0 ? N - 1 : 0)>().run(x - 1) : 0); }} }};
int use_{n}(int x) {{ return C{n}<6>().run(x); }}
""")
    return "".join(parts)


SQL = """
CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c REAL);
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 60000)
INSERT INTO t SELECT x, 'name ' || (x * 7919 % 10007), x / 7.0 FROM n;
CREATE INDEX tb ON t(b);
""" + "".join(f"""
SELECT count(*), sum(length(b)), avg(c) FROM t WHERE b LIKE '%{n}%';
SELECT b, count(*) c FROM t GROUP BY b ORDER BY c DESC, b LIMIT 5;
SELECT count(*) FROM t x JOIN t y ON x.b = y.b WHERE x.a < y.a AND x.c > {n};
WITH RECURSIVE f(i, a, b) AS (SELECT 0, 0, 1 UNION ALL SELECT i + 1, b, (a + b) % 1000007 FROM f WHERE i < 50000) SELECT max(a) FROM f;
SELECT json_group_array(json_object('a', a, 'b', b)) FROM (SELECT * FROM t WHERE a % 50 = {n});
UPDATE t SET c = c * 1.01, b = replace(b, '{n}', 'x') WHERE a % 3 = {n % 3};
""" for n in range(40))


class Programs:
    """What is run: a method of each name makes the files and returns the command."""

    NAMES = ("node", "python3", "perl", "java", "cc1", "clang", "clang++", "git", "sqlite3", "openssl", "go", "rust", "c++", "xz")

    def __init__(self, directory):
        self.directory = directory

    def path(self, name):
        return os.path.join(self.directory, name)

    def command(self, name):
        return getattr(self, name.replace("+", "x"))()

    def node(self):
        return ["node", os.path.join(WORK, "work.js")]

    def python3(self):
        return ["/usr/bin/python3", os.path.join(WORK, "work.py")]

    def perl(self):
        return ["perl", os.path.join(WORK, "work.pl")]

    def java(self):
        subprocess.run(["javac", "-d", self.directory, os.path.join(WORK, "Work.java")], check=True)
        return ["java", "-XX:+PreserveFramePointer", "-Xmx512m", "-cp", self.directory, "Work"]

    def cc1(self):
        source = write(self.path("generated.c"), c_source(1500))
        return [output("gcc", "-print-prog-name=cc1"), "-O2", "-quiet", source, "-o", "/dev/null"]

    def clang(self):
        source = write(self.path("generated_clang.c"), c_source(1500))
        return ["clang", "-O2", "-c", source, "-o", "/dev/null"]

    def clangxx(self):
        source = write(self.path("generated.cc"), cxx_source(60))
        return ["clang", "-x", "c++", "-O2", "-g", "-c", source, "-o", "/dev/null"]

    def git(self):
        repository = self.path("repository")
        subprocess.run(["git", "init", "-q", repository], check=True)
        generator = random.Random(1)
        lines = [f"line {generator.randrange(10 ** 9)}" for _ in range(3000)]
        stream = []
        for commit in range(400):
            for _ in range(60):
                lines[generator.randrange(len(lines))] = f"line {generator.randrange(10 ** 9)}"
            text = "\n".join(lines)
            stream.append(f"commit refs/heads/work\ncommitter A <a@b> {1600000000 + commit} +0000\ndata 1\nx\n"
                          f"M 644 inline file{commit % 7}\ndata {len(text)}\n{text}\n")
        subprocess.run(["git", "-C", repository, "fast-import", "--quiet"], input="".join(stream), text=True, check=True)
        return ["git", "--no-pager", "-C", repository, "log", "-p", "--stat", "-M", "--patience", "work"]

    def sqlite3(self):
        return ["sqlite3", ":memory:", ".read " + write(self.path("work.sql"), SQL)]

    def openssl(self):
        return ["openssl", "speed", "-seconds", "1", "rsa2048", "ecdsap256", "ecdhx25519", "sha256", "sha512", "md5", "aes-128-cbc",
                "ghash"]

    def go(self):
        target = self.path("work_go")
        subprocess.run(["go", "build", "-o", target, os.path.join(WORK, "work.go")], check=True, cwd=self.directory,
                       env={**os.environ, "GO111MODULE": "off", "GOCACHE": os.path.join(BUILT, "go-cache")})
        return [target]

    def rust(self):
        target = self.path("work_rust")
        subprocess.run(["rustc", "-O", "-o", target, os.path.join(WORK, "work.rs")], check=True)
        return [target]

    def cxx(self):
        target = self.path("work_cxx")
        subprocess.run(["g++", "-O2", "-pthread", "-o", target, os.path.join(ROOT, "bench/cxx_work.cc")], check=True)
        return [target, "3600", "2"]

    def xz(self):
        path = self.path("data")
        with open(path, "wb") as file:
            generator = random.Random(1)
            words = [generator.randbytes(generator.randrange(2, 12)) for _ in range(5000)]
            for _ in range(10):
                file.write(b"".join(generator.choices(words, k=500000)))
        return ["xz", "-6", "-T2", "-k", "-c", path]


def cpu_seconds(pid):
    try:
        with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[0]) / 1e9
    except OSError:
        return None


def wait_warm(process):
    """Past its beginning, or over."""
    end = time.monotonic() + 10
    while process.poll() is None and time.monotonic() < end and (cpu_seconds(process.pid) or 0) < WARM_CPU_SECONDS:
        time.sleep(0.01)
    return process.poll() is None


def add(total, part):
    for key, value in part.items():
        if isinstance(value, int):
            total[key] = total.get(key, 0) + value
        elif isinstance(value, dict):
            add(total.setdefault(key, {}), value)
        else:
            known = {each["key"]: each for each in total.setdefault(key, [])}
            for each in value:
                if each["key"] in known:
                    known[each["key"]]["count"] += each["count"]
                else:
                    total[key].append(each)


def measure(command, directory, arguments, save):
    total, vain = {"stops": 0}, 0
    path = os.path.join(directory, "oracle.json")
    while total["stops"] < arguments.stops and vain < STARTS_IN_VAIN:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            if wait_warm(process):
                oracle = [ORACLE, "-n", str(arguments.stops - total["stops"]), "-r", str(arguments.rate), "--json", path, "-p", str(process.pid)]
                if save:
                    oracle[1:1] = ["--save", f"{save}-{vain}"]
                if os.path.exists(path):
                    os.unlink(path)
                subprocess.run(oracle, stdout=subprocess.DEVNULL, check=False)
                if os.path.exists(path):
                    with open(path, encoding="utf-8") as file:
                        add(total, json.load(file))
        finally:
            process.kill()
            process.wait()
        vain += 1
    return total


COLUMNS = (("compared", 8), ("best %", 7), ("dwfl %", 7), ("unw %", 7), ("better", 7), ("expl.", 6), ("unexpl.", 7), ("imposs.", 7), ("depth", 6),
           ("whole %", 8), ("dwfl %", 7), ("unw %", 7))


def print_row(name, total):
    compared = max(total.get("compared", 0), 1)
    percent = [100 * total.get(key, 0) / compared for key in ("same_best", "same_libdwfl", "same_libunwind")]
    classes = [sum(total.get(key, {}).values()) for key in ("better", "explained", "unexplained")]
    roots = [100 * total.get(key, 0) / compared for key in ("complete", "libdwfl_at_root", "libunwind_at_root")]
    cells = [total.get("compared", 0), *(f"{each:.2f}" for each in percent), *classes, total.get("impossible", 0),
             f"{total.get('frames', 0) / compared:.1f}", *(f"{each:.2f}" for each in roots)]
    print(f"{name:9}" + "".join(f"{cell:>{width + 1}}" for cell, (_, width) in zip(cells, COLUMNS)), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stops", type=int, default=2000)
    parser.add_argument("--rate", type=int, default=400)
    parser.add_argument("--only", action="append", choices=Programs.NAMES)
    parser.add_argument("--save", help="directory for fixtures of the differences")
    parser.add_argument("--json", help="all numbers and differences")
    parser.add_argument("-v", "--verbose", action="store_true")
    arguments = parser.parse_args()
    os.makedirs(BUILT, exist_ok=True)
    print(f"{'':9}" + "".join(f"{name:>{width + 1}}" for name, width in COLUMNS), flush=True)
    results, everything, short = {}, {}, []
    for name in arguments.only or Programs.NAMES:
        directory = tempfile.mkdtemp(prefix="sampler-oracle-")
        try:
            if arguments.save:
                os.makedirs(arguments.save, exist_ok=True)
            command = Programs(directory).command(name)
            results[name] = measure(command, directory, arguments, arguments.save and os.path.join(arguments.save, name))
        except FileNotFoundError as error:
            print(f"{name:9}  not measured: {error}", flush=True)
            continue
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        print_row(name, results[name])
        if results[name]["stops"] < arguments.stops:
            print(f"{name:9}  only {results[name]['stops']} stops: it ended too soon, or did not start", flush=True)
            short.append(name)
        add(everything, json.loads(json.dumps(results[name])))
    print_row("all", everything)
    for name, total in results.items():
        for each in sorted(total.get("differences", []), key=lambda each: -each["count"])[:None if arguments.verbose else 8]:
            print(f"{name}: {each['count']} times {each['key']}")
            if arguments.verbose:
                print(each["example"], end="")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1)
    kinds = collections.Counter(everything.get("unexplained", {}))
    good = everything.get("compared", 0) > 0 and not short and not kinds and not everything.get("impossible", 0)
    print("no difference is unexplained" if good else f"unexplained: {dict(kinds)}, impossible: {everything.get('impossible', 0)}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
