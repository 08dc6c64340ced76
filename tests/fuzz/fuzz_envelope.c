/* SPDX-License-Identifier: MIT */
/* fuzz_envelope.c - lines of push.json: what is accepted keeps its limits, prints as a line
 * of pop.json that is JSON, and pushed again says the same (sections 2 and 4). */
#include "fuzz.h"
#include "store_int.h"

static struct envelope *parser, *again;

/* What a line of pop.json says beyond what push.json knows. */
static char *push_line(const struct buffer *printed)
{
	static const char from[] = ",\"transactionId\":", attempt[] = ",\"attempt\":1";
	static const char attributes[] = ",\"attributes\":";
	char *line = fuzz_text((const uint8_t *)printed->data, printed->size - 1);
	char *at = strstr(line, from), *cut = strstr(line, attempt);
	char *rest = cut ? strstr(cut, attributes) : NULL, *out;

	PROMISE(at && cut && rest && at < cut);
	out = malloc(printed->size + 1);
	PROMISE(out);
	snprintf(out, printed->size + 1, "{%.*s%s", (int)(cut - at - 1), at + 1, rest);
	free(line);
	return out;
}

static bool same(const char *a, size_t a_size, const char *b, size_t b_size)
{
	return !a == !b && a_size == b_size &&
	       (a_size == 0 || (a && b && memcmp(a, b, a_size) == 0));
}

static void round_trip(const struct message *message)
{
	struct buffer printed = { 0 };
	struct message back = { 0 };
	struct store_why why = { "" };
	const char *partition;
	char *line;

	PROMISE(envelope_print(message, &printed) == 0);
	PROMISE(printed.size > 1 && printed.data[printed.size - 1] == '\n');
	PROMISE(!memchr(printed.data, '\n', printed.size - 1));
	PROMISE(utf8_valid(printed.data, printed.size));
	if (!memchr(message->data, '\0', message->size)) {
		line = push_line(&printed);
		PROMISE(envelope_parse(again, line, strlen(line), &back, &partition,
				       &why) == 0);
		PROMISE(same(message->data, message->size, back.data, back.size));
		PROMISE(back.json == message->json);
		PROMISE(same(message->attributes, message->attributes_size,
			     back.attributes, back.attributes_size));
		PROMISE(!message->transaction ||
			same(message->transaction, message->transaction_size,
			     back.transaction, back.transaction_size));
		free(line);
	}
	free(printed.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct message message = { .queue = "q", .partition = "p", .attempt = 1 };
	const char *partition = NULL;
	struct store_why why = { "" };
	char *line;
	int error;

	if (!parser)
		PROMISE(envelope_open(&parser) == 0 && envelope_open(&again) == 0);
	if (size == 0 || memchr(data, '\n', size))
		return 0;    /* lines are cut before */
	line = malloc(size); /* no NUL follows a line */
	PROMISE(line);
	memcpy(line, data, size);
	error = envelope_parse(parser, line, size, &message, &partition, &why);
	PROMISE(error == 0 || error == -EINVAL);
	PROMISE(!error || why.text[0]);
	if (!error) {
		PROMISE(!partition || store_name_check(partition, &why) == 0);
		PROMISE(message.data);
		PROMISE(message.transaction_size <= TRANSACTION_MAX);
		PROMISE(!message.json || utf8_valid(message.data, message.size));
		round_trip(&message);
	}
	free(line);
	return 0;
}
