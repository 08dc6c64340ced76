/* SPDX-License-Identifier: MIT */
/*
 * push.c - lines on their way into the queue (section 2).
 *
 * 1. Every line is a message. Its bytes go on with the newline, as `log` will show them.
 * 2. What follows the last newline of a write is the handle's tail. It joins the next
 *    write, and becomes a message when the process that wrote it closes, at release at the
 *    latest. Two handles never mix.
 * 3. All lines of one write request are pushed together or not at all. If the store
 *    refuses them the tail is as it was before, so that the write can be repeated.
 * 4. A message that is too long takes the tail with it, and what the same write(2) still
 *    brings of it is refused as well: no piece of a refused message is stored.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "fs.h"

/* The kernel cuts a long write(2); after a refusal the writer sees a short count and sends
 * the refused request again, from its first byte, and the kernel cuts it as before. Its size
 * and this many bytes tell it from a new one. */
#define REFUSED_KEPT 256

struct push {
	pthread_mutex_t lock; /* all of it; the kernel may flush while another writes */
	char *tail;
	size_t tail_size, tail_room;
	uint64_t tail_owner;
	char refused[REFUSED_KEPT]; /* its beginning */
	size_t refused_size;	    /* of the whole request */
};

/* A write under way: what becomes of the tail when the store has answered. */
struct push_write {
	struct call *call; /* NULL: a tail pushed by release, with path and who instead */
	struct push *push;
	char *rest; /* the new tail; when refused, the old one */
	char *old;
	size_t rest_size, old_size;
	uint64_t owner, old_owner;
	struct mount *mount;
	struct fuse_ctx who;
	char *path;
};

static void push_write_free(struct push_write *write)
{
	free(write->rest);
	free(write->old);
	free(write->path);
	free(write);
}

/* ---- the tail --------------------------------------------------------------------------- */

static int tail_append_locked(struct push *push, const char *data, size_t size,
			      uint64_t owner)
{
	size_t room = push->tail_room ? push->tail_room : 256;
	char *tail;

	if (size == 0)
		return 0;
	while (room < push->tail_size + size)
		room *= 2;
	if (room != push->tail_room) {
		tail = realloc(push->tail, room);
		if (!tail)
			return -ENOMEM;
		push->tail = tail;
		push->tail_room = room;
	}
	memcpy(push->tail + push->tail_size, data, size);
	push->tail_size += size;
	push->tail_owner = owner;
	return 0;
}

static void tail_drop_locked(struct push *push)
{
	free(push->tail);
	push->tail = NULL;
	push->tail_size = push->tail_room = 0;
}

/* Puts back what a refused write had taken; room for it is still there. */
static void tail_set_locked(struct push *push, char **data, size_t size, uint64_t owner)
{
	tail_drop_locked(push);
	push->tail = *data;
	push->tail_size = push->tail_room = size;
	push->tail_owner = owner;
	*data = NULL;
}

/* ---- cutting lines ---------------------------------------------------------------------- */

static size_t count_lines(const char *data, size_t size)
{
	const char *end = data + size;
	size_t count = 0;

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

/* Joins tail and lines into messages; the last one gets its newline if it has none. */
static int cut(const char *tail, size_t tail_size, const char *lines, size_t size,
	       struct messages *messages)
{
	size_t count = count_lines(lines, size), total = tail_size + size;
	bool unfinished = size == 0 || lines[size - 1] != '\n';
	struct messages cut = { .count = (uint32_t)(count + unfinished) };
	char *at, *end;

	cut.data = malloc(total + 1);
	cut.ends = malloc(cut.count * sizeof(*cut.ends));
	if (!cut.data || !cut.ends) {
		messages_free(&cut);
		return -ENOMEM;
	}
	if (tail_size)
		memcpy(cut.data, tail, tail_size);
	if (size)
		memcpy(cut.data + tail_size, lines, size);
	if (unfinished)
		cut.data[total++] = '\n';
	cut.size = total;
	at = cut.data;
	for (uint32_t i = 0; i < cut.count; i++) {
		end = memchr(at, '\n', (size_t)(cut.data + total - at));
		at = end + 1;
		cut.ends[i] = (uint32_t)(at - cut.data);
	}
	*messages = cut;
	return 0;
}

/* Is there a message longer than allowed among tail + data? The unfinished last one counts
 * as soon as it is. */
static bool too_long(size_t tail_size, const char *data, size_t size)
{
	const char *end = data + size, *newline;
	size_t length = tail_size;

	for (; data < end; data = newline + 1, length = 0) {
		newline = memchr(data, '\n', (size_t)(end - data));
		length += (size_t)((newline ? newline : end) - data);
		if (length > STORE_MESSAGE_MAX)
			return true;
		if (!newline)
			break;
	}
	return false;
}

/* ---- writing ---------------------------------------------------------------------------- */

static void write_done(void *arg, const struct store_result *result)
{
	struct push_write *write = arg;
	struct push *push = write->push;

	pthread_mutex_lock(&push->lock);
	if (result->error == 0 && write->rest)
		tail_set_locked(push, &write->rest, write->rest_size, write->owner);
	if (result->error != 0 && write->old)
		tail_set_locked(push, &write->old, write->old_size, write->old_owner);
	pthread_mutex_unlock(&push->lock);
	call_finish(write->call, result);
	push_write_free(write);
}

static void submit(const struct node *node, struct messages *messages, store_done done,
		   struct push_write *write)
{
	store_push(node->place.queue, node->place.partition, messages, done, write);
}

/* Takes the tail and the whole lines of data away from the handle; the rest is set aside
 * until the store has answered. */
static int take_locked(struct push *push, const char *data, size_t size, size_t lines,
		       struct push_write *write, struct messages *messages)
{
	write->rest_size = size - lines;
	if (write->rest_size) {
		write->rest = malloc(write->rest_size);
		if (!write->rest)
			return -ENOMEM;
		memcpy(write->rest, data + lines, write->rest_size);
	}
	if (cut(push->tail, push->tail_size, data, lines, messages))
		return -ENOMEM;
	write->old = push->tail;
	write->old_size = push->tail_size;
	write->old_owner = push->tail_owner;
	push->tail = NULL;
	push->tail_size = push->tail_room = 0;
	return 0;
}

static int refuse_too_long_locked(struct push *push, struct call *call, const char *data,
				  size_t size)
{
	tail_drop_locked(push);
	push->refused_size = size;
	memcpy(push->refused, data, size < REFUSED_KEPT ? size : REFUSED_KEPT);
	return why_not(
		&call->why, -EMSGSIZE,
		"a message is longer than max_message_bytes, which is %u; nothing of it "
		"was stored",
		STORE_MESSAGE_MAX);
}

static bool refused_again_locked(struct push *push, const char *data, size_t size)
{
	size_t kept = size < REFUSED_KEPT ? size : REFUSED_KEPT;

	return push->refused_size == size && size > 0 &&
	       memcmp(push->refused, data, kept) == 0;
}

static ssize_t push_write(struct handle *handle, struct call *call, const char *data,
			  size_t size, uint64_t owner)
{
	struct push *push = handle->state;
	size_t lines = whole_lines(data, size);
	struct push_write *write = NULL;
	struct messages messages;
	int error = 0;

	if (store_dropped(handle->node->place.queue))
		return -ESTALE;
	pthread_mutex_lock(&push->lock);
	if (refused_again_locked(push, data, size) ||
	    too_long(push->tail_size, data, size))
		error = refuse_too_long_locked(push, call, data, size);
	else
		push->refused_size = 0;
	if (!error && lines == 0) {
		error = tail_append_locked(push, data, size, owner);
	} else if (!error) {
		write = calloc(1, sizeof(*write));
		error = write ? take_locked(push, data, size, lines, write, &messages)
			      : -ENOMEM;
	}
	pthread_mutex_unlock(&push->lock);
	if (error || !write) {
		if (write)
			push_write_free(write);
		return error ? error : (ssize_t)size;
	}
	write->call = call;
	write->push = push;
	write->owner = owner;
	submit(handle->node, &messages, write_done, write);
	return PARKED;
}

/* ---- closing ---------------------------------------------------------------------------- */

static int push_flush(struct handle *handle, struct call *call, uint64_t owner)
{
	struct push *push = handle->state;
	struct push_write *write = NULL;
	struct messages messages;
	int error = 0;

	pthread_mutex_lock(&push->lock);
	if (push->tail_size > 0 && push->tail_owner == owner) {
		write = calloc(1, sizeof(*write));
		error = write ? take_locked(push, "", 0, 0, write, &messages) : -ENOMEM;
	}
	pthread_mutex_unlock(&push->lock);
	if (error || !write) {
		if (write)
			push_write_free(write);
		return error;
	}
	write->call = call;
	write->push = push;
	submit(handle->node, &messages, write_done, write);
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

static void push_close(struct handle *handle)
{
	struct push *push = handle->state;
	struct push_write *write;
	struct messages messages;
	char *path;

	if (push->tail_size > 0) {
		path = place_path(&handle->node->place, NULL);
		write = calloc(1, sizeof(*write));
		if (write && take_locked(push, "", 0, 0, write, &messages) == 0) {
			write->mount = handle->node->mount;
			write->who.uid = handle->node->uid;
			write->path = path;
			submit(handle->node, &messages, release_done, write);
		} else {
			errors_add(handle->node->mount,
				   &(struct fuse_ctx){ .uid = handle->node->uid }, path,
				   -ENOMEM, "an unfinished last line was lost");
			free(path);
			if (write)
				push_write_free(write);
		}
	}
	tail_drop_locked(push);
	pthread_mutex_destroy(&push->lock);
	free(push);
}

static int push_open(struct handle *handle, struct call *call)
{
	struct push *push = calloc(1, sizeof(*push));

	(void)call;
	if (!push)
		return -ENOMEM;
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
