#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""server.py QUEUE - takes webhooks over HTTP and pushes them to the queue.

200 means that it is stored: the write to push.json has returned. Whoever is not told so
sends it again, and the delivery's id keeps it from being stored twice. With 503 nothing
is lost either; 400 is for what will never be taken. Prints the port that it listens at.
"""

import errno
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

queue = sys.argv[1]


def push(delivery: str, event: object) -> str:
    """Returns what became of it: queued or duplicate."""
    item = {"transactionId": delivery, "data": event}
    with open(f"{queue}/push.json", "r+b", buffering=0) as file:
        file.write(json.dumps(item).encode() + b"\n")
        return json.loads(file.read(4096))["status"]


class Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            self.answer(200, push(self.headers["X-Delivery-Id"], json.loads(body)))
        except ValueError as error:
            self.answer(400, str(error))
        except OSError as error:  # EINVAL: no id, and so on; else a full disk, no mount, ...
            never = error.errno in (errno.EINVAL, errno.EMSGSIZE)
            self.answer(400 if never else 503, str(error))

    def answer(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Server(ThreadingHTTPServer):
    request_queue_size = 64  # who comes while as many wait would try again after a second


with Server(("127.0.0.1", 0), Hook) as server:
    print(server.server_port, flush=True)
    server.serve_forever()
