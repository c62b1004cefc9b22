"""Paired measurements: the same work without and with the sampler in turn, and what their ratios say.

A machine drifts, so each measurement is compared with its neighbour alone; the order changes from pair to pair, so that a drift favours nobody.
The interval of the median of the ratios is from their order statistics: it assumes nothing of their distribution. For n pairs, the number of ratios
below the true median is binomial(n, 1/2), so the k-th smallest and k-th largest ratio enclose it with probability 1 - 2 P(fewer than k).
"""

import contextlib
import fcntl
import math
import statistics
import time

LOCK_SECONDS = 40  # then nothing new is begun before others had the machine


def below(n, k):
    """P(fewer than k of n fair coins show heads)."""
    return sum(math.comb(n, i) for i in range(k)) / 2 ** n


def median_interval(values, confidence=0.95):
    """(median, low, high): the narrowest pair of order statistics that encloses the true median with that confidence or more.

    Fewer than 6 values cannot give 95 %: then the interval is without end.
    """
    values = sorted(values)
    n = len(values)
    k = 0
    while k < n // 2 and 1 - 2 * below(n, k + 1) >= confidence:
        k += 1
    if k == 0:
        return statistics.median(values) if values else math.nan, -math.inf, math.inf
    return statistics.median(values), values[k - 1], values[n - k]


class Ratio:
    """Ratios of with / without: how much a figure changes, in per cent."""

    def __init__(self, pairs):
        self.ratios = [measured / plain for plain, measured in pairs if plain > 0]
        self.median, self.low, self.high = median_interval(self.ratios)

    def change(self):
        return tuple(100 * (value - 1) for value in (self.median, self.low, self.high))

    def reaches(self, limit_percent):
        """Whether the interval reaches down (for a limit below zero: up) to the limit: then the measurement does not contradict it."""
        _, low, high = self.change()
        return low <= limit_percent if limit_percent >= 0 else high >= limit_percent

    def __str__(self):
        median, low, high = self.change()
        return f"{median:+.2f} % ({low:+.2f} to {high:+.2f}, {len(self.ratios)} pairs)"


def take_pairs(count, plain, measured, lock=None):
    """[(plain(), measured())], in turn and in alternating order; under the lock, which others get in between."""
    pairs = []
    while len(pairs) < count:
        with locked(lock):
            start = time.monotonic()
            while len(pairs) < count and time.monotonic() < start + LOCK_SECONDS:
                if len(pairs) % 2 == 0:
                    first = plain()
                    pairs.append((first, measured()))
                else:
                    second = measured()
                    pairs.append((plain(), second))
    return pairs


@contextlib.contextmanager
def locked(path):
    """Alone on the machine, where others agree to lock the same file; path may be None."""
    if not path:
        yield
        return
    with open(path, "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
