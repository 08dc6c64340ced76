/* SPDX-License-Identifier: MIT */
/* thread.h - threads of the daemon's own: no signal is for them. */
#ifndef THREAD_H
#define THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>

struct thread {
	pthread_t id;
	bool running;
};

/* 0 or -errno. */
static inline int thread_start(struct thread *thread, void *(*main)(void *), void *arg)
{
	sigset_t all, before;
	int error;

	sigfillset(&all); /* signals are for the thread that runs the mount */
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread->id, NULL, main, arg);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	thread->running = error == 0;
	return -error;
}

/* If it was started. */
static inline void thread_join(struct thread *thread)
{
	if (thread->running)
		pthread_join(thread->id, NULL);
	thread->running = false;
}

#endif
