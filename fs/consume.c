/* SPDX-License-Identifier: MIT */
/*
 * consume.c - pop and follow: reading that consumes (section 4).
 *
 * The open file is the lease; its messages come from store_read(), which also decides what
 * a read acks. On a file opened read-write it acks nothing: what is written to it does.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "fs.h"

/* The kernel asks on after a reply that fills a request, within one read(2), and so would
 * ack what the reader has not seen. Requests under a page come alone. */
#define FULL_REQUEST 4096

#define VERB_MAX 512
#define EXTEND_MAX (366LL * 86400)

/* ---- opening ---------------------------------------------------------------------------- */

static int reader_open(struct handle *handle, struct call *call, struct item *group)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(call->req);
	const struct reader_who who = { ctx->pid, ctx->uid };
	const struct file_ops *ops = handle->node->place.file->ops;
	unsigned flags = ops->reader_flags |
			 ((handle->flags & O_ACCMODE) == O_RDWR ? READER_LEASED : 0);
	struct reader *reader;
	int error = store_reader_open(group, handle->node->place.partition, flags, &who,
				      &reader);

	if (!error)
		handle->state = reader;
	return error;
}

/* The queue's pop and follow follow the queue's directory, as all its files do; but what they
 * move is the group's. */
static int default_reader_open(struct handle *handle, struct call *call,
			       struct item *group)
{
	if (!call_may(call, group, GROUP_DIR, 7))
		return why_not(&call->why, -EACCES,
			       "this reads as group default; it takes r, w and x of "
			       "groups/default too");
	return reader_open(handle, call, group);
}

static void default_made(void *arg, const struct store_result *result)
{
	struct call *call = arg;
	struct item *group = result->item;
	struct store_result opened = *result;

	/* Another opener was quicker: that is the group. */
	if (result->error == -EEXIST &&
	    store_find(call->mount->store, call->node->place.queue, ITEM_GROUP,
		       STORE_DEFAULT_NAME, &group) == 0) {
		opened.error = default_reader_open(call->handle, call, group);
		store_put(group);
	} else if (!result->error) {
		opened.error = reader_open(call->handle, call, group);
	}
	call_finish(call, &opened);
}

/* The queue's own files read as group "default", which their first open makes. */
static int default_open(struct handle *handle, struct call *call)
{
	struct item *queue = call->node->place.queue, *group;
	struct access access;
	int error;

	if (store_find(call->mount->store, queue, ITEM_GROUP, STORE_DEFAULT_NAME,
		       &group) == 0) {
		error = default_reader_open(handle, call, group);
		store_put(group);
		return error;
	}
	store_access(call->mount->store, queue, QUEUE_DIR, &access);
	store_make(call->mount->store, queue, ITEM_GROUP, STORE_DEFAULT_NAME, &access,
		   default_made, call);
	return PARKED;
}

static int consume_open(struct handle *handle, struct call *call)
{
	struct message_rules rules;

	store_message_rules(handle->node->place.queue, &rules);
	if (!rules.lines && handle->node->place.file->ops == &follow_file)
		return why_not(
			&call->why, -EINVAL,
			"with framing file nothing would tell messages apart here; "
			"use pop, a message each, or follow.json");
	if ((handle->flags & O_ACCMODE) == O_WRONLY)
		return why_not(&call->why, -EACCES,
			       "acks are written by who reads: open it read-write, as in "
			       "exec 3<>follow, and write ack to the same descriptor");
	if (handle->flags & O_NOFOLLOW)
		return why_not(
			&call->why, -EPERM,
			"grep -r, cp -r and rsync open with O_NOFOLLOW and would consume "
			"messages; open it without, as cat does");
	if (!handle->node->place.group)
		return default_open(handle, call);
	return reader_open(handle, call, handle->node->place.group);
}

/* ---- reading ---------------------------------------------------------------------------- */

static ssize_t consume_read(struct handle *handle, char *buffer, size_t size,
			    struct pieces *pieces)
{
	return store_read_pieces(handle->state, buffer,
				 size < FULL_REQUEST ? size : size - 1, pieces);
}

static void consume_unread(struct handle *handle)
{
	store_unread(handle->state);
}

static struct reader *consume_reader(struct handle *handle)
{
	return handle->state;
}

static void consume_close(struct handle *handle)
{
	store_reader_close(handle->state);
	park_forget(handle);
}

/* ---- verbs ------------------------------------------------------------------------------- */

struct verb {
	const char *word;
	enum ack_verb verb;
	bool why;    /* text may follow */
	bool number; /* a number may follow; then it is ACK_TO */
	bool extend;
};

static const struct verb verbs[] = {
	{ "ack", ACK, false, true, false },
	{ "retry", ACK_RETRY, false, false, false },
	{ "fail", ACK_FAIL, true, false, false },
	{ "dlq", ACK_DLQ, true, false, false },
	{ "extend", ACK, false, true, true },
};

#define VERBS "ack, ack <offset>, retry, fail [why], dlq [why], extend <seconds>"

static const struct verb *verb_find(char *line, char **rest)
{
	size_t length = strcspn(line, " \t");

	*rest = line + length + strspn(line + length, " \t");
	line[length] = '\0';
	for (size_t i = 0; i < sizeof(verbs) / sizeof(*verbs); i++)
		if (strcasecmp(verbs[i].word, line) == 0)
			return &verbs[i];
	return NULL;
}

static bool number_parse(const char *text, int64_t *number)
{
	if (!isdigit((unsigned char)*text) || text[strspn(text, "0123456789")] != '\0')
		return false;
	errno = 0;
	*number = strtoll(text, NULL, 10);
	return errno == 0;
}

static ssize_t verb_extend(struct handle *handle, struct call *call, int64_t seconds)
{
	int error;

	if (seconds < 1 || seconds > EXTEND_MAX)
		return why_not(&call->why, -EINVAL, "extend takes 1 to %lld seconds",
			       EXTEND_MAX);
	error = store_extend(handle->state, seconds);
	if (error == -EINVAL)
		return why_not(&call->why, error, "nothing is leased here; read first");
	if (error == -ESTALE)
		return why_not(&call->why, error,
			       "the lease was lost; read on to claim anew");
	return error ? error : (ssize_t)call->size;
}

static ssize_t consume_write(struct handle *handle, struct call *call, const char *data,
			     size_t size, uint64_t owner)
{
	char copy[VERB_MAX + 1], *line = NULL, *rest = NULL;
	const struct verb *verb;
	int64_t number = 0;
	bool numbered;

	(void)owner;
	/* Of a long reason the beginning is kept. */
	if (size > VERB_MAX)
		size = VERB_MAX;
	memcpy(copy, data, size);
	line = text_line(copy, size);
	verb = line ? verb_find(line, &rest) : NULL;
	if (!verb)
		return why_not(&call->why, -EINVAL, "a write here is one of " VERBS);
	numbered = verb->number && number_parse(rest, &number);
	if ((*rest && !verb->why && !numbered) || (verb->extend && !numbered))
		return why_not(&call->why, -EINVAL,
			       "\"%.60s\" does not go with %s; allowed are " VERBS, rest,
			       verb->word);
	if (verb->extend)
		return verb_extend(handle, call, number);
	store_ack(handle->state, numbered ? ACK_TO : verb->verb, number, rest,
		  call_finish, call);
	return PARKED;
}

#define CONSUME_FILE                                                                   \
	.flags = FILE_STREAM | FILE_CONSUMES, .open = consume_open,                    \
	.read_pieces = consume_read, .unread = consume_unread, .write = consume_write, \
	.reader = consume_reader, .close = consume_close

const struct file_ops pop_file = { CONSUME_FILE };
const struct file_ops pop_json_file = { CONSUME_FILE, .reader_flags = READER_JSON };
const struct file_ops follow_file = { CONSUME_FILE, .reader_flags = READER_FOLLOW };
const struct file_ops follow_json_file = {
	CONSUME_FILE,
	.reader_flags = READER_FOLLOW | READER_JSON,
};
