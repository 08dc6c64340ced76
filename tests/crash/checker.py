#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
checker.py - decides from a record whether a promise of the contract was broken.

    checker.py RECORD       prints what is wrong, a line each, and ends with 1 if anything is
    checker.py -            the same for a record that goes on for long and comes on stdin in
                            order, state by state: what has been judged is forgotten

A record is lines of JSON. Each has "e", what happened, and "t": [began, ended] on one
monotonic clock, and mostly "r", how it ended: "ok", "unknown" (the daemon died meanwhile)
or the name of an errno, and then nothing may have changed.

    push      messages: [[partition, id]...]            one write; ids are unique, but the
                                                        same push may be repeated if txn;
                                                        partition null: dealt to any
    read      h, g, messages: [[partition, offset, id]...]     what handle h of group g got
    log       p, messages: [[offset, id]...]                   what was seen in a log
    ack       h, g, p, to, read: [began, ended]     explicit, of what was read at that time
    letter    g, p, offset, id                      the head of a span is dead-lettered
    passed    g, p, to                              acked by reading on; read: as of ack
    back      g, p                                  retry, fail, close: it comes again
    seek      g, p (null: all), to (null: elsewhere)
    redrive   g, p, offset, id                      a dead letter is pushed again
    snapshot, unsnapshot     name                   made, removed; expires: when it vanishes
    crash                                           kill -9, until the store is open again
    state     partitions: {p: {first, ids}}, cursors: {g: {p: committed}},
              letters: [[g, p, offset, id]...], snapshots: {name: text}, quick_check
              what the store holds while nobody does anything. If known, now: [least, most]
              that its clock shows; whole: queues of which nothing is removed unread

Partitions and groups are named queue/name. What it takes for granted: messages are removed
by retention alone, letters by redrive alone, and no group has a filter.
"""
import collections
import json
import sys

IMPLICIT = 0.1  # seconds after which what was acked by reading on survives kill -9
SLACK = 2.0  # more for a commit that a busy machine delays
NEVER = float("-inf")
EVER = float("inf")


def queue_of(name):
    return name.split("/")[0]


class Checker:
    def __init__(self):
        self.wrong = []
        self.events = collections.Counter()
        self.pushes = {}  # id: [partition, began, ended, "ok" | "unknown" | errno]
        self.unsure = []  # pushes whose outcome is open
        self.truth = collections.defaultdict(dict)  # partition: {offset: id}
        self.places = collections.defaultdict(set)  # (partition, id): offsets
        self.redriven = collections.Counter()  # id: successful redrives
        self.delivered = collections.defaultdict(dict)  # (g, p): {offset: t}
        self.acks = collections.defaultdict(list)  # (g, p): [(t, to, r, implicit)]
        self.tops = collections.defaultdict(list)  # (g, p): the highest `to` up to each ack
        self.seeks = collections.defaultdict(list)  # (g, p): [(t, to, r)]
        self.sought = collections.defaultdict(list)  # the same: the last before the last state
        self.causes = collections.defaultdict(list)  # (g, p): [t]; of coming again
        self.crashes = []
        self.covered = collections.defaultdict(lambda: -1)  # (g, p): sought past
        self.letters = {}  # (g, p, offset): [id, "ok" | "unknown", t]
        self.redrives = []  # of unknown outcome
        self.snapshots = {}  # name: [text, True | False | None: present?, expires]
        self.partitions = set()
        self.base = collections.defaultdict(int)  # partition: forgotten below
        self.since = NEVER  # when this round began

    def say(self, what, text):
        self.wrong.append(f"{what}: {text}")

    def expect(self, so, what, text):
        if not so:
            self.say(what, text)

    # ---- what happened, in the order of its end ------------------------------------------

    def feed(self, event):
        self.events[event["e"]] += 1
        getattr(self, "on_" + event["e"])(event)

    def on_push(self, event):
        began, ended = event["t"]
        for partition, name in event["messages"]:
            if partition:
                self.partitions.add(partition)
            known = self.pushes.get(name)
            if not known:
                self.pushes[name] = [partition, began, ended, event["r"]]
                continue
            self.expect(event.get("txn"), "record", f"{name} was pushed twice")
            known[2] = max(known[2], ended)
            if known[3] != "ok":
                known[3] = event["r"]
        if event["r"] == "unknown":
            self.unsure.append(event["messages"])

    def see(self, partition, offset, name, where):
        known = self.truth[partition].setdefault(offset, name)
        self.expect(
            known == name, "changed", f"{partition}@{offset} was {known}, {where} has {name}"
        )
        self.expect(name in self.pushes, "invented", f"{partition}@{offset} {name} in {where}")
        if name in self.pushes and not self.pushes[name][0]:
            self.pushes[name][0] = partition
        self.places[partition, name].add(offset)

    def on_log(self, event):
        for offset, name in event["messages"]:
            self.see(event["p"], offset, name, "log")

    def on_read(self, event):
        began, ended = event["t"]
        for partition, offset, name in event["messages"]:
            key = event["g"], partition
            self.see(partition, offset, name, "a read of " + event["g"])
            before = self.delivered[key].get(offset)
            if before is not None:
                # a read that waited for long may have been the first of them
                self.expect(
                    self.caused(key, min(before[0], began), max(before[1], ended)),
                    "duplicated",
                    f"{key} {offset} {name} came at {before} and, for no cause, at {event['t']}",
                )
            sought = max(
                (t[1] for t, _, _ in self.seeks[key] if t[0] <= ended), default=NEVER
            )
            for i in range(len(self.acks[key]) - 1, -1, -1):
                t, to, result, implicit = self.acks[key][i]
                if t[0] <= sought or self.tops[key][i] < offset:
                    break
                if result != "ok" or to < offset or t[1] >= began:
                    continue
                if implicit and any(
                    c[1] >= t[0] and c[0] < t[1] + IMPLICIT + SLACK for c in self.crashes
                ):
                    continue
                self.say(
                    "acked, yet redelivered",
                    f"{key} {offset} {name} acked at {t[1]:.4f} came at {began:.4f}",
                )
                break
            self.delivered[key][offset] = event["t"]

    def caused(self, key, since, until):
        return any(
            t[1] >= since and t[0] <= until
            for causes in (self.causes[key], self.crashes)
            for t in reversed(causes)
        )

    def on_ack(self, event):
        key = event["g"], event["p"]
        if event["r"] == "ok" and "read" in event:
            for t, to, result in self.sought[key] + self.seeks[key]:
                self.expect(
                    result != "ok" or not (event["read"][1] < t[0] and t[1] < event["t"][0]),
                    "moved by a stale ack",
                    f"{key} to {event['to']}: read {event['read']}, sought {t}, "
                    f"acked {event['t']}",
                )
        if event["r"] in ("ok", "unknown"):
            self.acked(key, event, False)

    def acked(self, key, event, implicit):
        self.acks[key].append((event["t"], event["to"], event["r"], implicit))
        self.tops[key].append(max(self.tops[key][-1:] + [event["to"]]))

    def on_letter(self, event):
        self.on_ack({**event, "to": event["offset"]})
        place = event["g"], event["p"], event["offset"]
        if event["r"] == "ok" or (event["r"] == "unknown" and place not in self.letters):
            self.letters[place] = [event["id"], event["r"], event["t"]]
        for redrive in self.redrives:
            if (redrive["g"], redrive["p"], redrive["offset"]) == place:
                redrive["again"] = True

    def on_passed(self, event):
        key = event["g"], event["p"]
        read = event.get("read", event["t"])
        if any(
            t[1] >= read[0] and t[0] <= event["t"][0]
            for t, _, _ in self.sought[key] + self.seeks[key]
        ):
            event = {**event, "r": "unknown"}  # the seek took the lease
        self.acked((event["g"], event["p"]), event, True)

    def on_back(self, event):
        self.causes[event["g"], event["p"]].append(event["t"])

    def on_seek(self, event):
        if event["r"] not in ("ok", "unknown"):
            return
        for partition in [event["p"]] if event["p"] else self.partitions:
            if queue_of(partition) != queue_of(event["g"]):
                continue
            key = event["g"], partition
            self.seeks[key].append((event["t"], event["to"], event["r"]))
            self.causes[key].append(event["t"])
            if event["to"] is None:
                self.covered[key] = EVER  # until the state says where that is
            else:
                self.covered[key] = max(self.covered[key], event["to"])

    def on_redrive(self, event):
        place = event["g"], event["p"], event["offset"]
        if event["r"] == "ok":
            self.expect(place in self.letters, "record", f"{place} was no letter")
            if place in self.letters and self.letters[place][2][1] > event["t"][0]:
                self.letters[place][1] = "unknown"  # which of them was first?
            else:
                self.letters.pop(place, None)
            self.redriven[event["id"]] += 1
        elif event["r"] == "unknown":
            self.redrives.append(dict(event, again=False))

    def on_snapshot(self, event):
        if event["r"] in ("ok", "unknown"):
            self.snapshots[event["name"]] = [
                None,
                event["r"] == "ok" or None,
                event.get("expires", EVER),
            ]

    def on_unsnapshot(self, event):
        if event["r"] in ("ok", "unknown") and event["name"] in self.snapshots:
            self.snapshots[event["name"]][1] = False if event["r"] == "ok" else None

    def on_crash(self, event):
        self.crashes.append(event["t"])

    # ---- what the store holds ------------------------------------------------------------

    def on_state(self, event):
        self.expect(
            event["quick_check"] == "ok", "damaged", f"quick_check: {event['quick_check']}"
        )
        logs = event["partitions"]
        for partition, log in logs.items():
            self.check_log(partition, log)
        self.check_pushes(logs)
        self.check_letters({tuple(l[:3]): l[3] for l in event["letters"]})
        self.check_copies()
        self.check_order(logs)
        self.check_cursors(event["cursors"], logs, event.get("whole", []))
        self.check_snapshots(event["snapshots"], event.get("now", [NEVER, NEVER]))

    def check_log(self, partition, log):
        end = log["first"] + len(log["ids"])
        for i, name in enumerate(log["ids"]):
            self.see(partition, log["first"] + i, name, "the store")
        for offset, name in self.truth[partition].items():
            self.expect(
                offset < end,
                "visible before durable",
                f"{partition}@{offset} {name} was seen, the log ends before {end}",
            )

    def check_pushes(self, logs):
        missing = collections.defaultdict(list)
        for name, (partition, _, _, result) in self.pushes.items():
            there = (partition, name) in self.places
            if result == "ok" and not there:
                missing[partition].append(name)
            elif result not in ("ok", "unknown"):
                self.expect(not there, "refused, yet stored", f"{partition} {name}: {result}")
        for partition, names in missing.items():
            first = logs.get(partition, {"first": 0})["first"]
            gone = sum(
                1 for o in range(self.base[partition], first) if o not in self.truth[partition]
            )
            self.expect(
                len(names) <= gone,
                "lost",
                f"{partition}: {len(names)} messages, {names[0]} the first; {gone} may "
                f"have been removed unseen",
            )
        for messages in self.unsure:
            if any(logs.get(p, {"first": 0})["first"] > 0 for p, _ in messages):
                continue  # retention may have taken some of it
            there = [tuple(m) in self.places for m in messages]
            self.expect(len(set(there)) == 1, "half a write", f"{messages}: {there}")
            if any(there):
                for _, name in messages:
                    self.pushes[name][3] = "ok"
        self.unsure = []

    def check_letters(self, letters):
        for redrive in self.redrives:
            name, place = redrive["id"], (redrive["g"], redrive["p"], redrive["offset"])
            partition = self.pushes[name][0]
            done = len(self.places[partition, name]) > 1 + self.redriven[name]
            if done:
                self.redriven[name] += 1
            if done and not redrive["again"]:
                self.expect(place not in letters, "half a redrive", f"{place} is still there")
                self.letters.pop(place, None)
        self.redrives = []
        for place, (name, result, _) in list(self.letters.items()):
            if result == "ok":
                self.expect(letters.get(place) == name, "letter lost", f"{place} {name}")
            elif place in letters:
                self.letters[place][1] = "ok"
            else:
                del self.letters[place]
        for place, name in letters.items():
            self.expect(place in self.letters, "letter invented", f"{place} {name}")

    def check_copies(self):
        for (partition, name), offsets in self.places.items():
            self.expect(
                len(offsets) <= 1 + self.redriven[name],
                "duplicated in the log",
                f"{partition} {name} at {sorted(offsets)}, redriven {self.redriven[name]} times",
            )

    # What was answered before another began stands before it.
    def check_order(self, logs):
        for partition in logs:
            latest, who = NEVER, None
            for offset, name in sorted(self.truth[partition].items()):
                if name not in self.pushes or min(self.places[partition, name]) != offset:
                    continue
                _, began, ended, result = self.pushes[name]
                if result == "ok":
                    self.expect(
                        ended >= latest,
                        "reordered",
                        f"{partition}: {who} stands before {name}, which ended first",
                    )
                if began > latest:
                    latest, who = began, name

    def check_cursors(self, cursors, logs, whole):
        for group, rows in cursors.items():
            for partition, committed in rows.items():
                if partition in logs:
                    log = logs[partition]
                    since = 0 if queue_of(group) in whole else log["first"]
                    self.check_cursor((group, partition), committed, log, since)

    def check_cursor(self, key, committed, log, unread_from):
        last = log["first"] + len(log["ids"]) - 1
        seeks = self.seeks[key]
        sure = max((s for s in seeks if s[2] == "ok"), key=lambda s: s[0][1], default=None)
        since = sure[0][0] if sure else NEVER
        maybe = [s for s in seeks if s[0][1] >= since]
        targets = [s[1] for s in maybe] + ([] if sure else [-1])
        after = max((s[0][1] for s in maybe), default=NEVER)
        low = min(NEVER if to is None else to for to in targets)
        high = max(EVER if to is None else to for to in targets)
        for t, to, result, implicit in self.acks[key]:
            if t[1] >= since:
                high = max(high, to)
            if result == "ok" and t[0] > after and not implicit:
                low = max(low, to)
        self.expect(committed >= low, "cursor went back", f"{key} at {committed}, acked {low}")
        self.expect(
            committed <= max(high, log["first"] - 1),
            "cursor went too far",
            f"{key} at {committed}, at most {high} was acked",
        )
        self.expect(committed <= last, "cursor went too far", f"{key} {committed} > {last}")
        if self.covered[key] == EVER:
            self.covered[key] = last
        for offset in range(max(unread_from, self.covered[key] + 1), committed + 1):
            if offset not in self.delivered[key]:
                self.say("passed over", f"{key} {offset}: committed, and nobody got it")
                break

    def check_snapshots(self, snapshots, now):
        for name, (text, present, expires) in list(self.snapshots.items()):
            if name in snapshots:
                self.expect(expires > now[0], "snapshot outlived", f"{name}: {expires} at {now}")
            if present is True:
                self.expect(
                    name in snapshots or expires <= now[1],
                    "snapshot lost",
                    f"{name}: {expires} at {now}",
                )
            elif present is False:
                self.expect(name not in snapshots, "snapshot back", name)
            if name not in snapshots:
                del self.snapshots[name]
                continue
            self.expect(text in (None, snapshots[name]), "snapshot changed", name)
            self.snapshots[name] = [snapshots[name], True, expires]
        for name in snapshots:
            self.expect(name in self.snapshots, "snapshot invented", name)

    # ---- a record that goes on for long ----------------------------------------------------

    def forget(self, state):
        """What no later state can ask for. Cursors go on from where this one found them."""
        for partition, log in state["partitions"].items():
            self.base[partition] = log["first"]
            truth = self.truth[partition]
            for offset in [o for o in truth if o < log["first"]]:
                del truth[offset]
        kept = {name for truth in self.truth.values() for name in truth.values()}
        kept.update(letter[0] for letter in self.letters.values())
        kept.update(name for name, push in self.pushes.items() if push[2] >= self.since)
        self.pushes = {name: push for name, push in self.pushes.items() if name in kept}
        for key in [key for key in self.places if key[1] not in kept]:
            del self.places[key]
        for name in [name for name in self.redriven if name not in kept]:
            del self.redriven[name]
        for group, rows in state["cursors"].items():
            for partition, committed in rows.items():
                self.forget_cursor((group, partition), committed, state["t"])
        self.since = state["t"][1]

    def forget_cursor(self, key, committed, t):
        self.acks[key], self.tops[key] = [(t, committed, "ok", False)], [committed]
        self.sought[key] = sorted(self.sought[key] + self.seeks[key], key=lambda s: s[0][1])[-1:]
        self.seeks[key], self.covered[key] = [], committed
        self.delivered[key] = {o: t for o, t in self.delivered[key].items() if o > committed}
        oldest = min((t[0] for t in self.delivered[key].values()), default=EVER)
        self.causes[key] = [cause for cause in self.causes[key] if cause[1] >= oldest]


def feed_round(checker, events):
    """What happened up to and with a state, in any order. A message is seen before the write
    that brought it is answered, what a seek brings back before the seek is, and a letter is
    pushed again before its making is."""
    order = {"push": 0, "crash": 0, "seek": 1, "back": 1, "state": 3}
    for event in sorted(
        events, key=lambda e: (order.get(e["e"], 2), e["t"][e["e"] != "letter"])
    ):
        checker.feed(event)


def check(events):
    """A checker that has seen a whole record."""
    checker = Checker()
    events = sorted(events, key=lambda e: e["t"][1])
    since = 0
    for i, event in enumerate(events):
        if event["e"] == "state":
            feed_round(checker, events[since : i + 1])
            since = i + 1
    checker.expect(since == len(events), "record", "it does not end with a state")
    return checker


def follow(lines, tell):
    """A checker that has seen a record which did not have to fit in memory. What is wrong is
    told at once."""
    checker, events, told = Checker(), [], 0
    for line in lines:
        events.append(json.loads(line))
        if events[-1]["e"] == "state":
            feed_round(checker, events)
            checker.forget(events[-1])
            events = []
            for text in checker.wrong[told:]:
                tell(text)
            told = len(checker.wrong)
    checker.expect(not events, "record", "it does not end with a state")
    for text in checker.wrong[told:]:
        tell(text)
    return checker


def tell(text):
    print("WRONG:", text, flush=True)


def main(path):
    if path == "-":
        checker = follow(sys.stdin, tell)
    else:
        with open(path, encoding="utf-8") as record:
            checker = check([json.loads(line) for line in record if line.strip()])
        for text in checker.wrong[:50]:
            tell(text)
    print(f"{sum(checker.events.values())} events, {len(checker.wrong)} things are wrong")
    return 1 if checker.wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
