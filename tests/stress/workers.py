#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Workers of one group under stress; the checks are made from what they recorded.

    workers.py storm QUEUE DIRECTORY SECONDS    the example workers, killed and stopped
    workers.py seek QUEUE DIRECTORY SECONDS     readers with acks, while seeks come

QUEUE is made here; DIRECTORY is for records. Prints its counts, and what is wrong; the exit
status is 0 only if nothing is. SEED repeats the choices of a run, not its timing.
"""

import collections
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

PARTITIONS = [f"p{i:02}" for i in range(32)]
WORKERS = 8
PATIENCE = 120  # seconds until what should happen soon is an error

EXAMPLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../examples/worker")
LANGUAGES = {
    "bash": ["bash", f"{EXAMPLES}/worker.sh"],
    "perl": ["perl", f"{EXAMPLES}/worker.pl"],
    "python": [sys.executable, f"{EXAMPLES}/worker.py"],
    "node": ["node", f"{EXAMPLES}/worker.js"],
}

wrong = []


def expect(condition, text):
    if not condition:
        wrong.append(text)


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def stats(queue):
    lines = read(f"{queue}/groups/g/stats").splitlines()
    return {key: float(value) for key, value in (line.split() for line in lines)}


def wait_until(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {PATIENCE} s: {what}")
        time.sleep(0.05)


def make_queue(queue):
    os.mkdir(queue)
    os.mkdir(f"{queue}/groups/g")
    for partition in PARTITIONS:
        os.mkdir(f"{queue}/partitions/{partition}")


# ---- storm ------------------------------------------------------------------------------

LEASE = 3  # seconds; a stopped worker loses what it has after that


class Worker:
    """One process: one life of one of the workers. `harmed` once it was killed or stopped."""

    def __init__(self, storm, slot, life):
        self.language = storm.languages[slot % len(storm.languages)]
        self.slot, self.life, self.harmed = slot, life, False
        self.name = f"{self.language}{slot}.{life}"
        self.process = subprocess.Popen(
            LANGUAGES[self.language] + [storm.follow, storm.records, self.name],
            stdin=subprocess.DEVNULL,
        )
        storm.workers[slot] = self
        storm.lives[self.name] = self

    def kill(self):
        ended = self.process.poll()
        expect(ended is None, f"{self.name} ended by itself, with status {ended}")
        self.harmed = True
        self.process.kill()
        self.process.wait()


class Storm:
    def __init__(self, queue, directory):
        self.queue = queue
        self.follow = f"{queue}/groups/g/follow"
        self.members = f"{queue}/groups/g/members"
        self.records = f"{directory}/records"
        self.languages = [l for l, c in LANGUAGES.items() if shutil.which(c[0])]
        self.workers, self.lives = {}, {}
        self.pushed = dict.fromkeys(PARTITIONS, 0)
        self.kills = self.stops = 0

    def produce(self, partitions, until, seed):
        """Numbered messages to each of its partitions, a few at a time."""
        choose = random.Random(seed)
        push = {
            p: os.open(f"{self.queue}/partitions/{p}/push", os.O_WRONLY) for p in partitions
        }
        while time.monotonic() < until:
            p = choose.choice(partitions)
            at = self.pushed[p]
            count = choose.choice((1, 1, 1, 2, 5, 20, 200))
            text = "".join(f"{p} {n}\n" for n in range(at, at + count)).encode()
            if os.write(push[p], text) != len(text):
                wrong.append(f"{p}: short write")
                break
            self.pushed[p] += count
            time.sleep(choose.uniform(0, 0.06))
        for fd in push.values():
            os.close(fd)

    def replace(self, worker):
        worker.kill()
        Worker(self, worker.slot, worker.life + 1)

    def pick(self, but):
        """Stops a worker that has something in its hands, or after some tries any."""
        for tries in range(20, 0, -1):
            worker = random.choice([w for w in self.workers.values() if w is not but])
            os.kill(worker.process.pid, signal.SIGSTOP)
            rows = [row.split("\t") for row in read(self.members).splitlines()]
            if tries == 1 or any(r[0] == str(worker.process.pid) and r[4] != "-" for r in rows):
                return worker
            os.kill(worker.process.pid, signal.SIGCONT)
            time.sleep(0.002)

    def harm(self, until):
        """Kills one now and then. One is always stopped until its lease has ended, then it
        goes on for a moment with what it has, and is killed too."""
        stopped, go_on = None, time.monotonic() + 1
        while time.monotonic() < until:
            time.sleep(random.uniform(0.02, 0.2))
            if time.monotonic() >= go_on:
                if stopped:
                    os.kill(stopped.process.pid, signal.SIGCONT)
                    time.sleep(0.1)
                    self.replace(stopped)
                stopped = self.pick(None)
                stopped.harmed = True
                self.stops += 1
                go_on = time.monotonic() + LEASE + 0.5
            self.replace(self.pick(stopped))
            self.kills += 1
        if stopped:
            self.replace(stopped)

    def run(self, seconds):
        make_queue(self.queue)
        write(f"{self.queue}/groups/g/config/lease_seconds", str(LEASE))
        write(self.records, "")
        until = time.monotonic() + seconds
        for slot in range(WORKERS):
            Worker(self, slot, 0)
        producers = [
            threading.Thread(target=self.produce, args=(PARTITIONS[i::4], until, random.random()))
            for i in range(4)
        ]
        for producer in producers:
            producer.start()
        self.harm(until)
        for producer in producers:
            producer.join()
        wait_until(lambda: stats(self.queue)["lag"] == 0, "all is acked")
        for worker in self.workers.values():
            expect(worker.process.poll() is None, f"{worker.name} ended by itself")
            worker.process.kill()
            worker.process.wait()

    def check(self):
        by = collections.defaultdict(list)  # message: who did it, in order
        following = dict.fromkeys(PARTITIONS, 0)
        done = collections.Counter()
        for line in read(self.records).splitlines():
            name, message = line.partition(" ")[::2]
            partition, number = message.partition(" ")[::2]
            if name not in self.lives or partition not in following or not number.isdecimal():
                wrong.append(f"a record of no message: {line[:200]!r}")
                continue
            worker, number = self.lives[name], int(number)
            done[worker.language] += 1
            if not by[message]:
                due = following[partition]
                expect(number == due, f"{line} where {partition} {due} was due")
                following[partition] = number + 1
            expect(worker not in by[message], f"{line}: twice by the same worker")
            by[message].append(worker)
        for partition, count in self.pushed.items():
            expect(
                following[partition] == count,
                f"{partition}: {count} pushed, done up to {following[partition]}",
            )
        twice = {m: workers for m, workers in by.items() if len(workers) > 1}
        for message, workers in twice.items():
            names = [w.name for w in workers]
            unharmed = [w for w in workers if not w.harmed]
            expect(len(unharmed) <= 1, f"{message} done by {names}, none of them killed")
        expect(not os.listdir(f"{self.queue}/groups/g/dlq"), "something is in dlq/")
        print(
            f"{sum(self.pushed.values())} messages to {len(PARTITIONS)} partitions, "
            f"{sum(done.values())} times done by {len(self.lives)} processes "
            f"({', '.join(f'{l} {n}' for l, n in sorted(done.items()))}), "
            f"{len(twice)} messages more than once; "
            f"{self.kills} killed, {self.stops} stopped past their lease"
        )
        print("stats:", {k: int(v) for k, v in stats(self.queue).items()})


def storm(queue, directory, seconds):
    it = Storm(queue, directory)
    try:
        it.run(seconds)
    except TimeoutError as error:
        wrong.append(str(error))
    finally:
        for worker in it.workers.values():
            worker.process.kill()
    it.check()


# ---- seek -------------------------------------------------------------------------------

MESSAGES = 100  # in each partition
BATCH = 5
VERBS = ["ack", "ack {last}", "retry", "fail", "dlq", "extend 9", "ack {first}"]

# One ack: when its messages were read and when it was written, of which messages, and what
# came of it.
Ack = collections.namedtuple("Ack", "read_from read_to ack_from ack_to partition numbers error")
Seek = collections.namedtuple("Seek", "begin end")


class Reader:
    """A read-write handle on the group's follow."""

    def __init__(self, queue):
        self.fd = os.open(f"{queue}/groups/g/follow", os.O_RDWR | os.O_NONBLOCK)
        self.partition, self.numbers, self.times = None, [], None

    def read(self):
        """Takes a span; False if nothing waits."""
        begin = time.monotonic()
        try:
            lines = os.read(self.fd, 1 << 16).decode().splitlines()
        except BlockingIOError:
            return False
        self.times = begin, time.monotonic()
        self.partition = lines[0].split()[0]
        self.numbers = [int(line.split()[1]) for line in lines]
        first = self.numbers[0]
        if [line.split() for line in lines] != [
            [self.partition, str(first + i)] for i in range(len(lines))
        ]:
            wrong.append(f"not a span: {lines}")
        return True

    def verb(self, text):
        """Writes it; 0 or the errno."""
        try:
            os.write(self.fd, text.format(first=self.numbers[0], last=self.numbers[-1]).encode())
        except OSError as error:
            return error.errno
        return 0

    def ack(self):
        begin = time.monotonic()
        error = self.verb("ack")
        return Ack(*self.times, begin, time.monotonic(), self.partition, self.numbers, error)


def cursors(queue):
    rows = read(f"{queue}/groups/g/cursor").splitlines()
    return {row.split("\t")[1]: int(row.split("\t")[0]) for row in rows}


def old_spans(queue):
    """Spans are read, then a seek comes: no verb of theirs does anything."""
    start = dict.fromkeys(PARTITIONS, -1)
    for verb in VERBS:
        readers = [Reader(queue) for _ in range(WORKERS)]
        for reader in readers:
            wait_until(reader.read, "there is something to read")
            if verb == "ack":  # a cursor that has moved, and a second span
                expect(reader.verb("ack") == 0, "the ack of a live span was refused")
                wait_until(reader.read, "there is more to read")
        write(f"{queue}/groups/g/cursor", "start\n")
        for reader in readers:
            error = reader.verb(verb)
            expect(
                error == errno.ESTALE,
                f"{verb} of {reader.partition} {reader.numbers} after a seek: "
                f"{errno.errorcode.get(error, 'accepted')}, not ESTALE",
            )
        expect(cursors(queue) == start, f"{verb} of an old span has moved a cursor")
        for reader in readers:
            os.close(reader.fd)
    expect(cursors(queue) == start, "closing old spans has moved a cursor")
    expect(not os.listdir(f"{queue}/groups/g/dlq"), "something is in dlq/")


def seek_race(queue, seconds):
    """Everybody reads and acks while seeks come."""
    acks, seeks, ending = [], [], threading.Event()

    def consume(seed):
        reader, choose = Reader(queue), random.Random(seed)
        while True:
            if reader.read():
                time.sleep(choose.choice((0, 0, 0.001, 0.005)))
                acks.append(reader.ack())
            elif ending.is_set() and stats(queue)["lag"] == 0:
                break
            else:
                time.sleep(0.002)
        os.close(reader.fd)

    threads = [
        threading.Thread(target=consume, args=(random.random(),), daemon=True)
        for _ in range(WORKERS)
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + seconds
    while time.monotonic() < until or not seeks:
        time.sleep(random.uniform(0.02, 0.4))
        begin = time.monotonic()
        write(f"{queue}/groups/g/cursor", "start\n")
        seeks.append(Seek(begin, time.monotonic()))
    ending.set()
    for thread in threads:
        thread.join(PATIENCE)
        expect(not thread.is_alive(), "a reader does not come to its end")
    return acks, seeks


def seek_check(acks, seeks):
    stale = [ack for ack in acks if ack.error]
    for ack in stale:
        expect(ack.error == errno.ESTALE, f"an ack was answered {errno.errorcode[ack.error]}")
        expect(
            any(ack.read_from < seek.end and seek.begin < ack.ack_to for seek in seeks),
            f"{ack} is stale, but no seek came between",
        )
    for ack in acks:
        crossed = any(ack.read_to < seek.begin and seek.end < ack.ack_from for seek in seeks)
        expect(ack.error or not crossed, f"{ack} was accepted across a seek")

    # After each seek every partition begins again at 0 and leaves nothing out. An ack that
    # overlaps the seek may belong to either side.
    for i, seek in enumerate(seeks):
        end = seeks[i + 1].begin if i + 1 < len(seeks) else float("inf")
        due = dict.fromkeys(PARTITIONS, 0)
        before = set(PARTITIONS)  # all that was counted may have been acked before the seek
        sure = [a for a in acks if not a.error and a.read_to > seek.begin and a.ack_to < end]
        # Whoever got what follows read it after the ack before it was committed.
        for ack in sorted(sure, key=lambda a: a.read_to):
            first = ack.numbers[0]
            if ack.read_from < seek.end and first > due[ack.partition]:
                continue  # of before
            if first == 0 and ack.partition in before:
                due[ack.partition] = 0
            if ack.ack_from >= seek.end:
                before.discard(ack.partition)
            expect(
                first == due[ack.partition],
                f"{ack.partition} {first} where {due[ack.partition]} was due",
            )
            due[ack.partition] = ack.numbers[-1] + 1
    expect(
        due == dict.fromkeys(PARTITIONS, MESSAGES),
        f"after the last seek not all was delivered: {due}",
    )
    print(
        f"{len(acks)} acks by {WORKERS} readers during {len(seeks)} seeks, "
        f"{len(stale)} of them stale"
    )


def seek(queue, _, seconds):
    make_queue(queue)
    write(f"{queue}/config/batch", str(BATCH))
    for partition in PARTITIONS:
        text = "".join(f"{partition} {n}\n" for n in range(MESSAGES))
        write(f"{queue}/partitions/{partition}/push", text)
    old_spans(queue)
    seek_check(*seek_race(queue, seconds))


def main(mode, queue, directory, seconds):
    seed = os.environ.get("SEED", str(random.randrange(1 << 32)))
    random.seed(seed)
    {"storm": storm, "seek": seek}[mode](queue, directory, float(seconds))
    for text in wrong[:20]:
        print("WRONG:", text)
    if wrong:
        print(f"{len(wrong)} things are wrong (SEED={seed})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
