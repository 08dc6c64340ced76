/* SPDX-License-Identifier: MIT */
/* array.h - an array that grows one by one, without a word for its room. */
#ifndef ARRAY_H
#define ARRAY_H

#include <stdlib.h>

/* The array with room for one more of count elements, which it lacks at each power of two;
 * NULL: ENOMEM, and it is as it was. */
static inline void *array_grown(void *array, size_t count, size_t size)
{
	return array && count & (count - 1)
		       ? array
		       : realloc(array, (count ? count * 2 : 1) * size);
}

#endif
