/* Requests and answers of the control port: one line each.
 *
 * A request is an operation and words `key=value`, with single spaces between them. An answer is
 * `ok` and such words, or `error ERRNO MESSAGE`. Numbers are decimal or 0x..., bytes hexadecimal.
 */
#ifndef ROCINANTE_LINE_H
#define ROCINANTE_LINE_H

#include <stdint.h>
#include <stdio.h>

/* Where answers go; opened by line_open. */
extern FILE *answer;

/* Opens the port; ends the program when that fails. */
void line_open(const char *path);

/* Answers requests until the port's other end is closed: `serve` is called with the operation. It
 * reads its words by the functions below, and writes the words behind `ok` to `answer` only when
 * nothing can fail any more. `idle` is called after each second without a request. */
void line_serve(void (*serve)(const char *operation), void (*idle)(void));

/* Answers the request with an error and goes on with the next one. */
void fail(int error, const char *format, ...) __attribute__((noreturn, format(printf, 2, 3)));

/* The value of `key`; without it the request fails, or `otherwise` is returned. */
const char *word(const char *key);
const char *word_or(const char *key, const char *otherwise);
uint64_t number(const char *key, uint64_t limit);
uint64_t number_or(const char *key, uint64_t limit, uint64_t otherwise);

/* A number that `text` holds up to `end` (a character, or 0), after which `text` points. */
uint64_t take_number(const char **text, char end, uint64_t limit);

/* Bytes of the hexadecimal value of `key`: exactly `size` of them go to `target`. */
void take_hex(const char *key, uint8_t *target, size_t size);
void put_hex(const uint8_t *bytes, size_t size);

/* Names of numbers, ended by a name of NULL. */
struct name {
	const char *name;
	int value;
};
int named(const struct name *names, const char *text, size_t size);
const char *name_of(const struct name *names, int value);
/* The union of the flags that a comma separated value names; 0 when it is absent or empty. */
int flags(const struct name *names, const char *key);

#endif
