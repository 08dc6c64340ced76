#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
soak.py - a long life: a mixed load at a steady rate, a clock that steps, readers that stop.

    soak.py DIRECTORY SECONDS

The clock of the daemon (../fs/clock.c; the file is $CLOCK) runs SPEED times as fast as time,
so that an hour has a week: one seek a minute of it and a snapshot each five minutes, which
expire, and retention by age. It steps back and forward besides. Leases and delays must not
notice. checker.py decides in a process of its own from what everybody saw: now and then the
load holds still, the store is looked at, and what has been judged is forgotten.

Memory, descriptors and files are sampled. They must stay below BOUNDS; after a warm-up of a
quarter their medians of the second and the last quarter must be the same, if the run is long
enough (FLAT_FROM) for there to be such a thing. $QUEENFS is the daemon, SEED repeats the
choices of the load. Left in DIRECTORY: record and record.old, the last two rounds, figures.
"""
import errno
import fcntl
import json
import os
import random
import select
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import threading
import time

import kills
from kills import Dead, clock

SPEED = 168  # a week in an hour
MINUTE, HOUR, DAY = 60, 3600, 86400  # of the daemon's clock
PATIENCE = 120  # seconds until what should happen is a fault
ROUND = 10  # seconds of load that are judged together

MIB = 1 << 20
WAL_LIMIT = MIB
FLAT_FROM = 600  # seconds; snapshots and retention reach back for one or two minutes
BOUNDS = {"memory": 96 * MIB, "fds": 200, "threads": 100, "wal": 2 * WAL_LIMIT + 4 * MIB}
BOUNDS.update(store=96 * MIB, tail=8 * MIB)  # all far above what is usual, and below a leak
# What the medians may differ by: absolute, or a part of the first. The pool of connections may
# have to grow once more: two descriptors and up to 2 MiB of cache each.
FLAT = {"memory": (4 * MIB, 0.05), "fds": (6, 0.1), "store": (MIB, 0.1), "tail": (MIB, 0.1)}

JOBS, FEED = [f"jobs/{i}" for i in range(4)], [f"feed/{p}" for p in "abc"]
GROUPS = ["jobs/imp", "jobs/exp", "feed/near", "feed/far", "feed/wide"]  # judged


def directory_of(name, kind):
    """q/p is queues/q/partitions/p, as kind says."""
    return name.replace("/", f"/{kind}/", 1)


def wait_until(condition, what):
    end = clock() + PATIENCE
    while not condition():
        if clock() > end:
            raise RuntimeError(f"not within {PATIENCE} s: {what}")
        time.sleep(0.02)


def iso(ns):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ns // 10**9)) + f".{ns % 10**9:09}Z"


class Hand(kills.Worker):
    """One of those who use the mount. `judged`: what it notes is for the checker."""

    def __init__(self, run, judged, work, *args):
        super().__init__(run, work, *args)
        self.judged, self.done, self.due = judged, 0, clock()

    def open(self, path, flags):
        fd = os.open(f"{self.run_.mount}/queues/{path}", flags)
        self.fds.append(fd)
        return fd

    def note(self, e, began, **more):
        super().note(e, began, **more)
        self.done += 1

    def turn(self, seconds):
        """Once in so many seconds, however long the work takes; holds still if told to."""
        self.due = max(self.due + seconds, clock() - 1)
        while True:
            self.run_.gate(self)
            left = self.due - clock()
            if left <= 0:
                return
            time.sleep(min(left, 0.1))

    def must(self, result, *also):
        if result != "ok" and result not in also:
            raise RuntimeError(f"{result}")
        return result

    def put(self, path, text):
        """One write to a file; its result and close's."""
        fd = self.open(path, os.O_WRONLY)
        result = self.write(fd, text)
        self.fds.remove(fd)
        closed = self.attempt(lambda: os.close(fd))[0]
        return result if result != "ok" else closed


# ---- producers --------------------------------------------------------------------------


def produce(me, name, path, partitions, seconds):
    """Lines, to any of the partitions; no partition in the record if the queue deals them."""
    fds = {p: me.open(f"{path}/push" if not p else f"{directory_of(p, 'partitions')}/push",
                      os.O_WRONLY) for p in partitions}
    number = 0
    while True:
        me.turn(seconds)
        partition = me.random.choice(partitions)
        ids = [f"{name}.{number + i}" for i in range(me.random.choice((1, 1, 2, 4)))]
        number += len(ids)
        text = "".join(f"{i} {'x' * me.random.choice((10, 100, 400))}\n" for i in ids)
        began = clock()
        result = me.must(me.write(fds[partition], text))
        me.note("push", began, messages=[[partition, i] for i in ids], r=result)
        me.run_.pushed += len(ids)


def produce_json(me, name, partitions):
    """With transactionIds, some of them again: that has the verdict and offset of the first."""
    fd = me.open(f"{partitions[0].split('/')[0]}/push.json", os.O_RDWR)
    number, recent = 0, []
    while True:
        me.turn(0.05)
        items = []  # (partition, id, offset if known)
        for _ in range(me.random.choice((1, 2, 5))):
            recent = [item for item in recent if clock() - item[3] < 3][-50:]
            if recent and me.random.random() < 0.1:
                items.append(me.random.choice(recent)[:3])
            else:
                items.append((me.random.choice(partitions), f"{name}.{number}", None))
                number += 1
        text = "".join(
            json.dumps({"data": f"{i} json", "partition": p.split("/")[1], "transactionId": i,
                        "attributes": {"n": str(number)}}) + "\n"
            for p, i, _ in items
        )
        began = clock()
        me.must(me.write(fd, text))
        me.note("push", began, messages=[[p, i] for p, i, _ in items], r="ok", txn=True)
        verdicts = b""
        while verdicts.count(b"\n") < len(items):
            verdicts += os.read(fd, 4096)
        for (partition, i, offset), line in zip(items, verdicts.splitlines()):
            verdict = json.loads(line)
            wanted = "queued" if offset is None else "duplicate"
            if verdict["status"] != wanted or offset not in (None, verdict["offset"]):
                me.run_.fault(f"push of {i}, which was at {offset}: {verdict}")
            if offset is None:
                recent.append((partition, i, verdict["offset"], began))
                me.run_.pushed += 1
            else:
                me.run_.count("duplicates")
            me.note("log", began, p=partition, messages=[[verdict["offset"], i]])


def chronicle(me, queue):
    """Pushes to two partitions in turn: the later one has the later created_at, whatever
    steps the clock makes."""
    latest, number = 0, 0
    while True:
        me.turn(0.2)
        base = f"{queue}/partitions/{'xy'[number % 2]}"
        number += 1
        me.must(me.put(f"{base}/push", f"{number}\n"))
        segments = f"{me.run_.mount}/queues/{base}/segments"
        newest = max(os.listdir(segments), default="gone")
        result, created = me.attempt(lambda: os.stat(f"{segments}/{newest}").st_mtime_ns)
        if me.must(result, "ENOENT") == "ok":  # it may be too old by now
            me.run_.expect(created > latest, f"created_at {iso(created)} came after {iso(latest)}")
            latest = created
        me.done += 1


# ---- readers ----------------------------------------------------------------------------


def rows_of(me, queue, data):
    """[partition, offset, id] of each, and the whole of each."""
    rows = [json.loads(line) for line in data.decode().splitlines()]
    rows = [row for row in rows if "event" not in row]
    if queue != "churn":  # which is born again and again
        for row in rows:
            me.run_.dated(f"{queue}/{row['partition']}", row["offset"], row["createdAt"])
    me.run_.delivered += len(rows)
    ids = [str(row["data"]).split(" ", 1)[0] for row in rows]
    return [[f"{queue}/{r['partition']}", r["offset"], i] for r, i in zip(rows, ids)], rows


def read_soon(me, fd, size=65536):
    """What there is; b"" if that is nothing."""
    select.select([fd], [], [], 0.1)
    result, data = me.attempt(lambda: os.read(fd, size))
    return data if me.must(result, "EAGAIN") == "ok" else b""


def follow(me, name, group, size):
    """Acks by reading on."""
    queue = group.split("/")[0]
    life = 0
    while True:
        fd = me.open(f"{directory_of(group, 'groups')}/follow.json", os.O_RDONLY | os.O_NONBLOCK)
        had, read_t, life = {}, None, life + 1
        for _ in range(me.random.randrange(50, 500)):
            me.turn(0.02)
            began = clock()
            data = read_soon(me, fd, size)
            for partition, to in had.items():
                me.note("passed", began, g=group, p=partition, to=to, read=read_t, r="ok")
            had, read_t = {}, [began, clock()]
            rows, _ = rows_of(me, queue, data)
            if rows:
                me.note("read", began, h=f"{name}.{life}", g=group, messages=rows)
            for partition, offset, _ in rows:
                had[partition] = max(offset, had.get(partition, -1))
        began = clock()
        me.close(fd)
        time.sleep(0.02)  # release comes after close(2)
        for partition in had:
            me.note("back", began, g=group, p=partition)


DELAY = 1  # retry_delay_seconds of jobs/exp


def lease(me, name, group):
    """Acks by writing, and all the other verbs. Nobody seeks, so no lease is lost, however
    long it is held and whatever the clock shows."""
    queue, fd, life, handle = group.split("/")[0], None, 0, None
    failed = {}  # (partition, offset): when

    def verb(text):
        began = clock()
        me.must(me.write(fd, text + "\n"))
        return began

    while True:
        me.turn(0.01)
        if fd is None:
            fd = me.open(f"{directory_of(group, 'groups')}/follow.json", os.O_RDWR | os.O_NONBLOCK)
            life += 1
            handle = f"{name}.{life}"
        began = clock()
        data = read_soon(me, fd)
        rows, whole = rows_of(me, queue, data)
        if not rows:
            continue
        me.note("read", began, h=handle, g=group, messages=rows)
        span_t = [began, clock()]
        partition, first, head = rows[0]
        last = rows[-1][1]
        since = failed.pop((partition, first), None)
        if since:
            me.run_.expect(
                clock() - since >= DELAY, f"{partition}@{first} came {clock() - since} s after fail"
            )
        choice = me.random.random()
        if choice < 0.002:
            time.sleep(2.5)  # minutes, for the clock: more than lease_seconds
        if choice < 0.04:
            began = verb("dlq" if choice < 0.02 else "dlq it did not fit")
            me.note("letter", began, g=group, p=partition, offset=first, id=head, r="ok")
            if last == first:
                continue
        elif choice < 0.06:
            began = verb(f"ack {first}")
            me.note("ack", began, h=handle, g=group, p=partition, to=first, read=span_t, r="ok")
            if last == first:
                continue
        elif choice < 0.08:
            began = verb("retry")
            me.note("back", began, g=group, p=partition)
            continue
        elif choice < 0.09 and whole[0]["attempt"] == 1:
            began = verb("fail it broke")
            me.note("back", began, g=group, p=partition)
            failed = {(partition, first): began}
            me.run_.count("failures")
            continue
        elif choice < 0.1:
            began = clock()
            me.close(fd)
            fd = None
            time.sleep(0.02)
            me.note("back", began, g=group, p=partition)
            continue
        began = verb("ack")
        me.note("ack", began, h=handle, g=group, p=partition, to=last, read=span_t, r="ok")


def redrive(me, group):
    queue, name = group.split("/")
    base = f"{me.run_.mount}/queues/{queue}"
    while True:
        me.turn(0.1)
        names = os.listdir(f"{base}/groups/{name}/dlq")
        me.done += 1
        if not names:
            continue
        letter = me.random.choice(names)
        partition, offset = letter.split("@")
        path = f"{base}/groups/{name}/dlq/{letter}"
        text = me.run_.text(path)
        to = me.random.choice((f"{base}/push", f"{base}/partitions/{partition}/push"))
        began = clock()
        os.rename(path, to)
        me.note("redrive", began, g=group, p=f"{queue}/{partition}", offset=int(offset),
                id=text.split()[0], r="ok")
        me.run_.count("redriven")


def watch(me, partitions):
    """Reads logs: whole, or the end by a tool."""
    while True:
        me.turn(0.5)
        partition = me.random.choice(partitions)
        base = f"{me.run_.mount}/queues/{directory_of(partition, 'partitions')}"
        began, first = clock(), me.run_.stat(base, "first_offset")
        result, text = me.attempt(lambda: me.run_.text(f"{base}/log"))
        me.done += 1
        if me.must(result, "ESTALE") == "ok" and me.run_.stat(base, "first_offset") == first:
            ids = [line.split(" ", 1)[0] for line in text.splitlines()]
            me.note("log", began, p=partition, messages=[[first + i, n] for i, n in enumerate(ids)])


def look(me):
    """All that can be looked at, over and over."""
    queues = f"{me.run_.mount}/queues"
    while True:
        me.turn(0.3)
        for directory, _, names in os.walk(me.random.choice((f"{queues}/jobs", f"{queues}/feed"))):
            for name in set(names) & {"stats", "members", "cursor", "batch", "filter"}:
                me.run_.text(f"{directory}/{name}")
            if directory.endswith("/segments"):
                for name in names[:3]:
                    me.attempt(lambda: os.getxattr(f"{directory}/{name}",
                                                   "user.queenfs.created_at"))
        for name in ("metrics", "errors", "version", "README"):
            me.run_.expect(me.run_.text(f"{me.run_.mount}/{name}"), f"{name} is empty")
        since = iso(int((me.run_.now() - 5 * MINUTE) * 10**9))
        for command in (
            ["find", f"{queues}/feed/partitions", "-newermt", since],
            ["tail", "-n", "3", f"{queues}/feed/partitions/a/log"],
            ["ls", "-lR", f"{queues}/jobs/groups"],
        ):
            subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                           timeout=PATIENCE, check=False)  # names vanish while they look
        me.done += 1


# ---- seeks and snapshots -------------------------------------------------------------------


def table_of(text):
    """{partition: committed} of a cursor or snapshot."""
    rows = [line.split("\t") for line in text.splitlines() if not line.startswith("#")]
    return {partition: int(committed) for committed, partition in rows}


def seek(me, groups, partitions, seconds):
    """To everything that a cursor takes. `near` goes back by minutes only."""
    while True:
        me.turn(seconds)
        group = me.random.choice(groups)
        queue, name = group.split("/")
        of_all = f"{queue}/groups/{name}/cursor"
        partition = me.random.choice(partitions)
        base = directory_of(partition, "partitions")
        of_one = f"{base}/groups/{name}/cursor"
        kinds = ["end", "ago", "named", "copy", "table"]
        if name != "near":
            kinds += ["start", "number", "segment", "time"]
        kind = me.random.choice(kinds)
        path, text, to, may = of_all, None, {None: None}, ()
        if kind == "end":
            text = me.random.choice(("end", "now", "2199-01-01"))
        elif kind == "ago":
            text = me.random.choice(("-2m", "-90s", f"@{me.run_.now() - 100:.3f}"))
        elif kind == "start":
            text, to = "start", {None: -1}
        elif kind == "number":
            path, may = of_one, ("ERANGE",)  # retention may come between
            first = me.run_.stat(f"{me.run_.mount}/queues/{base}", "first_offset")
            last = me.run_.stat(f"{me.run_.mount}/queues/{base}", "last_offset")
            to = {partition: me.random.randint(first - 1, max(last, first - 1))}
            text = str(to[partition])
        elif kind in ("segment", "time"):
            segments = f"{me.run_.mount}/queues/{base}/segments"
            names = os.listdir(segments)
            if not names:
                continue
            segment = me.random.choice(names)
            result, ns = me.attempt(lambda: os.stat(f"{segments}/{segment}").st_mtime_ns)
            if me.must(result, "ENOENT") != "ok":
                continue
            text = iso(ns)
            if kind == "segment":
                path, to = of_one, {partition: int(segment) - 1}
        elif kind == "table":
            text = me.run_.text(f"{me.run_.mount}/queues/{of_all}")
        else:
            directory = f"{me.run_.mount}/queues/{queue}/snapshots"
            names = sorted(os.listdir(directory), key=lambda n: int(n.split(".")[1]))
            if not names:
                continue
            snapshot = me.random.choice(names[-10:])
            result, text = me.attempt(lambda: me.run_.text(f"{directory}/{snapshot}"))
            if me.must(result, "ENOENT", "ESTALE") != "ok":
                continue
        if kind in ("table", "copy", "named"):
            to = {f"{queue}/{p}": n for p, n in table_of(text).items() if p != "*"}
        if kind == "named":
            text, may = f"snapshot {snapshot}", ("ETIME", "ENOENT")
        began = clock()
        result = me.must(me.put(path, text if text.endswith("\n") else text + "\n"), *may)
        for partition, committed in to.items():
            me.note("seek", began, g=group, p=partition, to=committed, r=result)
        if result == "ok":
            me.run_.count("seeks")


def visit(me, group, partitions):
    """Seeks one partition to a segment's time, then pops what must be there, by open."""
    name = group.split("/")[1]
    while True:
        me.turn(0.5)
        base = directory_of(me.random.choice(partitions), "partitions")
        whole, of_one = f"{me.run_.mount}/queues/{base}", f"{base}/groups/{name}"
        names = os.listdir(f"{whole}/segments")
        if not names:
            continue
        segment = me.random.choice(names)
        result, status = me.attempt(lambda: os.stat(f"{whole}/segments/{segment}"))
        if result != "ok":
            continue
        me.must(me.put(f"{of_one}/cursor", iso(status.st_mtime_ns) + "\n"))
        due = int(segment)
        for _ in range(2):
            text = me.run_.text(f"{me.run_.mount}/queues/{of_one}/pop.json")
            rows = [json.loads(line) for line in text.splitlines()]
            rows = [row["offset"] for row in rows if "event" not in row]
            first = me.run_.stat(whole, "first_offset")
            me.run_.expect(
                len(rows) <= 1 and all(r == due or due < r <= first for r in rows)
                and (rows or due > me.run_.stat(whole, "last_offset") or due < first),
                f"{base}: sought {segment}, popped {rows} where {due} was due, from {first} on",
            )
            due = rows[0] + 1 if rows else due
            me.run_.delivered += len(rows)
        me.run_.count("seeks")
        me.done += 1


def snap(me, queue, group, seconds):
    directory, number = f"{me.run_.mount}/queues/{queue}/snapshots", 0
    while True:
        me.turn(seconds)
        name = f"{group}.{number}"
        number += 1
        began = clock()

        def make(of):
            with open(f"{directory}/{name}", "wb", 0) as file:
                file.write(of.encode() + b"\n")

        # far may be behind by more than what is left of a snapshot's life
        if number % 20 == 0 and me.must(me.attempt(lambda: make("far"))[0], "ETIME") == "ETIME":
            me.run_.count("snapshots refused for their age")
        if not os.path.exists(f"{directory}/{name}"):
            result = me.must(me.attempt(lambda: make(group))[0], "ETIME")
            if result == "ETIME":
                me.run_.count("snapshots refused for their age")
                continue
        text = me.run_.text(f"{directory}/{name}")
        me.note("snapshot", began, name=name, r="ok", expires=expires(text))
        me.run_.count("snapshots")
        if number % 5 == 0:
            me.run_.count("snapshots seen at once", len(os.listdir(directory)), max)
            me.run_.expect(
                me.attempt(lambda: make(group))[0] == "EEXIST", f"{name} was made twice"
            )
            old = me.random.choice(os.listdir(directory))
            began = clock()
            result = me.attempt(lambda: os.unlink(f"{directory}/{old}"))[0]
            me.note("unsnapshot", began, name=old, r=me.must(result, "ENOENT"))


def expires(text):
    """When a snapshot does, of the daemon's clock."""
    when = text.split("# expires ")[1].split("Z")[0]
    whole, fraction = when.split(".")
    return time.mktime(time.strptime(whole + " UTC", "%Y-%m-%dT%H:%M:%S %Z")) - time.timezone \
        + float("." + fraction)


# ---- what comes and goes, and what is refused ----------------------------------------------


def remove(path):
    """As rm does, while retention may be quicker; False if somebody is still reading there."""
    status = subprocess.run(["rm", "-rf", path], stderr=subprocess.DEVNULL, timeout=PATIENCE,
                            check=False).returncode
    return status == 0 and not os.path.exists(path)


def churn(me, queue):
    """Queues, partitions, groups, dead letters and snapshots are made, used and removed."""
    queues, number = f"{me.run_.mount}/queues", 0

    def soon(call, what):
        """A close is told of after it has returned: EBUSY until then."""
        wait_until(lambda: me.must(me.attempt(call)[0], "EBUSY") == "ok", what)

    while True:
        me.turn(0.5)
        number += 1
        base = f"{queues}/churn"
        os.mkdir(base)
        os.makedirs(f"{base}/groups/g")
        os.mkdir(f"{base}/partitions/p")
        me.must(me.put("churn/partitions/p/push", f"{number} a\n{number} b\n{number} c\n"))
        popped = me.run_.text(f"{base}/partitions/p/groups/g/pop")
        me.run_.expect(popped == f"{number} a\n", f"churn: popped {popped!r} in life {number}")
        fd = me.open("churn/groups/g/follow.json", os.O_RDWR | os.O_NONBLOCK)
        rows = []
        while not rows:
            rows = rows_of(me, "churn", read_soon(me, fd))[1]
        me.run_.expect(rows[0]["offset"] == 1, f"churn: {rows} in life {number}")
        me.must(me.write(fd, "dlq\n"))
        me.must(me.put("churn/push.json", '{"data": {"a": 1}, "transactionId": "t"}\n'))
        me.close(fd)
        for refused, path in ((os.rmdir, "partitions/p"), (os.rmdir, "groups/g")):
            result = me.attempt(lambda: refused(f"{base}/{path}"))[0]
            me.run_.expect(result in ("ENOTEMPTY", "EBUSY"), f"rmdir of a full {path}: {result}")
        wait_until(lambda: remove(base), "churn is removed")
        # the same inside a queue that stays
        base = f"{queues}/{queue}"
        os.mkdir(f"{base}/partitions/p")
        os.mkdir(f"{base}/groups/g")
        me.must(me.put(f"{queue}/partitions/p/push", f"{number}\n"))
        popped = me.run_.text(f"{base}/partitions/p/groups/g/pop")
        me.run_.expect(popped == f"{number}\n", f"p: popped {popped!r} in life {number}")
        os.unlink(f"{base}/partitions/p/segments/{0:020}")
        soon(lambda: os.rmdir(f"{base}/partitions/p"), "the partition is removed")
        soon(lambda: os.rmdir(f"{base}/groups/g"), "the group is removed")
        me.run_.count("queues, partitions and groups made and removed", 5)
        me.done += 1


REFUSED = [  # (what, path below queues/, text, errno); {} is a number of its own
    ("write", "jobs/push", "x" * 70000 + "\n", "EMSGSIZE"),
    ("write", "jobs/push.json", '{"data": "r.{}"}\n{"data": 1, "more": 2}\n', "EINVAL"),
    ("write", "jobs/push.json", '{"data": "r.{}"\n', "EINVAL"),
    ("write", "feed/groups/far/cursor", "the day before\n", "EINVAL"),
    ("write", "feed/groups/far/cursor", "\n", "EINVAL"),
    ("write", "feed/groups/far/cursor", "999999999\ta\n", "ERANGE"),
    ("write", "feed/groups/far/cursor", "0\tnobody\n", "ENOENT"),
    ("write", "feed/groups/far/cursor", "snapshot none\n", "ENOENT"),
    ("write", "feed/partitions/a/groups/far/cursor", "999999999\n", "ERANGE"),
    ("write", "feed/config/batch", "many\n", "EINVAL"),
    ("write", "feed/groups/far/config/filter", "data = 1\n", "EBUSY"),
    ("make", "feed/snapshots/new.{}", "nobody\n", "ENOENT"),
    ("make", "feed/x", "x", "EPERM"),
    ("write", "feed/pop", "x\n", "EACCES"),
    ("mkdir", ".hidden", "", "EINVAL"),
    ("mkdir", "y" * 201, "", "ENAMETOOLONG"),
    ("mkdir", "feed", "", "EEXIST"),
    ("rmdir", "feed", "", "ENOTEMPTY"),
    ("unlink", "feed/partitions/a/segments/{last}", "", "EBUSY"),
]


def refuse(me):
    """What may not be is refused, and changes nothing: none of it is in the record."""
    far = f"{me.run_.mount}/queues/feed/groups/far"
    wait_until(lambda: me.run_.stat(far, "delivered"), "far has read, so that its filter is set")
    number = 0
    while True:
        me.turn(0.2)
        what, path, text, wanted = REFUSED[number % len(REFUSED)]
        number += 1
        if "{last}" in path:
            segments = f"{me.run_.mount}/queues/{path.rsplit('/', 1)[0]}"
            names = os.listdir(segments)
            if len(names) < 2:
                continue
            path = path.replace("{last}", max(names))
        path = path.replace("{}", str(number))
        full = f"{me.run_.mount}/queues/{path}"

        def make():
            with open(full, "wb", 0) as file:
                file.write(text.encode())

        if what == "write":
            result = me.attempt(lambda: me.put(path, text.replace("{}", str(number))))
            result = result[1] if result[0] == "ok" else result[0]
        else:
            call = make if what == "make" else lambda: getattr(os, what)(full)
            result = me.attempt(call)[0]
        if result != wanted:
            me.run_.fault(f"{what} {path} {text[:40]!r}: {result}, not {wanted}")
        me.run_.count("refusals")
        me.done += 1


# ---- readers that are stopped ----------------------------------------------------------------


def still(me, group):
    """cat of a follow.json, in a process: each message once and in order, or a gap that says
    what retention took while it was stopped."""
    path = f"{me.run_.mount}/queues/{directory_of(group, 'groups')}/follow.json"
    process = me.run_.process("still", ["cat", path], stdout=subprocess.PIPE)
    following = {}
    for line in process.stdout:
        row = json.loads(line)
        if "event" in row and row["event"] != "gap":
            continue
        partition = row["partition"]
        due, at = following.get(partition, 0), row.get("from", row.get("offset"))
        me.run_.expect(at == due, f"{group}: {row} where {partition}@{due} was due")
        following[partition] = row.get("to", at) + 1
        gone = row["to"] + 1 - at if "to" in row else 0
        me.run_.count("messages removed while their reader was stopped", gone)
        me.run_.delivered += "offset" in row
        me.done += 1


LEASE = 2  # lease_seconds of jobs/hold


def hold(path):
    """The process of holder(): takes a span and acks it. For each line on stdin it stops
    itself once, with a span in its hands."""
    fd = os.open(path, os.O_RDWR)
    while True:
        rows = [json.loads(line) for line in os.read(fd, 65536).splitlines()]
        rows = [row for row in rows if "event" not in row]
        if not rows:
            continue
        stops = bool(select.select([0], [], [], 0)[0] and os.read(0, 1))
        span = {"p": rows[0]["partition"], "from": rows[0]["offset"], "to": rows[-1]["offset"]}
        print(json.dumps({"stops": stops, **span}), flush=True)
        if stops:
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.02)
        try:
            os.write(fd, b"ack\n")
            result = "ok"
        except OSError as error:
            result = errno.errorcode[error.errno]
        print(json.dumps({"stopped": stops, "result": result, **span}), flush=True)


def holder(me, group):
    path = f"{me.run_.mount}/queues/{directory_of(group, 'groups')}/follow.json"
    process = me.run_.process("holder", [sys.executable, __file__, "hold", path],
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    for line in process.stdout:
        row = json.loads(line)
        if row.get("stops"):
            me.run_.held = row
        if "result" not in row:
            continue
        wanted = ("ESTALE",) if row["stopped"] else ("ok", "ESTALE")  # it may have been slow
        me.run_.expect(row["result"] in wanted, f"{group}: {row}, but another has taken it")
        if row["result"] == "ok":
            me.run_.tile(row["p"], row["from"], row["to"])
        me.done += 1


def take(me, group):
    """Shares a group with the holder, and takes what that has held for too long."""
    fd = me.open(f"{directory_of(group, 'groups')}/follow.json", os.O_RDWR | os.O_NONBLOCK)
    while True:
        me.turn(0.02)
        rows, whole = rows_of(me, group.split("/")[0], read_soon(me, fd))
        if not rows:
            continue
        span = whole[0]["partition"], rows[0][1], rows[-1][1]
        if me.must(me.write(fd, "ack\n"), "ESTALE") == "ok":
            me.run_.tile(*span)
        me.run_.taken[span[0]] = span[1]
        me.done += 1


def stopped(process):
    with open(f"/proc/{process.pid}/stat", encoding="ascii") as file:
        return file.read().rsplit(")", 1)[1].split()[0] == "T"


def read_slowly(run):
    """A process in the middle of a log, and what that log held."""
    base = f"{run.mount}/queues/feed/partitions/c"
    while not run.wrong:
        first = run.stat(base, "first_offset")
        text = run.text(f"{base}/log").encode()
        ours, theirs = os.pipe()
        fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, 4096)
        process = run.process("log", ["dd", "bs=4096", "status=none", f"if={base}/log"],
                              stdout=theirs, stderr=subprocess.PIPE)
        os.close(theirs)
        got = os.read(ours, 1)
        process.send_signal(signal.SIGSTOP)
        if len(text) > 32768 and run.stat(base, "first_offset") == first:
            return process, open(ours, "rb"), got, text
        process.kill()
        process.wait()
        os.close(ours)
        time.sleep(0.2)
    raise Dead


def stop_readers(me, others, seconds, between):
    """Everybody goes on while three readers are stopped, and these afterwards."""
    run = me.run_
    while True:
        me.turn(between)
        with run.quiet:
            if run.draining or run.due():
                raise Dead
            run.stopping = True  # until it is over the load goes on
        reader, pipe, got, text = read_slowly(run)
        run.held, run.taken = None, {}
        run.processes["still"].send_signal(signal.SIGSTOP)
        run.processes["holder"].stdin.write(b"s")
        run.processes["holder"].stdin.flush()
        processes = [run.processes[name] for name in ("still", "holder", "log")]
        wait_until(lambda: all(map(stopped, processes)) and run.held, "all stop")
        run.stopped_now = True
        since, before, held = clock(), {o: o.done for o in others}, dict(run.held)
        for other in others:
            wait_until(lambda: other.done > before[other] or not other.is_alive(),
                       f"{other.work.__name__} goes on while readers are stopped")
        wait_until(lambda: run.taken.get(held["p"], -1) >= held["from"],
                   f"another reader takes {held}")
        while clock() - since < seconds:
            time.sleep(0.1)
        run.stopped_now = False
        run.count("seconds for which readers were stopped", int(clock() - since))
        hands = [h for h in run.hands if h.work in (still, holder)]
        before = {h: h.done for h in hands}
        for process in processes:
            process.send_signal(signal.SIGCONT)
        with pipe:
            got += pipe.read()
        _, error = reader.communicate()
        least = min(len(got), len(text))
        run.expect(got[:least] == text[:least], "a log changed under a reader that was stopped")
        if reader.returncode:
            run.expect(b"Stale" in error, f"reading a log after a stop: {error}")
        else:
            run.expect(len(got) >= len(text), f"a log ended after {len(got)} of {len(text)}")
        for hand in hands:
            wait_until(lambda: hand.done > before[hand] + 1, f"{hand.work.__name__} goes on")
        run.stops += 1
        run.stopping, me.due = False, clock()


# ---- clock and figures -----------------------------------------------------------------------


def step_clock(me, between):
    """It is fast, and now and then back or forward by some minutes for a while."""
    steps, due = [], clock() + between
    while True:
        me.turn(0.1)
        if clock() >= due:
            if not steps:
                back, ahead = (me.random.randint(60, 900) for _ in range(2))
                steps = [-back, 0, ahead, 0]
            me.run_.step = steps.pop(0)
            me.run_.count("clock stepped back" if me.run_.step < 0 or not len(steps) % 4
                          else "clock stepped forward")
            due = clock() + (1 if me.run_.step else between)
        me.run_.set_clock()


def sample(me, seconds):
    while True:
        me.turn(seconds)
        me.run_.sample()


# They end first, then the others read what is left.
PRODUCERS = (produce, produce_json, chronicle, seek, visit, snap, churn, refuse, look, watch,
             stop_readers)


class Soak(kills.Run):
    def __init__(self, directory, seconds, seed):
        super().__init__(directory, seed)
        self.seconds, self.store = seconds, f"{directory}/queen.db"
        self.quiet = threading.Condition()
        self.pausing = self.draining = self.ending = self.stopping = self.stopped_now = False
        self.paused = self.pushed = self.delivered = self.stops = 0
        self.counts, self.newest, self.tiles, self.samples = {}, {}, {}, []
        self.processes, self.hands = {}, []
        self.held, self.taken = None, {}
        self.offset = self.step = self.leap = 0
        self.week, self.ticked = 0.0, clock()
        self.began, self.latest = clock(), time.time()
        self.judge = subprocess.Popen(
            [sys.executable, kills.checker.__file__, "-"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        self.verdict = ""
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()

    # ---- what hands use ----------------------------------------------------------------

    def fault(self, text):
        self.wrong.append(text)

    def expect(self, so, text):
        if not so:
            self.fault(text)

    def count(self, what, number=1, how=lambda a, b: a + b):
        with self.quiet:
            self.counts[what] = how(self.counts.get(what, 0), number)

    def process(self, name, command, **more):
        self.processes[name] = subprocess.Popen(command, **more)
        return self.processes[name]

    def gate(self, hand):
        if self.ending or (self.draining and hand.work in PRODUCERS):
            raise Dead
        if not self.pausing or not hand.judged:
            return
        with self.quiet:
            self.paused += 1
            self.quiet.notify_all()
            while self.pausing:
                self.quiet.wait()
            self.paused -= 1

    def dated(self, partition, offset, created):
        """A later offset has no earlier time."""
        there, then = self.newest.get(partition, (offset, created))
        self.expect(
            offset == there or (created >= then if offset > there else created <= then),
            f"{partition}@{offset} is of {created}, @{there} of {then}",
        )
        if offset >= there:
            self.newest[partition] = offset, created

    def tile(self, partition, first, last):
        """What was acked in group hold has no holes and no overlaps."""
        with self.quiet:
            waiting = self.tiles.setdefault(partition, {"due": 0})
            waiting[first] = last + 1
            while waiting["due"] in waiting:
                waiting["due"] = waiting.pop(waiting["due"])

    # ---- clock -------------------------------------------------------------------------

    def now(self):
        return time.time() + self.offset

    def set_clock(self):
        passed = min(clock() - self.ticked, 0.5)  # who gets no processor shall not age in a leap
        self.ticked = clock()
        self.week += SPEED * passed
        offset = int(self.week * (SPEED - 1) / SPEED) + self.step + self.leap
        self.latest = max(self.latest, time.time() + offset)
        path = os.environ["CLOCK"]
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write(f"{offset}\n")
        os.rename(path + ".new", path)
        self.offset = offset

    # ---- figures -----------------------------------------------------------------------

    def fds(self):
        return len(os.listdir(f"/proc/{self.daemon.pid}/fd"))

    def others(self):
        """Descriptors but for the pool of connections, which is as large as it once had to be."""
        base = f"/proc/{self.daemon.pid}/fd"
        names = [os.readlink(f"{base}/{fd}") for fd in os.listdir(base)]
        return sorted(n for n in names if n not in (self.store, self.store + "-wal"))

    def sample(self):
        with open(f"/proc/{self.daemon.pid}/status", encoding="ascii") as file:
            status = dict(line.rstrip("\n").split(":", 1) for line in file)
        figures = {
            "t": clock() - self.began,
            "memory": int(status["RssAnon"].split()[0]) * 1024,
            "threads": int(status["Threads"]),
            "fds": self.fds(),
        }
        for name, end in (("store", ""), ("wal", "-wal"), ("tail", "-tail")):
            figures[name] = os.stat(self.store + end).st_size
        self.samples.append(figures)
        if self.stopped_now:
            self.count("wal while stopped", figures["wal"], max)

    def quarter(self, number, what):
        whole = self.samples[-1]["t"]
        figures = [s[what] for s in self.samples if (number - 1) / 4 * whole <= s["t"]
                   and s["t"] <= number / 4 * whole]
        return statistics.median(figures)

    def check_figures(self):
        for what, most in BOUNDS.items():
            if what in ("memory", "threads") and os.environ.get("QUEENFS_SANITIZE"):
                continue
            top = max(s[what] for s in self.samples)
            self.expect(top <= most, f"{what} was {top}, above {most}")
        if self.seconds < FLAT_FROM:
            return
        for what, (absolute, part) in FLAT.items():
            second, last = self.quarter(2, what), self.quarter(4, what)
            self.expect(last <= second + max(absolute, part * second),
                        f"{what} has grown from {second} to {last}")

    def tell(self):
        with open(f"{self.directory}/figures", "w", encoding="ascii") as file:
            for figures in self.samples:
                file.write(json.dumps(figures) + "\n")

        def mib(number):
            return f"{number / MIB:.1f}"

        def pair(what, show):
            return f"{show(self.quarter(2, what))} then {show(self.quarter(4, what))}"

        took = self.samples[-1]["t"]
        print(f"{took:.0f} s, {self.week / DAY:.2f} days of the daemon's clock: "
              f"{self.pushed} messages pushed, {self.delivered} deliveries, {self.verdict}")
        for what, number in sorted(self.counts.items()):
            if what != "wal while stopped":
                print(f"  {number} {what}")
        print("medians of the second and of the last quarter: memory "
              f"{pair('memory', mib)} MiB, {pair('fds', str)} descriptors, "
              f"{pair('threads', str)} threads, store {pair('store', mib)} MiB, "
              f"tail {pair('tail', mib)} MiB; largest: memory "
              f"{mib(max(s['memory'] for s in self.samples))} MiB, WAL "
              f"{mib(max(s['wal'] for s in self.samples))} MiB "
              f"({mib(self.counts.get('wal while stopped', 0))} while readers were stopped)")

    # ---- judging -----------------------------------------------------------------------

    def listen(self):
        for line in self.judge.stdout:
            if line.startswith("WRONG: "):
                self.fault(line.removeprefix("WRONG: ").rstrip("\n"))
            else:
                self.verdict = line.rstrip("\n")

    def state(self, quick_check):
        began, now = clock(), self.now() - 1
        cursors, letters, snapshots = {}, [], {}
        for group in GROUPS:
            queue, name = group.split("/")
            base = f"{self.mount}/queues/{queue}/groups/{name}"
            rows = table_of(self.text(f"{base}/cursor"))
            cursors[group] = {f"{queue}/{p}": n for p, n in rows.items()}
            for letter in os.listdir(f"{base}/dlq"):
                partition, offset = letter.split("@")
                text = self.text(f"{base}/dlq/{letter}")
                letters.append([group, f"{queue}/{partition}", int(offset), text.split()[0]])
        partitions = {p: self.partition(p) for p in JOBS + FEED}
        directory = f"{self.mount}/queues/feed/snapshots"
        for name in os.listdir(directory):
            try:
                snapshots[name] = self.text(f"{directory}/{name}")
            except OSError as error:  # it expires
                if error.errno not in (errno.ENOENT, errno.ESTALE):
                    raise
        for name, text in snapshots.items():
            for partition, committed in table_of(text).items():
                first = partitions.get(f"feed/{partition}", {"first": 0})["first"]
                self.expect(first <= committed + 1, f"snapshot {name} has {committed} of "
                            f"{partition}, which begins at {first}")
        return {"e": "state", "partitions": partitions, "cursors": cursors, "letters": letters,
                "snapshots": snapshots, "quick_check": quick_check, "whole": ["jobs"],
                "now": [now, self.latest + 1], "t": [began, clock()]}

    def round(self):
        """The load holds still, the store is looked at, the judge gets it all."""
        judged = [hand for hand in self.hands if hand.judged]
        self.pausing = True
        with self.quiet:
            end = clock() + PATIENCE
            while self.paused < sum(hand.is_alive() for hand in judged) and clock() < end:
                self.quiet.wait(0.1)
            if clock() >= end:
                raise RuntimeError("the load does not hold still")
        events = []
        for hand in judged:
            events += hand.events
            hand.events = []
        state = self.state("ok")
        with self.quiet:
            self.pausing = False
            self.quiet.notify_all()
        for hand in self.hands:
            if not hand.judged:
                hand.events = []
            if hand.trouble:
                self.fault(hand.trouble)
        os.replace(f"{self.directory}/record", f"{self.directory}/record.old")
        text = "".join(json.dumps(event) + "\n" for event in events + [state])
        with open(f"{self.directory}/record", "w", encoding="utf-8") as record:
            record.write(text)
        self.judge.stdin.write(text)
        self.judge.stdin.flush()
        self.rounds += 1

    # ---- a life ------------------------------------------------------------------------

    def make(self):
        with open(f"{self.directory}/ini", "w", encoding="ascii") as ini:
            ini.write(f"[store]\nreserve = 1M\nwal_limit = {WAL_LIMIT}\n")
        self.set_clock()
        self.start()
        for queue, settings, partitions, groups in (
            ("jobs", {"spread": "4", "batch": "5", "completed_retention_seconds": "1h",
                      "dedup_seconds": "4h", "max_message_bytes": "64K"},
             "0123", ("imp", "exp", "hold")),
            ("feed", {"retention_seconds": "1h", "retention_bytes": "256K", "batch": "10",
                      "snapshot_seconds": "2h"},
             "abc", ("near", "far", "wide", "visit", "still")),
            ("more", {"retention_seconds": "1h"}, "k", ()),
            ("dates", {"retention_seconds": "1h"}, "xy", ()),
        ):
            base = f"{self.mount}/queues/{queue}"
            os.mkdir(base)
            for group in groups:
                os.mkdir(f"{base}/groups/{group}")
            for partition in partitions:
                os.mkdir(f"{base}/partitions/{partition}")
            for key, value in settings.items():
                self.set(f"{queue}/config/{key}", value)
        self.set("jobs/groups/exp/config/retry_delay_seconds", str(DELAY))
        self.set("jobs/groups/hold/config/lease_seconds", str(LEASE))
        self.set("feed/groups/visit/config/batch", "1")

    def load(self):
        near, far = ["feed/near"], ["feed/far", "feed/wide"]
        for work in (
            (True, produce, "a", "jobs", [None], 0.03),
            (True, produce_json, "b", JOBS),
            (True, produce, "c", "feed", FEED, 0.03),
            (True, produce, "d", "feed", FEED[:2], 0.05),
            (False, chronicle, "dates"),
            (True, follow, "i0", "jobs/imp", 65536),
            (True, follow, "i1", "jobs/imp", 4096),
            (True, lease, "e0", "jobs/exp"),
            (True, lease, "e1", "jobs/exp"),
            (True, redrive, "jobs/exp"),
            (True, follow, "n", "feed/near", 65536),
            (True, follow, "f", "feed/far", 8192),
            (True, follow, "w", "feed/wide", 16384),
            (True, watch, JOBS + FEED),
            (True, seek, near, FEED, 1.2),
            (True, seek, far, FEED, 0.6),
            (False, visit, "feed/visit", FEED),
            (True, snap, "feed", "near", 1.5),
            (False, churn, "more"),
            (False, refuse),
            (False, look),
            (False, take, "jobs/hold"),
        ):
            self.hands.append(Hand(self, *work))
        others = list(self.hands)
        share = self.seconds / 12
        self.hands += [
            Hand(self, False, still, "feed/still"),
            Hand(self, False, holder, "jobs/hold"),
            Hand(self, True, step_clock, max(2, self.seconds / 40)),
            Hand(self, False, sample, 0.2 if self.seconds < FLAT_FROM else 1),
            Hand(self, False, stop_readers, others, share, share * 2),
        ]
        for hand in self.hands:
            hand.start()

    def due(self):
        """Has it done what it was to do?"""
        week = self.seconds * SPEED
        return (
            clock() - self.began >= self.seconds
            and self.week >= week
            and self.stops > 0
            and self.counts.get("clock stepped back", 0) > 0
            and self.counts.get("seeks", 0) >= week / MINUTE
            and self.counts.get("snapshots", 0) >= week / (5 * MINUTE)
        )

    def lag(self):
        return sum(self.stat(f"{self.mount}/queues/{directory_of(g, 'groups')}", "lag")
                   for g in GROUPS + ["jobs/hold", "feed/still"])

    def run(self):
        self.make()
        self.sample()
        others = self.others()
        self.load()
        end = self.began + 3 * self.seconds + PATIENCE
        while not self.draining and not self.wrong:
            if clock() > end:
                raise RuntimeError(f"it does not come to its end: {self.counts}")
            since = clock()
            while clock() - since < ROUND and not self.due():
                time.sleep(0.1)
            self.round()
            with self.quiet:
                self.draining = self.due() and not self.stopping
        if self.wrong:
            return
        wait_until(lambda: not any(h.is_alive() for h in self.hands if h.work in PRODUCERS),
                   "those who push and seek end")
        exp = f"{self.mount}/queues/jobs/groups/exp/dlq"
        wait_until(lambda: not self.lag() and not os.listdir(exp), "all is consumed")
        self.round()
        self.finish_load()
        self.check_rest(others)
        self.check_store()
        self.check_figures()

    def finish_load(self):
        """Everybody ends."""
        self.ending = True
        for process in self.processes.values():
            process.send_signal(signal.SIGKILL)
            process.wait()
        for hand in self.hands:
            if hand.is_alive():
                hand.join(PATIENCE)
            self.expect(not hand.is_alive(), f"{hand.work.__name__} does not end")
            if hand.trouble:
                self.fault(hand.trouble)
        for partition, waiting in self.tiles.items():
            self.expect(list(waiting) == ["due"], f"jobs/hold: holes or overlaps in the acks of "
                        f"{partition}: {waiting}")
            last = self.stat(f"{self.mount}/queues/jobs/partitions/{partition}", "last_offset")
            self.expect(waiting["due"] == last + 1, f"jobs/hold: {partition} up to {waiting}")

    def check_rest(self, others):
        """What is left after a long life, and after two days more: nothing that is too old."""
        queues = f"{self.mount}/queues"
        listed = {q: [sorted(os.listdir(f"{queues}/{q}/{d}")) for d in ("partitions", "groups")]
                  for q in os.listdir(queues)}
        self.expect(listed == {
            "jobs": [["0", "1", "2", "3"], ["exp", "hold", "imp"]],
            "feed": [["a", "b", "c"], ["far", "near", "still", "visit", "wide"]],
            "more": [["k"], []], "dates": [["x", "y"], []]}, f"left are {listed}")
        self.expect(self.stat(f"{queues}/jobs/groups/imp", "skipped") == 0, "jobs/imp lost some")
        wait_until(lambda: self.others() == others, f"descriptors are {others} again")
        for queue, (_, groups) in listed.items():
            for group in groups:
                base = f"{queues}/{queue}/groups/{group}"
                wait_until(lambda: self.stat(base, "members") == 0, f"{group} has no members")
        self.leap = 2 * DAY
        self.set_clock()
        self.set("feed/config/retention_seconds", "1h")  # else it looks within a minute
        self.set("jobs/config/completed_retention_seconds", "1h")
        self.expect(not os.listdir(f"{queues}/feed/snapshots"), "snapshots outlive their time")
        for queue in ("jobs", "feed"):
            wait_until(lambda: self.stat(f"{queues}/{queue}", "messages") == 0,
                       f"retention empties {queue}")
        for queue in listed:
            wait_until(lambda: remove(f"{queues}/{queue}"), f"{queue} is removed")
        self.expect(not os.listdir(queues), "queues are left")
        wait_until(lambda: os.stat(self.store).st_size < 4 * MIB, "the file shrinks")

    def check_store(self):
        """A store without queues has no rows."""
        self.finish()
        db = sqlite3.connect(self.store)
        found = db.execute("pragma integrity_check").fetchone()[0]
        self.expect(found == "ok", f"integrity_check: {found}")
        for table, in db.execute("select name from sqlite_schema where type = 'table'").fetchall():
            rows = db.execute(f'select count(*) from "{table}"').fetchone()[0]
            self.expect(table in ("meta", "sqlite_sequence") or rows == 0,
                        f"{rows} rows are left in {table}")
        db.close()

    def finish(self):
        subprocess.run(["fusermount3", "-u", self.mount], check=True)
        if self.daemon.wait(PATIENCE) != 0:
            self.fault(f"the daemon ended with {self.daemon.returncode}")
        self.daemon = None

    def close_judge(self):
        self.judge.stdin.close()
        self.listener.join(PATIENCE)
        self.expect(self.judge.wait(PATIENCE) == 0 or self.wrong, "the judge has failed")


def main(directory, seconds):
    seed = os.environ.get("SEED", str(random.randrange(1 << 32)))
    run = Soak(directory, float(seconds), seed)
    try:
        run.run()
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        run.fault(repr(error))
    finally:
        run.ending = True
        for process in run.processes.values():
            process.kill()
        if run.daemon:
            if run.daemon.poll() is not None:
                run.fault(f"the daemon has ended with {run.daemon.returncode}")
            run.daemon.send_signal(signal.SIGKILL)
            run.daemon.wait()
            subprocess.run(["umount", "-l", run.mount], check=False)
    run.close_judge()
    for text in run.wrong[:20]:
        print("WRONG:", text[:500])
    if run.samples:
        run.tell()
    if run.wrong:
        print(f"{len(run.wrong)} things are wrong (SEED={seed})")
        return 1
    print("nothing is wrong")
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "hold":
        hold(sys.argv[2])
    sys.exit(main(*sys.argv[1:]))
