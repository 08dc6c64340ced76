/* SPDX-License-Identifier: MIT */
/*
 * park.c - reads that wait: put aside, run again, finished or cancelled; and poll(2).
 *
 * 1. A parked read holds no thread. It is registered with the store's store_wait(); whoever
 *    is woken by it, or takes it back by store_wait_cancel(), owns it and answers it.
 * 2. The interrupt callback of libfuse only flags and lists it: answering from there would
 *    free the request under libfuse's feet. The notifier thread does the rest, and asks
 *    again while somebody else owns the read just then.
 * 3. finish(): the callback is taken off first, then the read is unlisted once no cancelling
 *    of it is under way, then the answer goes out. After that the handle may be gone.
 * 4. The kernel is told of poll from the notifier thread only, outside locks.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#include "fs.h"

#define RETRY_NS 2000000 /* a cancelled read that somebody else has in hand */

struct parked {
	fuse_req_t req;
	struct handle *handle;
	size_t size;
	/* under park.lock */
	bool interrupted; /* in the cancelled list */
	bool cancelling;  /* the notifier is asking for it */
	TAILQ_ENTRY(parked) all, entry;
};

static struct reader *reader_of(struct handle *handle)
{
	return handle->node->place.file->ops->reader(handle);
}

/* ---- finishing ----------------------------------------------------------------------- */

static void unlist_locked(struct park *park, struct parked *parked)
{
	while (parked->cancelling)
		pthread_cond_wait(&park->calm, &park->lock);
	if (parked->interrupted)
		TAILQ_REMOVE(&park->cancelled, parked, entry);
	TAILQ_REMOVE(&park->all, parked, all);
}

/* By its owner, once: answers got bytes of buffer, or -errno. */
static void finish(struct parked *parked, const char *buffer, ssize_t got)
{
	struct handle *handle = parked->handle;
	struct node *node = handle->node;
	struct park *park = &node->mount->park;
	fuse_req_t req = parked->req;

	fuse_req_interrupt_func(req, NULL, NULL);
	pthread_mutex_lock(&park->lock);
	unlist_locked(park, parked);
	pthread_mutex_unlock(&park->lock);
	free(parked);
	if (got < 0)
		refuse(req, node, NULL, (int)got, "");
	else if (fuse_reply_buf(req, buffer, (size_t)got) != 0 &&
		 node->place.file->ops->unread)
		node->place.file->ops->unread(handle);
}

/* ---- running it again ----------------------------------------------------------------- */

static void go(struct parked *parked, enum thread_buffer which);

static bool try_read(struct parked *parked, enum thread_buffer which)
{
	char *buffer = thread_buffer(parked->size, which);
	ssize_t got = buffer ? parked->handle->node->place.file->ops->read(
				       parked->handle, buffer, parked->size, 0)
			     : -ENOMEM;

	if (got == -EAGAIN)
		return false;
	finish(parked, buffer, got);
	return true;
}

static void woken(void *arg)
{
	struct parked *parked = arg;

	if (!try_read(parked, BUFFER_WOKEN))
		go(parked, BUFFER_WOKEN);
}

/* Waits on. Once it is registered, whoever wakes it may have freed it. */
static void go(struct parked *parked, enum thread_buffer which)
{
	struct reader *reader = reader_of(parked->handle);

	while (store_wait(reader, woken, parked) != 0)
		if (try_read(parked, which))
			return;
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

void park_read(fuse_req_t req, struct handle *handle, size_t size)
{
	struct park *park = &handle->node->mount->park;
	struct parked *parked = calloc(1, sizeof(*parked));

	if (!parked) {
		refuse(req, handle->node, NULL, -ENOMEM, "");
		return;
	}
	parked->req = req;
	parked->handle = handle;
	parked->size = size;
	pthread_mutex_lock(&park->lock);
	TAILQ_INSERT_TAIL(&park->all, parked, all);
	pthread_mutex_unlock(&park->lock);
	fuse_req_interrupt_func(req, interrupted, parked);
	go(parked, BUFFER_OWN);
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

/* Both are called with the lock, and give it up meanwhile. */
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
	bool ours;

	parked->cancelling = true;
	pthread_mutex_unlock(&park->lock);
	ours = store_wait_cancel(reader);
	pthread_mutex_lock(&park->lock);
	parked->cancelling = false;
	pthread_cond_broadcast(&park->calm);
	if (ours) {
		pthread_mutex_unlock(&park->lock);
		finish(parked, NULL, error);
		pthread_mutex_lock(&park->lock);
	}
	return ours;
}

static void wait_a_little(struct park *park)
{
	struct timespec until;

	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_nsec += RETRY_NS;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_cond_timedwait(&park->news, &park->lock, &until);
}

static void *notifier_main(void *arg)
{
	struct park *park = arg;

	pthread_mutex_lock(&park->lock);
	while (!park->stopping) {
		if (!TAILQ_EMPTY(&park->notify))
			notify_one(park);
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
	sigset_t all, before;
	int error;

	TAILQ_INIT(&park->all);
	TAILQ_INIT(&park->cancelled);
	TAILQ_INIT(&park->notify);
	pthread_mutex_init(&park->lock, NULL);
	pthread_cond_init(&park->news, NULL);
	pthread_cond_init(&park->calm, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&park->notifier, NULL, notifier_main, park);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	park->running = error == 0;
	return -error;
}

void park_end(struct mount *mount)
{
	struct park *park = &mount->park;

	if (!park->running)
		return;
	pthread_mutex_lock(&park->lock);
	park->stopping = true;
	pthread_cond_signal(&park->news);
	pthread_mutex_unlock(&park->lock);
	pthread_join(park->notifier, NULL);
	park->running = false;
	pthread_mutex_lock(&park->lock);
	while (!TAILQ_EMPTY(&park->all))
		if (!cancel_one(park, TAILQ_FIRST(&park->all), -ENOTCONN))
			wait_a_little(park);
	pthread_mutex_unlock(&park->lock);
}
