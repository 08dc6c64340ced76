/* SPDX-License-Identifier: MIT */
/*
 * notify.c - the protocol of sd_notify(3), without its library.
 *
 * The socket is opened for each of the few messages, so that nothing is held for years.
 */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "notify.h"
#include "say.h"

static struct sockaddr_un address = { .sun_family = AF_UNIX };
static socklen_t address_length; /* 0: nobody listens */

void notify_begin(void)
{
	const char *name = getenv("NOTIFY_SOCKET");
	size_t length = name ? strlen(name) : 0;

	if (length > 1 && length < sizeof(address.sun_path) && strchr("/@", *name)) {
		memcpy(address.sun_path, name, length);
		if (*name == '@') /* a name in the abstract namespace */
			address.sun_path[0] = '\0';
		address_length =
			(socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	} else if (length) {
		say("NOTIFY_SOCKET is \"%s\"; allowed is the path of a socket, or @ and "
		    "a "
		    "name, of up to %zu bytes; systemd is not told of the mount",
		    name, sizeof(address.sun_path) - 1);
	}
	unsetenv("NOTIFY_SOCKET"); /* it is not for fusermount3 */
}

bool notify_wanted(void)
{
	return address_length > 0;
}

void notify(const char *format, ...)
{
	char text[2 * 4096 + 256]; /* two paths and some words */
	va_list arguments;
	int length, fd;

	if (!notify_wanted())
		return;
	va_start(arguments, format);
	length = vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	if ((size_t)length >= sizeof(text))
		length = (int)sizeof(text) - 1;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || sendto(fd, text, (size_t)length, MSG_NOSIGNAL,
			     (const struct sockaddr *)&address, address_length) < 0)
		say("systemd could not be told \"%.*s\": %s", (int)strcspn(text, "\n"),
		    text, strerror(errno));
	if (fd >= 0)
		close(fd);
}
