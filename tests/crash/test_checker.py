#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
test_checker.py - checker.py tried on records made by hand. Prints TAP.

RIGHT is a record of everything that may happen. Each broken one is RIGHT with something
changed, and names what the checker has to find, at the end or state by state.
"""
import copy
import json
import subprocess
import sys
import tempfile

import checker

P, G = "q/p", "q/g"


def at(e, began, **more):
    return {"e": e, "t": [began, began + 0.1], **more}


def push(began, ids, r="ok", **more):
    return at("push", began, messages=[[P, i] for i in ids], r=r, **more)


def read(began, *messages):
    return at("read", began, h="h", g=G, messages=[[P, o, i] for o, i in messages])


RIGHT = [
    push(0, ["a0", "a1"]),  # 0
    push(1, ["b0"]),
    push(1, ["x0"], r="EINVAL"),
    read(2, (0, "a0"), (1, "a1")),
    at("ack", 3, h="h", g=G, p=P, to=0, read=[2, 2.1], r="ok"),
    at("back", 4, g=G, p=P),  # 5
    read(5, (1, "a1")),
    at("letter", 6, g=G, p=P, offset=1, id="a1", r="ok"),
    read(7, (2, "b0")),
    at("seek", 8, g=G, p=P, to=-1, r="ok"),
    at("ack", 9, h="h", g=G, p=P, to=2, read=[7, 7.1], r="ESTALE"),  # 10
    read(10, (0, "a0")),
    at("ack", 11, h="h", g=G, p=P, to=0, read=[10, 10.1], r="ok"),
    at("snapshot", 12, name="s", r="ok"),
    at("redrive", 13, g=G, p=P, offset=1, id="a1", r="unknown"),
    push(13, ["c0", "c1"], r="unknown"),  # 15
    push(13, ["t0"], r="unknown", txn=True),
    at("log", 13, p=P, messages=[[2, "b0"], [3, "a1"]]),
    at("crash", 14),
    at(
        "state",
        15,
        partitions={P: {"first": 0, "ids": ["a0", "a1", "b0", "a1", "c0", "c1"]}},
        cursors={G: {P: 0}},
        letters=[],
        snapshots={"s": "text"},
        quick_check="ok",
    ),
    push(20, ["t0"], txn=True),  # 20
    read(21, (1, "a1"), (2, "b0")),
    at("passed", 30, g=G, p=P, to=2, r="ok"),
    at("crash", 31),
    read(32, (1, "a1")),
    at("unsnapshot", 33, name="s", r="ok"),  # 25
    at(
        "state",
        40,
        partitions={P: {"first": 1, "ids": ["a1", "b0", "a1", "c0", "c1", "t0"]}},
        cursors={G: {P: 0}},
        letters=[],
        snapshots={},
        quick_check="ok",
    ),
]
STATE, END = 19, 26


def log(ids):
    def change(record):
        record[STATE]["partitions"][P]["ids"] = ids.split()

    return change


def put(index, **more):
    def change(record):
        record[index].update(more)

    return change


def add(event):
    def change(record):
        record.append(event)  # they are sorted by time

    return change


def remove(index):
    def change(record):
        record[index] = None

    return change


def both(*changes):
    def change(record):
        for one in changes:
            one(record)

    return change


OTHER = at("letter", 6.5, g=G, p=P, offset=2, id="b0", r="ok")
# Nobody got c0 and c1 before retention removed them.
GONE = both(
    put(22, to=5), put(END, cursors={G: {P: 5}}, partitions={P: {"first": 6, "ids": ["t0"]}})
)
WHOLE = both(GONE, put(END, whole=["q"]))
# The snapshot is no longer there because its time has come.
# What was read before a seek, and is passed after the state that follows it, acks nothing.
SOUGHT = add(at("passed", 19, g=G, p=P, to=2, read=[7, 7.1], r="ok"))
EXPIRED = both(put(13, expires=14), put(STATE, snapshots={}, now=[14, 15]), remove(25))
BROKEN = [
    ("lost", both(put(15, r="ok"), log("a0 a1 b0 a1"))),
    ("lost", both(put(END, partitions={P: {"first": 7, "ids": []}}), add(push(33, ["d0", "d1"])))),
    ("visible before durable", log("a0 a1")),
    ("changed", log("a0 a1 c0 b0 a1 c1")),
    ("changed", put(6, messages=[[P, 1, "b0"]])),
    ("invented", log("a0 a1 b0 a1 c0 c1 zz")),
    ("refused, yet stored", log("a0 a1 b0 a1 x0")),
    ("half a write", log("a0 a1 b0 a1 c0")),
    ("reordered", put(1, t=[-2, -1.9])),
    ("duplicated in the log", log("a0 a1 b0 a1 c0 c1 b0")),
    ("duplicated in the log", both(put(14, r="EPERM"), put(STATE, letters=[[G, P, 1, "a1"]]))),
    ("duplicated", remove(5)),
    ("acked, yet redelivered", put(6, messages=[[P, 0, "a0"], [P, 1, "a1"]])),
    ("acked, yet redelivered", add(read(32.5, (0, "a0")))),
    ("acked, yet redelivered", put(22, t=[22, 22.1])),  # by reading on, long before the crash
    ("moved by a stale ack", put(10, r="ok")),
    ("cursor went too far", put(STATE, cursors={G: {P: 2}})),
    ("cursor went too far", put(END, cursors={G: {P: 9}})),
    ("cursor went back", put(STATE, cursors={G: {P: -1}})),
    ("passed over", both(put(22, to=4), put(END, cursors={G: {P: 4}}))),
    ("half a redrive", put(STATE, letters=[[G, P, 1, "a1"]])),
    ("letter lost", both(log("a0 a1 b0 c0 c1"), put(17, messages=[]))),
    ("letter lost", add(OTHER)),
    ("letter invented", put(STATE, letters=[[G, P, 0, "a0"]])),
    ("snapshot lost", put(STATE, snapshots={})),
    ("snapshot changed", both(remove(25), put(END, snapshots={"s": "other"}))),
    ("snapshot back", put(END, snapshots={"s": "text"})),
    ("snapshot invented", put(STATE, snapshots={"s": "text", "z": ""})),
    ("snapshot lost", both(put(13, expires=50), put(STATE, snapshots={}, now=[40, 45]))),
    ("snapshot outlived", both(put(13, expires=50), put(STATE, now=[55, 60]))),
    ("passed over", WHOLE),
    ("damaged", put(STATE, quick_check="row 1 missing from index")),
    ("record", remove(END)),
]


def judge(change):
    """What is wrong in a changed record, for either way to judge it."""
    record = copy.deepcopy(RIGHT)
    change(record)
    record = sorted((e for e in record if e), key=lambda e: e["t"][1])
    told = []
    checker.follow(map(json.dumps, record), told.append)
    return checker.check(record).wrong, told


def main():
    failed = 0
    print(f"1..{len(BROKEN) + 2}")
    rights = put(0), GONE, EXPIRED, SOUGHT
    wrong = [text for change in rights for texts in judge(change) for text in texts]
    failed += bool(wrong)
    print("ok" if not wrong else "not ok", "1 - a right record is accepted")
    for text in wrong:
        print("#", text)
    for i, (what, change) in enumerate(BROKEN, 2):
        found = judge(change)
        good = all(any(text.startswith(what + ":") for text in texts) for texts in found)
        failed += not good
        print("ok" if good else "not ok", f"{i} - found: {what}")
        if not good:
            print("#", found)
    with tempfile.NamedTemporaryFile("w", suffix=".record") as file:
        broken = copy.deepcopy(RIGHT)
        put(10, r="ok")(broken)
        file.write("\n".join(map(json.dumps, broken)))
        file.flush()
        status = subprocess.run(
            [sys.executable, checker.__file__, file.name], stdout=subprocess.DEVNULL, check=False
        ).returncode
    failed += status != 1
    print("ok" if status == 1 else "not ok", f"{len(BROKEN) + 2} - a broken record on disk")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
