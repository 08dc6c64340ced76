#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
kills.py - kill -9 of the daemon at random moments of a mixed load.

    kills.py DIRECTORY KILLS

After each kill the store is looked at (quick_check of a copy), mounted again, and checker.py
decides from what everybody saw. A store lives for some kills, with durability disk and os
in turn. $QUEENFS is the daemon, SEED repeats the load. record is left in DIRECTORY.
"""
import errno
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time

import checker

LIVES = 20  # kills of one store
DEAD = (errno.ENOTCONN, errno.ECONNABORTED)
PATIENCE = 60


class Dead(Exception):
    """The daemon is gone."""


def clock():
    return time.monotonic()


class Worker(threading.Thread):
    """One of those who use the mount, until it dies. What it saw is in `events`."""

    def __init__(self, run, work, *args):
        super().__init__(daemon=True)
        self.run_, self.work, self.args = run, work, args
        self.random = random.Random(run.random.random())
        self.events, self.fds, self.trouble = [], [], None

    def note(self, e, began, **more):
        self.events.append({"e": e, "t": [began, clock()], **more})

    def attempt(self, call):
        """ok, unknown or the name of an errno; and what the call returned."""
        try:
            return "ok", call()
        except OSError as error:
            if error.errno in DEAD or self.run_.killed:
                return "unknown", None
            return errno.errorcode[error.errno], None

    def open(self, path, flags):
        try:
            fd = os.open(f"{self.run_.mount}/queues/{path}", flags)
        except OSError as error:
            raise Dead from error
        self.fds.append(fd)
        return fd

    def write(self, fd, text):
        data = text.encode()

        def call():
            put = os.write(fd, data)
            if put != len(data):
                raise RuntimeError(f"a short write of {text[:50]!r}")

        return self.attempt(call)[0]

    def pause(self, longest):
        time.sleep(self.random.uniform(0, longest))

    def close(self, fd):
        self.fds.remove(fd)
        self.attempt(lambda: os.close(fd))

    def run(self):
        try:
            self.work(self, *self.args)
        except Dead:
            pass
        except Exception as error:  # told by the main thread
            self.trouble = f"{self.work.__name__}: {error!r}"
        for fd in list(self.fds):
            self.close(fd)


# ---- the load ---------------------------------------------------------------------------


def produce(me, name, partitions):
    fds = {p: me.open(f"{p.replace('/', '/partitions/', 1)}/push", os.O_WRONLY) for p in partitions}
    number = 0
    while True:
        partition = me.random.choice(partitions)
        ids = [f"{name}.{number + i}" for i in range(me.random.choice((1, 1, 1, 3, 40)))]
        number += len(ids)
        text = "".join(f"{i} {'x' * me.random.choice((0, 10, 300))}\n" for i in ids)
        began = clock()
        result = me.write(fds[partition], text)
        me.note("push", began, messages=[[partition, i] for i in ids], r=result)
        if result == "unknown":
            return
        me.pause(0.004)


def produce_json(me, name, queue, partitions, again):
    """`again` keeps the writes whose outcome nobody knows: they are repeated."""
    fd = me.open(f"{queue}/push.json", os.O_WRONLY)
    number = 0
    while True:
        if not again:
            count = me.random.choice((1, 2, 10))
            again.append(
                [[me.random.choice(partitions), f"{name}.{number + i}"] for i in range(count)]
            )
            number += count
        messages = again[0]
        text = "".join(
            json.dumps({"data": f"{i} json", "partition": p.split("/")[1], "transactionId": i})
            + "\n"
            for p, i in messages
        )
        began = clock()
        result = me.write(fd, text)
        me.note("push", began, messages=messages, r=result, txn=True)
        if result == "unknown":
            return
        again.pop(0)
        me.pause(0.008)


def messages_of(queue, data):
    rows = []
    if data and not data.endswith(b"\n"):
        raise RuntimeError(f"a read of {len(data)} bytes ends within a line: {data[-500:]!r}")
    for line in data.decode().splitlines():
        row = json.loads(line)
        if "event" not in row:
            rows.append([f"{queue}/{row['partition']}", row["offset"], row["data"].split(" ")[0]])
    return rows


def follow(me, name, group):
    """Acks by reading on."""
    queue = group.split("/")[0]
    path = f"{group.replace('/', '/groups/', 1)}/follow.json"
    life = 0
    while True:
        fd = me.open(path, os.O_RDONLY)
        handle, had = f"{name}.{life}", {}
        life += 1
        for _ in range(me.random.randrange(1, 200)):
            size = me.random.choice((4096, 65536))
            began = clock()
            result, data = me.attempt(lambda: os.read(fd, size))
            for partition, to in had.items():
                me.note("passed", began, g=group, p=partition, to=to, r=result)
            had = {}
            if result == "unknown":
                return
            if result != "ok":
                raise RuntimeError(f"follow: {result}")
            rows = messages_of(queue, data)
            me.note("read", began, h=handle, g=group, messages=rows)
            for partition, offset, _ in rows:
                had[partition] = max(offset, had.get(partition, -1))
            me.pause(0.002)
        began = clock()
        me.close(fd)
        time.sleep(0.02)  # release comes after close(2)
        for partition in had:
            me.note("back", began, g=group, p=partition)


def lease(me, name, group):
    """Acks by writing."""
    queue = group.split("/")[0]
    path = f"{group.replace('/', '/groups/', 1)}/follow.json"
    fd, handle, life, span_t = None, None, 0, None

    def verb(text):
        result = me.write(fd, text + "\n")
        if result not in ("ok", "unknown", "ESTALE"):
            raise RuntimeError(f"{text}: {result}")
        return result

    def ack(to, text="ack"):
        began = clock()
        result = verb(text)
        me.note("ack", began, h=handle, g=group, p=partition, to=to, read=span_t, r=result)
        return result

    while True:
        if fd is None:
            fd = me.open(path, os.O_RDWR | os.O_NONBLOCK)
            handle = f"{name}.{life}"
            life += 1
        began = clock()
        result, data = me.attempt(lambda: os.read(fd, 65536))
        if result == "unknown":
            return
        if result == "EAGAIN":
            time.sleep(0.002)
            continue
        if result != "ok":
            raise RuntimeError(f"lease: {result}")
        rows = messages_of(queue, data)
        me.note("read", began, h=handle, g=group, messages=rows)
        if not rows:
            continue
        span_t = [began, clock()]
        partition, first, head = rows[0]
        last = rows[-1][1]
        me.pause(0.003)
        choice = me.random.random()
        if choice < 0.1:
            began = clock()
            result = verb("dlq")
            me.note("letter", began, g=group, p=partition, offset=first, id=head, r=result)
            if result == "ok" and last > first:
                result = ack(last)
        elif choice < 0.15:
            result = ack(first, f"ack {first}")
        elif choice < 0.85:
            result = ack(last)
        if 0.1 <= choice < 0.15 or 0.85 <= choice < 0.93:
            began = clock()
            result = "ok"
            if last > first or choice >= 0.85:
                result = me.write(fd, "retry\n")
            me.note("back", began, g=group, p=partition)
        elif choice >= 0.93:
            began = clock()
            me.close(fd)
            fd = None
            time.sleep(0.02)
            me.note("back", began, g=group, p=partition)
        if result == "unknown":
            return


def seek(me, groups, partitions):
    while True:
        me.pause(0.15)
        group = me.random.choice(groups)
        kind = me.random.choice(("start", "number", "number", "end", "-1h"))
        queue, name = group.split("/")
        partition = me.random.choice(partitions)
        path, to = f"{queue}/groups/{name}/cursor", None
        text = kind
        if kind in ("start", "-1h"):
            partition, to = None, -1
        elif kind == "number":
            path = f"{queue}/partitions/{partition.split('/')[1]}/groups/{name}/cursor"
            to = me.random.randrange(-1, 40)
            text = str(to)
        else:
            partition = None
        fd = me.open(path, os.O_WRONLY)
        began = clock()
        result = me.write(fd, text + "\n")
        me.note("seek", began, g=group, p=partition, to=to, r=result)
        if result == "unknown":
            return
        me.close(fd)


def snap(me, name, group):
    queue, of = group.split("/")
    number = 0
    while True:
        me.pause(0.1)
        snapshot = f"{name}.{number}"
        number += 1
        began = clock()

        def make():
            with open(f"{me.run_.mount}/queues/{queue}/snapshots/{snapshot}", "wb", 0) as f:
                f.write(of.encode() + b"\n")

        result = me.attempt(make)[0]
        me.note("snapshot", began, name=snapshot, r=result)
        if result == "ok" and me.random.random() < 0.5:
            began = clock()
            path = f"{me.run_.mount}/queues/{queue}/snapshots/{snapshot}"
            result = me.attempt(lambda: os.unlink(path))[0]
            me.note("unsnapshot", began, name=snapshot, r=result)
        elif result == "ok" and me.random.random() < 0.3:
            fd = me.open(f"{queue}/groups/{of}/cursor", os.O_WRONLY)
            began = clock()
            result = me.write(fd, f"snapshot {snapshot}\n")
            me.note("seek", began, g=group, p=None, to=None, r=result)
            me.close(fd)
        if result == "unknown":
            return


def redrive(me, group):
    queue, name = group.split("/")
    base = f"{me.run_.mount}/queues/{queue}"
    directory = f"{base}/groups/{name}/dlq"
    while True:
        me.pause(0.05)
        result, names = me.attempt(lambda: os.listdir(directory))
        if result == "unknown":
            return
        if not names:
            continue
        letter = me.random.choice(names)
        partition, offset = letter.split("@")

        def text():
            with open(f"{directory}/{letter}", encoding="utf-8") as f:
                return f.read()

        result, data = me.attempt(text)
        if result == "ok":
            to = me.random.choice((f"{base}/push", f"{base}/partitions/{partition}/push"))
            began = clock()
            result = me.attempt(lambda: os.rename(f"{directory}/{letter}", to))[0]
            me.note(
                "redrive",
                began,
                g=group,
                p=f"{queue}/{partition}",
                offset=int(offset),
                id=data.split()[0],
                r=result,
            )
        if result == "unknown":
            return


def watch(me, partition):
    """Reads the end of a log."""
    queue, name = partition.split("/")
    base = f"{me.run_.mount}/queues/{queue}/partitions/{name}"
    while True:
        me.pause(0.1)
        began = clock()
        result, first = me.attempt(lambda: me.run_.stat(base, "first_offset"))
        if result != "ok":
            return
        result, text = me.attempt(lambda: me.run_.text(f"{base}/log"))
        if result == "unknown":
            return
        if result != "ok":
            continue  # retention came between
        if me.attempt(lambda: me.run_.stat(base, "first_offset")) == ("ok", first):
            ids = [line.split(" ")[0] for line in text.splitlines()]
            me.note("log", began, p=partition, messages=[[first + i, n] for i, n in enumerate(ids)])


# ---- the daemon ---------------------------------------------------------------------------

Q = [f"q/{p}" for p in "abc"]
R = ["r/a"]


class Run:
    def __init__(self, directory, seed):
        self.directory, self.mount = directory, f"{directory}/mnt"
        self.random = random.Random(seed)
        self.killed = False
        self.daemon, self.log = None, open(f"{directory}/daemon.log", "ab")
        self.record = open(f"{directory}/record", "w", encoding="utf-8")
        os.makedirs(self.mount, exist_ok=True)
        self.rounds, self.totals, self.wrong = 0, {}, []

    def fresh(self, durability):
        for name in os.listdir(self.directory):
            if name.startswith("queen.db"):
                os.unlink(f"{self.directory}/{name}")
        self.store = f"{self.directory}/queen.db"
        with open(f"{self.directory}/ini", "w", encoding="ascii") as ini:
            ini.write(f"[store]\ndurability = {durability}\nreserve = 1M\nwal_limit = 256K\n")
        self.checker, self.again = checker.Checker(), []
        self.record.seek(0)
        self.record.truncate()
        self.start()
        for group in ("q/exp", "q/imp", "r/imp"):
            queue, name = group.split("/")
            os.makedirs(f"{self.mount}/queues/{queue}", exist_ok=True)
            os.mkdir(f"{self.mount}/queues/{queue}/groups/{name}")
        for partition in Q + R:
            os.mkdir(f"{self.mount}/queues/{partition.replace('/', '/partitions/')}")
        self.set("q/config/batch", "5")
        self.set("r/config/retention_bytes", "32K")

    def set(self, path, text):
        with open(f"{self.mount}/queues/{path}", "wb", 0) as file:
            file.write(text.encode() + b"\n")

    def text(self, path):
        with open(path, encoding="utf-8") as file:
            return file.read()

    def stat(self, base, key):
        for line in self.text(f"{base}/stats").splitlines():
            if line.startswith(key + " "):
                return int(line.split()[1])
        raise RuntimeError(f"{base}/stats has no {key}")

    def start(self):
        self.killed = False
        self.daemon = subprocess.Popen(
            [os.environ["QUEENFS"], "-f", "-c", f"{self.directory}/ini"]
            + ["-s", self.store, self.mount],
            stdout=self.log,
            stderr=self.log,
        )
        end = clock() + PATIENCE
        while not os.path.exists(f"{self.mount}/version"):
            if self.daemon.poll() is not None or clock() > end:
                raise RuntimeError("the daemon did not mount")
            time.sleep(0.005)

    def kill(self):
        self.killed = True
        self.daemon.kill()
        self.daemon.wait()
        subprocess.run(["umount", "-l", self.mount], check=True)

    def quick_check(self):
        copy = f"{self.directory}/copy.db"
        for end in ("", "-wal"):
            if os.path.exists(self.store + end):
                shutil.copyfile(self.store + end, copy + end)
        db = sqlite3.connect(copy)
        answer = db.execute("pragma quick_check").fetchone()[0]
        db.close()
        for end in ("", "-wal", "-shm"):
            if os.path.exists(copy + end):
                os.unlink(copy + end)
        return answer

    def partition(self, name):
        base = f"{self.mount}/queues/{name.replace('/', '/partitions/')}"
        while True:
            first = self.stat(base, "first_offset")
            try:
                text = self.text(f"{base}/log")
            except OSError as error:  # retention came between
                if error.errno != errno.ESTALE:
                    raise
                continue
            if self.stat(base, "first_offset") == first:
                ids = [line.split(" ")[0] for line in text.splitlines()]
                return {"first": first, "ids": ids}

    def state(self, quick_check):
        began, cursors, letters, snapshots = clock(), {}, [], {}
        for group in ("q/exp", "q/imp"):
            queue, name = group.split("/")
            base = f"{self.mount}/queues/{queue}/groups/{name}"
            rows = [r.split("\t") for r in self.text(f"{base}/cursor").splitlines()]
            cursors[group] = {f"{queue}/{p}": int(n) for n, p in rows}
            for letter in os.listdir(f"{base}/dlq"):
                partition, offset = letter.split("@")
                text = self.text(f"{base}/dlq/{letter}")
                letters.append([group, f"{queue}/{partition}", int(offset), text.split()[0]])
        for name in os.listdir(f"{self.mount}/queues/q/snapshots"):
            snapshots[name] = self.text(f"{self.mount}/queues/q/snapshots/{name}")
        return {
            "e": "state",
            "partitions": {p: self.partition(p) for p in Q + R},
            "cursors": cursors,
            "letters": letters,
            "snapshots": snapshots,
            "quick_check": quick_check,
            "t": [began, clock()],
        }

    def load(self):
        n = f"n{self.rounds}"
        works = [
            (produce, f"{n}p0", Q),
            (produce, f"{n}p1", Q[:2]),
            (produce, f"{n}p2", R),
            (produce_json, f"{n}j", "q", Q, self.again),
            (follow, f"{n}f0", "q/imp"),
            (follow, f"{n}f1", "q/imp"),
            (follow, f"{n}f2", "r/imp"),
            (lease, f"{n}l0", "q/exp"),
            (lease, f"{n}l1", "q/exp"),
            (seek, ["q/exp", "q/imp"], Q),
            (snap, f"{n}s", "q/exp"),
            (redrive, "q/exp"),
            (watch, self.random.choice(Q)),
            (watch, R[0]),
        ]
        return [Worker(self, *work) for work in works]

    def round(self):
        workers = self.load()
        for worker in workers:
            worker.start()
        time.sleep(self.random.uniform(0.02, 0.5))
        began = clock()
        self.kill()
        for worker in workers:
            worker.join(PATIENCE)
            if worker.is_alive():
                self.wrong.append(f"{worker.work.__name__} does not end with the daemon")
            if worker.trouble:
                self.wrong.append(worker.trouble)
        quick_check = self.quick_check()
        self.start()
        events = [e for worker in workers for e in worker.events]
        events.append({"e": "crash", "t": [began, clock()]})
        events.append(self.state(quick_check))
        for event in events:
            self.record.write(json.dumps(event) + "\n")
        self.record.flush()
        checker.feed_round(self.checker, events)
        self.wrong += self.checker.wrong
        self.rounds += 1

    def run(self, kills):
        until = clock() + float(os.environ.get("TORTURE_SECONDS", "inf"))
        while self.rounds < kills and not self.wrong:
            if clock() > until:
                break
            lives = min(LIVES, max(1, kills // 2))
            if self.rounds % lives == 0:
                self.finish()
                self.fresh("os" if self.rounds // lives % 2 else "disk")
            self.round()
        self.finish()

    def finish(self):
        if not self.daemon:
            return
        subprocess.run(["fusermount3", "-u", self.mount], check=True)
        if self.daemon.wait(PATIENCE) != 0:
            self.wrong.append(f"the daemon ended with {self.daemon.returncode}")
        self.daemon = None
        for kind, count in self.checker.events.items():
            self.totals[kind] = self.totals.get(kind, 0) + count


def main(directory, kills):
    seed = os.environ.get("SEED", str(random.randrange(1 << 32)))
    run = Run(directory, seed)
    try:
        run.run(int(kills))
    finally:
        if run.daemon:
            run.daemon.send_signal(signal.SIGKILL)
            run.daemon.wait()
            subprocess.run(["umount", "-l", run.mount], check=False)
    for text in run.wrong[:20]:
        print("WRONG:", text)
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(run.totals.items()))
    if run.wrong:
        print(f"{len(run.wrong)} things are wrong after kill {run.rounds} (SEED={seed})")
        return 1
    print(f"{run.rounds} kills survived ({told})")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
