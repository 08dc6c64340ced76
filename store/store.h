/* SPDX-License-Identifier: MIT */
/*
 * store.h - what is true and durable: the whole contract between store/ and fs/.
 *
 * Not for: anything a file looks like. "Section N" below means section N of the
 * contract that README.md restates: what each file in the mount means.
 *
 * Conventions
 * - A fallible function returns 0 (or a count) or -errno; out-parameters come last and
 *   are untouched on failure.
 * - A verb that has to be committed takes a store_done. It is called exactly once, from
 *   whichever thread committed (often the caller's own, before the verb returns), with
 *   no lock held, and only after the change is durable as the store's options say.
 * - Every function may be called from any thread. None waits for anything but the disk.
 * - Offsets are int64_t: the first message of a partition is 0, "none" is -1. Times are
 *   microseconds since 1970 UTC (`_us`). Sizes and positions are bytes.
 */
#ifndef STORE_H
#define STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define STORE_NAME_MAX 200
#define STORE_TRANSACTION_MAX 255
#define STORE_DEFAULT_NAME "default"

struct statvfs;
struct store;
struct item;
struct reader;
struct segment;

/* Why a verb refused, in words for a person: what was wrong and what is allowed. */
struct store_why {
	char text[240];
};

/* ---- opening and closing (section 13) ------------------------------------------- */

struct store_options {
	const char *path;	  /* the SQLite file; made if missing */
	bool disk;		  /* durability: true disk, false os */
	uint64_t reserve_bytes;	  /* kept free beside the store for acks, seeks and rm */
	uint64_t wal_limit_bytes; /* the WAL is truncated once it is larger */
};

/*
 * Opens the store at options->path (borrowed for the call) and locks it for this process.
 * Errors: EBUSY locked (the holder's pid is named), EMEDIUMTYPE not a queenfs store or
 * newer than this program (the file is left untouched), EREMOTE on a network filesystem,
 * and what open(2) says. Not before fork(2): the lock belongs to the process.
 */
int store_open(const struct store_options *options, struct store **store,
	       struct store_why *why);

/* Commits and answers all that is queued, in this thread, and ends the store's own. For the
 * end, when nobody else calls any more; verbs still work, without a thread of the store. */
void store_settle(struct store *store);

/* Commits what is queued and every cursor, then frees the store. No call may be under way
 * and every reader must have been closed. */
void store_close(struct store *store);

/* The disk that the store is on, for df: 0 or -errno. */
int store_statvfs(struct store *store, struct statvfs *disk);

/* The store's "now": the clock, never below the newest created_at (contract, Words). */
int64_t store_now(struct store *store);

/* ---- queues, partitions, groups (section 1) ------------------------------------- */

/* An item is a queue, a partition or a group: a thing with a name, made and dropped by
 * users. Whoever got one from a function here puts it back with store_put(). An item that
 * was dropped stays readable for its holders; verbs on it answer ESTALE. */
enum item_kind { ITEM_QUEUE, ITEM_PARTITION, ITEM_GROUP, ITEM_KINDS };

/* The directories that an item owns, each with an owner and mode of its own (section 12).
 * The first is the item itself. */
enum { ROOT_DIR, ROOT_QUEUES, ROOT_DIRS };
enum {
	QUEUE_DIR,
	QUEUE_PARTITIONS,
	QUEUE_GROUPS,
	QUEUE_SNAPSHOTS,
	QUEUE_CONFIG,
	QUEUE_DIRS
};
enum { PARTITION_DIR, PARTITION_SEGMENTS, PARTITION_DIRS };
enum { GROUP_DIR, GROUP_CONFIG, GROUP_DLQ, GROUP_DIRS };
#define STORE_DIRS_MAX 5

struct access {
	uid_t uid;
	gid_t gid;
	mode_t mode; /* permission bits only */
};

/* What a committed verb came to. Valid during the call of store_done only. */
struct store_result {
	int error;	   /* 0 or -errno */
	const char *why;   /* words for a refusal, may be empty, never NULL */
	struct item *item; /* store_make: the new item, borrowed; else NULL */
	const struct verdict *verdicts; /* store_push_json */
	size_t verdict_count;
};
typedef void (*store_done)(void *arg, const struct store_result *result);

/* The length of the UTF-8 character at text, of which left bytes (1 or more) are there; 0: it
 * is not valid. Pure. */
size_t utf8_length(const char *text, size_t left);
/* 0, EINVAL or ENAMETOOLONG: may an item be called this? Fills why on refusal. */
int store_name_check(const char *name, struct store_why *why);

/* Below, `parent` is the queue of partitions and groups, and NULL for queues. */

/* Finds a child by name. ENOENT. */
int store_find(struct store *store, struct item *parent, enum item_kind kind,
	       const char *name, struct item **item);

/* The child with the smallest id above `after`; ENOENT past the last. A listing that goes
 * on from an id stays whole while others come and go. */
int store_next(struct store *store, struct item *parent, enum item_kind kind,
	       uint64_t after, struct item **item);

/* Makes a child, with `access` for itself and the same less write for group and others
 * for its fixed directories. EEXIST, EINVAL, ENAMETOOLONG, ESTALE (parent dropped),
 * ENOSPC, EIO. name and access are borrowed for the call. Section 1. */
void store_make(struct store *store, struct item *parent, enum item_kind kind,
		const char *name, const struct access *access, store_done done,
		void *arg);

/* Drops an item. ENOTEMPTY: a queue with partitions, a partition with messages. EBUSY:
 * somebody reads below it. Groups and settings of a queue go with it. Section 1. */
void store_drop(struct item *item, store_done done, void *arg);

struct item *store_get(struct item *item); /* one more reference */
void store_put(struct item *item);	   /* NULL is fine */
struct store *store_of(const struct item *item);
uint64_t store_id(const struct item *item); /* never used again, unique among its kind */
const char *store_name(const struct item *item); /* lives as long as the item */
bool store_dropped(const struct item *item);

/* Owner and mode of directory `dir` of an item; item NULL: of the mount's own. */
void store_access(struct store *store, struct item *item, unsigned dir,
		  struct access *access);
/* Of `access` what `set` names; the rest stays as it is when that is committed. */
enum { ACCESS_UID = 1, ACCESS_GID = 2, ACCESS_MODE = 4, ACCESS_ALL = 7 };
void store_access_set(struct store *store, struct item *item, unsigned dir,
		      const struct access *access, unsigned set, store_done done,
		      void *arg);

/* ---- pushing (section 2) -------------------------------------------------------- */

/* How messages are told apart (config/framing). */
struct message_rules {
	bool lines;	      /* each is ended by a newline, which is no part of it */
	uint32_t message_max; /* bytes */
};
void store_message_rules(struct item *queue, struct message_rules *rules);

/* Messages to add: `data` holds them one after the other exactly as `log` shows them,
 * ends[i] is the position just past message i. */
struct messages {
	char *data;
	size_t size;
	uint32_t *ends;
	uint32_t count;
	bool lines; /* each has its newline */
	char *meta; /* the store's own: NULL */
	size_t meta_size;
};
void messages_free(struct messages *messages); /* frees what it points to */

/*
 * Adds messages to a partition, all or none. partition NULL: the queue's partition
 * "default", made if missing, or with `spread` several in turn. Takes `messages` (both
 * arrays from malloc; the struct is emptied). Pushes that arrive during a commit become one
 * segment. ESTALE, EINVAL (framing has changed), ENOSPC, EIO.
 */
void store_push(struct item *queue, struct item *partition, struct messages *messages,
		store_done done, void *arg);

/* What became of one line of push.json: the offset that it has, or that the message with
 * its transactionId had before. */
struct verdict {
	int64_t offset;
	bool duplicate;
};

/*
 * Adds what whole lines of push.json say, all or none; borrowed for the call. first_line is
 * the number of the first one, for words. verdicts: store_result brings one for each line.
 * EINVAL or EMSGSIZE: a line is none; else as store_push().
 */
void store_push_json(struct item *queue, struct item *partition, const char *lines,
		     size_t size, uint64_t first_line, bool verdicts, store_done done,
		     void *arg);

/* Makes everything committed so far durable against power loss: fsync(2). */
void store_sync(struct store *store, store_done done, void *arg);

/* ---- the log and its segments (section 3) --------------------------------------- */

struct partition_info {
	int64_t first_offset;	 /* the oldest retained; last_offset + 1 when empty */
	int64_t last_offset;	 /* -1: nothing was ever pushed */
	uint64_t first_position; /* byte position of first_offset since the beginning */
	uint64_t end_position;	 /* byte position just past last_offset */
	uint64_t segments;	 /* those made before format 3 count as one */
	int64_t modified_us;	 /* the last commit; before the first, the making */
	int64_t made_us;
};
void store_partition_info(struct item *partition, struct partition_info *info);

struct segment_info {
	int64_t base_offset, end_offset; /* first and last message, both included */
	int64_t created_us;		 /* commit time, shared by its messages */
	uint64_t position, size;	 /* bytes: where in the log, how many */
	int64_t number; /* rises by one in a partition; 0: before format 3 */
};

/* The segment that starts exactly at base: ENOENT, EIO. */
int store_segment(struct item *partition, int64_t base, struct segment_info *info);

/* The segment that holds an offset: ENOENT, EIO. */
int store_segment_of(struct item *partition, int64_t offset, struct segment_info *info);

/* The segment with the smallest base above `after` (-1: the oldest): ENOENT, EIO. */
int store_segment_next(struct item *partition, int64_t after, struct segment_info *info);

/* Copies up to size bytes of the log from a byte position (as in partition_info) on; 0 at
 * its end. hint (0 at first, the caller keeps it) makes reading on cheap. ESTALE: that part
 * was removed, or the partition dropped. EIO. */
ssize_t store_log_read(struct item *partition, uint64_t position, _Atomic int64_t *hint,
		       char *buffer, size_t size);

/* Removes the oldest segment. EBUSY: base is not the oldest. ENOENT. */
void store_segment_drop(struct item *partition, int64_t base, store_done done, void *arg);

/* ---- settings (section 12) ------------------------------------------------------- */

enum setting {
	SETTING_FRAMING,
	SETTING_SPREAD,
	SETTING_BATCH,
	SETTING_PREFETCH,
	SETTING_LEASE_SECONDS,
	SETTING_RETRY_LIMIT,
	SETTING_MAX_DELIVERIES,
	SETTING_RETRY_DELAY_SECONDS,
	SETTING_DEDUP_SECONDS,
	SETTING_RETENTION_SECONDS,
	SETTING_COMPLETED_RETENTION_SECONDS,
	SETTING_RETENTION_BYTES,
	SETTING_MAX_MESSAGE_BYTES,
	SETTING_SUBSCRIPTION,
	SETTING_SNAPSHOT_SECONDS,
	SETTING_FILTER,
	SETTING_COUNT
};
enum framing { FRAMING_LINE, FRAMING_FILE };

const char *setting_name(enum setting setting);
bool setting_of_queue(enum setting setting); /* has a queue it? */
bool setting_of_group(enum setting setting); /* has a group it, or may override it? */
/* 0 and the setting with this name, or -ENOENT. */
int setting_find(const char *name, enum setting *setting);
/* May a setting read this? 0 or EINVAL, and why says what is allowed. */
int setting_check(enum setting setting, const char *text, struct store_why *why);

#define SETTING_TEXT_SIZE 2001 /* of a filter; all others are short */
/* As it is in force: a group shows its queue's value where it has none of its own. Its
 * subscription and filter always are its own: the first is given to it when it is made. */
void store_setting(struct item *item, enum setting setting, char text[SETTING_TEXT_SIZE]);
/* Sets it for a queue or a group; "default" returns to what would be without. Counts from
 * the next claim, write or sweep. EINVAL, what a setting of its own refuses, ESTALE, ENOSPC,
 * EIO. text is borrowed. */
void store_setting_set(struct item *item, enum setting setting, const char *text,
		       store_done done, void *arg);
/* What queues get that are made from now on; not durable. EINVAL. */
int store_setting_default(struct store *store, enum setting setting, const char *text,
			  struct store_why *why);

/* ---- groups: reading (section 4) -------------------------------------------------- */

enum {
	READER_FOLLOW = 1, /* waits for messages, and acks by reading on */
	READER_LEASED = 2, /* acks by store_ack() only */
	READER_JSON = 4,   /* lines of JSON, with events (section 8) */
};

/* Who reads, for `members`. */
struct reader_who {
	pid_t pid;
	uid_t uid;
};

/*
 * Opens a reader of a group, over one partition or (NULL) all of its queue in turn. The
 * reader is the lease: what it was given and did not ack goes back when it closes. ESTALE.
 */
int store_reader_open(struct item *group, struct item *partition, unsigned flags,
		      const struct reader_who *who, struct reader **reader);
void store_reader_close(struct reader *reader);

/*
 * The next bytes for this reader, whole messages while one fits, a longer one in pieces.
 * Without READER_FOLLOW 0 is the end of a pop: its batch was given or nothing waits; the
 * call after that starts another.
 *   neither       a message is acked once its last byte was returned
 *   FOLLOW        the call acks all that was returned before
 *   LEASED        up to a batch; then 0, with FOLLOW EBUSY, until it is acked
 * EAGAIN: nothing now; EALREADY: a commit under way decides; store_wait() tells when. A message that was begun is finished even if
 * its lease is lost meanwhile; that acks nothing. ESTALE, EIO, ENOMEM.
 */
ssize_t store_read(struct reader *reader, char *buffer, size_t size);

/* What was read: of the store's own memory where copying would cost, else of the buffer. */
#define STORE_PIECES 8
struct pieces {
	struct iovec iov[STORE_PIECES];
	int count;
	struct segment *held[STORE_PIECES]; /* until store_pieces_put() */
	int held_count;
};
/* The same without a copy of what is large. *pieces is empty at first. */
ssize_t store_read_pieces(struct reader *reader, char *buffer, size_t size,
			  struct pieces *pieces);
void store_pieces_put(struct store *store, struct pieces *pieces);

/* The last store_read() never reached anybody: what it acked by itself is unread again,
 * unless somebody else went on from there. A piece of a message that was begun stays lost
 * to this reader; the message comes back whole when it closes. */
void store_unread(struct reader *reader);

/*
 * After EAGAIN: 0, and wake(arg) will be called once, from any thread and with no lock
 * held, when a read may find something; or 1: try again now. One wait at a time.
 */
typedef void (*store_wake)(void *arg);
int store_wait(struct reader *reader, store_wake wake, void *arg);
/* Ends a wait: true, and wake will not be called; false, it was or is being called. */
bool store_wait_cancel(struct reader *reader);
/* Would a read return without waiting? If not, and watch is not NULL, watch(arg) will be
 * called once when it may; a later call replaces it, NULL ends it. */
bool store_readable(struct reader *reader, store_wake watch, void *arg);

enum ack_verb { ACK, ACK_TO, ACK_RETRY, ACK_FAIL, ACK_DLQ };
/*
 * What a LEASED reader says of its span. why (may be NULL, borrowed) is kept with a dead
 * letter. EINVAL nothing was returned, ERANGE offset was not returned yet, ESTALE the lease
 * was lost, ENOSPC, EIO. Section 4, Verbs.
 */
void store_ack(struct reader *reader, enum ack_verb verb, int64_t offset, const char *why,
	       store_done done, void *arg);
/* The lease ends that many seconds from now. EINVAL no lease, ESTALE it was lost. */
int store_extend(struct reader *reader, int64_t seconds);

struct member {
	struct reader_who who;
	unsigned flags;
	bool whole_queue;	/* not of one partition alone */
	struct item *partition; /* of its lease, a reference of the caller's; or NULL */
	int64_t from, to;	/* offsets of the lease */
	int64_t lease_us;	/* microseconds left, INT64_MAX without end */
};
/* A row per lease, or per reader without one. The caller puts partitions, frees rows. */
int store_members(struct item *group, struct member **rows, size_t *count);

/* ---- how much and how far: stats and metrics ----------------------------------------- */

/* What became of messages since the store was opened. They only rise; those of a group keep
 * what happened in partitions that are gone. */
struct counts {
	uint64_t delivered;	/* given to a reader first, or first since a seek */
	uint64_t redelivered;	/* given again */
	uint64_t acked;		/* passed by an ack, or by the filter as if acked */
	uint64_t failed;	/* `fail` was said of it */
	uint64_t dead_lettered; /* given up */
	uint64_t skipped;	/* removed before the group had read it */
	uint64_t filtered;	/* not wanted by the group's filter */
	uint64_t filter_errors; /* the filter could not tell */
};

struct cursor_info {
	int64_t committed, last_offset;
	int64_t oldest_us; /* created_at of the oldest unread message, 0: none */
	bool leased;
	struct reader_who holder;
	int64_t lease_us;
	unsigned attempts, failures;
	struct counts counts;
};
/* How far a group is in a partition. ESTALE, EIO. */
int store_cursor_info(struct item *group, struct item *partition,
		      struct cursor_info *info);

struct group_stats {
	uint64_t partitions, leased; /* how many there are; with a lease */
	uint64_t lag;		     /* messages not acked */
	int64_t oldest_us, age_us;   /* of the oldest of them: created_at, age; 0: none */
	uint64_t readers, waiting;
	struct counts counts;
};
/*
 * How far a group is in all partitions of its queue: one pass in memory, in which others get
 * their turn, and a bounded number of looks into the store. After the opening of a store, in
 * a group that is behind in thousands of partitions, the oldest may be even older until this
 * was asked a few times. ESTALE.
 */
int store_group_stats(struct item *group, struct group_stats *stats);

struct queue_stats {
	uint64_t partitions, groups;
	uint64_t messages, bytes, segments; /* retained */
	uint64_t offsets;		    /* given out in the partitions that it has */
	uint64_t pushed, pushed_bytes;	    /* since the store was opened */
};
/* One pass in memory, in which others get their turn. */
void store_queue_stats(struct item *queue, struct queue_stats *stats);

/* How often a value was up to bounds[i], and above the bound before; in the end, above all
 * bounds. */
#define HISTOGRAM_BOUNDS_MAX 20
struct histogram {
	const uint64_t *bounds; /* ascending, static */
	unsigned bound_count;
	uint64_t counts[HISTOGRAM_BOUNDS_MAX + 1];
	uint64_t sum; /* of the values */
};

struct store_stats {
	uint64_t commits, commit_failures; /* since the store was opened */
	struct histogram commit_us;	   /* how long they took, each with its sync */
	struct histogram commit_messages;  /* pushed by each that pushed any */
	uint64_t store_bytes, wal_bytes;   /* the file; what the WAL holds */
	uint64_t full; /* 1: pushes answer ENOSPC until the reserve is there again */
};
void store_stats(struct store *store, struct store_stats *stats);

/* ---- dead letters (section 9) ------------------------------------------------------ */

struct letter_info {
	uint64_t id;	 /* rises with the time of failing */
	char *partition; /* the name it had, the caller frees it */
	uint64_t partition_number;
	int64_t offset, created_us, failed_us;
	unsigned attempts;
	size_t size;
	char error[200];
	char transaction[STORE_TRANSACTION_MAX + 1];
};
/* A dead letter of a group by partition name and offset, or the next by id: ENOENT, EIO. */
int store_letter(struct item *group, const char *partition, int64_t offset,
		 struct letter_info *info);
int store_letter_next(struct item *group, uint64_t after, struct letter_info *info);
/* Copies its payload from a position on. */
ssize_t store_letter_read(struct item *group, uint64_t id, uint64_t position,
			  char *buffer, size_t size);
void store_letter_drop(struct item *group, uint64_t id, store_done done, void *arg);
/* Pushes it again (partition NULL: to the one it came from, made if missing) and drops it,
 * in one transaction. ENOENT, ESTALE, ENOSPC, EIO. */
void store_letter_push(struct item *group, uint64_t id, struct item *partition,
		       store_done done, void *arg);

/* ---- snapshots (section 7) ---------------------------------------------------------- */

struct snapshot_info {
	uint64_t id; /* rises with the time of making */
	char name[STORE_NAME_MAX + 1];
	int64_t created_us, expires_us; /* INT64_MAX: never */
	size_t size;			/* of its text, in bytes */
};
/* A snapshot of a queue by name, or the next by id: ENOENT. */
int store_snapshot(struct item *queue, const char *name, struct snapshot_info *info);
int store_snapshot_next(struct item *queue, uint64_t after, struct snapshot_info *info);
/* Copies its text from a position on. ESTALE: it is gone. */
ssize_t store_snapshot_read(struct item *queue, uint64_t id, uint64_t position,
			    char *buffer, size_t size);
/* Keeps a group's position in all partitions of its queue, in one transaction. EEXIST,
 * EINVAL, ENAMETOOLONG, ETIME it would live less than an hour, ESTALE, ENOSPC, EIO. */
void store_snapshot_make(struct item *group, const char *name, store_done done,
			 void *arg);
void store_snapshot_drop(struct item *queue, uint64_t id, store_done done, void *arg);

/* ---- seeking (sections 5, 6) ------------------------------------------------------- */

/* Where the group stands in a partition: the last consumed offset, never below the oldest
 * retained less one; where it will start if it has not met it. ESTALE. Section 5. */
int store_committed(struct item *group, struct item *partition, int64_t *committed);

struct committed_row {
	struct item *partition; /* a reference of the caller's */
	int64_t committed;
};
/* All partitions of the group's queue at one moment, sorted by name. The caller puts each
 * partition and frees rows. ESTALE, ENOMEM. */
int store_committed_all(struct item *group, struct committed_row **rows, size_t *count);

enum seek_kind {
	SEEK_TO_START,	  /* just below the oldest retained message */
	SEEK_TO_END,	  /* the last offset */
	SEEK_TO_TIME,	  /* just below the first segment with created_at >= value (us) */
	SEEK_TO_OFFSET,	  /* committed = value; a partition only */
	SEEK_TO_TABLE,	  /* a row per partition; a queue only */
	SEEK_TO_SNAPSHOT, /* one of the queue's; a queue only */
};
struct seek_row {
	char *partition; /* its name; "*" is every partition without a row */
	int64_t committed;
};
struct seek {
	enum seek_kind kind;
	int64_t value;
	char *snapshot;	       /* its name, malloc'd */
	struct seek_row *rows; /* owned by the seek; partitions are malloc'd names */
	size_t count;
};

/* Would this row be accepted now, after so many others? ENOENT unknown partition, ERANGE past
 * its last offset, EINVAL more rows than there are partitions. */
int store_seek_check(struct item *group, const struct seek_row *row, size_t before,
		     struct store_why *why);

/*
 * Moves a group in one partition or (NULL) in all of its queue, in one transaction: sets
 * committed, ends leases, resets attempts and delays, makes the cursor if there was none, and shows
 * the partition to waiting readers. Takes what `seek` points to. ENOENT: the queue has no
 * partitions, or an unknown one or snapshot is named. ETIME: the snapshot expires within an
 * hour. ERANGE, ESTALE, ENOSPC, EIO.
 */
void store_seek(struct item *group, struct item *partition, struct seek *seek,
		store_done done, void *arg);
void seek_free(struct seek *seek);

/* ---- times (section 5) ---------------------------------------------------------- */

/*
 * A point in time as people and tools write it: ISO 8601 / RFC 3339 (what date -Is, date
 * -Ins, date --rfc-3339=ns and stat -c %y print), `-15m` `-2h` `-7d` before now_us,
 * `@seconds`. Fractions are rounded up to the microsecond. EINVAL. Pure.
 */
int time_parse(const char *text, int64_t now_us, int64_t *time_us);

/* Writes `2026-07-29T14:00:00.123456Z`. Pure. */
#define TIME_TEXT_SIZE 36
void time_print(int64_t time_us, char text[TIME_TEXT_SIZE]);

#endif
