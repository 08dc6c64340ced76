/* SPDX-License-Identifier: MIT */
/*
 * envelope.c - a message as a JSON line, as push.json takes it (section 2) and as pop.json
 * and follow.json give it (section 4).
 *
 * Not for: cutting lines, or what only the queue knows: its framing, which partition a
 * handle may name, how large a message may be.
 *
 * 1. SQLite reads the JSON. What it lets pass and we do not, or would hand over maimed, is
 *    refused before it sees the line: bytes that are not UTF-8, NULs (it cuts there), halves
 *    of surrogate pairs. All escapes are looked at, wherever they stand: outside of strings
 *    they are no JSON.
 * 2. A string's text is decoded; every other value stays as it was written but for the
 *    blanks between its tokens. So digits and escapes inside come back as they came.
 * 3. What a message points to lies in buffers that the envelope keeps from line to line.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_int.h"

enum key { KEY_DATA, KEY_BASE64, KEY_PARTITION, KEY_TRANSACTION, KEY_ATTRIBUTES, KEYS };

/* One key of the line and its value. */
struct field {
	enum { ABSENT, STRING, OBJECT, OTHER } kind;
	struct buffer text; /* a NUL follows it */
};

struct envelope {
	struct envelope *next; /* idle, in the list of its store */
	struct conn *conn;     /* in memory, without a table */
	struct field fields[KEYS];
	unsigned char sextets[256]; /* of base64, each plus 1; 0: not in the alphabet */
};

static const char base64_alphabet[64] =
	"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* ---- buffers ------------------------------------------------------------------------- */

static int buffer_reserve(struct buffer *buffer, size_t more)
{
	size_t room = buffer->room ? buffer->room : 256;
	char *data;

	if (more <= buffer->room - buffer->size)
		return 0;
	while (room - buffer->size < more)
		room *= 2;
	data = realloc(buffer->data, room);
	if (!data)
		return -ENOMEM;
	buffer->data = data;
	buffer->room = room;
	return 0;
}

int buffer_add(struct buffer *buffer, const char *data, size_t size)
{
	if (size == 0)
		return 0;
	if (buffer_reserve(buffer, size))
		return -ENOMEM;
	memcpy(buffer->data + buffer->size, data, size);
	buffer->size += size;
	return 0;
}

/* ---- reading: what SQLite would let pass --------------------------------------------- */

#define NOT_JSON                                                    \
	"not valid JSON, or nested too deep; a line is one object " \
	"like {\"data\": \"text\"}"

/* The UTF-16 unit that a \u and four digits at `at` stand for, or -1. */
static int escape_unit(const char *at, size_t left)
{
	int unit = 0;

	if (left < 6 || at[0] != '\\' || at[1] != 'u')
		return -1;
	for (int i = 2; i < 6; i++) {
		char digit = at[i], letter = (char)(digit | 0x20);
		if (digit >= '0' && digit <= '9')
			unit = unit * 16 + digit - '0';
		else if (letter >= 'a' && letter <= 'f')
			unit = unit * 16 + letter - 'a' + 10;
		else
			return -1;
	}
	return unit;
}

static bool high_surrogate(int unit)
{
	return unit >= 0xd800 && unit < 0xdc00;
}

static bool low_surrogate(int unit)
{
	return unit >= 0xdc00 && unit < 0xe000;
}

static int escapes_check(const char *line, size_t size, struct store_why *why)
{
	const char *at = line, *end = line + size;

	while (at < end && (at = memchr(at, '\\', (size_t)(end - at)))) {
		size_t left = (size_t)(end - at), length;
		int unit = escape_unit(at, left);
		bool pair = high_surrogate(unit) &&
			    low_surrogate(escape_unit(at + 6, left - 6));
		if (unit == 0)
			return why_set(why, -EINVAL,
				       "\\u0000 is not allowed; data with NUL bytes goes "
				       "into dataBase64");
		if (!pair && (high_surrogate(unit) || low_surrogate(unit)))
			return why_set(why, -EINVAL,
				       "\\u%.4s is one half of a surrogate pair; "
				       "allowed are pairs like \\ud83d\\ude00",
				       at + 2);
		length = pair ? 12 : 2;
		at = length < left ? at + length : end;
	}
	return 0;
}

/* To SQLite 3.40 an object or an array whose last value is a string is a key as well. So what
 * ends before a colon, outside of strings, must be a string. Most lines have neither. */
static bool keys_valid(const char *line, size_t size)
{
	bool quoted = false;
	char last = '\0';

	if (!memchr(line, ']', size) && !memchr(line, '}', size - 1))
		return true;
	for (size_t i = 0; i < size; i++) {
		char c = line[i];
		if (c == '"')
			quoted = !quoted;
		else if (quoted && c == '\\')
			i++;
		else if (!quoted && c == ':' && last != '"')
			return false;
		if ((unsigned char)c > ' ')
			last = c;
	}
	return true;
}

static int line_check(const char *line, size_t size, struct store_why *why)
{
	size_t blanks = 0;
	int error;

	if (memchr(line, '\0', size))
		return why_set(why, -EINVAL,
			       "a NUL byte; data with NUL bytes goes into dataBase64");
	if (!utf8_valid(line, size))
		return why_set(why, -EINVAL,
			       "not valid UTF-8; data that is not goes into dataBase64");
	while (blanks < size && strchr(" \t\r\n", line[blanks]))
		blanks++;
	if (blanks == size || line[blanks] != '{')
		return why_set(
			why, -EINVAL,
			"not a JSON object; a line is one like {\"data\": \"text\"}");
	error = escapes_check(line, size, why);
	return error || keys_valid(line, size) ? error : why_set(why, -EINVAL, NOT_JSON);
}

/* ---- reading: keys and values -------------------------------------------------------- */

/* What base64 stands for takes its place. False: it is not base64, padding and all. */
static bool base64_decode(const unsigned char sextets[256], struct buffer *text)
{
	size_t size = text->size, pad = 0, used = 0;
	unsigned bits = 0;

	if (size % 4 != 0)
		return false;
	while (pad < 2 && pad < size && text->data[size - 1 - pad] == '=')
		pad++;
	for (size_t i = 0; i < size - pad; i++) {
		unsigned sextet = sextets[(unsigned char)text->data[i]];
		if (!sextet)
			return false;
		bits = bits << 6 | (sextet - 1);
		if (i % 4 != 0)
			text->data[used++] = (char)(bits >> (6 - 2 * (i % 4)));
	}
	text->data[used] = '\0';
	text->size = used;
	return !(bits & ((1u << 2 * pad) - 1)); /* the bits that padding cuts off */
}

static int base64_check(struct envelope *envelope, struct field *field,
			struct store_why *why)
{
	if (field->kind != STRING || !base64_decode(envelope->sextets, &field->text))
		return why_set(
			why, -EINVAL,
			"dataBase64 is not a string of base64; allowed are A-Z a-z "
			"0-9 + / padded with = to a multiple of four, no blanks");
	return 0;
}

static int partition_check(struct envelope *envelope, struct field *field,
			   struct store_why *why)
{
	struct store_why name_why;

	(void)envelope;
	if (field->kind != STRING)
		return why_set(why, -EINVAL,
			       "partition is not a string; allowed is a name like "
			       "\"8812\"");
	if (store_name_check(field->text.data, &name_why))
		return why_set(why, -EINVAL, "partition: %s", name_why.text);
	return 0;
}

static int transaction_check(struct envelope *envelope, struct field *field,
			     struct store_why *why)
{
	(void)envelope;
	if (field->kind != STRING || field->text.size < 1 ||
	    field->text.size > TRANSACTION_MAX)
		return why_set(why, -EINVAL,
			       "transactionId is not a string of 1 to %d bytes",
			       TRANSACTION_MAX);
	return 0;
}

static int attributes_check(struct envelope *envelope, struct field *field,
			    struct store_why *why)
{
	(void)envelope;
	if (field->kind != OBJECT)
		return why_set(why, -EINVAL,
			       "attributes is not an object; allowed is one like "
			       "{\"k\": \"v\"}");
	if (field->text.size == strlen("{}"))
		field->kind = ABSENT;
	return 0;
}

static const struct {
	const char *name;
	/* May the line say this? May change it to what is meant. */
	int (*check)(struct envelope *envelope, struct field *field,
		     struct store_why *why);
} keys[KEYS] = {
	[KEY_DATA] = { "data", NULL },
	[KEY_BASE64] = { "dataBase64", base64_check },
	[KEY_PARTITION] = { "partition", partition_check },
	[KEY_TRANSACTION] = { "transactionId", transaction_check },
	[KEY_ATTRIBUTES] = { "attributes", attributes_check },
};

/* Takes a row of STMT_JSON_FIELDS. */
static int field_read(struct envelope *envelope, sqlite3_stmt *row, struct store_why *why)
{
	const char *name = (const char *)sqlite3_column_text(row, 0);
	const char *type = (const char *)sqlite3_column_text(row, 1);
	const char *text = (const char *)sqlite3_column_text(row, 2);
	size_t size = (size_t)sqlite3_column_bytes(row, 2);
	struct field *field;
	int key = 0;

	if (!name || !type)
		return -ENOMEM;
	while (key < KEYS && strcmp(keys[key].name, name) != 0)
		key++;
	if (key == KEYS)
		return why_set(why, -EINVAL,
			       "unknown key \"%.60s\"; allowed are data or dataBase64, "
			       "partition, transactionId, attributes",
			       name);
	field = &envelope->fields[key];
	if (field->kind != ABSENT)
		return why_set(why, -EINVAL, "%s is given twice; allowed is once", name);
	if (!text || buffer_add(&field->text, text, size + 1))
		return -ENOMEM;
	field->text.size = size;
	field->kind = strcmp(type, "text") == 0	    ? STRING
		      : strcmp(type, "object") == 0 ? OBJECT
						    : OTHER;
	return 0;
}

static int fields_read(struct envelope *envelope, const char *line, size_t size,
		       struct store_why *why)
{
	sqlite3_stmt *stmt = conn_stmt(envelope->conn, STMT_JSON_FIELDS);
	int got, error = 0;

	for (int key = 0; key < KEYS; key++) {
		envelope->fields[key].kind = ABSENT;
		envelope->fields[key].text.size = 0;
	}
	conn_error_clear(envelope->conn);
	sqlite3_bind_text64(stmt, 1, line, size, SQLITE_STATIC, SQLITE_UTF8);
	while (!error && (got = conn_step(envelope->conn, stmt)) != 0)
		error = got == 1 ? field_read(envelope, stmt, why) : got;
	sqlite3_reset(stmt);
	if (error == -EIO)
		error = why_set(why, -EINVAL, NOT_JSON);
	return error;
}

static const char *field_text(const struct field *field, size_t *size)
{
	*size = field->kind == ABSENT ? 0 : field->text.size;
	return field->kind == ABSENT ? NULL : field->text.data;
}

int envelope_parse(struct envelope *envelope, const char *line, size_t size,
		   struct message *message, const char **partition, struct store_why *why)
{
	struct field *fields = envelope->fields, *data = &fields[KEY_DATA];
	size_t name_size;
	int error = line_check(line, size, why);

	if (!error)
		error = fields_read(envelope, line, size, why);
	if (error)
		return error;
	if (data->kind == ABSENT)
		data = &fields[KEY_BASE64];
	else if (fields[KEY_BASE64].kind != ABSENT)
		return why_set(why, -EINVAL, "both data and dataBase64; allowed is one");
	if (data->kind == ABSENT)
		return why_set(why, -EINVAL,
			       "neither data nor dataBase64; one is needed");
	for (int key = 0; key < KEYS; key++)
		if (fields[key].kind != ABSENT && keys[key].check) {
			error = keys[key].check(envelope, &fields[key], why);
			if (error)
				return error;
		}
	message->json = data->kind != STRING;
	message->data = field_text(data, &message->size);
	message->transaction =
		field_text(&fields[KEY_TRANSACTION], &message->transaction_size);
	message->attributes =
		field_text(&fields[KEY_ATTRIBUTES], &message->attributes_size);
	*partition = field_text(&fields[KEY_PARTITION], &name_size);
	return 0;
}

int envelope_open(struct envelope **out)
{
	struct envelope *envelope = calloc(1, sizeof(*envelope));
	int error;

	if (!envelope)
		return -ENOMEM;
	for (unsigned i = 0; i < sizeof(base64_alphabet); i++)
		envelope->sextets[(unsigned char)base64_alphabet[i]] =
			(unsigned char)(i + 1);
	error = conn_open(":memory:", SQLITE_OPEN_READWRITE, &envelope->conn, NULL);
	if (!error && !conn_stmt(envelope->conn, STMT_JSON_FIELDS))
		error = envelope->conn->error;
	if (error)
		envelope_close(envelope);
	else
		*out = envelope;
	return error;
}

void envelope_close(struct envelope *envelope)
{
	if (!envelope)
		return;
	for (int key = 0; key < KEYS; key++)
		free(envelope->fields[key].text.data);
	conn_close(envelope->conn);
	free(envelope);
}

/* ---- printing ------------------------------------------------------------------------ */

/* How many bytes at the beginning stand for themselves in a JSON string. */
static size_t plain_length(const char *text, size_t size)
{
	const uint64_t ones = UINT64_C(0x0101010101010101), tops = ones << 7;
	size_t at = 0;

	/* Eight at a time: a top bit is left where a byte is below a blank, is " or is \. */
	for (; size - at >= sizeof(uint64_t); at += sizeof(uint64_t)) {
		uint64_t eight, quote, slash;
		memcpy(&eight, text + at, sizeof(eight));
		quote = eight ^ ones * '"';
		slash = eight ^ ones * '\\';
		if (((eight - ones * ' ') & ~eight & tops) ||
		    ((quote - ones) & ~quote & tops) || ((slash - ones) & ~slash & tops))
			break;
	}
	while (at < size && (unsigned char)text[at] >= ' ' && text[at] != '"' &&
	       text[at] != '\\')
		at++;
	return at;
}

static int escape_add(struct buffer *buffer, unsigned char c)
{
	static const char letters['\\' + 1] = {
		['\b'] = 'b', ['\t'] = 't', ['\n'] = 'n',  ['\f'] = 'f',
		['\r'] = 'r', ['"'] = '"',  ['\\'] = '\\',
	};
	static const char digits[] = "0123456789abcdef";
	const char letter[] = { '\\', letters[c] };
	const char code[] = { '\\', 'u', '0', '0', digits[c >> 4], digits[c & 15] };

	return letter[1] ? buffer_add(buffer, letter, sizeof(letter))
			 : buffer_add(buffer, code, sizeof(code));
}

/* Valid UTF-8 as a JSON string. */
static int string_add(struct buffer *buffer, const char *text, size_t size)
{
	int error = buffer_reserve(buffer, size + 2);

	if (!error)
		error = buffer_add(buffer, "\"", 1);
	while (!error) {
		size_t plain = plain_length(text, size);
		error = buffer_add(buffer, text, plain);
		if (error || plain == size)
			break;
		error = escape_add(buffer, (unsigned char)text[plain]);
		text += plain + 1;
		size -= plain + 1;
	}
	return error ? error : buffer_add(buffer, "\"", 1);
}

static int base64_add(struct buffer *buffer, const char *data, size_t size)
{
	const unsigned char *at = (const unsigned char *)data;
	char *to;

	if (buffer_reserve(buffer, (size + 2) / 3 * 4))
		return -ENOMEM;
	to = buffer->data + buffer->size;
	for (; size > 0; at += 3, to += 4) {
		unsigned bits = (unsigned)at[0] << 16;
		if (size > 1)
			bits |= (unsigned)at[1] << 8;
		if (size > 2)
			bits |= at[2];
		to[0] = base64_alphabet[bits >> 18];
		to[1] = base64_alphabet[bits >> 12 & 63];
		to[2] = size > 1 ? base64_alphabet[bits >> 6 & 63] : '=';
		to[3] = size > 2 ? base64_alphabet[bits & 63] : '=';
		size -= size > 2 ? 3 : size;
	}
	buffer->size = (size_t)(to - buffer->data);
	return 0;
}

static int text_add(struct buffer *buffer, const char *text)
{
	return buffer_add(buffer, text, strlen(text));
}

static int name_add(struct buffer *buffer, const char *name)
{
	return string_add(buffer, name, strlen(name));
}

static int format_add(struct buffer *buffer, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

/* For what is short. */
static int format_add(struct buffer *buffer, const char *format, ...)
{
	char text[128];
	va_list args;
	int size;

	va_start(args, format);
	size = vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	return buffer_add(buffer, text, (size_t)size);
}

static int transaction_add(struct buffer *buffer, const struct message *message)
{
	if (message->transaction)
		return string_add(buffer, message->transaction,
				  message->transaction_size);
	return format_add(buffer, "\"%" PRIu64 "-%" PRId64 "\"",
			  message->partition_number, message->offset);
}

static int data_add(struct buffer *buffer, const struct message *message)
{
	if (message->json)
		return text_add(buffer, ",\"data\":") ||
		       buffer_add(buffer, message->data, message->size);
	if (utf8_valid(message->data, message->size))
		return text_add(buffer, ",\"data\":") ||
		       string_add(buffer, message->data, message->size);
	return text_add(buffer, ",\"dataBase64\":\"") ||
	       base64_add(buffer, message->data, message->size) || text_add(buffer, "\"");
}

int envelope_print(const struct message *message, struct buffer *buffer)
{
	size_t before = buffer->size;
	char created[TIME_TEXT_SIZE];

	time_print(message->created_us, created);
	if (text_add(buffer, "{\"queue\":") || name_add(buffer, message->queue) ||
	    text_add(buffer, ",\"partition\":") || name_add(buffer, message->partition) ||
	    format_add(buffer,
		       ",\"offset\":%" PRId64 ",\"createdAt\":\"%s\",\"transactionId\":",
		       message->offset, created) ||
	    transaction_add(buffer, message) ||
	    format_add(buffer, ",\"attempt\":%u,\"isReplay\":%s,\"attributes\":",
		       message->attempt, message->replay ? "true" : "false") ||
	    (message->attributes
		     ? buffer_add(buffer, message->attributes, message->attributes_size)
		     : text_add(buffer, "{}")) ||
	    data_add(buffer, message) || text_add(buffer, "}\n")) {
		buffer->size = before; /* half a line is none */
		return -ENOMEM;
	}
	return 0;
}

int envelope_quote(const char *text, size_t size, struct buffer *buffer)
{
	return string_add(buffer, text, size);
}

int envelope_take(struct store *store, struct envelope **out)
{
	struct envelope *envelope = envelope_idle(store);

	if (!envelope)
		return envelope_open(out);
	*out = envelope;
	return 0;
}

struct envelope *envelope_idle(struct store *store)
{
	struct envelope *envelope;

	pthread_mutex_lock(&store->pool_lock);
	envelope = store->envelopes;
	if (envelope)
		store->envelopes = envelope->next;
	pthread_mutex_unlock(&store->pool_lock);
	return envelope;
}

void envelope_give(struct store *store, struct envelope *envelope)
{
	pthread_mutex_lock(&store->pool_lock);
	envelope->next = store->envelopes;
	store->envelopes = envelope;
	pthread_mutex_unlock(&store->pool_lock);
}
