/* SPDX-License-Identifier: MIT */
/*
 * The drivers' work, done to other queues over a unix socket.
 *
 *	peer {redis | beanstalkd} push [-n clients] [-b bytes] [-p batch] -s seconds SOCKET
 *	peer {redis | beanstalkd} drain [-p batch] -s seconds SOCKET
 *
 * push: each client is a process with a connection of its own; it sends -p messages (1) of
 * -b bytes (100) in one write and waits for their answers. drain: one client takes -p
 * messages at a time and acknowledges them, until there are none or time is up. Redis: a stream,
 * XREADGROUP and XACK by a group that starts anew; the acknowledgement of a batch and the
 * request of the next go together. beanstalkd: reserve and delete, a batch of each at once.
 */
#include <stdarg.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bench.h"
#include "crew.h"

struct wire {
	int fd;
	char in[1 << 16]; /* what came and was not looked at: from .. to */
	size_t from, to;
	char *out; /* what is to be sent */
	size_t out_size, out_room;
};

struct job {
	const struct peer *peer;
	const char *path;
	size_t message_bytes;
	unsigned batch;
	int64_t duration_us;
};

struct peer {
	const char *name;
	void (*push)(struct wire *wire, unsigned batch, const char *message);
	uint64_t (*drain)(struct wire *wire, unsigned batch, int64_t until_us);
};

/* ---- the connection ------------------------------------------------------------------ */

static struct wire *wire_open(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct wire *wire = calloc(1, sizeof(*wire));

	if (!wire)
		die("allocate", "connection");
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	wire->fd = socket(AF_UNIX, SOCK_STREAM, 0);
	if (wire->fd < 0 ||
	    connect(wire->fd, (struct sockaddr *)&address, sizeof(address)))
		die("connect to", path);
	return wire;
}

static void wire_close(struct wire *wire)
{
	close(wire->fd);
	free(wire->out);
	free(wire);
}

static void __attribute__((format(printf, 2, 3)))
wire_add(struct wire *wire, const char *format, ...)
{
	va_list args;
	size_t room;
	int n;

	for (;;) {
		room = wire->out_room - wire->out_size;
		va_start(args, format);
		n = vsnprintf(room ? wire->out + wire->out_size : NULL, room, format,
			      args);
		va_end(args);
		if ((size_t)n < room)
			break;
		wire->out_room = 2 * (wire->out_room + n + 1);
		wire->out = realloc(wire->out, wire->out_room);
		if (!wire->out)
			die("allocate", "request");
	}
	wire->out_size += n;
}

static void wire_send(struct wire *wire)
{
	size_t sent = 0;

	while (sent < wire->out_size) {
		ssize_t n = write(wire->fd, wire->out + sent, wire->out_size - sent);

		if (n <= 0)
			die("write to", "peer");
		sent += n;
	}
	wire->out_size = 0;
}

/* The next line, without its end, valid until the next call. */
static const char *wire_line(struct wire *wire)
{
	char *line, *end;
	ssize_t n;

	while (!(end = memchr(wire->in + wire->from, '\n', wire->to - wire->from))) {
		memmove(wire->in, wire->in + wire->from, wire->to - wire->from);
		wire->to -= wire->from;
		wire->from = 0;
		n = read(wire->fd, wire->in + wire->to, sizeof(wire->in) - wire->to);
		if (n <= 0)
			die("read from", "peer");
		wire->to += n;
	}
	line = wire->in + wire->from;
	wire->from = end + 1 - wire->in;
	if (end > line && end[-1] == '\r')
		end--;
	*end = '\0';
	return line;
}

/* A line that begins so, or the end; returns what follows. */
static const char *wire_expect(struct wire *wire, const char *begin)
{
	const char *line = wire_line(wire);

	if (strncmp(line, begin, strlen(begin)) != 0) {
		fprintf(stderr, "the peer says %s, not %s\n", line, begin);
		exit(1);
	}
	return line + strlen(begin);
}

/* ---- Redis: an entry of stream s has one field, d -------------------------------------- */

static void redis_push(struct wire *wire, unsigned batch, const char *message)
{
	for (unsigned i = 0; i < batch; i++)
		wire_add(wire,
			 "*5\r\n$4\r\nXADD\r\n$1\r\ns\r\n$1\r\n*\r\n$1\r\nd\r\n$%zu\r\n%"
			 "s\r\n",
			 strlen(message), message);
	wire_send(wire);
	for (unsigned i = 0; i < batch; i++) {
		wire_expect(wire, "$");
		wire_line(wire); /* the id */
	}
}

static void redis_ask(struct wire *wire, unsigned batch)
{
	wire_add(wire, "XREADGROUP GROUP g c COUNT %u STREAMS s >\r\n", batch);
	wire_send(wire);
}

/* Reads a batch and queues its XACK; returns how many there were. */
static unsigned redis_take(struct wire *wire)
{
	unsigned count;

	if (wire_expect(wire, "*")[0] == '-')
		return 0;
	wire_expect(wire, "*2");
	wire_expect(wire, "$1");
	wire_expect(wire, "s");
	count = strtoul(wire_expect(wire, "*"), NULL, 10);
	wire_add(wire, "*%u\r\n$4\r\nXACK\r\n$1\r\ns\r\n$1\r\ng\r\n", count + 3);
	for (unsigned i = 0; i < count; i++) {
		const char *id;

		wire_expect(wire, "*2");
		wire_expect(wire, "$");
		id = wire_line(wire);
		wire_add(wire, "$%zu\r\n%s\r\n", strlen(id), id);
		wire_expect(wire, "*2");
		wire_expect(wire, "$1");
		wire_expect(wire, "d");
		wire_expect(wire, "$");
		wire_line(wire); /* the payload */
	}
	return count;
}

static uint64_t redis_drain(struct wire *wire, unsigned batch, int64_t until_us)
{
	uint64_t messages = 0;
	unsigned count;

	wire_add(wire, "XGROUP DESTROY s g\r\nXGROUP CREATE s g 0\r\n");
	wire_send(wire);
	wire_expect(wire, ":");
	wire_expect(wire, "+OK");
	redis_ask(wire, batch);
	while (now_us() < until_us && (count = redis_take(wire))) {
		redis_ask(wire, batch);
		wire_expect(wire, ":");
		messages += count;
	}
	return messages;
}

/* ---- beanstalkd ----------------------------------------------------------------------- */

static void beanstalkd_push(struct wire *wire, unsigned batch, const char *message)
{
	for (unsigned i = 0; i < batch; i++)
		wire_add(wire, "put 0 0 60 %zu\r\n%s\r\n", strlen(message), message);
	wire_send(wire);
	for (unsigned i = 0; i < batch; i++)
		wire_expect(wire, "INSERTED");
}

static unsigned beanstalkd_take(struct wire *wire, unsigned batch)
{
	unsigned count = 0;

	for (unsigned i = 0; i < batch; i++)
		wire_add(wire, "reserve-with-timeout 0\r\n");
	wire_send(wire);
	for (unsigned i = 0; i < batch; i++) {
		const char *line = wire_line(wire);
		unsigned long long id;

		if (sscanf(line, "RESERVED %llu", &id) != 1)
			continue; /* TIMED_OUT */
		wire_line(wire);
		wire_add(wire, "delete %llu\r\n", id);
		count++;
	}
	wire_send(wire);
	for (unsigned i = 0; i < count; i++)
		wire_expect(wire, "DELETED");
	return count;
}

static uint64_t beanstalkd_drain(struct wire *wire, unsigned batch, int64_t until_us)
{
	uint64_t messages = 0;
	unsigned count;

	while (now_us() < until_us && (count = beanstalkd_take(wire, batch)))
		messages += count;
	return messages;
}

static const struct peer peers[] = {
	{ "redis", redis_push, redis_drain },
	{ "beanstalkd", beanstalkd_push, beanstalkd_drain },
};

/* ---- the two verbs --------------------------------------------------------------------- */

static uint64_t pusher_run(const void *arg, int number, struct gate gate)
{
	const struct job *job = arg;
	struct wire *wire = wire_open(job->path);
	char *message = calloc(1, job->message_bytes + 1);
	uint64_t messages = 0;
	int64_t until;

	(void)number;
	if (!message)
		die("allocate", "message");
	memset(message, 'x', job->message_bytes);
	gate_wait(gate);
	until = now_us() + job->duration_us;
	while (now_us() < until) {
		job->peer->push(wire, job->batch, message);
		messages += job->batch;
	}
	free(message);
	wire_close(wire);
	return messages;
}

static uint64_t drainer_run(const void *arg, int number, struct gate gate)
{
	const struct job *job = arg;
	struct wire *wire = wire_open(job->path);
	uint64_t messages;

	(void)number;
	gate_wait(gate);
	messages = job->peer->drain(wire, job->batch, now_us() + job->duration_us);
	wire_close(wire);
	return messages;
}

static int usage(void)
{
	fprintf(stderr, "usage: peer {redis | beanstalkd} {push | drain} [-n clients] "
			"[-b bytes] [-p batch] -s seconds SOCKET\n");
	return 2;
}

int main(int argc, char **argv)
{
	struct job job = { .message_bytes = 100, .batch = 1 };
	int opt, clients = 1, push;
	int64_t elapsed_us;
	uint64_t messages;

	if (argc < 4)
		return usage();
	for (size_t i = 0; i < sizeof(peers) / sizeof(*peers); i++)
		if (strcmp(peers[i].name, argv[1]) == 0)
			job.peer = &peers[i];
	push = strcmp(argv[2], "push") == 0;
	if (!job.peer || (!push && strcmp(argv[2], "drain") != 0))
		return usage();
	argc -= 2;
	argv += 2;
	while ((opt = getopt(argc, argv, "n:b:p:s:")) != -1) {
		switch (opt) {
		case 'n':
			clients = number(optarg);
			break;
		case 'b':
			job.message_bytes = number(optarg);
			break;
		case 'p':
			job.batch = number(optarg);
			break;
		case 's':
			job.duration_us = number(optarg) * 1e6;
			break;
		default:
			return usage();
		}
	}
	if (optind != argc - 1 || !job.duration_us)
		return usage();
	job.path = argv[optind];
	if (crew_run(clients, push ? pusher_run : drainer_run, &job, &messages,
		     &elapsed_us))
		return 1;
	rates_print(messages, messages * job.message_bytes, elapsed_us);
	return 0;
}
