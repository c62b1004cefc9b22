"""Blocking calls of many kinds return as they do without us: when they should, with what they should, and never with EINTR."""

import os
import signal

import harness
from harness import Sampler, Target

# A call that was started again begins its timeout anew: late by what it had waited, which is no more than a period. What a busy machine adds is
# known of this thread (the time that it waited for a CPU is not counted), but not of the samplers that it waits for while it is stopped.
LATE_US = 1_000_000
# These say EINTR even when their timeout is over already, if a stop comes before they have got a CPU: then it starts anew.
LATER = {"recv", "read_socket", "recvmsg", "recvmmsg", "send", "write_socket", "accept", "accept4", "connect", "io_getevents"}


class Blockers(harness.Case):
    def check(self, output, wakes):
        blockers = harness.last_json(output)["blockers"]
        self.assertGreaterEqual(len(blockers), 45)
        for name, facts in blockers.items():
            with self.subTest(call=name):
                self.assertEqual((facts["eintr"], facts["unexpected"]), (0, 0), facts)
                if facts["kind"] == "timed":
                    self.assertGreater(facts["calls"], 1, facts)
                    self.assertLessEqual(facts["early_us"], 1000, facts)
                    if name not in LATER:
                        self.assertLess(facts["unqueued_late_us"], LATE_US, facts)
                else:
                    self.assertGreaterEqual(facts["wakes"], wakes, facts)
                if facts["kind"] == "woken":
                    self.assertEqual(facts["calls"], facts["wakes"], facts)
                if facts["kind"] == "signalled":
                    self.assertEqual(facts["handled"], facts["wakes"], facts)
                    self.assertEqual(facts["calls"], 0 if name == "sig_read_pipe" else facts["wakes"], facts)

    def finish(self, target):
        harness.assert_healthy(target.pid)
        os.kill(target.pid, signal.SIGTERM)
        status, output = target.end()
        self.assertEqual(status, 0)
        return output

    def test_modes(self):
        for program in ("blockers", "blockers_fp"):
            for mode in ("cpu", "wall"):
                with self.subTest(program=program, mode=mode), Target(program, 60) as target:
                    _, stats, _ = self.attach(target.pid, "-m", mode, "-r", "500", "-d", "2")
                    self.check(self.finish(target), 2)
                    if harness.BPF == "off":
                        self.assertGreater(stats["stops"], 0)
                    else:
                        self.assertGreater(stats["stops"] + stats["unstopped"], 0)  # it may do without any stop

    def test_attach_again_and_again(self):
        """Each sampler begins anew: none knows what the one before has started again."""
        with Target("blockers_fp", 60) as target:
            for n in range(8):
                with Sampler("-q", "-m", "cpu" if n % 2 else "wall", "-r", "500", "-d", "0.3", "-o", self.path("profile"), "-p", target.pid) as sampler:
                    self.assert_ok(sampler.end())
            self.check(self.finish(target), 3)


if __name__ == "__main__":
    harness.main()
