#!/bin/bash
# SPDX-License-Identifier: MIT
# worker.sh FOLLOW OUTPUT NAME - at least once: asking for the next message acks this one.
# What is called in the loop must not read its stdin; give it </dev/null.
while IFS= read -r message; do
	printf '%s %s\n' "$3" "$message" >>"$2" # the work
done <"$1"
