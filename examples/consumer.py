#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A producer and a consumer in Python: JSON lines through a queue.

The producer is a thread that pushes while the consumer reads. The consumer is stopped in
the middle and another one goes on where it was. QUEENFS names the daemon
(../build/queenfs).
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time

COUNT = 200
HERE = os.path.dirname(os.path.abspath(__file__))
QUEENFS = os.environ.get("QUEENFS", os.path.join(HERE, "..", "build", "queenfs"))


def messages(pop):
    """Takes one message after the other, without end; sleeps while nothing waits.

    A pop gives a message and then an end of file; the read after that is the next pop. So
    this takes no buffered file, and one that is opened once is enough.
    """
    fd = os.open(pop, os.O_RDONLY)
    try:
        message = b""
        idle = True
        while True:
            piece = os.read(fd, 1 << 16)
            message += piece
            if message.endswith(b"\n"):  # a long message comes in pieces
                yield message[:-1]
                message, idle = b"", False
            elif not piece:
                if idle:
                    time.sleep(0.02)
                idle = True
    finally:
        os.close(fd)


def produce(push):
    with open(push, "w", buffering=1, encoding="utf-8") as out:  # a write for each line
        for number in range(COUNT):
            print(json.dumps({"number": number, "square": number * number}), file=out)


def consume(pop, count):
    numbers = []
    for message in messages(pop):
        event = json.loads(message)
        assert event["square"] == event["number"] ** 2
        numbers.append(event["number"])
        if len(numbers) == count:
            return numbers


def main(queue):
    os.mkdir(queue)
    os.mkdir(f"{queue}/groups/sums")
    producer = threading.Thread(target=produce, args=(f"{queue}/push",))
    producer.start()
    first = consume(f"{queue}/groups/sums/pop", COUNT // 2)
    second = consume(f"{queue}/groups/sums/pop", COUNT - len(first))
    producer.join()
    assert first + second == list(range(COUNT))
    print(f"two consumers in turn took {len(first)} and {len(second)} messages, in order")
    with open(f"{queue}/groups/sums/cursor", encoding="utf-8") as cursor:
        print("the group stands at", cursor.read().replace("\t", " in "), end="")


signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # tidies up, as after Ctrl-C
with tempfile.TemporaryDirectory() as directory:
    mount = os.path.join(directory, "mnt")
    settings = os.path.join(directory, "queenfs.ini")
    os.mkdir(mount)
    open(settings, "w", encoding="utf-8").close()
    daemon = subprocess.Popen(
        [QUEENFS, "-f", "-c", settings, os.path.join(directory, "queen.db"), mount]
    )
    try:
        while not os.path.exists(f"{mount}/version"):
            assert daemon.poll() is None, "it did not mount"
            time.sleep(0.02)
        main(os.path.join(mount, "queues", "events"))
    finally:
        subprocess.run(["fusermount3", "-u", mount], check=True)
        assert daemon.wait() == 0
