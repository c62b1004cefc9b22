"""Children and new images: what is followed, what is not, and that every exec goes through under sampling."""

import os

import harness
from harness import Sampler, Target, program


class Children(harness.Case):
    def seen(self, profile):
        return {name: profile.containing(name) for name in ("parent_spin", "child_spin", "leaf_spin")}

    def test_launched_with_children(self):
        profile, _, result = self.launch(["-r", "250"], [program("forker"), program("chain_nofp"), "2"])
        self.assertGreater(harness.last_json(result.out)["children"], 4)
        seen = self.seen(profile)
        self.assertGreater(min(seen.values()), 20, f"{seen}\n{profile}")
        self.assertGreater(profile.ending("level_20", "leaf_spin"), 20)
        # The executed image has its own names: none of its functions under the parent's program, nor the other way round.
        mixed = profile.count(lambda stack: "leaf_spin" in stack and ("child_spin" in stack or "parent_spin" in stack))
        self.assertEqual(mixed, 0)
        chain = profile.count(lambda stack: stack[0] == "chain_nofp" and "leaf_spin" in stack)
        self.assertGreaterEqual(chain, seen["leaf_spin"] * 0.95)

    def test_launched_without_children(self):
        profile, _, _ = self.launch(["-r", "250", "--no-children"], [program("forker"), program("chain_nofp"), "1.2"])
        seen = self.seen(profile)
        self.assertGreater(seen["parent_spin"], 20)
        self.assertEqual((seen["child_spin"], seen["leaf_spin"]), (0, 0))

    def test_attached_without_children(self):
        with Target("forker", program("chain_nofp")) as target:
            profile, _, _ = self.attach(target.pid, "-r", "250", "-d", "1.2")
            harness.assert_healthy(target.pid)
            seen = self.seen(profile)
            self.assertGreater(seen["parent_spin"], 20)
            self.assertEqual((seen["child_spin"], seen["leaf_spin"]), (0, 0))

    def test_attached_with_children(self):
        with Target("forker", program("chain_nofp"), "2.5") as target:
            profile, _, _ = self.attach(target.pid, "--children", "-r", "250", "-d", "1.5")
            status, _ = target.end()
        self.assertEqual(status, 0, "a child did not end well")
        seen = self.seen(profile)
        self.assertGreater(min(seen.values()), 15, f"{seen}\n{profile}")

    def test_descendants_that_exist_already(self):
        script = f"'{program('exiter')}' exit 0 2 & '{program('chain_nofp')}' 2; wait"
        with Target("/bin/sh", "-c", script) as target:
            harness.wait_until(lambda: len(children(target.pid)) == 2, "both children run")
            profile, _, _ = self.attach(target.pid, "--children", "-r", "250", "-d", "0.7")
        self.assertGreater(profile.containing("exiter_spin"), 20, profile)
        self.assertGreater(profile.containing("leaf_spin"), 20, profile)


    def test_never_itself(self):
        """The sampler is a child of ours: followed children are all but that one."""
        with Target("chain_nofp"):
            profile, stats, _ = self.attach(os.getpid(), "--children", "-m", "wall", "-r", "100", "-d", "0.5")
        self.assertGreater(profile.containing("leaf_spin"), 0)
        self.assertEqual(set(profile.threads()) & {"sampler", "capture", "unwind"}, set())
        self.assertEqual(stats["samples_failed"], {})


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split() if harness.status(int(child)).get("Name") in ("exiter", "chain_nofp")]


class Exec(harness.Case):
    """A program that executes itself again and again with eight threads alive, at 1 kHz."""

    # With another source of news than root's default (SAMPLER_EVENTS) each exec costs more, and fewer show what that is about.
    COUNT = 80 if harness.EVENTS else 200

    def loop(self, who, *options):
        command = [program("execloop_a"), self.COUNT, "8", who]
        profile, _, result = self.launch(["-r", "1000", *options], command, limit=60)
        self.assertEqual(harness.last_json(result.out), {"execs": self.COUNT})
        return profile

    def check_images(self, profile):
        """Each image's functions under its own names only."""
        counts = {}
        for image, other in (("a", "b"), ("b", "a")):
            right = profile.ending(f"thread_{image}", f"spin_in_{image}")
            counts[image] = right
            own = profile.of_thread(f"execloop_{image}")
            mixed = profile.ending(f"thread_{other}", f"spin_in_{image}")
            self.assertEqual(mixed, 0, profile)
            named = own.ending(f"thread_{image}", f"spin_in_{image}")
            self.assertGreaterEqual(named, right * 0.9)
        self.assertGreater(min(counts.values()), 20, f"{counts}\n{profile}")
        spinning = profile.matching(r"^spin_in_[ab]$")
        self.assert_share(profile, spinning, 0.5)

    def test_from_the_main_thread(self):
        self.check_images(self.loop("main"))

    def test_from_another_thread(self):
        self.check_images(self.loop("worker"))

    def test_attached(self):
        with Target("execloop_a", self.COUNT, 8, "worker") as target:
            with Sampler("-q", "-r", "1000", "-o", self.path("profile"), "-p", target.pid) as sampler:
                status, output = target.end(60)
                self.assert_ok(sampler.end())
        self.assertEqual((status, harness.last_json(output)), (0, {"execs": self.COUNT}))
        self.assertGreater(harness.read_profile(self.path("profile")).total, 50)

    def test_wall_mode(self):
        _, _, result = self.launch(["-r", "1000", "-m", "wall"], [program("execloop_a"), "60", "8", "worker"], limit=60)
        self.assertEqual(harness.last_json(result.out), {"execs": 60})


if __name__ == "__main__":
    harness.main()
