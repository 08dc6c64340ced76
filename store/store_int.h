/* SPDX-License-Identifier: MIT */
/*
 * store_int.h - what the files of store/ share; one block per file.
 *
 * The locks of the store, each a leaf: no SQLite call and no callback under one.
 *   state   everything in memory that decides: items, cursors, leases, ready lists, the
 *           segment cache, the queue of jobs. Functions that need it end in _locked.
 *   pool    the list of idle reading connections.
 *   copy    is no leaf either: held by the thread that copies the WAL while it does, and by
 *           who begins the WAL anew.
 *   gate    (read/write) is no leaf: a reading connection is used under its read side, so
 *           that a checkpoint that restarts the WAL and takes the write side finds none.
 * Committing is a role, not a lock: store->committing says that a thread has it. Only its
 * holder uses the writing connection and changes what is committed, so it may read that
 * state without `state`.
 */
#ifndef STORE_INT_H
#define STORE_INT_H

#include <errno.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "array.h"
#include "store.h"
#include "thread.h"

#define container_of(pointer, type, member) \
	((type *)(void *)((char *)(pointer)-offsetof(type, member)))

/* ---- why.c ------------------------------------------------------------------------ */

/* Fills why (NULL is fine) and returns error, so that a refusal is one statement. */
int why_set(struct store_why *why, int error, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* ---- utf8.c ------------------------------------------------------------------------ */

bool utf8_valid(const char *text, size_t size);

/* ---- stmt.c: every SQL text in one table, prepared on first use ------------------- */

enum stmt {
	STMT_BEGIN,
	STMT_COMMIT,
	STMT_ROLLBACK,
	STMT_META_GET,
	STMT_META_SET,
	STMT_USER_VERSION,
	STMT_PAGE_BYTES,
	STMT_QUEUE_ALL,
	STMT_QUEUE_INSERT,
	STMT_QUEUE_DELETE,
	STMT_QUEUE_ACCESS,
	STMT_PARTITION_ALL,
	STMT_PARTITION_INSERT,
	STMT_PARTITION_DELETE,
	STMT_PARTITION_ACCESS,
	STMT_PARTITION_NEXT,
	STMT_PARTITION_END,
	STMT_PARTITION_CURSORS_DELETE,
	STMT_GROUP_ALL,
	STMT_GROUP_INSERT,
	STMT_GROUP_STARTED,
	STMT_GROUP_DELETE,
	STMT_GROUP_ACCESS,
	STMT_GROUP_CURSORS_DELETE,
	STMT_GROUPS_OF_QUEUE_DELETE,
	STMT_CURSOR_ALL,
	STMT_CURSOR_SET,
	STMT_SEGMENT_INSERT,
	STMT_SEGMENTS_BELOW_DELETE,
	STMT_BODY_INSERT,
	STMT_BODY_DELETE,
	STMT_SEGMENT_FIRST,
	STMT_SEGMENT_OLDEST,
	STMT_SEGMENT_LAST,
	STMT_SEGMENT_AT,
	STMT_SEGMENT_FROM,
	STMT_SEGMENT_RUN,
	STMT_SETTING_ALL,
	STMT_SETTING_SET,
	STMT_SETTING_DELETE,
	STMT_QUEUE_SETTINGS_DELETE,
	STMT_GROUP_SETTINGS_DELETE,
	STMT_SNAPSHOT_ALL,
	STMT_SNAPSHOT_INSERT,
	STMT_SNAPSHOT_EXPIRED,
	STMT_SNAPSHOT_TEXT,
	STMT_SNAPSHOT_DELETE,
	STMT_SNAPSHOTS_OF_QUEUE_DELETE,
	STMT_LETTER_INSERT,
	STMT_LETTER_FIND,
	STMT_LETTER_NEXT,
	STMT_LETTER_DATA,
	STMT_LETTER_DELETE,
	STMT_LETTERS_OF_GROUP,
	STMT_LETTERS_OF_QUEUE,
	STMT_JSON_FIELDS,
	STMT_SEEN_FIND,
	STMT_SEEN_SET,
	STMT_SEEN_DELETE,
	STMT_SEEN_OF_PARTITION,
	STMT_SEEN_END,
	STMT_FREE_PAGES,
	STMT_COUNT
};

/* One connection and its prepared statements; used by one thread at a time. */
struct conn {
	sqlite3 *db;
	sqlite3_stmt *stmts[STMT_COUNT];
	int error; /* -errno of the first failure since conn_error_clear(), or 0 */
	struct store_why why;
	atomic_bool doubtful; /* a sync has failed: wal_mend() */
	struct conn *next;    /* in the pool */
};

/* The statement, reset and unbound; NULL on failure (conn->error is set, and conn_step
 * and the binders take NULL). */
sqlite3_stmt *conn_stmt(struct conn *conn, enum stmt id);
void bind_int(sqlite3_stmt *stmt, int at, int64_t value);
void bind_null(sqlite3_stmt *stmt, int at);
void bind_text(sqlite3_stmt *stmt, int at,
	       const char *text); /* borrowed until the reset */
void bind_blob(sqlite3_stmt *stmt, int at, const void *data, size_t size); /* borrowed */
/* 1 a row, 0 done (and reset), -errno (and reset). */
int conn_step(struct conn *conn, sqlite3_stmt *stmt);
/* Runs a statement that returns no row: 0 or -errno. */
int conn_run(struct conn *conn, sqlite3_stmt *stmt);
int conn_exec(struct conn *conn, const char *sql);
/* Copies part of a blob: how much, 0 past its end. */
ssize_t row_slice(sqlite3_stmt *row, int column, uint64_t position, char *buffer,
		  size_t size);
int conn_fail(struct conn *conn, int sqlite_code);  /* notes and returns -errno */
int conn_fail_errno(struct conn *conn, int number); /* the same for a system call */
/* The same for a row that does not add up. */
int conn_damaged(struct conn *conn, const char *table);
void conn_error_clear(struct conn *conn);

/* ---- db.c: connections ------------------------------------------------------------- */

int conn_open(const char *path, int flags, struct conn **conn, struct store_why *why);
void conn_close(struct conn *conn);

/* A reading connection for this thread until db_read_end(); waits only for a checkpoint. */
int db_read_begin(struct store *store, struct conn **conn);
void db_read_end(struct store *store, struct conn *conn);

/* ---- wal.c: synced, mended, copied into the file ----------------------------------- */

int wal_sync(struct store *store);
/* After a sync that failed: what was committed is on the disk, what was refused is not. */
int wal_mend(struct store *store);
#define WAL_FRAME_HEADER 24 /* before each page in the WAL */
/* The committing role: empties the WAL, if it is past its limit or anyway; with CUT its file
 * is cut. */
enum checkpoint { CHECKPOINT_IF_LARGE, CHECKPOINT_NOW, CHECKPOINT_CUT };
void wal_checkpoint(struct store *store, enum checkpoint when);
/* Mends what the last start has left. */
int wal_open(struct store *store);
/* Before the last connection is closed: SQLite then copies what is left, and removes the WAL. */
void wal_close(struct store *store);
int copy_start(struct store *store);
void copy_end(struct store *store);

/* ---- schema.c: tables as text, version, migration --------------------------------- */

#define STORE_APPLICATION_ID 0x51756565 /* "Quee" */
#define STORE_VERSION 3
#define STORE_PAGE_BYTES 16384 /* of a new store; an older one keeps what it has */

/* Is this file, not opened yet, ours or empty? 0, EMEDIUMTYPE, or what open(2) says. */
int schema_probe(const char *path, struct store_why *why);
/* Makes a store at path if there is none or an empty file. */
int schema_make(const char *path, struct store_why *why);
/* Brings an older store to this version, in one transaction. */
int schema_update(struct store *store, struct store_why *why);

/* ---- reserve.c: room for the undo ------------------------------------------------- */

int reserve_open(struct store *store, struct store_why *why);
void reserve_close(struct store *store);
int reserve_take(struct store *store); /* ENOSPC: there is not enough room yet */
void reserve_free(struct store *store);
/* Zeros from a position on, up to size: 0 or -errno. */
int zeros_write(int fd, uint64_t from, uint64_t size);
/* Writes the WAL to its limit once: writing over it later costs half of growing it. */
int wal_prepare(struct store *store);

/* ---- item.c: things with names ---------------------------------------------------- */

/*
 * An item is born by the commit that inserts its row. Until then a partition that a push
 * made is UNBORN: found by name for further pushes, invisible otherwise.
 */
enum item_state { ITEM_UNBORN, ITEM_LIVE, ITEM_DROPPED };

struct item {
	enum item_kind kind;
	enum item_state state;
	bool leaving; /* its drop is being committed: no new reader */
	atomic_uint refs;
	uint64_t id; /* 0 until born */
	char *name;
	struct store *store;
	struct item *parent; /* a reference; NULL for a queue */
	struct item *hash_next;
	struct access *access; /* one per directory of its kind */
};

/* ---- names.c ---------------------------------------------------------------------- */

/* The children of one kind. by_id ascends; a dropped item leaves a hole until many have. */
struct names {
	struct item **by_id;
	size_t used, room, holes;
	struct item **buckets;
	size_t bucket_count, count;
};

size_t name_hash(const char *name);
int names_find_locked(struct names *names, const char *name, struct item **item);
int names_add_locked(struct names *names, struct item *item);  /* by name: ENOMEM */
int names_reserve_locked(struct names *names, size_t more);    /* then born cannot fail */
size_t names_after(const struct names *names, uint64_t after); /* place of the next id */
void names_born_locked(struct names *names, struct item *item); /* by id as well */
void names_remove_locked(struct names *names, struct item *item);
void names_free(struct names *names);
#define names_each(names, at, var)                    \
	for (size_t at = 0; at < (names)->used; at++) \
		if (((var) = (names)->by_id[at]) != NULL)

/* ---- item.c again ------------------------------------------------------------------ */

struct names *item_names(struct store *store, struct item *parent, enum item_kind kind);
unsigned item_dirs(enum item_kind kind);
/* While loading: a queue, or with group_id not 0 its group; borrowed, NULL if missing. */
struct item *item_by_ids(struct store *store, uint64_t queue_id, uint64_t group_id);
struct item *item_new(struct store *store, struct item *parent, enum item_kind kind,
		      const char *name, const struct access *access);
void access_text(const struct access *access, unsigned count, char *text, size_t size);
#define ACCESS_TEXT_SIZE (STORE_DIRS_MAX * 32)
int items_load(struct store *store);
void items_free(struct store *store);

struct group;

/* ---- settings.c ------------------------------------------------------------------- */

/* A value is a number (a count, seconds, bytes, enum framing), for retry_delay_seconds a
 * least and a greatest one. A subscription is a time (us), or one of these. A filter is not
 * here: group.filter_text. */
struct setting_value {
	int64_t least, greatest;
};
#define START_ALL INT64_MIN
#define START_NEW INT64_MAX
struct settings {
	struct setting_value values[SETTING_COUNT];
	bool set[SETTING_COUNT];
};
void settings_init(struct settings *settings); /* the defaults of the program */
/* A setting being written: its value, which its file will show as text, and what comes with
 * it, made by apply for the publishing. */
struct setting_change {
	struct setting_value value;
	char text[SETTING_TEXT_SIZE];
	struct move *moves; /* of the cursors of a group that starts elsewhere */
	size_t move_count;
	struct filter *filter; /* the new one; once published, the one before */
};
/* In force for a group. */
const struct setting_value *setting_locked(const struct group *group,
					   enum setting setting);
int settings_load(struct store *store);
int settings_write(struct store *store, const struct item *queue); /* of a new queue */
/* A new group gets what is decided when it is made: its queue's subscription. */
int settings_inherit(struct store *store, struct group *group);

/* ---- alarm.c: what happens by time ------------------------------------------------------ */

struct alarm {
	int64_t at_us;			   /* monotonic, 0: not set */
	struct alarm *child, *next, *prev; /* prev of a first child: its parent */
	/* Called by the timer thread, once, when it is no longer set. */
	void (*ring_locked)(struct store *store, struct alarm *alarm);
};
void alarm_set_locked(struct store *store, struct alarm *alarm,
		      int64_t at_us); /* 0: none */
/* The same for a time of the clock; may ring earlier, so look whether it is time. */
void alarm_clock_locked(struct store *store, struct alarm *alarm, int64_t clock);
int64_t alarm_next_locked(const struct store *store); /* INT64_MAX: none */
void alarms_ring_locked(struct store *store);	      /* those that are due */

/* ---- queue.c, partition.c, group.c: what is held in memory for each ---------------- */

TAILQ_HEAD(reader_list, reader);

struct queue {
	struct item item;
	struct access access[QUEUE_DIRS];
	struct settings settings;
	uint64_t dealt; /* for spread: messages pushed without a partition */
	uint64_t pushed, pushed_bytes; /* since the store was opened */
	struct names partitions, groups;
	TAILQ_HEAD(snapshot_list, snapshot) snapshots; /* by id */
	uint32_t slots; /* slots given out: a partition's place in each group's cursors */
	uint32_t *free_slots; /* those of dropped partitions; has room for all */
	uint32_t free_count, free_room;
};

struct partition {
	struct item item;
	struct access access[PARTITION_DIRS];
	uint32_t slot;
	bool prepared;	  /* being born: has its slot and cursors */
	bool removing;	  /* the removal of its oldest segments is being committed */
	unsigned readers; /* open readers of this partition alone */
	int64_t first, last;
	uint64_t first_position, end_position;
	int64_t modified_us, made_us;
	int64_t tail_base; /* from here on segments are in the tail; INT64_MAX: none is */
	/* Of the oldest segment the last offset, time and number; of the newest the first
	 * offset and number; its time is modified_us. */
	int64_t oldest_end, oldest_us, oldest_number;
	int64_t newest_base, newest_number;
	/* Retention: when the oldest segment is due; or it is due, or being removed; or it
	 * waits for the slowest group. */
	struct alarm alarm;
	enum { SWEEP_NOT, SWEEP_LISTED, SWEEP_NOW } sweep;
	TAILQ_ENTRY(partition) sweep_entry;
	bool waits;
	/* The committing role's, while a batch is built; pending counts queued pushes. */
	struct partition *batch_next;
	struct push_part *pushes, **pushes_end;
	int64_t batch_last, batch_created_us;
	uint64_t batch_end_position;
	int64_t batch_count; /* messages in pushes */
	int64_t batch_oldest_end, batch_oldest_us, batch_oldest_number;
	int64_t batch_newest_base, batch_newest_number;
	unsigned pending;
};

/* Nothing counts as far as that; so what is read from a store can be added up. */
#define COUNT_MAX (INT64_MAX / 4)
/* The end of the year 9999; a store was made after 1970. */
#define TIME_MAX_US INT64_C(253402300799999999)

/* How many seeks there were, and how many of them moved back. */
struct seeks {
	uint32_t all, back;
};

/*
 * A group's place in one partition. There is one per pair from birth to drop. Its states
 * are drawn at the head of claim.c.
 */
struct cursor {
	struct group *group;
	struct partition *partition;
	int64_t committed; /* see cursor_committed_locked(): retention may be past it */
	/* Up to here messages have been given to somebody. Past committed they came back, or
	 * are leased; what came back is given one at a time. */
	int64_t delivered;
	unsigned attempts; /* deliveries of committed + 1 */
	unsigned failures; /* of committed + 1, by `fail` */
	uint32_t epoch;	   /* one per lease: an ack from an older one is refused */
	uint32_t pins;	   /* spans that point here: a dropped partition waits for them */
	bool held;	   /* leased, under epoch, by holder */
	struct reader *holder;
	bool overdue; /* held, and may be taken */
	bool delayed; /* not before its alarm */
	bool seeking; /* a seek is being committed */
	bool busy;    /* its head is being dead-lettered: no claim until it is */
	/* What a verb of this batch has written and not published: the next one goes on from
	 * there, and nobody claims meanwhile. */
	const struct cursor_state *applied;
	struct alarm alarm; /* when overdue is set or delayed ends */
	int64_t hint;	    /* base of the segment last read */
	bool ready;	    /* in the group's ready list */
	bool dirty;	    /* in the store's list of cursors to be committed */
	bool sought;	    /* see struct cursor_state */
	struct seeks seeks;
	struct counts counts; /* by cursor_count() */
	/* For stats.c: the segment in which the oldest unread message was found. */
	int64_t unread_base, unread_end, unread_us;
	TAILQ_ENTRY(cursor) ready_entry, dirty_entry;
	struct reader_list
		waiting; /* readers of this partition alone, first come first */
};
TAILQ_HEAD(cursor_list, cursor);
/* Of the cursor, and of its group, which outlives it. */
#define cursor_count(cursor, what, count) \
	((cursor)->counts.what += (count), (cursor)->group->counts.what += (count))
#define CURSOR_DELAY_US 50000 /* what is consumed is committed within 100 ms */

struct group {
	struct item item;
	struct access access[GROUP_DIRS];
	struct settings settings; /* its overrides, and what is its own */
	char *filter_text;	  /* NULL: none */
	struct cursor **cursors;  /* by slot */
	uint32_t room;
	struct reader_list readers; /* open readers */
	unsigned reader_count;
	struct reader_list waiting; /* readers of the whole queue that wait */
	unsigned waiting_count;	    /* also those of one partition */
	struct cursor_list ready;   /* partitions with messages to claim, in turn */
	bool started; /* somebody has read: subscription and filter are decided */
	struct filter *filter; /* or NULL */
	struct seeks seeks;
	struct counts counts; /* of all its cursors, also those that are gone */
	unsigned watch_count; /* readers with a watch */
	unsigned dying;	      /* busy cursors */
	unsigned jobs;	      /* lease jobs under way */
};

int partition_load(struct partition *partition, sqlite3_stmt *row);
int group_load(struct group *group, sqlite3_stmt *row);

struct queue *queue_of(struct item *item);
uint64_t partition_segments_locked(const struct partition *partition);
bool queue_lines_locked(struct item *queue); /* framing is line */
struct partition *partition_of(struct item *item);
struct group *group_of(struct item *item);

struct item *partition_or_unborn_locked(struct item *queue, const char *name, int *error);
/* Before the commit: inserts the row and gets all that birth needs, so that it cannot fail. */
int partition_insert(struct store *store, struct partition *partition);
void partition_born_locked(struct partition *partition);
/* Not committed, one push less is pending; applied: what it inserted is gone. */
void partition_undo_locked(struct partition *partition, bool applied);
void partition_gone_locked(struct partition *partition); /* its cursors and slot go */

int group_insert(struct store *store, struct group *group);
void group_born_locked(struct group *group);
void group_init(struct group *group);
void group_clear(struct group *group); /* frees its cursors */
int cursor_make_locked(struct group *group, struct partition *partition);
void cursor_free_locked(struct group *group, struct partition *partition);
struct cursor *cursor_locked(struct group *group, struct partition *partition);
int64_t cursor_committed_locked(const struct cursor *cursor);
/* Puts it in or out of the ready list; true if it became ready. */
bool cursor_ready_locked(struct cursor *cursor);
void cursor_dirty_locked(struct cursor *cursor); /* to be committed soon */
/* Would a seek there give again what was given? */
bool cursor_moves_back_locked(const struct cursor *cursor, int64_t committed);
/* A seek was committed: it stands there, and nobody has got anything from there on. */
void cursor_move_locked(struct cursor *cursor, int64_t committed, bool sought);
/* Nobody holds it any more; pause: what came back waits for retry_delay. */
void cursor_free_lease_locked(struct cursor *cursor, bool pause);
/* What of a cursor is durable. */
struct cursor_state {
	int64_t committed, delivered;
	unsigned attempts, failures;
	bool sought; /* a seek has set it, so where the group starts does not matter */
};
struct cursor_state cursor_state_locked(const struct cursor *cursor);
/* committed moves up to offset: what was counted of the message before ends. */
void cursor_pass(struct cursor_state *state, int64_t offset);
void cursor_set_locked(struct cursor *cursor, const struct cursor_state *state);
int cursor_write(struct store *store, const struct cursor *cursor,
		 const struct cursor_state *state);
void partition_wake_locked(struct partition *partition); /* it grew */

/* ---- envelope.c: a message as a JSON line and back --------------------------------- */

/* A message as it is stored, or as a line of push.json brought it. All is borrowed. */
struct message {
	const char *data; /* the payload, without the newline of line framing */
	size_t size;
	bool json;		 /* data is JSON, not the text of a string */
	const char *transaction; /* its transactionId; NULL: none of its own */
	size_t transaction_size;
	const char *attributes; /* a JSON object; NULL: none */
	size_t attributes_size;
	/* Of one that is stored. */
	const char *queue, *partition; /* names */
	uint64_t partition_number;
	int64_t offset, created_us;
	unsigned attempt;
	bool replay;
};
#define TRANSACTION_MAX STORE_TRANSACTION_MAX

/* A growing text; free(data) at the end. */
struct buffer {
	char *data;
	size_t size, room;
};
int buffer_add(struct buffer *buffer, const char *data, size_t size); /* ENOMEM */

/* A parser of push.json; used by one thread at a time. It has an SQLite connection and keeps
 * room for the longest line it met: for many lines, not one for each handle. */
struct envelope;
/* One for this thread until it is given back. */
int envelope_take(struct store *store, struct envelope **envelope);
void envelope_give(struct store *store, struct envelope *envelope);
struct envelope *envelope_idle(struct store *store); /* one of them, or NULL */
int envelope_open(struct envelope **envelope);	     /* ENOMEM */
void envelope_close(struct envelope *envelope);
/* One line without its newline. Fills data to attributes_size of *message, and *partition
 * (NULL if the line names none): valid until the next call. EINVAL and why, which does not
 * know the line's number; ENOMEM. Section 2. */
int envelope_parse(struct envelope *envelope, const char *line, size_t size,
		   struct message *message, const char **partition,
		   struct store_why *why);
/* Appends the line of pop.json and follow.json, with its newline. ENOMEM. Section 4. */
int envelope_print(const struct message *message, struct buffer *buffer);
int envelope_quote(const char *text, size_t size, struct buffer *buffer); /* as JSON */

/* ---- wild.c: LIKE and GLOB with the work counted ------------------------------------- */

/* Borrowed bytes. */
struct text {
	const unsigned char *at, *end;
};
/* 1 or 0: does all of text match? Takes from *work what it costs beyond once the length of
 * text; -ETIME: there was not enough. escape NULL: none; -EINVAL: it is not one character. */
int wild_like(struct text pattern, struct text text, const struct text *escape,
	      int64_t *work);
int wild_glob(struct text pattern, struct text text, int64_t *work);

/* ---- filter.c: a group's filter (section 11) ---------------------------------------- */

/* A compiled filter, which may be tested by any thread. */
struct filter;
/* Compiles an expression of up to 2000 bytes. EINVAL: why has SQLite's
 * words, or what the sandbox does not allow; ENOMEM. */
int filter_compile(const char *text, struct filter **filter, struct store_why *why);
/* 1 true, 0 not true (false or NULL), -1 it failed, as -> does on what is not JSON, or was
 * too much work. The same for the same message always. One test at a time, others wait. */
int filter_test(struct filter *filter, const struct message *message);
struct filter *filter_get(struct filter *filter); /* one more reference */
void filter_free(struct filter *filter);	  /* one less; NULL is fine */

/* ---- messages.c: messages side by side ----------------------------------------------- */

/* Records of meta: the at-th of count; what one says (borrowed); are they whole? */
const char *record_find(const char *meta, size_t count, size_t at, size_t *size);
void record_read(const char *record, size_t size, struct message *message);
bool record_fits(const unsigned char *record, size_t size); /* one that is not empty */
bool meta_valid(const char *meta, size_t size, size_t count);

/* Messages being put together. */
struct maker {
	struct buffer data, records;
	uint32_t *ends, *record_ends, count;
};
int maker_add(struct maker *maker, const struct message *message, bool lines);
int maker_take(struct maker *maker, bool lines,
	       struct messages *messages); /* empties it */
void maker_free(struct maker *maker);
/* Those at these places, in this order. */
int messages_pick(const struct messages *all, const uint32_t *which, uint32_t count,
		  struct messages *picked);
struct push_part;
/* Those of the parts from `first` up to but not with `end`; a single one is not copied. */
int messages_join(struct push_part *first, const struct push_part *end,
		  struct messages *joined);

/* ---- segment.c: a segment's bytes and index --------------------------------------- */

/* Immutable once shared; counted. Offsets base..end, data as the log shows it. */
struct segment {
	unsigned refs; /* under state; the cache holds one */
	uint64_t partition;
	struct segment_info info;
	char *data;
	uint32_t *ends; /* ends[i]: just past message base + i */
	char *meta;	/* what messages have besides, or NULL: see segment.c */
	size_t meta_size;
	struct segment *hash_next;
	TAILQ_ENTRY(segment) lru;
};
TAILQ_HEAD(segment_list, segment);

#define SEGMENT_BYTES_MAX (4u << 20)
#define SEGMENT_INLINE_MAX 1900 /* ends and data; a row of segments then fits a page */

struct segment_cache {
	struct segment *buckets[16384];
	struct segment_list lru; /* the most recently used last */
	size_t bytes;
};

/* Takes the messages; NULL: ENOMEM. */
struct segment *segment_new(uint64_t partition, const struct segment_info *info,
			    struct messages *messages);
void segment_put_locked(struct segment *segment); /* NULL is fine */
void segment_put(struct store *store, struct segment *segment);
void cache_add_locked(struct store *store, struct segment *segment);
void cache_forget_locked(struct store *store, uint64_t partition, int64_t base);
void cache_clear(struct store *store);
/* The cached segment with this offset, with a reference; hint: a base to try first. */
struct segment *cache_find_locked(struct store *store, struct partition *partition,
				  int64_t offset, int64_t hint);
/* The segment with this offset from the store, with a reference; caches it and some that
 * follow. ENOENT, EIO, ENOMEM. */
int segment_load_from(struct store *store, struct conn *conn, struct partition *partition,
		      int64_t offset, struct segment **segment);
int segment_load(struct store *store, struct partition *partition, int64_t offset,
		 struct segment **segment);
/* A segment that should be there is not: waits for a removal under way; 0, the oldest has
 * moved past offset, or -EIO, the store is damaged. */
int segment_missing_locked(struct store *store, const struct partition *partition,
			   int64_t offset);
/* Bytes [*from, *to) of message `offset`. */
void segment_message(const struct segment *segment, int64_t offset, uint32_t *from,
		     uint32_t *to);

/* All that a message has but the names of where it is; borrowed. */
void segment_view(const struct segment *segment, int64_t offset, bool lines,
		  struct message *message);
/* Its record of meta; size 0: it has none. */
const char *segment_record(const struct segment *segment, int64_t offset, size_t *size);
/* The segment that holds an offset (STMT_SEGMENT_AT) or the next (_FROM): 1, 0, -errno. */
int segment_at(struct conn *conn, enum stmt which, uint64_t partition, int64_t offset,
	       struct segment_info *info);

enum segment_key { BY_TIME, BY_POSITION };
/* The first segment in offsets low..high created at or after a time, or that ends past a
 * byte position: 1 and info, 0 none, -errno. O(log segments). */
int segment_search(struct conn *conn, uint64_t partition, int64_t low, int64_t high,
		   enum segment_key key, int64_t value, struct segment_info *info);
/* Where a seek to an end, a start or a time puts a partition. The committing role. */
int seek_resolve(struct store *store, const struct seek *seek,
		 const struct partition *partition, int64_t *committed);
/* EIO: they do not add up. */
int segment_info_columns(sqlite3_stmt *stmt, struct segment_info *info);

/* ---- wait.c: readers that wait meet messages that arrive -------------------------- */

/* A cursor becomes overdue, or its delay ends. */
void cursor_ring_locked(struct store *store, struct alarm *alarm);
/* This cursor can be claimed: one who waits for it is to be woken. */
void wait_ready_locked(struct cursor *cursor);
void wait_watched_locked(struct cursor *cursor); /* those who poll may look again */
/* A woken reader may have left something: the next who waits. */
void wait_next_locked(struct group *group);
void wait_wake_locked(struct reader *reader); /* if it waits */
void wait_all_locked(struct group *group);
void wait_forget_locked(struct reader *reader); /* it closes */
int passing_start(struct store *store);
/* Calls those that are to be woken; after `state` was given up, by whoever may have made
 * something ready. */
void wait_run(struct store *store);
bool wait_calling(void); /* is this thread inside one of those calls? */
void timer_at_locked(struct store *store,
		     int64_t at_us); /* the timer thread looks then */

/* ---- claim.c: readers -------------------------------------------------------------- */

/* A cursor, and where it is to stand. */
struct move {
	struct cursor *cursor;
	int64_t committed;
};

struct range {
	int64_t from, to;
};

/* One lease of a reader. */
struct span {
	struct cursor *cursor; /* pinned */
	uint32_t epoch;	       /* of the cursor when it was claimed */
	int64_t next;	       /* the first that was not returned to its last byte */
	int64_t end;	       /* the last that may be returned */
	bool single;	       /* one that came back: given alone */
	bool recorded;	       /* LEASED: its attempt is committed */
	int64_t wanted;	       /* LEASED: the filter wants this one, -1: not asked yet */
	struct range *passed;  /* LEASED: what the filter did not want, ascending */
	uint32_t passed_count;
	TAILQ_ENTRY(span) entry;
};

struct reader {
	struct store *store;
	struct item *group;	/* a reference */
	struct item *partition; /* a reference, or NULL: all of the queue */
	unsigned flags;		/* without READER_JSON */
	bool json;
	struct reader_who who;
	struct filter *filter; /* of the group, from the first read on; or NULL */
	TAILQ_ENTRY(reader) group_entry;
	TAILQ_HEAD(span_list, span) spans; /* the last one is being read */
	int64_t given; /* messages begun since the last ack or the pop's beginning */
	bool shares;   /* somebody waited when this read began: one partition only */
	bool ended;    /* the next read answers the end of this pop */
	/* The message that was begun, or segment is NULL; its span may be lost. */
	struct segment *segment;
	struct span *begun;
	int64_t offset;
	uint32_t at, to; /* the bytes of it that are left */
	/* JSON: lines ready to be returned, from text_at on; text_message: the message that
	 * was begun. Nobody else touches it, so it is copied without the lock. */
	struct buffer text;
	size_t text_at;
	bool text_message;
	bool passing; /* it was passing over messages and has given way */
	/* JSON: replay marks. By slot, for partitions numbered up to marks_until; or the one
	 * of its partition. */
	bool marked, replaying;
	struct seeks seeks; /* those it knows of */
	uint64_t replayed;
	int64_t mark, *marks;
	uint32_t mark_count;
	uint64_t marks_until;
	/* For store_unread(). */
	struct item *undo_partition; /* a reference, or NULL */
	uint32_t undo_epoch;
	struct cursor_state undo_from;
	int64_t undo_to;
	/* For store_wait() and store_readable(). */
	store_wake wake, watch;
	void *wake_arg, *watch_arg;
	enum { WAIT_NOT, WAIT_RECORD, WAIT_PASSING, WAIT_LISTED, WAIT_WOKEN } wait;
	TAILQ_ENTRY(reader) wait_entry; /* of its cursor or group, or the store's woken */
	/* LEASED: the job that records its span, or what became of it. */
	struct lease_job *recording;
	int record_error;
};

bool span_live_locked(const struct span *span);
/* The cursor that this reader would claim now, or NULL. */
struct cursor *candidate_locked(const struct reader *reader);
/* The last offset that needs no ack of its own after this one. */
int64_t span_past(const struct span *span, int64_t offset);
/* Passes what the filter did not want behind what is acked. */
void span_settle_locked(struct span *span);
void span_release_locked(struct reader *reader, struct span *span, bool pause);
bool reader_ready_locked(struct reader *reader);

/* ---- replay.c: what a reader of JSON is told besides messages (section 8) -------------- */

/* Is this offset at or below the reader's mark? */
bool replays_locked(const struct reader *reader, const struct cursor *cursor,
		    int64_t next);
/* The last offset that the reader may be given of this partition just now. */
int64_t limit_locked(const struct reader *reader, const struct cursor *cursor);
/* The first of the ready cursors with something below its mark, or NULL. */
struct cursor *replay_candidate_locked(const struct reader *reader);
/* Is there an event to tell: marks are to be set, a replay has come to its end? */
bool marks_due_locked(const struct reader *reader);
bool replay_ended_locked(const struct reader *reader);
/* Between messages: tells them, in reader->text. ENOMEM. */
int replay_locked(struct reader *reader);
/* Retention or rm may have passed this cursor; from `next` on the group has not been given
 * anything. What of that is gone it never will be: counted, and told. ENOMEM. */
int gap_locked(struct reader *reader, struct cursor *cursor, int64_t next);

/* ---- dlq.c --------------------------------------------------------------------------- */

/* In a transaction: keeps a copy of a message as a dead letter. */
int letter_write(struct store *store, const struct cursor *cursor, int64_t offset,
		 unsigned attempts, const char *error);
/* In a transaction: 0, or ENOENT when it is gone already. */
int letter_delete(struct store *store, const struct item *group, uint64_t id);

/* ---- ack.c ----------------------------------------------------------------------------- */

/* Both give up `state` while they commit, and take it again. */
int lease_record_locked(struct reader *reader); /* its span, before it is returned */
/* The head of a cursor that was delivered too often becomes a dead letter. */
int lease_dead_locked(struct reader *reader, struct cursor *cursor);
void lease_forget_locked(struct reader *reader); /* it closes */

/* ---- commit.c: the one place that writes ------------------------------------------ */

struct job;

/*
 * What a durable change does, in order: apply inside the transaction (may refuse with
 * -errno before it wrote anything), then publish if it was committed or undo if it was
 * refused or not committed, both under state and neither may fail, then the callback, then
 * free. After an undo, apply may run once more.
 */
struct job_type {
	bool alone; /* changes what exists: a transaction of its own */
	bool push;  /* answers ENOSPC while the reserve is gone */
	bool lazy;  /* need not be on the disk when it is answered */
	int (*apply)(struct store *store, struct job *job);
	void (*publish_locked)(struct store *store, struct job *job);
	void (*undo_locked)(struct store *store, struct job *job);
	void (*free)(struct job *job);
};

struct job {
	const struct job_type *type;
	struct job *next;
	int error;
	struct store_why why;
	struct item *item; /* these are what store_result shows */
	const struct verdict *verdicts;
	size_t verdict_count;
	store_done done;
	void *arg;
};

/* Queues a job and, if nobody commits, commits all that is queued. */
void commit_submit(struct store *store, struct job *job);
/* Answers a job that cannot even be queued, and frees it. */
void commit_refuse(struct job *job, int error);
void nobody(void *arg, const struct store_result *result); /* a done of no one */
/* Answers where not even a job could be allocated. */
void job_refuse(store_done done, void *arg, int error);
extern const struct job_type sync_type;
int timer_start(struct store *store);
#define CHORE_LEAST_US 1000
/* A sweep or a step of shrinking has ended. */
void chore_done_locked(struct store *store, int64_t took_us);

/* ---- push.c ------------------------------------------------------------------------ */

/* What a push adds to one partition. */
struct push_part {
	struct partition *partition; /* a reference */
	struct messages messages;
	uint32_t *order; /* which items these are of the push; NULL: in its order */
	struct push_part *next; /* of the same partition, in this batch */
};
struct push_job {
	struct job job;
	struct item
		*letter_group; /* a reference: the dead letter that this pushes again */
	uint64_t letter;
	bool applied; /* its partitions were inserted, if new, by this batch */
	struct verdict *verdicts; /* one an item, if they are wanted */
	unsigned part_count;
	struct push_part parts[];
};
struct push_job *push_new(unsigned parts, store_done done, void *arg); /* NULL: ENOMEM */
/* The next part goes to a partition of the queue, by name made if missing, or to this one.
 * Takes the messages; -errno and nothing is added. */
int push_add_locked(struct push_job *push, struct item *queue, struct item *partition,
		    const char *name, struct messages *messages);
/* Commits it, or answers with the error that the making of it met. */
void push_submit(struct store *store, struct push_job *push, int error);
/* To which partition the messages without one go in turn; 1: all to "default". */
uint64_t push_deal(struct item *queue, uint32_t count, uint64_t *turn);
void push_dealt_name(uint64_t turn, uint64_t spread, char name[24]);

/* Pushes the one message of a group's dead letter, which is dropped in the same transaction.
 * name is the partition's if partition is NULL. Takes the messages. */
void push_letter(struct item *group, uint64_t letter, struct item *partition,
		 const char *name, struct messages *messages, store_done done, void *arg);
/* The committing role: writes the segments of this batch; then exactly one of the others. */
void push_write_segments(struct store *store, struct segment_list *made);
/* How many messages they have. */
uint64_t push_publish_segments_locked(struct store *store, struct segment_list *made);
/* A plain push to partitions that exist, and there is room for it in the tail? Adds its bytes
 * to *sum. */
bool push_for_tail(struct store *store, struct job *job, size_t *sum);
/* In a transaction. */
void segment_write(struct store *store, const struct segment *segment);
void push_forget_segments(struct store *store, struct segment_list *made);

/* ---- member.c, stats.c ----------------------------------------------------------------- */

int64_t lease_left_locked(const struct cursor *cursor); /* INT64_MAX: it has no end */

void stats_init(struct store *store);
/* A commit took so long and pushed so much. */
void stats_commit_locked(struct store *store, int64_t took_us, uint64_t messages);

/* ---- snapshot.c ---------------------------------------------------------------------- */

struct snapshot;
/* The messages past this offset a snapshot holds; INT64_MAX: none. */
int64_t snapshots_floor_locked(const struct partition *partition);
/* One to seek to, with `state` until it is given up: ENOENT, ETIME. */
int snapshot_seek_locked(struct item *queue, const char *name,
			 const struct snapshot **snapshot, struct store_why *why);
int64_t snapshot_committed(const struct snapshot *snapshot, const struct item *partition);
int snapshot_load(struct store *store, sqlite3_stmt *row);
void snapshots_forget_locked(struct item *queue); /* it goes, and they with it */
/* The timer thread: drops one that has expired; `state` is given up meanwhile. */
bool snapshots_step_locked(struct store *store);

/* ---- tail.c: pushes that SQLite does not have yet --------------------------------------- */

struct tail;
int tail_open(struct store *store,
	      struct store_why *why); /* brings what is left of it in */
void tail_close(struct store *store);
/* Does a push with these fit, after those of *sum bytes? Adds to *sum. */
bool tail_fits(struct store *store, const struct messages *messages, size_t *sum);
int tail_write(struct store *store, const struct segment_list *made);
void tail_publish_locked(struct store *store, struct partition *partition,
			 struct segment *segment);
/* In a transaction, first: SQLite gets it; and after that, whether it was committed. */
void tail_fold(struct store *store);
void tail_folded(struct store *store, bool committed);
bool tail_due_locked(const struct store *store);
void tail_hasten_locked(struct store *store);	     /* it is due now */
bool tail_empty(const struct store *store);	     /* the committing role */
int64_t tail_next_locked(const struct store *store); /* when it will be, or INT64_MAX */
enum tail_key { TAIL_OFFSET, TAIL_NEXT, TAIL_POSITION };
/* The segment with an offset, the first from an offset on, the one with a byte position; with
 * a reference, or NULL: then SQLite has it. */
struct segment *tail_find_locked(struct store *store, const struct partition *partition,
				 enum tail_key key, int64_t value);

/* ---- retain.c -------------------------------------------------------------------------- */

/* Looks whether the oldest segment is to go: of a partition, of all of a queue. */
void retain_look_locked(struct partition *partition);
void retain_queue_locked(struct item *queue);
void retain_grown_locked(struct partition *partition);	/* it was pushed to */
void retain_forget_locked(struct partition *partition); /* it goes */
void retain_ring_locked(struct store *store, struct alarm *alarm);
/* The timer thread: sweeps a partition; `state` is given up meanwhile. */
bool retain_step_locked(struct store *store);

/* ---- shrink.c: room that rm and retention left goes back to the disk ------------------- */

/* The committing role, after a batch: is there so much room that some is given back? */
void shrink_look(struct store *store);
/* The timer thread: gives some back; `state` is given up meanwhile. */
bool shrink_step_locked(struct store *store);

/* ---- subscription.c: where a group starts (section 6) -------------------------------- */

/* Of a group being born: sets its cursors to where it starts, and writes them. */
int subscription_begin(struct store *store, struct group *group);
/* The same for the cursors that no seek has set, when config/subscription is written. */
int subscription_apply(struct store *store, struct item *item,
		       struct setting_change *change, struct store_why *why);
void subscription_publish_locked(struct store *store, struct item *item,
				 struct setting_change *change);
/* EBUSY: somebody has read as this group. */
int subscription_open(struct group *group, struct store_why *why);
/* Somebody reads as this group for the first time: made durable, nobody waits. */
void subscription_decided(struct group *group);

/* ---- dedup.c: transactionIds that were seen ------------------------------------------ */

/* In a transaction: takes out of a part what was pushed before within the window, notes the
 * rest. The part's first message will have offset `base`. */
int dedup_part(struct store *store, struct push_part *part, int64_t base,
	       struct verdict *verdicts);
int dedup_load(struct store *store); /* when the first window ends */
void dedup_due_locked(struct store *store);
void dedup_ring_locked(struct store *store, struct alarm *alarm);
/* The timer thread: rows whose window has ended; `state` is given up meanwhile. */
bool dedup_step_locked(struct store *store);

/* ---- the store --------------------------------------------------------------------- */

struct store {
	char *path;
	bool disk;
	uint64_t wal_limit_bytes;
	int lock_fd;

	/* state: see the head of this file */
	pthread_mutex_t state;
	struct names queues;
	struct access access[ROOT_DIRS];
	struct segment_cache cache;
	int64_t newest_us; /* newest created_at ever given out */
	struct job *jobs, **jobs_end;
	bool committing;
	struct cursor_list dirty;
	struct alarm *alarms;		/* the next one */
	TAILQ_HEAD(, partition) sweeps; /* whose oldest segment is due */
	TAILQ_HEAD(, snapshot) expired; /* to be dropped */
	struct alarm seen_alarm;
	bool seen_due;		  /* transactionIds are to be forgotten */
	int64_t chore_next_us;	  /* monotonic; INT64_MAX: one is under way */
	struct reader_list woken; /* to be called by wait_run() */
	struct settings defaults; /* of new queues */
	bool shrinking;		  /* free pages wait to be given back */
	bool stopping;
	uint64_t commits, commit_failures;
	struct histogram commit_histogram, messages_histogram;
	pthread_cond_t timer_wake;
	pthread_cond_t removed; /* partition.removing has ended */
	int64_t dirty_due_us;	/* monotonic */
	int64_t timer_until_us; /* when the timer thread looks again */
	struct thread timer;
	struct reader_list passing; /* reads that pass over messages, in turn */
	pthread_cond_t passing_wake;
	struct thread passer;

	/* the committing role's */
	struct conn *writer;
	size_t page_bytes;	       /* of the file */
	struct tail *tail;	       /* NULL: its file could not be made */
	bool to_tail;		       /* this batch goes there */
	bool synchronous_full;	       /* what the writer's pragma is set to */
	_Atomic uint64_t wal_bytes;    /* store_stats() reads it */
	uint64_t wal_retry_bytes;      /* somebody else reads: try again at this size */
	_Atomic uint64_t copied_bytes; /* of the WAL: the file has them */
	/* Pushed to by this batch; new ones are born in this order, which is that of ids. */
	struct partition *batch_partitions, **batch_partitions_end;
	int64_t commit_us;   /* newest_us as this batch will leave it */
	bool batch_freed;    /* this batch deleted something large */
	int64_t seen_end_us; /* when the first transactionId may be forgotten, INT64_MAX */

	int reserve_fd;
	uint64_t reserve_bytes;
	atomic_bool full; /* the reserve is gone: pushes answer ENOSPC */

	pthread_mutex_t copy_lock;
	pthread_cond_t copy_wake;
	bool copy_stop;
	struct thread copier;
	struct conn *copier_conn;

	pthread_rwlock_t gate;
	pthread_mutex_t pool_lock;
	struct conn *pool;
	struct envelope *envelopes; /* idle ones */
};

/* A row of meta: 1 and its value in column 0, to be reset; 0 none; -errno. While loading. */
int meta_find(struct store *store, const char *key, sqlite3_stmt **row);
int64_t now_locked(const struct store *store); /* store_now() */
int64_t clock_us(void);
int64_t monotonic_us(void);

#endif
