"""python3: JSON, regular expressions, sorting, recursion, compression, generators, for ever."""
import json
import random
import re
import zlib


def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def walk(tree, depth):
    if depth:
        yield from walk(tree, depth - 1)
    yield depth


random.seed(1)
while True:
    rows = [{"a": i, "b": [random.random() for _ in range(5)]} for i in range(300)]
    text = json.dumps(rows)
    json.loads(text)
    re.findall(r"(\d+)\.(\d+)", text)
    sorted(rows, key=lambda row: row["b"][0])
    zlib.compress(text.encode())
    list(walk({}, 40))
    fib(15)
