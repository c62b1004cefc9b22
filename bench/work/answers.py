"""testprogs/answers.cc in Python: answers N by "folded(N) MISTAKES ROUNDS", while two threads check their own work."""

import hashlib
import sys
import threading

TURNS, NUMBERS = 20000, 50
counts = {"mistakes": 0, "rounds": 0}


def folded(number):
    x = number
    for i in range(TURNS):
        x = (x * 31 + i) % 65521
    return x


def work():
    table = {}
    while True:
        for number in range(NUMBERS):
            digest = hashlib.sha256(b"%d " % number * 5000).hexdigest()
            result = (folded(number), digest)
            if table.setdefault(number, result) != result:
                counts["mistakes"] += 1
        counts["rounds"] += 1


for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    print(folded(int(line)), counts["mistakes"], counts["rounds"], flush=True)
