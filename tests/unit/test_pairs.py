"""The interval of a median, against tables and against chance."""

import os
import random
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench"))
import pairs


class MedianInterval(unittest.TestCase):
    def test_ranks_of_the_tables(self):
        """The ranks that tables of the sign test give for 95 %."""
        for n, rank in ((6, 1), (8, 1), (9, 2), (10, 2), (12, 3), (15, 4), (20, 6), (25, 8), (30, 10)):
            values = list(range(1, n + 1))
            _, low, high = pairs.median_interval(values)
            self.assertEqual((low, high), (rank, n + 1 - rank), n)

    def test_too_few(self):
        for n in range(1, 6):
            _, low, high = pairs.median_interval([1.0] * n)
            self.assertEqual((low, high), (float("-inf"), float("inf")))

    def test_order_does_not_matter(self):
        values = [3, 9, 1, 7, 5, 2, 8, 4, 6, 10]
        self.assertEqual(pairs.median_interval(values), (5.5, 2, 9))

    def test_coverage(self):
        """The true median of a skewed distribution is inside at least as often as promised."""
        generator = random.Random(1)
        trials, inside = 4000, 0
        for _ in range(trials):
            _, low, high = pairs.median_interval([generator.expovariate(1) for _ in range(12)])
            inside += low <= 0.6931471805599453 <= high
        self.assertGreaterEqual(inside / trials, 0.95)
        self.assertLess(inside / trials, 0.975)  # 96.1 % by the binomial distribution


class Ratio(unittest.TestCase):
    def test_change(self):
        ratio = pairs.Ratio([(100.0, 103.0)] * 10)
        for value in ratio.change():
            self.assertAlmostEqual(value, 3.0)
        self.assertTrue(ratio.reaches(4))
        self.assertFalse(ratio.reaches(2))

    def test_limits_below_zero(self):
        ratio = pairs.Ratio([(100.0, 97.0)] * 10)
        self.assertTrue(ratio.reaches(-5))
        self.assertFalse(ratio.reaches(-2))


class TakePairs(unittest.TestCase):
    def test_alternates_and_keeps_sides(self):
        order = []
        result = pairs.take_pairs(3, lambda: order.append("a") or 1, lambda: order.append("b") or 2)
        self.assertEqual(order, ["a", "b", "b", "a", "a", "b"])
        self.assertEqual(result, [(1, 2)] * 3)


if __name__ == "__main__":
    unittest.main()
