#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""client.py PORT COUNT - sends so many webhooks, several at a time.

Each is sent until it is answered with 200, as those who send webhooks do, and every third
once more after that. Prints a line `<id> <verdict>` for each 200.
"""

import http.client
import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor

port, count = int(sys.argv[1]), int(sys.argv[2])


def post(number: int) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"X-Delivery-Id": f"delivery-{number}"}
    connection.request("POST", "/hook", json.dumps({"event": number}), headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def deliver(number: int) -> None:
    while (answer := post(number))[0] != 200:
        time.sleep(0.02)
    sys.stdout.write(f"{number} {answer[1]}\n")
    sys.stdout.flush()


with ThreadPoolExecutor(8) as pool:
    for delivered in pool.map(deliver, [*range(count), *range(0, count, 3)]):
        pass
