"""Wall mode: a sleeping thread's stack counts until it runs again, and not a tick longer."""

import harness
from harness import program

THREADS = 40


class Switchers(harness.Case):
    """Threads that sleep in one function and then, each at a moment of its own, in another."""

    def check(self, rate, seconds, *options):
        profile, stats, result = self.launch(["-m", "wall", "-r", str(rate), *options],
                                             [program("switchers"), str(THREADS), str(seconds)])
        facts = harness.last_json(result.out)
        self.assertEqual(stats["samples_truncated"], 0, profile)
        # How many ticks there were in a second is the machine's business.
        ticks_per_ns = stats["ticks"] / stats["wall_ns"]
        late = stats["ticks_late"] + stats["ticks_missed"]
        for number in range(THREADS):
            thread = profile.of_thread(f"switch-{number}")
            for name in ("first", "second"):
                expected = facts[name][number] * ticks_per_ns
                self.assertAlmostEqual(thread.containing(name + "_wait"), expected, delta=4 + 0.02 * expected + late, msg=(number, stats))
        return profile, stats

    def test_ticks(self):
        profile, stats = self.check(200, 2)
        self.assertEqual(profile.total, stats["samples"])
        # Each was sampled where it sleeps first and where it sleeps then, and hardly more often.
        asleep = profile.count(lambda stack: stack[0].startswith("switch-") and len(stack) > 1 and "switch_main" in stack)
        self.assertGreaterEqual(stats["kept"], asleep - 8 * THREADS, stats)
        self.assertGreaterEqual(stats["unstopped"], stats["kept"])
        self.assertGreater(profile.containing("spin_main"), 0)

    def test_nanoseconds(self):
        """Kept stacks stand for their time; the threads' sums are the same."""
        profile, stats, result = self.launch(["-m", "wall", "-r", "100", "--value", "ns"], [program("switchers"), str(THREADS), "1.5"])
        facts = harness.last_json(result.out)
        slack = 5e7 + stats["wall_ns"] * (stats["ticks_late"] + stats["ticks_missed"]) / stats["ticks"]
        for number in range(THREADS):
            thread = profile.of_thread(f"switch-{number}")
            for name in ("first", "second"):
                self.assertAlmostEqual(thread.containing(name + "_wait"), facts[name][number], delta=slack, msg=(number, stats))


if __name__ == "__main__":
    harness.main()
