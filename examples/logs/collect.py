#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""collect.py POP COLLECTED - sends what waits to a collector, a batch at a time.

A batch is acked when the collector has it, else it comes again. The collector is a file
here, and away for every third batch. Prints how many lines each batch had.
"""

import sys

pop, collected = sys.argv[1:]
tries = 0


def send(batch: bytes) -> None:
    global tries
    tries += 1
    if tries % 3 == 0:
        raise ConnectionError("the collector is away")
    with open(collected, "ab") as file:
        file.write(batch)


with open(pop, "r+b", buffering=0) as queue:
    while batch := queue.readall():
        try:
            send(batch)
        except ConnectionError:
            queue.write(b"retry")
        else:
            queue.write(b"ack")
            print(batch.count(b"\n"))
