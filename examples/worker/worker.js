#!/usr/bin/env node
// SPDX-License-Identifier: MIT
// worker.js FOLLOW OUTPUT NAME - at least once, with acks of its own. (A stream would read
// ahead, and so ack ahead, of a file opened for reading only.)
'use strict';
const fs = require('fs');
const { ESTALE } = require('os').constants.errno; // error.code does not know it

const [follow, output, name] = process.argv.slice(2);
const queue = fs.openSync(follow, 'r+');
const done = fs.openSync(output, 'a');
const buffer = Buffer.alloc(1 << 16);

// One or more whole messages; up to `batch` of them come at once.
function take() {
	const pieces = [];
	for (;;) {
		try {
			const size = fs.readSync(queue, buffer);
			pieces.push(Buffer.from(buffer.subarray(0, size)));
			if (buffer[size - 1] === 10) // a long message comes in pieces
				return Buffer.concat(pieces).toString();
		} catch (error) {
			if (error.code !== 'EINTR') // a signal
				throw error;
		}
	}
}

for (;;) {
	for (const message of take().slice(0, -1).split('\n'))
		fs.writeSync(done, `${name} ${message}\n`); // the work
	try {
		fs.writeSync(queue, 'ack');
	} catch (error) {
		if (error.errno !== -ESTALE) // the lease has ended, or a seek came
			throw error;
	}
}
