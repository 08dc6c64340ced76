/* SPDX-License-Identifier: MIT */
/*
 * test_envelope.c - a message as a JSON line: what push.json accepts and refuses (section
 * 2), what pop.json prints (section 4), and the UTF-8 that both ask for.
 *
 * Every line that is parsed is a copy that ends where its allocation does, so that a
 * sanitizer sees a step too far.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store_int.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#define A50 "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
#define A200 A50 A50 A50 A50
#define A255 A200 A50 "aaaaa"

static struct {
	struct envelope *envelope;
	/* What the last line came to. */
	char *line;
	struct message message;
	const char *partition;
	struct store_why why;
	struct buffer printed;
} test;

static int setup(void **state)
{
	(void)state;
	return envelope_open(&test.envelope);
}

static int teardown(void **state)
{
	(void)state;
	envelope_close(test.envelope);
	free(test.line);
	free(test.printed.data);
	return 0;
}

static const struct message untouched = {
	.data = "?",
	.size = 4711,
	.transaction = "?",
	.attributes = "?",
	.queue = "q",
	.partition = "p",
	.offset = 17,
	.attempt = 3,
};

static int parse_bytes(const char *line, size_t size)
{
	free(test.line);
	test.line = malloc(size ? size : 1);
	assert_non_null(test.line);
	memcpy(test.line, line, size);
	test.message = untouched;
	test.partition = "?";
	test.why.text[0] = '\0';
	return envelope_parse(test.envelope, test.line, size, &test.message,
			      &test.partition, &test.why);
}

static int parse(const char *line)
{
	return parse_bytes(line, strlen(line));
}

#define assert_parsed(line)                                                     \
	do {                                                                    \
		if (parse(line))                                                \
			fail_msg("%.200s: refused, %s", (line), test.why.text); \
	} while (0)

static void text_expect(const char *line, const char *what, const char *got, size_t size,
			const char *expected)
{
	if (!expected ? got != NULL
		      : !got || size != strlen(expected) || memcmp(got, expected, size))
		fail_msg("%s: %s is %.*s, not %s", line, what, (int)size,
			 got ? got : "(none)", expected ? expected : "(none)");
}

static void refusal_expect(const char *line, const char *why)
{
	struct message *message = &test.message;
	int error = parse(line);

	if (error != -EINVAL || strcmp(test.why.text, why) != 0)
		fail_msg("%s: got %d, \"%s\"", line, error, test.why.text);
	assert_memory_equal(message, &untouched, sizeof(*message));
	assert_string_equal(test.partition, "?");
}

/* ---- push.json ----------------------------------------------------------------------- */

static const struct {
	const char *line, *data;
	bool json;
	const char *partition, *transaction, *attributes;
} accepted[] = {
	{ .line = "{\"data\":\"hello\"}", .data = "hello" },
	{ .line = "{\"data\":\"\"}", .data = "" },
	{ .line = " \t\r\n{ \"data\" : \"a b\" } \t\r\n", .data = "a b" },
	{ .line = "{\"data\": \"x\", \"partition\": \"8812\", \"transactionId\": "
		  "\"inv-42\","
		  " \"attributes\": {\"k\": \"v\"}}",
	  .data = "x",
	  .partition = "8812",
	  .transaction = "inv-42",
	  .attributes = "{\"k\":\"v\"}" },
	/* the order of keys does not matter, nor how they are spelt */
	{ .line = "{\"attributes\":{\"a\":1},\"transactionId\":\"t\",\"partition\":\"p\","
		  "\"data\":\"x\"}",
	  .data = "x",
	  .partition = "p",
	  .transaction = "t",
	  .attributes = "{\"a\":1}" },
	{ .line = "{\"\\u0064ata\":\"x\",\"p\\u0061rtition\":\"p\"}",
	  .data = "x",
	  .partition = "p" },
	{ .line = "{\"\\u0064\\u0061\\u0074\\u0061\":1.10}",
	  .data = "1.10",
	  .json = true },
	{ .line = "{\"data\\u0042ase64\":\"aGk=\"}", .data = "hi" },
	/* every kind of value */
	{ .line = "{\"data\":true}", .data = "true", .json = true },
	{ .line = "{\"data\":false}", .data = "false", .json = true },
	{ .line = "{\"data\":null}", .data = "null", .json = true },
	{ .line = "{\"data\":0}", .data = "0", .json = true },
	{ .line = "{\"data\":[]}", .data = "[]", .json = true },
	{ .line = "{\"data\":{}}", .data = "{}", .json = true },
	{ .line = "{\"data\":[ null , true,false ,\"a  b\" ]}",
	  .data = "[null,true,false,\"a  b\"]",
	  .json = true },
	{ .line = "{\"data\":{ \"b\" : { } , \"a\" : [ [ ] ] , \"b\" : 2 }}",
	  .data = "{\"b\":{},\"a\":[[]],\"b\":2}",
	  .json = true },
	{ .line = "{\"data\":{\"\":\"\",\"data\":{\"unknown\":1}}}",
	  .data = "{\"\":\"\",\"data\":{\"unknown\":1}}",
	  .json = true },
	/* JSON in a string is a text */
	{ .line = "{\"data\":\"null\"}", .data = "null" },
	{ .line = "{\"data\":\"{\\\"a\\\": 1}\"}", .data = "{\"a\": 1}" },
	/* escapes of a text are decoded, those inside other values are kept */
	{ .line = "{\"data\":\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"}",
	  .data = "\"\\/\b\f\n\r\t" },
	{ .line = "{\"data\":\"\\u0001\\u001f\\u007f\\u00e9\\u20AC\\uffff\"}",
	  .data = "\x01\x1f\x7f\xc3\xa9\xe2\x82\xac\xef\xbf\xbf" },
	{ .line = "{\"data\":\"\\ud83d\\ude00\\uD800\\uDC00\\udbff\\udfff\"}",
	  .data = "\xf0\x9f\x98\x80\xf0\x90\x80\x80\xf4\x8f\xbf\xbf" },
	{ .line = "{\"data\":\"\\\\u0000 \\\\\\\\ud800 \\\\\"}",
	  .data = "\\u0000 \\\\ud800 \\" },
	{ .line = "{\"data\":[\"\\u00e9\\/\\n\\ud83d\\ude00\",\"\\\\u0000\"]}",
	  .data = "[\"\\u00e9\\/\\n\\ud83d\\ude00\",\"\\\\u0000\"]",
	  .json = true },
	{ .line = "{\"data\":\"\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \x7f\"}",
	  .data = "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \x7f" },
	/* the caller knows the framing */
	{ .line = "{\"data\":\"two\\nlines\"}", .data = "two\nlines" },
	/* partitions */
	{ .line = "{\"data\":1,\"partition\":\"a b\"}",
	  .data = "1",
	  .json = true,
	  .partition = "a b" },
	{ .line = "{\"data\":1,\"partition\":\"\\u00e9\"}",
	  .data = "1",
	  .json = true,
	  .partition = "\xc3\xa9" },
	{ .line = "{\"data\":1,\"partition\":\"" A200 "\"}",
	  .data = "1",
	  .json = true,
	  .partition = A200 },
	/* transactions */
	{ .line = "{\"data\":\"\",\"transactionId\":\"" A255 "\"}",
	  .data = "",
	  .transaction = A255 },
	{ .line = "{\"data\":\"\",\"transactionId\":\"\\n\\u00e9\"}",
	  .data = "",
	  .transaction = "\n\xc3\xa9" },
	/* attributes: an empty object is none */
	{ .line = "{\"data\":\"\",\"attributes\":{}}", .data = "" },
	{ .line = "{\"data\":\"\",\"attributes\":{ \t }}", .data = "" },
	{ .line = "{\"data\":\"\",\"attributes\":{ \"n\" : 1.10, \"o\": { \"\\u0061\": [ "
		  "] } }}",
	  .data = "",
	  .attributes = "{\"n\":1.10,\"o\":{\"\\u0061\":[]}}" },
	/* base64 */
	{ .line = "{\"dataBase64\":\"\"}", .data = "" },
	{ .line = "{\"dataBase64\":\"Zg==\"}", .data = "f" },
	{ .line = "{\"dataBase64\":\"Zm8=\"}", .data = "fo" },
	{ .line = "{\"dataBase64\":\"Zm9v\"}", .data = "foo" },
	{ .line = "{\"dataBase64\":\"Zm9vYg==\"}", .data = "foob" },
	{ .line = "{\"dataBase64\":\"Zm9vYmE=\"}", .data = "fooba" },
	{ .line = "{\"dataBase64\":\"Zm9vYmFy\"}", .data = "foobar" },
	{ .line = "{\"dataBase64\":\"+/+/\"}", .data = "\xfb\xff\xbf" },
	{ .line = "{\"dataBase64\":\"+\\/\\u002b\\/\"}", .data = "\xfb\xff\xbf" },
};

static void test_accepted(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(accepted); i++) {
		const char *line = accepted[i].line;
		const struct message *message = &test.message;

		assert_parsed(line);
		text_expect(line, "data", message->data, message->size, accepted[i].data);
		assert_int_equal(message->json, accepted[i].json);
		text_expect(line, "transactionId", message->transaction,
			    message->transaction_size, accepted[i].transaction);
		text_expect(line, "attributes", message->attributes,
			    message->attributes_size, accepted[i].attributes);
		text_expect(line, "partition", test.partition,
			    test.partition ? strlen(test.partition) : 0,
			    accepted[i].partition);
		/* What only a stored message has is not the line's to say. */
		assert_string_equal(message->queue, "q");
		assert_string_equal(message->partition, "p");
		assert_int_equal(message->offset, 17);
		assert_int_equal(message->attempt, 3);
	}
}

static void test_beginnings(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(accepted); i++) {
		size_t size = strlen(accepted[i].line);

		while (accepted[i].line[size - 1] != '}')
			size--;
		while (size-- > 0)
			assert_int_equal(parse_bytes(accepted[i].line, size), -EINVAL);
	}
}

#define NOT_OBJECT "not a JSON object; a line is one like {\"data\": \"text\"}"
#define NOT_JSON                                                                    \
	"not valid JSON, or nested too deep; a line is one object like {\"data\": " \
	"\"text\"}"
#define NEITHER "neither data nor dataBase64; one is needed"
#define BOTH "both data and dataBase64; allowed is one"
#define KEYS_ALLOWED \
	"; allowed are data or dataBase64, partition, transactionId, attributes"
#define NOT_BASE64                                                                       \
	"dataBase64 is not a string of base64; allowed are A-Z a-z 0-9 + / padded with " \
	"= "                                                                             \
	"to a multiple of four, no blanks"
#define NOT_STRING "partition is not a string; allowed is a name like \"8812\""
#define NAME                                                                           \
	"; a name is 1 to 200 bytes of UTF-8 without '/' or control characters, does " \
	"not "                                                                         \
	"begin with '.' and is not \"*\""
#define NOT_TRANSACTION "transactionId is not a string of 1 to 255 bytes"
#define NOT_ATTRIBUTES "attributes is not an object; allowed is one like {\"k\": \"v\"}"
#define HALF " is one half of a surrogate pair; allowed are pairs like \\ud83d\\ude00"
#define NUL "\\u0000 is not allowed; data with NUL bytes goes into dataBase64"

static const struct {
	const char *line, *why;
} refused[] = {
	/* not an object */
	{ "", NOT_OBJECT },
	{ "  ", NOT_OBJECT },
	{ "hello", NOT_OBJECT },
	{ "\"data\"", NOT_OBJECT },
	{ "17", NOT_OBJECT },
	{ "null", NOT_OBJECT },
	{ "[]", NOT_OBJECT },
	{ "[{\"data\":1}]", NOT_OBJECT },
	{ "\xef\xbb\xbf{\"data\":1}", NOT_OBJECT },
	/* not JSON */
	{ "{", NOT_JSON },
	{ "{\"data\":1", NOT_JSON },
	{ "{\"data\":1}}", NOT_JSON },
	{ "{\"data\":1}{\"data\":1}", NOT_JSON },
	{ "{\"data\":1} x", NOT_JSON },
	{ "{\"data\" 1}", NOT_JSON },
	{ "{\"data\":}", NOT_JSON },
	{ "{data:1}", NOT_JSON },
	{ "{'data':1}", NOT_JSON },
	{ "{\"data\":'x'}", NOT_JSON },
	{ "{\"data\":1,}", NOT_JSON },
	{ "{\"data\":{{\"a\":\"b\"}:1}}", NOT_JSON },
	{ "{\"data\":{[\"a\"] :1}}", NOT_JSON },
	{ "{\"data\":{\"a\":1,[\"b\"]:1}}", NOT_JSON },
	{ "{\"data\":[1,]}", NOT_JSON },
	{ "{\"data\":1 /* one */}", NOT_JSON },
	{ "{\"data\":01}", NOT_JSON },
	{ "{\"data\":-}", NOT_JSON },
	{ "{\"data\":+1}", NOT_JSON },
	{ "{\"data\":1.}", NOT_JSON },
	{ "{\"data\":.5}", NOT_JSON },
	{ "{\"data\":1e}", NOT_JSON },
	{ "{\"data\":0x10}", NOT_JSON },
	{ "{\"data\":NaN}", NOT_JSON },
	{ "{\"data\":Infinity}", NOT_JSON },
	{ "{\"data\":True}", NOT_JSON },
	{ "{\"data\":\"a\tb\"}", NOT_JSON },
	{ "{\"data\":\"a\nb\"}", NOT_JSON },
	{ "{\"data\":\"\\x\"}", NOT_JSON },
	{ "{\"data\":\"\\u12\"}", NOT_JSON },
	{ "{\"data\":\"\\u12g4\"}", NOT_JSON },
	{ "{\"data\":\"\\\"}", NOT_JSON },
	{ "{\"data\":\"x}", NOT_JSON },
	{ "{\"data\":1}\\", NOT_JSON },
	{ "{\"data\":\v1}", NOT_JSON },
	{ "{\"data\":\xc2\xa0"
	  "1}",
	  NOT_JSON },
	/* keys */
	{ "{\"data\":1,\"key\":2}", "unknown key \"key\"" KEYS_ALLOWED },
	{ "{\"Data\":1}", "unknown key \"Data\"" KEYS_ALLOWED },
	{ "{\"data \":1}", "unknown key \"data \"" KEYS_ALLOWED },
	{ "{\"\":1}", "unknown key \"\"" KEYS_ALLOWED },
	{ "{\"d\\u0061t\\u00e9\":1}", "unknown key \"dat\xc3\xa9\"" KEYS_ALLOWED },
	{ "{\"queue\":null,\"data\":1}", "unknown key \"queue\"" KEYS_ALLOWED },
	{ "{\"" A50 "bbbbbbbbbbccccc\":1}",
	  "unknown key \"" A50 "bbbbbbbbbb\"" KEYS_ALLOWED },
	{ "{\"data\":1,\"data\":1}", "data is given twice; allowed is once" },
	{ "{\"data\":1,\"\\u0064ata\":1}", "data is given twice; allowed is once" },
	{ "{\"data\":\"\",\"data\":null}", "data is given twice; allowed is once" },
	{ "{\"data\":1,\"attributes\":{},\"attributes\":{}}",
	  "attributes is given twice; allowed is once" },
	{ "{}", NEITHER },
	{ " { } ", NEITHER },
	{ "{\"partition\":\"p\",\"transactionId\":\"t\",\"attributes\":{\"data\":1}}",
	  NEITHER },
	{ "{\"data\":\"aGk=\",\"dataBase64\":\"aGk=\"}", BOTH },
	{ "{\"dataBase64\":\"\",\"data\":null}", BOTH },
	/* base64 */
	{ "{\"dataBase64\":1}", NOT_BASE64 },
	{ "{\"dataBase64\":null}", NOT_BASE64 },
	{ "{\"dataBase64\":[\"aGk=\"]}", NOT_BASE64 },
	{ "{\"dataBase64\":\"a\"}", NOT_BASE64 },
	{ "{\"dataBase64\":\"aG\"}", NOT_BASE64 },
	{ "{\"dataBase64\":\"aGk\"}", NOT_BASE64 },
	{ "{\"dataBase64\":\"aGkaa\"}", NOT_BASE64 },
	{ "{\"dataBase64\":\"=\"}", NOT_BASE64 },
	{ "{\"dataBase64\":\"==\"}", NOT_BASE64 },
	{ "{\"dataBase64\":\"====\"}", NOT_BASE64 },
	{ "{\"dataBase64\":\"a===\"}", NOT_BASE64 },
	{ "{\"dataBase64\":\"aG=k\"}", NOT_BASE64 },
	{ "{\"dataBase64\":\"aGk=aGk=\"}", NOT_BASE64 },
	{ "{\"dataBase64\":\"aGk==\"}", NOT_BASE64 },
	{ "{\"dataBase64\":\"aGlo====\"}", NOT_BASE64 },
	{ "{\"dataBase64\":\" aGk\"}", NOT_BASE64 },
	{ "{\"dataBase64\":\"aGk \"}", NOT_BASE64 },
	{ "{\"dataBase64\":\"aGlo\\n\"}", NOT_BASE64 },
	{ "{\"dataBase64\":\"aG\\nk\"}", NOT_BASE64 },
	{ "{\"dataBase64\":\"-_-_\"}", NOT_BASE64 },
	{ "{\"dataBase64\":\"a*bc\"}", NOT_BASE64 },
	{ "{\"dataBase64\":\"\xc3\xa9\xc3\xa9\"}", NOT_BASE64 },
	{ "{\"dataBase64\":\"aGl=\"}", NOT_BASE64 }, /* bits behind the last byte */
	{ "{\"dataBase64\":\"aH==\"}", NOT_BASE64 },
	/* partitions */
	{ "{\"data\":1,\"partition\":8812}", NOT_STRING },
	{ "{\"data\":1,\"partition\":null}", NOT_STRING },
	{ "{\"data\":1,\"partition\":{}}", NOT_STRING },
	{ "{\"data\":1,\"partition\":\"\"}", "partition: not a name" NAME },
	{ "{\"data\":1,\"partition\":\"a/b\"}", "partition: not a name" NAME },
	{ "{\"data\":1,\"partition\":\".a\"}", "partition: not a name" NAME },
	{ "{\"data\":1,\"partition\":\"*\"}", "partition: not a name" NAME },
	{ "{\"data\":1,\"partition\":\"a\\nb\"}", "partition: not a name" NAME },
	{ "{\"data\":1,\"partition\":\"\\u0085\"}", "partition: not a name" NAME },
	{ "{\"data\":1,\"partition\":\"" A200 "a\"}", "partition: 201 bytes long" NAME },
	/* transactions */
	{ "{\"data\":1,\"transactionId\":42}", NOT_TRANSACTION },
	{ "{\"data\":1,\"transactionId\":null}", NOT_TRANSACTION },
	{ "{\"data\":1,\"transactionId\":[]}", NOT_TRANSACTION },
	{ "{\"data\":1,\"transactionId\":\"\"}", NOT_TRANSACTION },
	{ "{\"data\":1,\"transactionId\":\"" A255 "a\"}", NOT_TRANSACTION },
	/* attributes */
	{ "{\"data\":1,\"attributes\":null}", NOT_ATTRIBUTES },
	{ "{\"data\":1,\"attributes\":[]}", NOT_ATTRIBUTES },
	{ "{\"data\":1,\"attributes\":\"{}\"}", NOT_ATTRIBUTES },
	{ "{\"data\":1,\"attributes\":1}", NOT_ATTRIBUTES },
	/* escapes that stand for no text, wherever they are */
	{ "{\"data\":\"\\u0000\"}", NUL },
	{ "{\"data\":[{\"a\\u0000\":1}]}", NUL },
	{ "{\"data\":1,\"attributes\":{\"a\":\"\\u0000\"}}", NUL },
	{ "{\"data\\u0000\":1}", NUL },
	{ "{\"data\":\"\\\\\\u0000\"}", NUL },
	{ "{\"data\":\"\\ud800\"}", "\\ud800" HALF },
	{ "{\"data\":\"\\uDBFFx\"}", "\\uDBFF" HALF },
	{ "{\"data\":\"\\udc00\"}", "\\udc00" HALF },
	{ "{\"data\":\"\\udfff\\ud800\"}", "\\udfff" HALF },
	{ "{\"data\":\"\\ud83d\\ud83d\\ude00\"}", "\\ud83d" HALF },
	{ "{\"data\":\"\\ud83d\\ude00\\ude00\"}", "\\ude00" HALF },
	{ "{\"data\":\"\\ud83d\\\\ude00\"}", "\\ud83d" HALF },
	{ "{\"data\":\"\\ud83d \\ude00\"}", "\\ud83d" HALF },
	{ "{\"data\":\"\\ud83d\\u0061\"}", "\\ud83d" HALF },
	{ "{\"data\":{\"\\udead\":1}}", "\\udead" HALF },
	{ "{\"data\":\"\\ud83d\\ude0", "\\ud83d" HALF },
};

static void test_refused(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(refused); i++) {
		refusal_expect(refused[i].line, refused[i].why);
		/* A refusal leaves nothing behind for the next line. */
		assert_parsed("{\"data\":\"fine\"}");
		assert_int_equal(test.message.size, 4);
		assert_null(test.message.transaction);
		assert_null(test.message.attributes);
		assert_null(test.partition);
	}
}

static void test_nul_bytes(void **state)
{
	static const char line[] = "{\"data\":\"abc\"}";

	(void)state;
	for (size_t i = 0; i <= strlen(line); i++) {
		char copy[sizeof(line)];

		memcpy(copy, line, sizeof(line));
		copy[i] = '\0';
		assert_int_equal(parse_bytes(copy, sizeof(line)), -EINVAL);
		assert_string_equal(test.why.text,
				    "a NUL byte; data with NUL bytes goes into "
				    "dataBase64");
	}
}

static const char *const not_utf8[] = {
	"\x80",
	"\xbf",
	"\xc3",
	"\xc3(",
	"\xe2\x82",
	"\xe2\x82(",
	"\xe2(\xac",
	"\xf0\x9f\x98",
	"\xf0\x9f\x98(",
	"\xf0\x9f(\x80",
	"\xf0(\x98\x80",
	/* characters in more bytes than they need */
	"\xc0\x80",
	"\xc0\xaf",
	"\xc1\xbf",
	"\xe0\x80\xaf",
	"\xe0\x9f\xbf",
	"\xf0\x80\x80\xaf",
	"\xf0\x8f\xbf\xbf",
	/* surrogates, also in pairs */
	"\xed\xa0\x80",
	"\xed\xbf\xbf",
	"\xed\xa0\xbd\xed\xb8\x80",
	/* past the last character, and lengths there are not */
	"\xf4\x90\x80\x80",
	"\xf5\x80\x80\x80",
	"\xf8\x88\x80\x80\x80",
	"\xfc\x84\x80\x80\x80\x80",
	"\xfe",
	"\xff",
};

static void test_not_utf8(void **state)
{
	static const char *const around[][2] = {
		{ "{\"data\":\"", "\"}" },     { "{\"data\":[\"ab", "cd\"]}" },
		{ "{\"data\":1,\"", "\":1}" }, { "{\"data\":1}", "" },
		{ "", "{\"data\":1}" },
	};
	char line[128];

	(void)state;
	for (size_t i = 0; i < COUNT(not_utf8); i++)
		for (size_t k = 0; k < COUNT(around); k++) {
			snprintf(line, sizeof(line), "%s%s%s", around[k][0], not_utf8[i],
				 around[k][1]);
			refusal_expect(line, "not valid UTF-8; data that is not goes "
					     "into dataBase64");
		}
}

static void test_digits(void **state)
{
	static const char *const numbers[] = {
		"0",
		"-0",
		"-1",
		"1.10",
		"1.0",
		"-0.0",
		"0.1e1",
		"1e400",
		"1E400",
		"-1e+05",
		"1e-400",
		"9007199254740993",
		"9223372036854775807",
		"9223372036854775808",
		"-9223372036854775809",
		"12345678901234567890123",
		"0.30000000000000000000000000004",
		"100000000000000000000000000000000000000",
	};
	char line[256], data[256];

	(void)state;
	for (size_t i = 0; i < COUNT(numbers); i++) {
		snprintf(line, sizeof(line), "{ \"data\" : %s }", numbers[i]);
		assert_parsed(line);
		text_expect(line, "data", test.message.data, test.message.size,
			    numbers[i]);
		assert_true(test.message.json);
		snprintf(data, sizeof(data), "[%s,{\"n\":%s,\"l\":[%s]}]", numbers[i],
			 numbers[i], numbers[i]);
		snprintf(line, sizeof(line),
			 "{\"data\":[ %s , { \"n\" : %s , \"l\" : [ %s ] } ]}",
			 numbers[i], numbers[i], numbers[i]);
		assert_parsed(line);
		text_expect(line, "data", test.message.data, test.message.size, data);
		snprintf(line, sizeof(line), "{\"data\":\"\",\"attributes\":{\"n\": %s}}",
			 numbers[i]);
		snprintf(data, sizeof(data), "{\"n\":%s}", numbers[i]);
		assert_parsed(line);
		text_expect(line, "attributes", test.message.attributes,
			    test.message.attributes_size, data);
	}
}

/* ---- pop.json ------------------------------------------------------------------------ */

static const struct message stored = {
	.data = "hello",
	.size = 5,
	.queue = "orders",
	.partition = "8812",
	.partition_number = 3,
	.offset = 17,
	.created_us = INT64_C(1785333600123456),
	.attempt = 1,
};

/* Valid until the next call. */
static const char *print(const struct message *message)
{
	test.printed.size = 0;
	assert_int_equal(envelope_print(message, &test.printed), 0);
	assert_int_equal(buffer_add(&test.printed, "", 1), 0);
	return test.printed.data;
}

static void test_printed(void **state)
{
	struct message message = stored;

	(void)state;
	assert_string_equal(print(&message),
			    "{\"queue\":\"orders\",\"partition\":\"8812\",\"offset\":17,"
			    "\"createdAt\":\"2026-07-29T14:00:00.123456Z\","
			    "\"transactionId\":\"3-17\","
			    "\"attempt\":1,\"isReplay\":false,\"attributes\":{},\"data\":"
			    "\"hello\"}\n");
	message.transaction = "inv-42 and more";
	message.transaction_size = 6;
	message.attributes = "{\"k\":\"v\"} and more";
	message.attributes_size = 9;
	message.data = "{\"a\":[1.10,\"\\u00e9\"]} and more";
	message.size = 21;
	message.json = true;
	message.attempt = 2;
	message.replay = true;
	assert_string_equal(
		print(&message),
		"{\"queue\":\"orders\",\"partition\":\"8812\",\"offset\":17,"
		"\"createdAt\":\"2026-07-29T14:00:00.123456Z\","
		"\"transactionId\":\"inv-42\",\"attempt\":2,\"isReplay\":true,"
		"\"attributes\":{\"k\":\"v\"},\"data\":{\"a\":[1.10,\"\\u00e9\"]}}\n");
}

static void test_printed_widest(void **state)
{
	struct message message = stored;

	(void)state;
	message.queue = "\"\\";
	message.partition = "\xc3\xa9'";
	message.partition_number = UINT64_MAX;
	message.offset = INT64_MAX;
	message.created_us = INT64_MIN;
	message.attempt = UINT32_MAX;
	message.size = 0;
	assert_string_equal(
		print(&message),
		"{\"queue\":\"\\\"\\\\\",\"partition\":\"\xc3\xa9'\","
		"\"offset\":9223372036854775807,"
		"\"createdAt\":\"-290308-12-21T19:59:05.224192Z\","
		"\"transactionId\":\"18446744073709551615-9223372036854775807\","
		"\"attempt\":4294967295,\"isReplay\":false,\"attributes\":{},"
		"\"data\":\"\"}\n");
}

/* How the line ends that is printed for a payload that is not JSON. */
static const char *print_data(const char *data, size_t size)
{
	struct message message = stored;
	char *copy = malloc(size ? size : 1);
	const char *line;

	assert_non_null(copy);
	memcpy(copy, data, size);
	message.data = copy;
	message.size = size;
	line = print(&message);
	free(copy);
	line = strstr(line, "\"attributes\":{},");
	assert_non_null(line);
	return line + strlen("\"attributes\":{},");
}

static void test_printed_data(void **state)
{
	static const struct {
		const char *data;
		size_t size;
		const char *printed;
	} texts[] = {
		{ "a\0b", 3, "\"data\":\"a\\u0000b\"}\n" },
		{ "\0\0", 2, "\"data\":\"\\u0000\\u0000\"}\n" },
		{ "\"\\/", 3, "\"data\":\"\\\"\\\\/\"}\n" },
		{ "\b\f\n\r\t", 5, "\"data\":\"\\b\\f\\n\\r\\t\"}\n" },
		{ "\x01\x0b\x1f\x7f", 4, "\"data\":\"\\u0001\\u000b\\u001f\x7f\"}\n" },
		{ "\xc3\xa9\xf0\x9f\x98\x80", 6,
		  "\"data\":\"\xc3\xa9\xf0\x9f\x98\x80\"}\n" },
		{ "17", 2, "\"data\":\"17\"}\n" },
		{ "\xff", 1, "\"dataBase64\":\"/w==\"}\n" },
		{ "\xff\xfe", 2, "\"dataBase64\":\"//4=\"}\n" },
		{ "\xff\xfe\xfd", 3, "\"dataBase64\":\"//79\"}\n" },
		{ "abc\xe2\x82", 5, "\"dataBase64\":\"YWJj4oI=\"}\n" },
		{ "\0\xff", 2, "\"dataBase64\":\"AP8=\"}\n" },
	};

	(void)state;
	for (size_t i = 0; i < COUNT(texts); i++)
		assert_string_equal(print_data(texts[i].data, texts[i].size),
				    texts[i].printed);
	for (size_t i = 0; i < COUNT(not_utf8); i++)
		assert_memory_equal(print_data(not_utf8[i], strlen(not_utf8[i])),
				    "\"dataBase64\":\"", 14);
}

static void test_printed_appends(void **state)
{
	struct buffer lines = { NULL, 0, 0 };
	const char *line = print(&stored);
	size_t size = strlen(line);

	(void)state;
	assert_int_equal(buffer_add(&lines, NULL, 0), 0);
	for (size_t i = 0; i < 1000; i++)
		assert_int_equal(envelope_print(&stored, &lines), 0);
	assert_int_equal(lines.size, 1000 * size);
	for (size_t i = 0; i < 1000; i++)
		assert_memory_equal(lines.data + i * size, line, size);
	free(lines.data);
}

/* ---- there and back ------------------------------------------------------------------ */

/* A payload is printed, what was printed is pushed, and it is the same payload. */
static void round_trip(const char *data, size_t size)
{
	struct buffer line = { NULL, 0, 0 };
	const char *end = print_data(data, size);
	int error;

	assert_int_equal(buffer_add(&line, "{", 1), 0);
	assert_int_equal(buffer_add(&line, end, strlen(end)), 0);
	error = parse_bytes(line.data, line.size);
	if (error || test.message.size != size || test.message.json ||
	    memcmp(test.message.data, data, size) != 0)
		fail_msg("%.100s: got %d, %s", line.data, error, test.why.text);
	free(line.data);
}

static size_t utf8_put(uint32_t code, char *to)
{
	if (code < 0x80) {
		to[0] = (char)code;
		return 1;
	}
	if (code < 0x800) {
		to[0] = (char)(0xc0 | code >> 6);
		to[1] = (char)(0x80 | (code & 63));
		return 2;
	}
	if (code < 0x10000) {
		to[0] = (char)(0xe0 | code >> 12);
		to[1] = (char)(0x80 | (code >> 6 & 63));
		to[2] = (char)(0x80 | (code & 63));
		return 3;
	}
	to[0] = (char)(0xf0 | code >> 18);
	to[1] = (char)(0x80 | (code >> 12 & 63));
	to[2] = (char)(0x80 | (code >> 6 & 63));
	to[3] = (char)(0x80 | (code & 63));
	return 4;
}

static void test_every_character(void **state)
{
	char text[4 * 251];
	size_t size = 0;

	(void)state;
	for (uint32_t code = 1; code <= 0x10ffff; code++) {
		if (code == 0xd800)
			code = 0xe000;
		size += utf8_put(code, text + size);
		if (size > sizeof(text) - 4) {
			round_trip(text, size);
			size = 0;
		}
	}
	round_trip(text, size);
}

/* splitmix64: the same bytes in every run. */
static uint64_t random_next(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static void test_any_bytes(void **state)
{
	uint64_t seed = 1;
	char data[96];

	(void)state;
	for (int i = 0; i < 20000; i++) {
		size_t size = random_next(&seed) % sizeof(data);

		for (size_t k = 0; k < size; k++)
			data[k] = (char)random_next(&seed);
		if (size > 0)
			data[random_next(&seed) % size] = '\xff';
		round_trip(data, size);
	}
}

/* Texts of few characters, so that escapes fall on every place of eight bytes. */
static void test_any_text(void **state)
{
	static const char letters[] = "aaaaaaaaaaaa\"\\\n\x01\x1f \x7f!#[]/u";
	uint64_t seed = 2;
	char data[96];

	(void)state;
	for (int i = 0; i < 50000; i++) {
		size_t size = random_next(&seed) % sizeof(data);

		for (size_t k = 0; k < size; k++)
			data[k] = letters[random_next(&seed) % strlen(letters)];
		round_trip(data, size);
	}
}

static void test_big(void **state)
{
	static const struct {
		const char *unit;
		size_t size;
	} units[] = {
		{ "a", 1 },    { "\"", 1 }, { "\n", 1 }, { "\xe2\x82\xac", 3 },
		{ "\xff", 1 },
	};
	enum { BIG = 3 << 20 };
	char *data = malloc(BIG);

	(void)state;
	assert_non_null(data);
	for (size_t i = 0; i < COUNT(units); i++) {
		for (size_t at = 0; at < BIG; at += units[i].size)
			memcpy(data + at, units[i].unit, units[i].size);
		round_trip(data, BIG);
	}
	free(data);
}

static void test_deep(void **state)
{
	enum { DEPTH = 900, TOO_DEEP = 100000 };
	static const char before[] = "{\"data\":";
	char *line = malloc(sizeof(before) + 2 * (size_t)TOO_DEEP + 1);

	(void)state;
	assert_non_null(line);
	for (size_t depth = DEPTH; depth <= TOO_DEEP; depth += TOO_DEEP - DEPTH) {
		char *at = stpcpy(line, before);
		size_t size = 2 * depth;

		memset(at, '[', depth);
		memset(at + depth, ']', depth);
		at[size] = '}';
		if (depth == TOO_DEEP) {
			assert_int_equal(parse_bytes(line, strlen(before) + size + 1),
					 -EINVAL);
			assert_string_equal(test.why.text, NOT_JSON);
			break;
		}
		assert_int_equal(parse_bytes(line, strlen(before) + size + 1), 0);
		assert_int_equal(test.message.size, size);
		assert_memory_equal(test.message.data, at, size);
	}
	free(line);
}

/* ---- UTF-8 --------------------------------------------------------------------------- */

static void test_utf8_counts(void **state)
{
	/* How many characters have one, two and three bytes. */
	enum { ONE = 128, TWO = 0x800 - 0x80, THREE = 0x10000 - 0x800 - 0x800 };
	static const size_t valid[] = {
		1,
		ONE,
		ONE * ONE + TWO,
		ONE * ONE * ONE + 2 * ONE * TWO + THREE,
	};

	(void)state;
	for (size_t size = 0; size < COUNT(valid); size++) {
		size_t count = 0;

		for (uint32_t n = 0; n < UINT32_C(1) << 8 * size; n++) {
			const char text[] = { (char)n, (char)(n >> 8), (char)(n >> 16) };
			count += utf8_valid(text, size);
		}
		assert_int_equal(count, valid[size]);
	}
}

static void test_utf8_four_bytes(void **state)
{
	static const unsigned char rest[] = { 0x00, 0x7f, 0x80, 0x8f, 0x90,
					      0x9f, 0xa0, 0xbf, 0xc0, 0xff };

	(void)state;
	for (unsigned lead = 0xf0; lead <= 0xff; lead++)
		for (size_t i = 0; i < COUNT(rest) * COUNT(rest) * COUNT(rest); i++) {
			const unsigned char text[] = { (unsigned char)lead,
						       rest[i % COUNT(rest)],
						       rest[i / 10 % COUNT(rest)],
						       rest[i / 100] };
			uint32_t code = (lead & 7u) << 18 | (text[1] & 63u) << 12;
			bool whole = lead < 0xf8 && text[1] >> 6 == 2 &&
				     text[2] >> 6 == 2 && text[3] >> 6 == 2;
			assert_int_equal(utf8_valid((const char *)text, 4),
					 whole && code >= 0x10000 && code <= 0x10ffff);
		}
}

static void test_utf8_everywhere(void **state)
{
	char text[32];

	(void)state;
	for (size_t size = 1; size <= sizeof(text); size++)
		for (size_t at = 0; at < size; at++) {
			memset(text, 'a', size);
			text[at] = '\x80';
			assert_false(utf8_valid(text, size));
			text[at] = '\xc3';
			assert_false(utf8_valid(text, size));
			if (at + 1 == size)
				continue;
			text[at + 1] = '\xa9';
			assert_true(utf8_valid(text, size));
			assert_false(utf8_valid(text, at + 1));
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		{ .name = "what section 2 accepts means exactly this message",
		  .test_func = test_accepted },
		{ .name = "a line cut short anywhere is refused, and read no further",
		  .test_func = test_beginnings },
		{ .name = "all else is EINVAL, says why and leaves the results alone",
		  .test_func = test_refused },
		{ .name = "a NUL byte is refused wherever it is",
		  .test_func = test_nul_bytes },
		{ .name = "what is not UTF-8 is refused wherever it is",
		  .test_func = test_not_utf8 },
		{ .name = "numbers come back digit for digit", .test_func = test_digits },
		{ .name = "a message is printed as section 4 says",
		  .test_func = test_printed },
		{ .name = "the widest of everything fits",
		  .test_func = test_printed_widest },
		{ .name = "a payload is a string, or base64 if it is not UTF-8",
		  .test_func = test_printed_data },
		{ .name = "lines are appended one after the other",
		  .test_func = test_printed_appends },
		{ .name = "every character goes there and back",
		  .test_func = test_every_character },
		{ .name = "any bytes go there and back", .test_func = test_any_bytes },
		{ .name = "any text goes there and back", .test_func = test_any_text },
		{ .name = "megabytes go there and back", .test_func = test_big },
		{ .name = "deep nesting is kept, and refused when SQLite does",
		  .test_func = test_deep },
		{ .name = "of all texts up to three bytes as many are UTF-8 as should be",
		  .test_func = test_utf8_counts },
		{ .name = "UTF-8 of four bytes ends at U+10FFFF",
		  .test_func = test_utf8_four_bytes },
		{ .name = "a wrong byte is seen at every place",
		  .test_func = test_utf8_everywhere },
	};

	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("envelope", tests, setup, teardown);
}
