/* SPDX-License-Identifier: MIT */
/*
 * park.c - reads that consume: one at a time on a handle, put aside while there is nothing,
 * run again, finished or cancelled; poll(2); and the thread that speaks to the kernel.
 *
 * 1. A handle's reads take turns: the one that has the turn (handle->reading) runs, the
 *    others wait in handle->turns. (On a stream the kernel sends the reads of processes that
 *    share a descriptor all at once.) Whoever answers a read hands the turn on before.
 * 2. A parked read holds no thread. It is registered with the store's store_wait(); whoever
 *    is woken by it, or takes it back by store_wait_cancel(), owns it and answers it.
 * 3. The interrupt callback of libfuse only flags and lists it: answering from there would
 *    free the request under libfuse's feet. The notifier thread does the rest, and asks
 *    again while somebody else owns the read just then.
 * 4. finish(): the callback is taken off first, then the read is unlisted once no cancelling
 *    of it is under way, then the answer goes out. After that the handle may be gone, unless
 *    another read of it has the turn.
 * 5. The kernel is told of poll from the notifier thread only, outside locks.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <time.h>

#include "fs.h"

#define RETRY_NS 2000000 /* a cancelled read that somebody else has in hand */

struct parked {
	fuse_req_t req;
	struct handle *handle;
	size_t size;
	bool once; /* answers EAGAIN */
	/* under park.lock */
	bool fresh;	  /* its callback is not registered yet: not to be answered */
	bool queued;	  /* in handle->turns: not its turn yet */
	bool interrupted; /* in the cancelled list */
	bool cancelling;  /* the notifier is asking for it */
	TAILQ_ENTRY(parked) all, entry, turn;
};

static struct reader *reader_of(struct handle *handle)
{
	return handle->node->place.file->ops->reader(handle);
}

static const struct file_ops *ops_of(const struct handle *handle)
{
	return handle->node->place.file->ops;
}

/* ---- turns ---------------------------------------------------------------------------- */

/* The next read of this handle, which now has the turn, or NULL. */
static struct parked *turn_next_locked(struct handle *handle)
{
	struct parked *next = TAILQ_FIRST(&handle->turns);

	if (next) {
		TAILQ_REMOVE(&handle->turns, next, turn);
		next->queued = false;
	}
	handle->reading = next != NULL;
	return next;
}

/* ---- finishing ------------------------------------------------------------------------ */

/* What a read came to: -errno, or how much, in pieces. */
struct reply {
	ssize_t got;
	struct pieces pieces;
};

static void read_now(struct handle *handle, size_t size, enum thread_buffer which,
		     struct reply *reply)
{
	char *buffer = thread_buffer(size, which);

	reply->pieces.count = reply->pieces.held_count = 0;
	reply->got =
		buffer ? ops_of(handle)->read_pieces(handle, buffer, size, &reply->pieces)
		       : -ENOMEM;
}

static void answer(fuse_req_t req, struct handle *handle, struct reply *reply)
{
	struct store *store = handle->node->mount->store;

	if (reply->got < 0)
		refuse(req, handle->node, NULL, (int)reply->got, "");
	else if (fuse_reply_iov(req, reply->pieces.iov, reply->pieces.count) != 0 &&
		 ops_of(handle)->unread)
		ops_of(handle)->unread(handle);
	store_pieces_put(store, &reply->pieces);
}

static void unlist_locked(struct park *park, struct parked *parked)
{
	while (parked->cancelling)
		pthread_cond_wait(&park->calm, &park->lock);
	if (parked->interrupted)
		TAILQ_REMOVE(&park->cancelled, parked, entry);
	TAILQ_REMOVE(&park->all, parked, all);
}

/* By its owner, once: answers. If it had the turn, the read
 * that has it now is the caller's to run. */
static struct parked *finish(struct parked *parked, struct reply *reply, bool turn)
{
	struct handle *handle = parked->handle;
	struct park *park = &handle->node->mount->park;
	struct parked *next = NULL;
	fuse_req_t req = parked->req;

	pthread_mutex_lock(&park->lock);
	while (parked->fresh)
		pthread_cond_wait(&park->calm, &park->lock);
	pthread_mutex_unlock(&park->lock);
	fuse_req_interrupt_func(req, NULL, NULL);
	pthread_mutex_lock(&park->lock);
	unlist_locked(park, parked);
	if (turn)
		next = turn_next_locked(handle);
	pthread_mutex_unlock(&park->lock);
	free(parked);
	answer(req, handle, reply);
	return next;
}

/* ---- running --------------------------------------------------------------------------- */

static void run(struct parked *parked, enum thread_buffer which);

static void woken(void *arg)
{
	run(arg, BUFFER_WOKEN);
}

/* Runs a read that has the turn, and those that get it afterwards, until one waits. Once it
 * is registered with the store, whoever wakes it may have freed it. */
static void run(struct parked *parked, enum thread_buffer which)
{
	while (parked) {
		struct handle *handle = parked->handle;
		struct reply reply;
		read_now(handle, parked->size, which, &reply);
		if (reply.got == -EALREADY || (reply.got == -EAGAIN && !parked->once)) {
			if (store_wait(reader_of(handle), woken, parked) == 0)
				return;
		} else {
			parked = finish(parked, &reply, true);
		}
	}
}

static void interrupted(fuse_req_t req, void *arg)
{
	struct parked *parked = arg;
	struct park *park = &parked->handle->node->mount->park;

	(void)req;
	pthread_mutex_lock(&park->lock);
	if (!parked->interrupted) {
		parked->interrupted = true;
		TAILQ_INSERT_TAIL(&park->cancelled, parked, entry);
		pthread_cond_signal(&park->news);
	}
	pthread_mutex_unlock(&park->lock);
}

/* NULL: ENOMEM. */
static struct parked *put_aside_locked(struct park *park, fuse_req_t req,
				       struct handle *handle, size_t size, bool once)
{
	struct parked *parked = calloc(1, sizeof(*parked));

	if (!parked)
		return NULL;
	*parked = (struct parked){
		.req = req, .handle = handle, .size = size, .once = once
	};
	TAILQ_INSERT_TAIL(&park->all, parked, all);
	return parked;
}

/* False: it has the turn. True: it waits for it, or has been refused. */
static bool queue_up(fuse_req_t req, struct handle *handle, size_t size, bool once)
{
	struct park *park = &handle->node->mount->park;
	struct parked *parked = NULL;

	pthread_mutex_lock(&park->lock);
	if (!handle->reading) {
		handle->reading = true;
		pthread_mutex_unlock(&park->lock);
		return false;
	}
	if (!once)
		parked = put_aside_locked(park, req, handle, size, once);
	if (parked) {
		parked->queued = parked->fresh = true;
		TAILQ_INSERT_TAIL(&handle->turns, parked, turn);
		pthread_mutex_unlock(&park->lock);
		fuse_req_interrupt_func(req, interrupted, parked);
		pthread_mutex_lock(&park->lock);
		parked->fresh = false;
		pthread_cond_broadcast(&park->calm);
	}
	pthread_mutex_unlock(&park->lock);
	if (parked)
		return true;
	refuse(req, handle->node, NULL, once ? -EAGAIN : -ENOMEM, "");
	return true;
}

void park_read(fuse_req_t req, struct handle *handle, size_t size, bool once)
{
	struct park *park = &handle->node->mount->park;
	struct parked *parked;
	struct reply reply;

	if (queue_up(req, handle, size, once))
		return;
	read_now(handle, size, BUFFER_OWN, &reply);
	pthread_mutex_lock(&park->lock);
	if (reply.got == -EALREADY || (reply.got == -EAGAIN && !once)) {
		parked = put_aside_locked(park, req, handle, size, once);
		if (parked) {
			pthread_mutex_unlock(&park->lock);
			fuse_req_interrupt_func(req, interrupted, parked);
			run(parked, BUFFER_OWN);
			return;
		}
		reply.got = -ENOMEM;
	}
	parked = turn_next_locked(handle);
	pthread_mutex_unlock(&park->lock);
	answer(req, handle, &reply);
	run(parked, BUFFER_OWN);
}

/* ---- poll ----------------------------------------------------------------------------- */

/* Called by the store under its own lock: notes it, no more. */
static void watched(void *arg)
{
	struct handle *handle = arg;
	struct park *park = &handle->node->mount->park;

	pthread_mutex_lock(&park->lock);
	if (handle->poll && !handle->notify) {
		handle->notify = true;
		TAILQ_INSERT_TAIL(&park->notify, handle, notify_entry);
		pthread_cond_signal(&park->news);
	}
	pthread_mutex_unlock(&park->lock);
}

static struct fuse_pollhandle *poll_swap(struct handle *handle,
					 struct fuse_pollhandle *ph)
{
	struct park *park = &handle->node->mount->park;
	struct fuse_pollhandle *old;

	pthread_mutex_lock(&park->lock);
	old = handle->poll;
	handle->poll = ph;
	if (handle->notify)
		TAILQ_REMOVE(&park->notify, handle, notify_entry);
	handle->notify = false;
	pthread_mutex_unlock(&park->lock);
	return old;
}

static void poll_free(struct fuse_pollhandle *ph)
{
	if (ph)
		fuse_pollhandle_destroy(ph);
}

bool park_poll(struct handle *handle, struct fuse_pollhandle *ph)
{
	bool readable;

	poll_free(poll_swap(handle, ph));
	readable = store_readable(reader_of(handle), ph ? watched : NULL, handle);
	if (readable)
		poll_free(poll_swap(handle, NULL));
	return readable;
}

void park_forget(struct handle *handle)
{
	poll_free(poll_swap(handle, NULL));
}

/* ---- the notifier thread ---------------------------------------------------------------- */

/* These are called with the lock, and give it up meanwhile. */
static void notify_one(struct park *park)
{
	struct handle *handle = TAILQ_FIRST(&park->notify);
	struct fuse_pollhandle *ph = handle->poll;

	TAILQ_REMOVE(&park->notify, handle, notify_entry);
	handle->notify = false;
	handle->poll = NULL;
	pthread_mutex_unlock(&park->lock);
	fuse_lowlevel_notify_poll(ph);
	fuse_pollhandle_destroy(ph);
	pthread_mutex_lock(&park->lock);
}

/* False if somebody else owns it just now. */
static bool cancel_one(struct park *park, struct parked *parked, int error)
{
	struct reader *reader = reader_of(parked->handle);
	struct parked *next;
	bool ours;

	if (parked->queued) {
		TAILQ_REMOVE(&parked->handle->turns, parked, turn);
		parked->queued = false;
		pthread_mutex_unlock(&park->lock);
		finish(parked, &(struct reply){ .got = error }, false);
		pthread_mutex_lock(&park->lock);
		return true;
	}
	parked->cancelling = true;
	pthread_mutex_unlock(&park->lock);
	ours = store_wait_cancel(reader);
	pthread_mutex_lock(&park->lock);
	parked->cancelling = false;
	pthread_cond_broadcast(&park->calm);
	if (ours) {
		pthread_mutex_unlock(&park->lock);
		next = finish(parked, &(struct reply){ .got = error }, true);
		run(next, BUFFER_OWN);
		pthread_mutex_lock(&park->lock);
	}
	return ours;
}

static void wait_a_little(struct park *park)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += RETRY_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_clockwait(&park->news, &park->lock, CLOCK_MONOTONIC, &until);
}

static void errand_run(struct park *park)
{
	struct errand *errand = TAILQ_FIRST(&park->errands);

	TAILQ_REMOVE(&park->errands, errand, entry);
	pthread_mutex_unlock(&park->lock);
	errand->run(errand);
	pthread_mutex_lock(&park->lock);
}

void park_errand(struct mount *mount, struct errand *errand)
{
	struct park *park = &mount->park;
	bool ours;

	pthread_mutex_lock(&park->lock);
	ours = park->stopping; /* the mount ends: nobody else will */
	if (!ours) {
		TAILQ_INSERT_TAIL(&park->errands, errand, entry);
		pthread_cond_signal(&park->news);
	}
	pthread_mutex_unlock(&park->lock);
	if (ours)
		errand->run(errand);
}

static void *notifier_main(void *arg)
{
	struct park *park = arg;

	pthread_mutex_lock(&park->lock);
	while (!park->stopping) {
		if (!TAILQ_EMPTY(&park->notify))
			notify_one(park);
		else if (!TAILQ_EMPTY(&park->errands))
			errand_run(park);
		else if (TAILQ_EMPTY(&park->cancelled))
			pthread_cond_wait(&park->news, &park->lock);
		else if (!cancel_one(park, TAILQ_FIRST(&park->cancelled), -EINTR))
			wait_a_little(park);
	}
	pthread_mutex_unlock(&park->lock);
	return NULL;
}

/* ---- begin and end ---------------------------------------------------------------------- */

int park_begin(struct mount *mount)
{
	struct park *park = &mount->park;

	TAILQ_INIT(&park->all);
	TAILQ_INIT(&park->cancelled);
	TAILQ_INIT(&park->notify);
	TAILQ_INIT(&park->errands);
	pthread_mutex_init(&park->lock, NULL);
	pthread_cond_init(&park->news, NULL);
	pthread_cond_init(&park->calm, NULL);
	return thread_start(&park->notifier, notifier_main, park);
}

void park_end(struct mount *mount)
{
	struct park *park = &mount->park;

	if (!park->notifier.running)
		return;
	pthread_mutex_lock(&park->lock);
	park->stopping = true;
	pthread_cond_signal(&park->news);
	pthread_mutex_unlock(&park->lock);
	thread_join(&park->notifier);
	pthread_mutex_lock(&park->lock);
	while (!TAILQ_EMPTY(&park->errands))
		errand_run(park);
	while (!TAILQ_EMPTY(&park->all))
		if (!cancel_one(park, TAILQ_FIRST(&park->all), -ENOTCONN))
			wait_a_little(park);
	pthread_mutex_unlock(&park->lock);
}
