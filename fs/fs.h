/* SPDX-License-Identifier: MIT */
/*
 * fs.h - what the files of fs/ share: nodes, handles, calls and the tables of kinds.
 *
 * fs/ says what the store looks like as files. It holds nothing that must survive: names,
 * owners, offsets and cursors are asked of the store each time. The locks here are leaves:
 * no call of the store or of libfuse is made under one.
 */
#ifndef FS_H
#define FS_H

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/queue.h>
#include <sys/stat.h>

#include "array.h"
#include "store.h"
#include "thread.h"

struct call;
struct handle;
struct node;

/* What a handler that answers later returns: the call is its own from then on. */
#define PARKED (-4096)

/* ---- for main.c ----------------------------------------------------------------------- */

struct mount;
extern const struct fuse_lowlevel_ops ops_table;

struct mount *mount_new(struct store *store); /* NULL: ENOMEM; store borrowed */
/* Before the loop: what the kernel is told by. Borrowed. */
void mount_speaks(struct mount *mount, struct fuse_session *session);
/* After the loop: closes what is open and lets go of the store; before store_close(). */
void mount_end(struct mount *mount);
void mount_free(struct mount *mount); /* after store_close() */

/* ---- errors.c: the mount's errors file -------------------------------------------------- */

#define ERRORS_KEPT 256

struct error_line {
	uid_t uid;
	char *text; /* ends in a newline */
};

struct errors {
	pthread_mutex_t lock; /* the ring */
	struct error_line ring[ERRORS_KEPT];
	uint64_t next; /* number of the next line; it goes to next % ERRORS_KEPT */
};

/* A missing name, EAGAIN and EINTR are no refusals. */
bool errors_wants(int error, const char *why);
void errors_add(struct mount *mount, const struct fuse_ctx *who, const char *path,
		int error, const char *why);

/* ---- park.c: reads that wait ------------------------------------------------------------- */

struct parked;
struct park {
	pthread_mutex_t lock; /* all of it; may be taken under the store's own lock */
	pthread_cond_t news;  /* for the notifier: cancelled, notify, errands, stopping */
	pthread_cond_t calm;  /* no cancelling is under way any more */
	TAILQ_HEAD(parked_list, parked) all, cancelled;
	TAILQ_HEAD(, handle) notify; /* whose poll is to be told */
	TAILQ_HEAD(, errand) errands;
	struct thread notifier;
	bool stopping;
};

int park_begin(struct mount *mount); /* after the fork */
/* Answers what is parked with ENOTCONN; before the handles are closed. */
void park_end(struct mount *mount);
/* Reads, when it is this read's turn on its handle, and puts it aside until there is
 * something or a signal ends it. once: O_NONBLOCK, waits for a commit under way only. */
void park_read(fuse_req_t req, struct handle *handle, size_t size, bool once);
/* poll(2): would a read return? ph (may be NULL, taken): who to tell when it would. */
bool park_poll(struct handle *handle, struct fuse_pollhandle *ph);
void park_forget(struct handle *handle); /* it closes; its reader has closed */

/* Something for a thread that may speak to the kernel: no request, no lock is held. */
struct errand {
	void (*run)(struct errand *errand); /* once; frees it */
	TAILQ_ENTRY(errand) entry;
};
void park_errand(struct mount *mount, struct errand *errand);

/* ---- node.c: what the kernel knows by a number ------------------------------------------ */

/* A dead letter, shared by the places that name it. */
struct letter {
	atomic_uint refs;
	struct letter_info info;
};

/* A snapshot, likewise; id 0: it is only being created. */
struct snapshot_name {
	atomic_uint refs;
	struct snapshot_info info;
};

/* Where something is in the tree. The items are references once it is in a node. */
struct place {
	const struct dir_kind *dir;
	const struct file_kind *file; /* in dir; NULL: the directory itself */
	struct item *queue, *partition, *group;
	struct letter *letter;		/* of dlq/<letter>, a reference */
	struct snapshot_name *snapshot; /* of snapshots/<snapshot>, a reference */
	enum setting setting;		/* of config/<setting> */
	struct segment_info segment;	/* of segments/<base> */
};

struct node {
	struct place place;
	struct mount *mount;
	uint64_t lookups; /* under mount->nodes_lock */
	bool hashed;
	struct node *hash_next;
	TAILQ_ENTRY(node) all;
	uid_t uid;	 /* who looked it up */
	uint64_t origin; /* log: the position that byte 0 of this node is */
	/* errors: what this node has shown so far, under errors.lock */
	char *text;
	size_t text_size;
	uint64_t text_gone; /* bytes that were in front of it */
	uint64_t text_next;
};
TAILQ_HEAD(node_list, node);

struct node *node_of(struct mount *mount, fuse_ino_t ino);
fuse_ino_t node_ino(const struct node *node);
/* One lookup more of a directory's node, or a fresh node of a file: the kernel lets one
 * write at a time into an inode, so each open gets its own. Takes the place's references,
 * also on failure (NULL). */
struct node *node_take(struct mount *mount, struct place *place, uid_t uid);
void node_forget(struct mount *mount, struct node *node, uint64_t lookups);
/* The kernel holds this directory for dead though it is not: the next lookup is fresh. */
void node_retire(struct mount *mount, const struct place *place);
void node_stat(struct node *node, struct stat *st);
void stat_time(struct stat *st, int64_t time_us);
void place_put(struct place *place);
struct place place_get(const struct place *place); /* with references of its own */
ino_t place_number(const struct place *place);	   /* st_ino: constant while it exists */
/* The path in the mount, `name` (may be NULL) below it; malloc'd, control characters shown
 * as '?'; NULL: ENOMEM. */
char *place_path(const struct place *place, const char *name);

/* The node of a directory, or NULL. */
struct node *node_find_locked(struct mount *mount, const struct place *place);

/* ---- stale.c: names that are gone without the kernel's doing ------------------------------ */

struct stale {
	struct thread thread;
	/* under mount->nodes_lock; `stopping` is also looked at without */
	atomic_bool stopping;
	bool looking; /* at the store */
	size_t made;  /* nodes since the last look */
	size_t after; /* so many it looks again */
	pthread_cond_t news;
};
int stale_begin(struct mount *mount);
void stale_stop(struct mount *mount); /* it uses the store no more */
void stale_end(struct mount *mount);  /* once there is no mount */

/* ---- the mount --------------------------------------------------------------------------- */

struct mount {
	struct store *store;
	struct fuse_session *session; /* borrowed; set before the loop */
	uid_t owner;
	struct node root;
	pthread_mutex_t nodes_lock; /* the hash, the list and all lookup counts */
	struct node *buckets[1024]; /* directories */
	struct node_list nodes;
	struct stale stale;
	pthread_mutex_t handles_lock; /* the list */
	TAILQ_HEAD(, handle) handles;
	struct errors errors;
	struct park park;
	int64_t started_us;
};

/* ---- kinds.c: the tree as tables --------------------------------------------------------- */

enum dir_id {
	DIR_ROOT,
	DIR_QUEUES,
	DIR_QUEUE,
	DIR_QUEUE_CONFIG,
	DIR_SNAPSHOTS,
	DIR_QUEUE_GROUPS,
	DIR_GROUP,
	DIR_GROUP_CONFIG,
	DIR_DLQ,
	DIR_PARTITIONS,
	DIR_PARTITION,
	DIR_SEGMENTS,
	DIR_PARTITION_GROUPS,
	DIR_PARTITION_GROUP,
	DIR_COUNT
};

#define NAME_TEXT_SIZE (STORE_NAME_MAX + 32)

/* What users make and remove in a directory. Each gets the directory's place. */
struct children {
	enum item_kind item;
	enum dir_id dir; /* what a child is */
	/* 0 and *child (references are the caller's), or -ENOENT. */
	int (*find)(struct mount *mount, const struct place *in, const char *name,
		    struct place *child);
	/* The child with the smallest key above `after`; a key is never 0. */
	int (*next)(struct mount *mount, const struct place *in, uint64_t after,
		    struct place *child, uint64_t *key);
	/* NULL: refused with EPERM. Both answer the call; PARKED or -errno. */
	int (*make)(struct call *call, const struct place *in, const char *name,
		    mode_t mode);
	int (*drop)(struct call *call, const struct place *child);
	/* NULL: as well. The place of a file that what is written to it will make. */
	int (*create)(const struct place *in, const char *name, struct place *child);
	/* The name of a child that is a file. */
	void (*name)(const struct place *child, char text[NAME_TEXT_SIZE]);
	bool fixed; /* removing one succeeds and does nothing */
};

struct dir_kind {
	enum dir_id parent;
	const char *name;     /* NULL: its item's */
	enum item_kind owner; /* whose directory it is; ITEM_KINDS: the mount's */
	unsigned access;      /* which of the owner's directories */
	const struct children *children;
};

#define XATTR_VALUE_SIZE 256

enum {
	FILE_STREAM = 1,   /* no position: see reply_open() */
	FILE_CACHED = 2,   /* the kernel may keep pages of it */
	FILE_GROWS = 4,	   /* its size must be asked each time */
	FILE_CONSUMES = 8, /* reading takes r and w; listed as a FIFO; no O_NOFOLLOW */
	FILE_NAMES = 16,   /* what is written names other things: see handle.opener */
};

/* How one kind of file behaves. Its permission bits follow from what is here: a file can be
 * read if it has read, written if it has write. Everything is optional. Functions return 0,
 * a count, -errno, or where there is a call PARKED; call->why may be filled. */
struct file_ops {
	unsigned flags;
	mode_t withheld; /* permission bits that it never has */
	void (*init)(struct node *node);
	void (*stat)(struct node *node, struct stat *st);
	int (*open)(struct handle *handle, struct call *call);
	ssize_t (*read)(struct handle *handle, char *buffer, size_t size, off_t offset);
	/* Instead, of a file with a reader: without a copy of what is large. */
	ssize_t (*read_pieces)(struct handle *handle, char *buffer, size_t size,
			       struct pieces *pieces);
	void (*unread)(struct handle *handle); /* that reply reached nobody */
	ssize_t (*write)(struct handle *handle, struct call *call, const char *data,
			 size_t size, uint64_t owner);
	int (*flush)(struct handle *handle, struct call *call, uint64_t owner);
	void (*close)(struct handle *handle);
	/* The whole of a file that is made when it is opened; the text_ functions below. */
	int (*text)(const struct node *node, FILE *out);
	unsigned reader_flags; /* of a file that consumes: READER_FOLLOW, READER_JSON */
	/* The reader whose read answered EAGAIN and can be waited for. */
	struct reader *(*reader)(struct handle *handle);
	/* mv of a dead letter onto this file. */
	int (*take)(struct call *call, const struct place *target,
		    const struct place *letter);
	/* Text of the i-th attribute: its name (NULL past the last) and value. */
	const char *(*xattr)(const struct node *node, unsigned i,
			     char value[XATTR_VALUE_SIZE]);
};

static inline bool file_reads(const struct file_ops *ops)
{
	return ops->read || ops->read_pieces;
}

struct file_kind {
	enum dir_id dir;
	const char *name; /* NULL: a child of dir that children->find knows */
	const struct file_ops *ops;
};

extern const struct dir_kind dirs[DIR_COUNT];
extern const struct file_kind files[];
extern const size_t file_count;

struct item *place_owner(const struct place *place); /* borrowed; NULL: the mount */
mode_t place_mode(const struct place *place, const struct access *access);
/* Finds a name in a directory, fixed or made: 0 and references, or -ENOENT. */
int place_find(struct mount *mount, const struct place *in, const char *name,
	       struct place *child);
/* Lists: the entry after a directory offset, and the offset of that entry. -ENOENT: end. */
int place_list(struct mount *mount, const struct place *in, uint64_t after,
	       struct place *child, uint64_t *at);
const char *place_name(const struct place *place, char text[NAME_TEXT_SIZE]);
/* Whether it was made by a user (and can be removed), not fixed. */
bool place_made(const struct place *place);

/* ---- access.c: owner and mode of directories ---------------------------------------------- */

/* chmod and chown: FUSE_SET_ATTR_MODE, UID and GID in `set`. 0, PARKED or -errno. */
int access_set(struct call *call, const struct stat *st, int set);
/* Somebody's uid and Unix groups: free() it. NULL: ENOMEM. */
struct caller *caller_new(fuse_req_t req);
/* Has the caller, of FILE_NAMES who opened, these bits (4 r, 2 w, 1 x) of a directory of an
 * item (NULL: the mount's)? */
bool call_may(const struct call *call, struct item *item, unsigned dir, unsigned bits);
/* May the caller remove the queue, partition or group that a place is in? What is in none is
 * its owner's and root's. */
bool call_may_remove(const struct call *call, const struct place *place);

/* ---- handle.c: an open file ------------------------------------------------------------- */

struct handle {
	struct node *node;
	int flags;
	struct caller *opener; /* of FILE_NAMES that is open for writing; else NULL */
	void *state;	       /* the kind's own; its close frees it */
	TAILQ_ENTRY(handle) all;
	/* under park.lock */
	bool reading; /* a read has the turn */
	TAILQ_HEAD(, parked) turns;
	struct fuse_pollhandle *poll;
	bool notify;
	TAILQ_ENTRY(handle) notify_entry;
};

struct handle *handle_new(fuse_req_t req, struct node *node,
			  int flags);	 /* NULL: ENOMEM */
void handle_free(struct handle *handle); /* after the kind's close */
struct handle *handle_of(const struct fuse_file_info *fi);

/* ---- call.c: a request on its way to its answer ------------------------------------------ */

/*
 * A request that may be answered later, by whichever thread commits. The kernel keeps the
 * node and the handle until then. Every answer leaves through call_finish(): an error is
 * written to the errors file and replied, else `success` replies.
 */
struct call {
	fuse_req_t req;
	struct mount *mount;
	struct node *node;
	struct handle *handle; /* or NULL */
	char *name;	       /* of the child it is about, or NULL */
	size_t size;	       /* of a write */
	void (*success)(struct call *call, const struct store_result *result);
	struct store_why why;
};

/* NULL: ENOMEM, and the request has been answered with it. name may be NULL. */
struct call *call_new(fuse_req_t req, struct node *node, const char *name,
		      void (*success)(struct call *, const struct store_result *));
/* A store_done whose arg is the call. */
void call_finish(void *call, const struct store_result *result);
void call_error(struct call *call, int error); /* -errno, or 0; call->why says more */
/* Answers with 0 for call_new's success. */
void call_success_plain(struct call *call, const struct store_result *result);
/* Refuses a request that has no call. */
void refuse(fuse_req_t req, struct node *node, const char *name, int error,
	    const char *why);
/* Fills why and returns error, so that a refusal is one statement. */
int why_not(struct store_why *why, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Of WRITE_MAX bytes, the calling thread's own; NULL: ENOMEM or too large. */
enum thread_buffer {
	BUFFER_OWN,   /* for the request that this thread answers */
	BUFFER_WOKEN, /* for parked reads that it wakes on the way; never nested */
	THREAD_BUFFERS
};
char *thread_buffer(size_t size, enum thread_buffer which);

double attr_timeout(const struct node *node); /* seconds */
void reply_entry(fuse_req_t req, struct mount *mount, struct place *place);
void reply_open(struct call *call, const struct store_result *result);

/* ---- text.c: files whose whole text is made when they are opened -------------------------- */

struct text {
	char *data;
	size_t size;
};
int text_make(const struct node *node, struct text *text); /* by file_ops.text */
void text_stat(struct node *node, struct stat *st);
int text_open(struct handle *handle, struct call *call); /* state: a struct text */
ssize_t text_read(struct handle *handle, char *buffer, size_t size, off_t offset);
ssize_t text_copy(const struct text *text, char *buffer, size_t size, off_t offset);
void text_close(struct handle *handle);
#define TEXT_FILE                                                                     \
	.flags = FILE_GROWS, .stat = text_stat, .open = text_open, .read = text_read, \
	.close = text_close
/* One line as it was written: blanks and the newline trimmed; NULL if it is not one line
 * of text. `copy` has size + 1 bytes. */
char *text_line(char *copy, size_t size);

/* ---- the kinds of files ------------------------------------------------------------------ */

extern const struct file_ops readme_file, version_file,
	errors_file;					/* text.c, errors.c */
extern const struct file_ops push_file, push_json_file; /* push.c */
extern const struct file_ops pop_file, follow_file;	/* consume.c */
extern const struct file_ops pop_json_file, follow_json_file;
extern const struct file_ops setting_file;			     /* config_dir.c */
extern const struct file_ops letter_file;			     /* dlq.c */
extern const struct file_ops snapshot_file;			     /* snapshot.c */
extern const struct file_ops queue_stats_file, partition_stats_file; /* stats.c */
extern const struct file_ops group_stats_file, lane_stats_file, members_file;
extern const struct file_ops metrics_file; /* metrics.c */
extern const struct file_ops cursor_file;  /* cursor.c */
extern const struct file_ops log_file;	   /* log.c */
extern const struct file_ops segment_file; /* segment.c */

#endif
