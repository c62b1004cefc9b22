#!/usr/bin/env python3
"""What sampling costs servers under load: throughput and the 99th percentile of latency.

    bench/setup.sh && bench/servers.py [--pairs N] [--seconds S] [--rate HZ] [--lock FILE] [postgres|redis|nginx|memcached]...

Each server runs as Debian ships it, an instance of its own on loopback or a local socket in a temporary directory, under a load that keeps the machine busy:
pgbench -S, redis-benchmark, wrk, and bench/memcached_load.c. The load runs unsampled and sampled (wall mode) in turn, N pairs. Of the pairs' ratios the
median and its 95 % interval (bench/pairs.py). It holds when the interval reaches the limit, and what is the sampler's for certain (the
time in which it stopped threads, and its CPU time) is within the limit too, as a share of the target's CPU time.

Then without load: are the stacks of blocked threads whole, and is nobody stopped more than once for a block? (Blocks there are as many as voluntary
context switches in as long a time unsampled, and one for each thread that sleeps already.)
"""

import argparse
import contextlib
import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from pairs import locked, take_pairs
from sampling import BUILD, Ours, Sampling, Verdict, build, tasks, wait_until

THROUGHPUT_LIMIT, LATENCY_LIMIT = -2, 10
IDLE_SECONDS = 3


def as_user(name):
    """For Popen: as that user, who has no rights beyond it, when we are root."""
    if os.getuid() != 0:
        return {}
    user = pwd.getpwnam(name)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def output(*command, **options):
    return subprocess.run(list(map(str, command)), check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options).stdout


def found(pattern, text):
    match = re.search(pattern, text)
    if not match:
        sys.exit(f"no {pattern!r} in {text!r}")
    return match


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def connects(family, address):
    with socket.socket(family) as probe:
        return probe.connect_ex(address) == 0


class Server:
    """One server in its own directory: `process`, and load() -> (requests a second, p99 in us)."""

    user = "nobody"
    options = ()

    def __init__(self, directory, seconds):
        self.directory, self.seconds = directory, seconds
        if os.getuid() == 0:
            shutil.chown(directory, self.user)
        os.chmod(directory, 0o755)
        self.socket = os.path.join(directory, "socket")

    def start(self, *command, **options):
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        cwd=self.directory, **as_user(self.user), **options)
        wait_until(self.is_up, f"{command[0]} answers")

    def is_up(self):
        return connects(socket.AF_UNIX, self.socket)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)

    def pids(self):
        with open(f"/proc/{self.process.pid}/task/{self.process.pid}/children", encoding="ascii") as file:
            return [self.process.pid, *map(int, file.read().split())]


class Postgres(Server):
    user = "postgres"
    options = ("--children",)

    def run(self):
        binaries = output("pg_config", "--bindir").strip() if shutil.which("pg_config") else sorted(
            os.path.join("/usr/lib/postgresql", version, "bin") for version in os.listdir("/usr/lib/postgresql"))[-1]
        data = os.path.join(self.directory, "data")
        self.pgbench = os.path.join(binaries, "pgbench")
        output(os.path.join(binaries, "initdb"), "-D", data, "-A", "trust", "--no-sync", cwd=self.directory, **as_user(self.user))
        self.socket = os.path.join(self.directory, ".s.PGSQL.5432")
        # Fast shutdown by SIGINT; nothing on disk outlives the measurement.
        self.start(os.path.join(binaries, "postgres"), "-D", data, "-k", self.directory, "-c", "listen_addresses=", "-c", "fsync=off", "-c", "port=5432")
        wait_until(lambda: subprocess.run([self.pgbench, "-i", "-q", "-s", "5", "-h", self.directory, "-U", "postgres", "postgres"], check=False, capture_output=True,
                                          **as_user(self.user)).returncode == 0, "pgbench -i")

    def load(self):
        with tempfile.TemporaryDirectory(dir=self.directory) as logs:
            os.chmod(logs, 0o777)
            text = output(self.pgbench, "-S", "-n", "-c", 4, "-j", 1, "-T", max(1, round(self.seconds)), "-l", "--log-prefix", os.path.join(logs, "log"), "-h", self.directory,
                          "-U", "postgres", "postgres", cwd=logs, **as_user(self.user))
            latencies = []
            for name in os.listdir(logs):
                with open(os.path.join(logs, name), encoding="ascii") as file:
                    latencies += [int(line.split()[2]) for line in file]
        latencies.sort()
        return float(found(r"tps = ([0-9.]+) \(without", text)[1]), latencies[int(0.99 * len(latencies))]

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)


class Redis(Server):
    def run(self):
        self.start("redis-server", "--port", 0, "--unixsocket", self.socket, "--unixsocketperm", "777", "--save", "", "--dir", self.directory)
        self.requests = 50_000
        self.requests = max(10_000, int(self.load()[0] * self.seconds))

    def load(self):
        text = output("redis-benchmark", "-s", self.socket, "-t", "get", "-c", 20, "-n", self.requests, "-r", 10_000, "-d", 100, "--csv")
        columns = found(r'"GET","([0-9.",]+)', text)[1].replace('"', "").split(",")
        return float(columns[0]), 1000 * float(columns[5 - 1])  # rps, average, least, p50, p95, p99, most: see below


class Nginx(Server):
    user = "www-data"
    options = ("--children",)

    def run(self):
        self.port = free_port()
        os.makedirs(os.path.join(self.directory, "www"))
        with open(os.path.join(self.directory, "www/index.html"), "w", encoding="ascii") as file:
            file.write("<p>" + "x" * 1000 + "</p>\n")
        path = os.path.join(self.directory, "nginx.conf")
        with open(path, "w", encoding="ascii") as file:
            temporary = " ".join(f"{kind}_temp_path {self.directory}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
            file.write(f"daemon off; worker_processes 2; pid {self.directory}/pid; error_log {self.directory}/error.log;\n"
                       f"events {{ worker_connections 256; }}\nhttp {{ access_log off; {temporary}\n"
                       f"keepalive_requests 1000000000; server {{ listen 127.0.0.1:{self.port}; root {self.directory}/www; }} }}\n")
        self.start(shutil.which("nginx") or "/usr/sbin/nginx", "-e", f"{self.directory}/error.log", "-p", self.directory, "-c", path)

    def is_up(self):
        return connects(socket.AF_INET, ("127.0.0.1", self.port))

    def load(self):
        text = output("wrk", "-t1", "-c16", f"-d{max(1, round(self.seconds))}s", "--latency", f"http://127.0.0.1:{self.port}/index.html")
        if "Non-2xx" in text or "Socket errors" in text:
            sys.exit(text)
        late = found(r"99%\s+([0-9.]+)(us|ms|s)", text)
        return float(found(r"Requests/sec:\s+([0-9.]+)", text)[1]), float(late[1]) * {"us": 1, "ms": 1e3, "s": 1e6}[late[2]]


class Memcached(Server):
    def run(self):
        self.start("memcached", "-s", self.socket, "-a", "0777", "-t", 2, "-m", 64)

    def load(self):
        rate, _, p99 = map(float, output(os.path.join(BUILD, "bench/memcached_load"), self.socket, 16, self.seconds).split())
        return rate, p99


SERVERS = {"postgres": Postgres, "redis": Redis, "nginx": Nginx, "memcached": Memcached}


@contextlib.contextmanager
def running(name, seconds):
    # Not below a directory that only we may enter.
    with tempfile.TemporaryDirectory(prefix="sampler-bench-", dir="/tmp") as directory:
        server = SERVERS[name](directory, seconds)
        server.run()
        try:
            yield server
        finally:
            server.stop()


def switches(pids):
    total = 0
    for pid in pids:
        for tid in tasks(pid):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/task/{tid}/status", encoding="utf-8", errors="replace") as file:
                    total += int(found(r"\nvoluntary_ctxt_switches:\s+(\d+)", file.read())[1])
    return total


def idle(server, arguments, verdict):
    pids = server.pids()
    threads = sum(len(tasks(pid)) for pid in pids)
    time.sleep(1)  # what the load has left to do
    with locked(arguments.lock):
        blocks = -switches(pids)
        time.sleep(IDLE_SECONDS)
        blocks += switches(pids)
        with Sampling(server.process.pid, "-m", "wall", *server.options, rate=arguments.rate) as run:
            time.sleep(IDLE_SECONDS)
    stats = run.stats
    # A stack that is cut says that a stop is needed, and that of the next tick is whole: one is cut for a thread, at most.
    whole = 1 - stats["samples_truncated"] / max(1, stats["samples"])
    verdict.say(stats["samples_truncated"] <= threads and not stats["samples_failed"],
                f"idle: {threads} threads, {100 * whole:.2f} % of {stats['samples']} stacks whole ({stats['samples_truncated']} cut), {stats['inferred']} inferred")
    blocks = threads + round(blocks * stats["wall_ns"] / 1e9 / IDLE_SECONDS)
    verdict.say(stats["stops"] <= blocks, f"idle: {stats['stops']} stops, {blocks} blocks")


def measure(name, arguments, verdict):
    with running(name, arguments.seconds) as server:
        runs = []

        def sampled():
            with Sampling(server.process.pid, "-m", "wall", *server.options, rate=arguments.rate) as run:
                result = server.load()
            runs.append(run)
            return result

        with locked(arguments.lock):
            server.load()  # caches
        pairs = take_pairs(arguments.pairs, server.load, sampled, arguments.lock)
        ours = Ours(runs)
        first = pairs[len(pairs) // 2][0]
        print(f"\n{name}: {first[0]:.0f} requests a second, p99 {first[1]:.0f} us unsampled; {arguments.pairs} pairs of {arguments.seconds:g} s at {arguments.rate} Hz")
        print(f"  ours for certain: {ours}")
        verdict.change("throughput", [(plain[0], with_us[0]) for plain, with_us in pairs], THROUGHPUT_LIMIT, ours)
        verdict.change("p99 latency", [(plain[1], with_us[1]) for plain, with_us in pairs], LATENCY_LIMIT)
        verdict.say(ours.truncated <= 0.01 * ours.samples, f"under load {100 - 100 * ours.truncated / max(1, ours.samples):.2f} % of stacks whole, "
                    f"{ours.stops / max(1, ours.samples):.3f} stops a sample")
        verdict.say(ours.stopped_asleep <= ours.sleeps, f"under load {ours.sleeps} sleeps of threads seen, {ours.stopped_asleep} stops of sleeping ones")
        idle(server, arguments, verdict)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rate", type=int, default=99)
    parser.add_argument("--lock", metavar="FILE", help="hold an exclusive lock of FILE during the pairs")
    parser.add_argument("servers", nargs="*", default=list(SERVERS), metavar="|".join(SERVERS))
    arguments = parser.parse_args()
    build("memcached_load")
    verdict = Verdict()
    for name in arguments.servers:
        measure(name, arguments, verdict)
    return 0 if verdict.good else 1


if __name__ == "__main__":
    sys.exit(main())
