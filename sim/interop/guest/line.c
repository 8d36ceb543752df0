#include "line.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORDS 32
#define IDLE_MS 1000

FILE *answer;
static FILE *requests;
static jmp_buf next_request;
static struct {
	char *key, *value;
} words[WORDS];
static int word_count;

void line_open(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	/* Two streams: one of both directions would have to seek in between. */
	requests = fd < 0 ? NULL : fdopen(fd, "r");
	answer = fd < 0 ? NULL : fdopen(dup(fd), "w");
	if (!requests || !answer) {
		perror(path);
		exit(1);
	}
}

void fail(int error, const char *format, ...)
{
	va_list arguments;

	fprintf(answer, "error %d ", error);
	va_start(arguments, format);
	vfprintf(answer, format, arguments);
	va_end(arguments);
	longjmp(next_request, 1);
}

/* Splits a line in place; returns the operation. */
static char *split(char *line)
{
	char *rest, *one, *operation = strtok_r(line, " ", &rest);

	word_count = 0;
	while ((one = strtok_r(NULL, " ", &rest))) {
		char *equals = strchr(one, '=');

		if (!equals || equals == one)
			fail(EINVAL, "'%.40s' is not KEY=VALUE", one);
		if (word_count == WORDS)
			fail(E2BIG, "more than %d words", WORDS);
		*equals = 0;
		words[word_count].key = one;
		words[word_count++].value = equals + 1;
	}
	if (!operation)
		fail(EINVAL, "empty line");
	return operation;
}

/* A client sends a request when it has the last one's answer, so no line waits in the stream. */
static void wait_for_request(void (*idle)(void))
{
	struct pollfd port = {.fd = fileno(requests), .events = POLLIN};

	while (!poll(&port, 1, IDLE_MS))
		idle();
}

void line_serve(void (*serve)(const char *operation), void (*idle)(void))
{
	static char *line;
	static size_t room;
	ssize_t size;

	for (;;) {
		wait_for_request(idle);
		size = getline(&line, &room, requests);
		if (size <= 0)
			break;
		if (line[size - 1] == '\n')
			line[size - 1] = 0;
		if (!setjmp(next_request))
			serve(split(line));
		putc('\n', answer);
		fflush(answer);
	}
}

const char *word_or(const char *key, const char *otherwise)
{
	for (int i = 0; i < word_count; i++)
		if (!strcmp(words[i].key, key))
			return words[i].value;
	return otherwise;
}

const char *word(const char *key)
{
	const char *value = word_or(key, NULL);

	if (!value)
		fail(EINVAL, "%s is missing", key);
	return value;
}

uint64_t take_number(const char **text, char end, uint64_t limit)
{
	const char *begin = *text;
	char *after;
	uint64_t value;

	errno = 0;
	value = strtoull(begin, &after, 0);
	if (*begin < '0' || *begin > '9' || errno || *after != end)
		fail(EINVAL, "'%.40s' is not a number", begin);
	if (value > limit)
		fail(EINVAL, "%llu is above %llu", (unsigned long long)value,
		     (unsigned long long)limit);
	*text = end ? after + 1 : after;
	return value;
}

uint64_t number(const char *key, uint64_t limit)
{
	const char *text = word(key);

	return take_number(&text, 0, limit);
}

uint64_t number_or(const char *key, uint64_t limit, uint64_t otherwise)
{
	return word_or(key, NULL) ? number(key, limit) : otherwise;
}

static int digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

void take_hex(const char *key, uint8_t *target, size_t size)
{
	const char *text = word(key);

	if (strlen(text) != 2 * size)
		fail(EINVAL, "%s does not hold %zu bytes", key, size);
	/* All is checked before anything is written. */
	for (size_t i = 0; i < 2 * size; i++)
		if (digit(text[i]) < 0)
			fail(EINVAL, "%s is not hexadecimal (lower case)", key);
	for (size_t i = 0; i < size; i++)
		target[i] = digit(text[2 * i]) << 4 | digit(text[2 * i + 1]);
}

void put_hex(const uint8_t *bytes, size_t size)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < size; i++) {
		putc_unlocked(digits[bytes[i] >> 4], answer);
		putc_unlocked(digits[bytes[i] & 15], answer);
	}
}

int named(const struct name *names, const char *text, size_t size)
{
	for (; names->name; names++)
		if (strlen(names->name) == size && !memcmp(names->name, text, size))
			return names->value;
	fail(EINVAL, "'%.*s' is not known", size < 40 ? (int)size : 40, text);
}

const char *name_of(const struct name *names, int value)
{
	for (; names->name; names++)
		if (names->value == value)
			return names->name;
	return "UNKNOWN";
}

int flags(const struct name *names, const char *key)
{
	const char *text = word_or(key, "");
	int found = 0;

	while (*text) {
		size_t size = strcspn(text, ",");

		found |= named(names, text, size);
		text += size + (text[size] == ',');
	}
	return found;
}
