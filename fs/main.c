/* SPDX-License-Identifier: MIT */
/*
 * main.c - start, background and orderly end of the daemon (section 13).
 *
 * 1. What can be refused without touching the store is refused before the fork.
 * 2. The store is opened after the fork: its lock belongs to the process, and a fork
 *    carries no threads along.
 * 3. The child keeps its stderr until it is mounted, so that a failure reads the same with
 *    and without -f; the parent only passes on how the child came out.
 * 4. serve_end() takes down whatever serve_begin() built up, however far it came.
 */
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "config.h"
#include "fs.h"
#include "mountpoint.h"
#include "notify.h"
#include "options.h"
#include "privileges.h"
#include "say.h"
#include "store.h"

#define STATUS_USAGE 2

/*
 * Threads that take requests. They never wait but for the commit they carry out themselves,
 * so a few are enough; measured on two cores, more of them lower the throughput.
 */
#define LOOP_THREADS 3

/* How long a start waits for the lock of a store whose daemon was just unmounted and is
 * still writing its last commit. */
#define LOCK_WAIT_MS 2000
#define LOCK_RETRY_MS 50

struct start {
	struct options options;
	struct config config;
	const char *store_path;
	char *mountpoint;
	struct fuse_args words; /* what fuse_session_new() gets */
};

/* ---- before the fork ------------------------------------------------------------ */

/* What whoever started us may have left in a state that we cannot live with. */
static void surroundings_mend(void)
{
	int fd;

	/* A text for stderr must not end up in a file of ours that got its number. */
	do {
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
	signal(SIGCHLD, SIG_DFL); /* ignored, it would hide how children end */
	signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error of one commit */
}

/*
 * The first touch of a fresh page costs far more than copying into it, and glibc would take
 * each large buffer from the kernel and give it back. So freed memory is kept and used
 * again, and two arenas keep it together. (glibc takes no mmap threshold above 32 MiB.)
 */
static void memory_tune(void)
{
	mallopt(M_MMAP_THRESHOLD, 32 << 20);
	mallopt(M_TRIM_THRESHOLD, 64 << 20);
	mallopt(M_ARENA_MAX, 2);
}

static int store_path_choose(struct start *start)
{
	const char *named = start->options.store_path;

	start->store_path = named ? named : start->config.store_path;
	if (start->store_path)
		return 0;
	say("no store is named: give it as an argument (queenfs STORE MOUNTPOINT), by "
	    "-s FILE, or as path in section [store] of queenfs.ini");
	return -EINVAL;
}

static bool allow_other(const struct start *start)
{
	return start->config.allow_other || geteuid() == 0 ||
	       options_fuse_word(&start->options, "allow_other");
}

/* Ours come first, so that the user's -o fsname= wins. */
static int words_make(struct start *start)
{
	static const char *const fixed = "default_permissions,subtype=queenfs";
	struct fuse_args *words = &start->words;
	char *source, *fsname = NULL;
	int failed;

	if (asprintf(&source, "fsname=%s", start->store_path) < 0)
		return -ENOMEM;
	failed = fuse_opt_add_opt_escaped(&fsname, source) ||
		 fuse_opt_add_arg(words, "queenfs") || fuse_opt_add_arg(words, "-o") ||
		 fuse_opt_add_arg(words, fixed) || fuse_opt_add_arg(words, "-o") ||
		 fuse_opt_add_arg(words, fsname);
	if (allow_other(start))
		failed = failed || fuse_opt_add_arg(words, "-oallow_other");
	if (start->options.debug)
		failed = failed || fuse_opt_add_arg(words, "-odebug");
	if (start->options.fuse_words)
		failed = failed || fuse_opt_add_arg(words, "-o") ||
			 fuse_opt_add_arg(words, start->options.fuse_words);
	free(fsname);
	free(source);
	return failed ? -ENOMEM : 0;
}

/* NULL: said by libfuse. Uses up the words. */
static struct fuse_session *session_new(struct fuse_args *words, struct mount *mount)
{
	return fuse_session_new(words, &ops_table, sizeof(ops_table), mount);
}

/* Would libfuse take these words? Asked before a store is made for nothing. */
static int words_check(const struct start *start)
{
	struct fuse_args words = FUSE_ARGS_INIT(0, NULL);
	struct fuse_session *session = NULL;
	int error = 0;

	for (int i = 0; i < start->words.argc && !error; i++)
		error = fuse_opt_add_arg(&words, start->words.argv[i]) ? -ENOMEM : 0;
	if (!error) {
		session = session_new(&words, NULL);
		error = session ? 0 : -EINVAL;
	}
	if (session)
		fuse_session_destroy(session);
	fuse_opt_free_args(&words);
	return error;
}

/* SQLite opens files beside the store whenever it likes: below the mount it would wait for
 * itself. */
static int store_place_check(const struct start *start)
{
	char *real = realpath(start->store_path, NULL);
	const char *store = real ? real : start->store_path;
	size_t length = strlen(start->mountpoint);
	bool below = !strncmp(store, start->mountpoint, length) &&
		     (store[length] == '/' || length == 1);

	if (below)
		say("%s: the store lies below the mount point %s, which would hide it; "
		    "move one of them",
		    start->store_path, start->mountpoint);
	free(real);
	return below ? -EINVAL : 0;
}

static int start_prepare(struct start *start)
{
	int error = config_read(start->options.config, &start->config);

	error = error ? error : store_path_choose(start);
	error = error ? error : words_make(start);
	error = error ? error : words_check(start);
	error = error ? error : fuse_device_check();
	error = error ? error
		      : mountpoint_prepare(start->options.mountpoint, &start->mountpoint);
	error = error ? error : store_place_check(start);
	return error;
}

/* ---- the daemon ----------------------------------------------------------------- */

/* Blocks, or lets through, the signals that end the daemon. Blocked while threads are made,
 * so that they reach the loop's thread and wake it. */
static void end_signals(int how)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	pthread_sigmask(how, &set, NULL);
}

static struct store *store_start(const struct start *start)
{
	const struct timespec pause = { .tv_nsec = LOCK_RETRY_MS * 1000000L };
	const struct store_options options = {
		.path = start->store_path,
		.disk = start->config.disk,
		.reserve_bytes = start->config.reserve_bytes,
		.wal_limit_bytes = start->config.wal_limit_bytes,
	};
	struct store_why why = { "" };
	struct store *store = NULL;
	int error = store_open(&options, &store, &why);

	for (int waited = 0; error == -EBUSY && waited < LOCK_WAIT_MS;
	     waited += LOCK_RETRY_MS) {
		nanosleep(&pause, NULL);
		error = store_open(&options, &store, &why);
	}
	if (error)
		say("%s: %s", start->store_path,
		    why.text[0] ? why.text : strerror(-error));
	return error ? NULL : store;
}

/* libfuse or fusermount3 has already said what went wrong; this says where, and what to do
 * about the refusal that needs an administrator. */
static void mount_failed(const struct start *start)
{
	if (geteuid() != 0 && allow_other(start))
		say("%s: not mounted; allow_other takes the line user_allow_other in "
		    "/etc/fuse.conf, or set allow_other = no",
		    start->mountpoint);
	else
		say("%s: not mounted", start->mountpoint);
}

/* The mount is up: lets go of the terminal and tells the parent. */
static void background_ready(int ready)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null >= 0) {
		for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
			dup2(null, fd);
		if (null > STDERR_FILENO)
			close(null);
	}
	say_to_syslog();
	/* a parent that is gone is no reason to stop; libfuse ignores SIGPIPE by now */
	if (write(ready, "", 1) < 0)
		say("the parent did not wait for the mount");
	close(ready);
}

/* 0 after a signal or an unmount. */
static int loop_run(struct fuse_session *session)
{
	struct fuse_loop_config *loop = fuse_loop_cfg_create();
	int rc;

	if (!loop)
		return -ENOMEM;
	fuse_loop_cfg_set_max_threads(loop, LOOP_THREADS);
	fuse_loop_cfg_set_idle_threads(loop, LOOP_THREADS);
	fuse_loop_cfg_set_clone_fd(loop, 0);
	rc = fuse_session_loop_mt(session, loop); /* positive: the signal that ended it */
	fuse_loop_cfg_destroy(loop);
	return rc < 0 ? rc : 0;
}

/* What serve() builds up, and serve_end() takes down however far it came. */
struct daemon {
	struct store *store;
	struct mount *mount;
	struct fuse_session *session;
	bool handlers, mounted;
	bool telling; /* `teller` runs, or is to be joined */
	pthread_t teller;
};

/* The thread that tells systemd once the mount answers. */
static void *ready_tell(void *arg)
{
	const struct start *start = arg;
	int error = mountpoint_ask(start->mountpoint);

	if (!error)
		notify("READY=1\nSTATUS=%s is mounted at %s", start->store_path,
		       start->mountpoint);
	return NULL; /* if it does not answer, the loop ends or systemd's patience does */
}

/* The mount is up, in the foreground: has systemd told, if it asked to be. Without that
 * nobody waits, and no request of ours keeps the mount busy. */
static void foreground_ready(struct daemon *daemon, struct start *start)
{
	int error;

	if (!notify_wanted())
		return;
	error = pthread_create(&daemon->teller, NULL, ready_tell, start);
	daemon->telling = !error;
	if (error)
		say("cannot tell systemd that the mount is ready: %s", strerror(error));
}

/* Mounts: 0, or -1 with the reason already said. */
static int serve_begin(struct daemon *daemon, struct start *start)
{
	notify("STATUS=opening %s", start->store_path);
	daemon->store = store_start(start);
	if (!daemon->store)
		return -1;
	if (config_apply(&start->config, daemon->store))
		return -1;
	daemon->mount = mount_new(daemon->store);
	if (!daemon->mount) {
		say("%s", strerror(ENOMEM));
		return -1;
	}
	daemon->session = session_new(&start->words, daemon->mount);
	if (!daemon->session)
		return -1;
	mount_speaks(daemon->mount, daemon->session);
	daemon->handlers = fuse_set_signal_handlers(daemon->session) == 0;
	if (!daemon->handlers)
		return -1;
	daemon->mounted = fuse_session_mount(daemon->session, start->mountpoint) == 0;
	if (!daemon->mounted) {
		mount_failed(start);
		return -1;
	}
	return 0;
}

/* The store goes first: its last commit still answers requests, through the session. */
static void serve_end(struct daemon *daemon)
{
	if (daemon->mount)
		mount_end(daemon->mount);
	if (daemon->store)
		store_close(daemon->store);
	if (daemon->mounted)
		fuse_session_unmount(daemon->session);
	if (daemon->mount)
		stale_end(daemon->mount);
	if (daemon->telling) /* what it waited for is answered or aborted by now */
		pthread_join(daemon->teller, NULL);
	if (daemon->handlers)
		fuse_remove_signal_handlers(daemon->session);
	if (daemon->session)
		fuse_session_destroy(daemon->session);
	if (daemon->mount)
		mount_free(daemon->mount);
}

/* Everything between the fork and the end. ready: where to tell the parent, or -1. Gives
 * the exit status. */
static int serve(struct start *start, int ready)
{
	struct daemon daemon = { 0 };
	int error;

	umask(0); /* the modes a caller asks for are cut by the caller's umask, not by ours */
	if (chdir("/")) {
		say("/: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	if (privileges_drop())
		return EXIT_FAILURE;
	end_signals(SIG_BLOCK);
	error = serve_begin(&daemon, start);
	if (!error) {
		if (ready >= 0)
			background_ready(ready);
		else
			foreground_ready(&daemon, start);
		end_signals(SIG_UNBLOCK);
		error = loop_run(daemon.session);
		if (error)
			say("%s: the mount ended: %s", start->mountpoint,
			    strerror(-error));
		notify("STOPPING=1\nSTATUS=writing what is not on the disk yet");
	}
	serve_end(&daemon);
	return error ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* ---- the parent ----------------------------------------------------------------- */

static int child_status(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR)
			return EXIT_FAILURE;
	if (WIFEXITED(status))
		return WEXITSTATUS(status);
	say("the daemon was ended by signal %d before it had mounted", WTERMSIG(status));
	return EXIT_FAILURE;
}

/* Waits until the child has mounted, or has failed. */
static int child_await(pid_t child, int ready, const char *mountpoint)
{
	ssize_t got;
	char byte;
	int error;

	do {
		got = read(ready, &byte, 1);
	} while (got < 0 && errno == EINTR);
	close(ready);
	if (got != 1)
		return child_status(child);
	error = mountpoint_ask(mountpoint);
	if (!error)
		return EXIT_SUCCESS;
	say("%s: mounted, but it does not answer: %s", mountpoint, strerror(-error));
	kill(child, SIGTERM);
	child_status(child);
	return EXIT_FAILURE;
}

static int background(struct start *start)
{
	int ready[2];
	pid_t child;

	/* Whoever waits for the end of a pipe that we inherited would wait for the daemon. */
	closefrom(STDERR_FILENO + 1);
	if (pipe2(ready, O_CLOEXEC)) {
		say("pipe: %s", strerror(errno));
		return EXIT_FAILURE;
	}
	child = fork();
	if (child < 0) {
		say("fork: %s", strerror(errno));
		close(ready[0]);
		close(ready[1]);
		return EXIT_FAILURE;
	}
	if (child == 0) {
		close(ready[0]);
		setsid();
		return serve(start, ready[1]);
	}
	close(ready[1]);
	return child_await(child, ready[0], start->mountpoint);
}

static void start_free(struct start *start)
{
	fuse_opt_free_args(&start->words);
	free(start->mountpoint);
	config_free(&start->config);
	options_free(&start->options);
}

int main(int argc, char **argv)
{
	struct start start = { .words = FUSE_ARGS_INIT(0, NULL) };
	int status = EXIT_FAILURE;

	surroundings_mend();
	memory_tune();
	fuse_set_log_func(say_fuse);
	if (options_parse(argc, argv, &start.options)) {
		status = STATUS_USAGE;
	} else if (start.options.help) {
		options_help();
		status = EXIT_SUCCESS;
	} else if (start.options.version) {
		printf("queenfs %s (libfuse %s)\n", QUEENFS_VERSION, fuse_pkgversion());
		status = EXIT_SUCCESS;
	} else if (!start_prepare(&start)) {
		if (start.options.foreground) {
			notify_begin();
			status = serve(&start, -1);
		} else {
			status = background(&start);
		}
	}
	start_free(&start);
	return status;
}
