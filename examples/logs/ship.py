#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""ship.py LOG PARTITION - pushes a log line by line, and what is added to it.

The partition has got as many messages as lines were shipped, so it begins after these.
Of a line that is being written nothing is pushed before its end.
"""

import fcntl
import os
import subprocess
import sys

log, partition = sys.argv[1:]
# One at a time: who was killed may have a last write under way.
fcntl.flock(os.open(partition, os.O_RDONLY), fcntl.LOCK_EX)
with open(f"{partition}/stats", encoding="ascii") as stats:
    shipped = 1 + int(dict(map(str.split, stats))["last_offset"])

push = os.open(f"{partition}/push", os.O_WRONLY)
tail = ["tail", "-n", f"+{shipped + 1}", "-F", log]
source = subprocess.Popen(tail, stdout=subprocess.PIPE)
rest = b""
try:
    while piece := source.stdout.read1(1 << 16):
        lines, newline, rest = (rest + piece).rpartition(b"\n")
        if newline:
            os.write(push, lines + newline)  # all of them or none
except OSError as error:
    sys.exit(f"ship.py: {error}")  # to be started again
finally:
    source.kill()
