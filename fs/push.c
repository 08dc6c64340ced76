/* SPDX-License-Identifier: MIT */
/*
 * push.c - push and push.json: bytes on their way into the queue (section 2).
 *
 * 1. Line framing: every line is a message; its bytes go on with the newline, as `log` will
 *    show them. Of push.json every line is an object, whatever the framing. What follows
 *    the last newline of a write is the handle's tail. It joins the next write, and counts
 *    when the process that wrote it closes, at release at the latest.
 * 2. File framing: all that one process writes up to its first close is a tail of its own,
 *    and then one message.
 * 3. Two handles never mix. All lines of one write request are pushed together or not at
 *    all. If the store has no room for them the tail is as it was before, so that the write
 *    can be repeated.
 * 4. A message that is too long or no JSON takes the tail with it, and what the same
 *    write(2) still brings of it is refused as well: no piece of a refused message is
 *    stored.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "fs.h"

/* The kernel cuts a long write(2); after a refusal the writer sees a short count and sends
 * the refused request again, from its first byte, and the kernel cuts it as before. Its size
 * and this many bytes tell it from a new one. */
#define REFUSED_KEPT 256

/* A line of push.json is longer than its message: each byte may be written as \u00xx. */
#define JSON_LINE_MAX(message_max) ((size_t)(message_max)*6 + 65536)

struct tail {
	uint64_t owner; /* who wrote it last */
	char *data;
	size_t size, room;
	bool refused; /* file framing: it was too long, until its writer closes */
	struct tail *next;
};

struct push {
	pthread_mutex_t lock; /* all of it; the kernel may flush while another writes */
	struct tail *tails;   /* of line framing and push.json one, else one a process */
	char refused[REFUSED_KEPT]; /* its beginning */
	size_t refused_size;	    /* of the whole request */
	/* push.json */
	bool json;
	uint64_t lines;	      /* pushed or on their way */
	struct text verdicts; /* of the last write */
	size_t verdicts_at;   /* read up to here */
};

/* A write under way: what becomes of the tail when the store has answered. */
struct push_write {
	struct call *call; /* NULL: a tail pushed by release, with path and who instead */
	struct push *push;
	char *text; /* what is pushed */
	size_t size;
	uint64_t lines, first_line;
	char *rest, *old; /* the new tail; when refused, the old one */
	size_t rest_size, old_size;
	uint64_t owner, old_owner;
	struct mount *mount;
	struct fuse_ctx who;
	char *path;
};

static void push_write_free(struct push_write *write)
{
	free(write->text);
	free(write->rest);
	free(write->old);
	free(write->path);
	free(write);
}

/* ---- tails ------------------------------------------------------------------------------- */

/* The tail of this owner, or with any the only one; NULL: there is none. */
static struct tail *tail_find_locked(struct push *push, uint64_t owner, bool any)
{
	struct tail *tail = push->tails;

	while (tail && !any && tail->owner != owner)
		tail = tail->next;
	return tail;
}

static struct tail *tail_make_locked(struct push *push, uint64_t owner, bool any)
{
	struct tail *tail = tail_find_locked(push, owner, any);

	if (tail)
		return tail;
	tail = calloc(1, sizeof(*tail));
	if (!tail)
		return NULL;
	tail->owner = owner;
	tail->next = push->tails;
	push->tails = tail;
	return tail;
}

static void tail_free_locked(struct push *push, struct tail *tail)
{
	struct tail **at = &push->tails;

	if (!tail)
		return;
	while (*at != tail)
		at = &(*at)->next;
	*at = tail->next;
	free(tail->data);
	free(tail);
}

static int tail_room(struct tail *tail, size_t more)
{
	size_t room = tail->room ? tail->room : 256;
	char *data;

	while (room < tail->size + more)
		room *= 2;
	if (room == tail->room)
		return 0;
	data = realloc(tail->data, room);
	if (!data)
		return -ENOMEM;
	tail->data = data;
	tail->room = room;
	return 0;
}

enum tail_end { TAIL_FRONT, TAIL_BACK }; /* before all that it has got since; after it */

static int tail_add_locked(struct push *push, enum tail_end end, const char *data,
			   size_t size, uint64_t owner, bool any)
{
	struct tail *tail;

	if (size == 0)
		return 0;
	tail = tail_make_locked(push, owner, any);
	if (!tail || tail_room(tail, size))
		return -ENOMEM;
	if (end == TAIL_FRONT)
		memmove(tail->data + size, tail->data, tail->size);
	memcpy(end == TAIL_FRONT ? tail->data : tail->data + tail->size, data, size);
	tail->size += size;
	if (end == TAIL_BACK)
		tail->owner = owner;
	return 0;
}

/* ---- lines ------------------------------------------------------------------------------- */

static uint32_t count_lines(const char *data, size_t size)
{
	const char *end = data + size;
	uint32_t count = 0;

	while ((data = memchr(data, '\n', (size_t)(end - data)))) {
		data++;
		count++;
	}
	return count;
}

/* The bytes up to and with the last newline. */
static size_t whole_lines(const char *data, size_t size)
{
	const char *last = memrchr(data, '\n', size);

	return last ? (size_t)(last - data) + 1 : 0;
}

/* Is there a line longer than allowed among tail + data? The unfinished last one counts as
 * soon as it is. */
static bool too_long(size_t tail_size, const char *data, size_t size, size_t most)
{
	const char *end = data + size, *newline;
	size_t length = tail_size;

	for (; data < end; data = newline + 1, length = 0) {
		newline = memchr(data, '\n', (size_t)(end - data));
		length += (size_t)((newline ? newline : end) - data);
		if (length > most)
			return true;
		if (!newline)
			break;
	}
	return false;
}

/* Where each line ends, or the one message of file framing. Takes the text. */
static int messages_of(struct push_write *write, bool lines, struct messages *messages)
{
	uint32_t count = lines ? (uint32_t)write->lines : 1;
	struct messages cut = { .size = write->size, .count = count, .lines = lines };
	const char *at = write->text, *end = at + write->size;

	cut.ends = malloc(count * sizeof(*cut.ends));
	if (!cut.ends)
		return -ENOMEM;
	for (uint32_t i = 0; lines && i < count; i++) {
		at = (const char *)memchr(at, '\n', (size_t)(end - at)) + 1;
		cut.ends[i] = (uint32_t)(at - write->text);
	}
	if (!lines)
		cut.ends[0] = (uint32_t)write->size;
	cut.data = write->text;
	write->text = NULL;
	*messages = cut;
	return 0;
}

/* ---- verdicts ---------------------------------------------------------------------------- */

static void verdicts_set_locked(struct push *push, const struct store_result *result)
{
	FILE *out;

	free(push->verdicts.data);
	push->verdicts = (struct text){ 0 };
	push->verdicts_at = 0;
	if (result->error || !result->verdicts)
		return;
	out = open_memstream(&push->verdicts.data, &push->verdicts.size);
	for (size_t i = 0; out && i < result->verdict_count; i++)
		fprintf(out, "{\"offset\":%lld,\"status\":\"%s\"}\n",
			(long long)result->verdicts[i].offset,
			result->verdicts[i].duplicate ? "duplicate" : "queued");
	if (out)
		fclose(out);
}

static ssize_t push_read(struct handle *handle, char *buffer, size_t size, off_t offset)
{
	struct push *push = handle->state;
	ssize_t got;

	(void)offset;
	pthread_mutex_lock(&push->lock);
	got = text_copy(&push->verdicts, buffer, size, (off_t)push->verdicts_at);
	push->verdicts_at += (size_t)got;
	pthread_mutex_unlock(&push->lock);
	return got;
}

/* ---- pushing ----------------------------------------------------------------------------- */

/* Takes the tail away from the handle, and the first `whole` bytes of data with it; the rest
 * is set aside until the store has answered. */
static int take_locked(struct push *push, struct tail *tail, const char *data,
		       size_t size, size_t whole, struct push_write *write)
{
	size_t tail_size = tail ? tail->size : 0;

	write->push = push;
	write->size = tail_size + whole;
	write->text = malloc(write->size + 1);
	write->rest_size = size - whole;
	if (write->rest_size)
		write->rest = malloc(write->rest_size);
	if (!write->text || (write->rest_size && !write->rest))
		return -ENOMEM;
	if (tail_size)
		memcpy(write->text, tail->data, tail_size);
	if (whole)
		memcpy(write->text + tail_size, data, whole);
	if (write->rest_size)
		memcpy(write->rest, data + whole, write->rest_size);
	if (tail) {
		write->old = tail->data;
		write->old_size = tail_size;
		write->old_owner = tail->owner;
		tail->data = NULL;
		tail_free_locked(push, tail);
	}
	return 0;
}

/* Its last line gets its newline, and all are counted. */
static void lines_take_locked(struct push *push, struct push_write *write)
{
	if (write->size == 0 || write->text[write->size - 1] != '\n')
		write->text[write->size++] = '\n';
	write->lines = count_lines(write->text, write->size);
	write->first_line = push->lines + 1;
	push->lines += write->lines;
}

static void submit(const struct handle *handle, struct push_write *write, bool lines,
		   store_done done)
{
	const struct place *place = &handle->node->place;
	struct store_result result = { .error = -ENOMEM, .why = "" };
	struct messages messages;

	if (write->push->json)
		store_push_json(place->queue, place->partition, write->text, write->size,
				write->first_line, (handle->flags & O_ACCMODE) == O_RDWR,
				done, write);
	else if (messages_of(write, lines, &messages) == 0)
		store_push(place->queue, place->partition, &messages, done, write);
	else
		done(write, &result);
}

static void write_done(void *arg, const struct store_result *result)
{
	struct push_write *write = arg;
	struct push *push = write->push;
	bool bad = result->error == -EINVAL || result->error == -EMSGSIZE;
	bool any = write->lines > 0;

	pthread_mutex_lock(&push->lock);
	if (result->error == 0)
		tail_add_locked(push, TAIL_FRONT, write->rest, write->rest_size,
				write->owner, any);
	else if (!bad)
		tail_add_locked(push, TAIL_FRONT, write->old, write->old_size,
				write->old_owner, any);
	if (result->error)
		push->lines -= write->lines;
	verdicts_set_locked(push, result);
	pthread_mutex_unlock(&push->lock);
	call_finish(write->call, result);
	push_write_free(write);
}

static int refuse_too_long_locked(struct push *push, struct call *call, const char *data,
				  size_t size, uint32_t most)
{
	push->refused_size = size;
	memcpy(push->refused, data, size < REFUSED_KEPT ? size : REFUSED_KEPT);
	return why_not(
		&call->why, -EMSGSIZE,
		"a message is longer than max_message_bytes, which is %u; nothing of it "
		"was stored",
		most);
}

static bool refused_again_locked(struct push *push, const char *data, size_t size)
{
	size_t kept = size < REFUSED_KEPT ? size : REFUSED_KEPT;

	return push->refused_size == size && size > 0 &&
	       memcmp(push->refused, data, kept) == 0;
}

/* Lines: those that are whole go, the rest stays as the tail. */
static int lines_write_locked(struct push *push, struct call *call, const char *data,
			      size_t size, uint64_t owner, uint32_t most,
			      struct push_write *write)
{
	struct tail *tail = tail_find_locked(push, owner, true);
	size_t whole = whole_lines(data, size);
	size_t line_max = push->json ? JSON_LINE_MAX(most) : most;
	bool again;
	int error;

	again = refused_again_locked(push, data, size);
	if (again || too_long(tail ? tail->size : 0, data, size, line_max)) {
		tail_free_locked(push, tail);
		error = refuse_too_long_locked(push, call, data, size, most);
		if (again)
			push->refused_size = 0; /* who comes back after that means it */
		return error;
	}
	push->refused_size = 0;
	if (whole == 0)
		return tail_add_locked(push, TAIL_BACK, data, size, owner, true);
	error = take_locked(push, tail, data, size, whole, write);
	if (!error)
		lines_take_locked(push, write);
	return error;
}

/* File framing: all of it waits for the close. */
static int file_write_locked(struct push *push, struct call *call, const char *data,
			     size_t size, uint64_t owner, uint32_t most)
{
	struct tail *tail = tail_make_locked(push, owner, false);

	if (!tail)
		return -ENOMEM;
	if (tail->refused || tail->size + size > most) {
		free(tail->data);
		*tail = (struct tail){ .owner = owner,
				       .refused = true,
				       .next = tail->next };
		return refuse_too_long_locked(push, call, data, size, most);
	}
	return tail_add_locked(push, TAIL_BACK, data, size, owner, false);
}

static ssize_t push_write(struct handle *handle, struct call *call, const char *data,
			  size_t size, uint64_t owner)
{
	struct push *push = handle->state;
	struct push_write *write = calloc(1, sizeof(*write));
	struct message_rules rules;
	int error;

	if (!write)
		return -ENOMEM;
	if (store_dropped(handle->node->place.queue)) {
		push_write_free(write);
		return -ESTALE;
	}
	store_message_rules(handle->node->place.queue, &rules);
	pthread_mutex_lock(&push->lock);
	if (rules.lines || push->json)
		error = lines_write_locked(push, call, data, size, owner,
					   rules.message_max, write);
	else
		error = file_write_locked(push, call, data, size, owner,
					  rules.message_max);
	pthread_mutex_unlock(&push->lock);
	if (error || !write->text) {
		push_write_free(write);
		return error ? error : (ssize_t)size;
	}
	write->call = call;
	write->owner = owner;
	submit(handle, write, true, write_done);
	return PARKED;
}

/* ---- closing ---------------------------------------------------------------------------- */

/* Takes a tail whose writer has closed. */
static int tail_end_locked(struct push *push, struct tail *tail, bool lines,
			   struct push_write *write)
{
	int error = take_locked(push, tail, "", 0, 0, write);

	if (!error && lines)
		lines_take_locked(push, write);
	return error;
}

static int push_flush(struct handle *handle, struct call *call, uint64_t owner)
{
	struct push *push = handle->state;
	struct push_write *write = NULL;
	struct message_rules rules;
	struct tail *tail;
	int error = 0;

	store_message_rules(handle->node->place.queue, &rules);
	pthread_mutex_lock(&push->lock);
	tail = tail_find_locked(push, owner, false);
	if (tail && tail->refused) {
		tail_free_locked(push, tail);
		error = why_not(
			&call->why, -EMSGSIZE,
			"it was longer than max_message_bytes, which is %u; nothing "
			"of it was stored",
			rules.message_max);
	} else if (tail) {
		write = calloc(1, sizeof(*write));
		error = write ? tail_end_locked(push, tail, rules.lines || push->json,
						write)
			      : -ENOMEM;
	}
	pthread_mutex_unlock(&push->lock);
	if (error || !write) {
		if (write)
			push_write_free(write);
		return error;
	}
	write->call = call;
	submit(handle, write, rules.lines, write_done);
	return PARKED;
}

/* Nobody is left to be told but the errors file. */
static void release_done(void *arg, const struct store_result *result)
{
	struct push_write *write = arg;

	if (result->error)
		errors_add(write->mount, &write->who, write->path, result->error,
			   result->why);
	push_write_free(write);
}

static void tail_release(struct handle *handle, struct push *push, bool lines)
{
	struct push_write *write = calloc(1, sizeof(*write));
	char *path = place_path(&handle->node->place, NULL);

	if (write &&
	    tail_end_locked(push, push->tails, lines || push->json, write) == 0) {
		write->mount = handle->node->mount;
		write->who.uid = handle->node->uid;
		write->path = path;
		submit(handle, write, lines, release_done);
		return;
	}
	errors_add(handle->node->mount, &(struct fuse_ctx){ .uid = handle->node->uid },
		   path, -ENOMEM, "what had been written last was lost");
	free(path);
	if (write)
		push_write_free(write);
	tail_free_locked(push, push->tails);
}

static void push_close(struct handle *handle)
{
	struct push *push = handle->state;
	struct message_rules rules;

	store_message_rules(handle->node->place.queue, &rules);
	while (push->tails) {
		if (push->tails->refused)
			tail_free_locked(push, push->tails);
		else
			tail_release(handle, push, rules.lines);
	}
	free(push->verdicts.data);
	pthread_mutex_destroy(&push->lock);
	free(push);
}

static int push_open(struct handle *handle, struct call *call)
{
	bool json = handle->node->place.file->ops == &push_json_file;
	struct push *push;

	if ((handle->flags & O_ACCMODE) == O_RDONLY)
		return why_not(&call->why, -EACCES,
			       "what can be read here is what became of the last write; "
			       "open it read-write, as in exec 3<>push.json");
	push = calloc(1, sizeof(*push));
	if (!push)
		return -ENOMEM;
	push->json = json;
	pthread_mutex_init(&push->lock, NULL);
	handle->state = push;
	return 0;
}

/* mv of a dead letter: onto the queue's push to its own partition, onto a partition's push
 * to that one. */
static int push_take(struct call *call, const struct place *target,
		     const struct place *letter)
{
	if (target->queue != letter->queue)
		return why_not(&call->why, -EXDEV,
			       "a dead letter goes back to its own queue only");
	store_letter_push(letter->group, letter->letter->info.id, target->partition,
			  call_finish, call);
	return PARKED;
}

const struct file_ops push_file = {
	.flags = FILE_STREAM,
	.open = push_open,
	.write = push_write,
	.flush = push_flush,
	.close = push_close,
	.take = push_take,
};

const struct file_ops push_json_file = {
	.flags = FILE_STREAM,
	.open = push_open,
	.read = push_read,
	.write = push_write,
	.flush = push_flush,
	.close = push_close,
};
