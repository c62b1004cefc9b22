"""A little of the fault campaign (campaign.py); bench/faults.py runs all of it. SAMPLER_SEED repeats the random moments of a run."""

import os
import re
import time

import campaign
import harness


class Faults(harness.Case):
    def setUp(self):
        super().setUp()
        seed = int(os.environ.get("SAMPLER_SEED", time.time_ns() % 1000000))
        print(f"SAMPLER_SEED={seed}", flush=True)
        self.campaign = campaign.Campaign(self.directory, seed)

    def check(self):
        self.campaign.check_no_child_left()
        self.assertEqual(self.campaign.faults, [], f"with SAMPLER_SEED={self.campaign.seed}")

    def test_the_sampler_is_killed(self):
        self.campaign.kill_sampler(50, storm_signals=4000)
        self.check()

    def test_the_sampler_is_killed_at_a_system_call(self):
        self.campaign.kill_at_calls("all", every=37, most=40, storm_signals=4000)
        self.campaign.kill_at_calls("tracing", every=3, most=28, storm_signals=4000)
        killed = sum(count for name, count in self.campaign.facts.items() if re.search("before|after", name))
        self.assertGreater(killed, 40)
        for when in ("before", "after"):
            self.assertGreater(self.campaign.facts[f"kill-at-call {when} ptrace"], 0, self.campaign.facts)
        self.check()

    def test_the_target_is_killed(self):
        self.campaign.kill_target(40)
        self.check()

    def test_the_target_ends_by_itself(self):
        self.campaign.exit_races(60)
        self.check()

    def test_threads_come_and_go(self):
        self.campaign.churn(10)
        self.check()


if __name__ == "__main__":
    harness.main()
