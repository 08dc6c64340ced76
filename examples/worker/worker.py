#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""worker.py FOLLOW OUTPUT NAME - at least once.

Python takes a buffer full of whole messages, and all of them are acked when it asks for
more. By then each was in the loop.
"""

import sys

follow, output, name = sys.argv[1:]
with open(follow, "rb") as messages, open(output, "ab", buffering=0) as done:
    for message in messages:
        done.write(name.encode() + b" " + message)  # the work
