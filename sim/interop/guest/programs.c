/* Programs of the guest, started and waited for. */
#include "programs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "line.h"

#define PROGRAMS 256
#define WORDS 32
#define OUTPUT "/tmp/output"
/* Bytes of output that are told: the last ones. */
#define TOLD 4096

static pid_t programs[PROGRAMS];
static unsigned program_count;

static void output_path(char *path, size_t size, unsigned index)
{
	snprintf(path, size, OUTPUT ".%u", index);
}

/* Both outputs go to a file, so that a program never waits for a reader. */
void op_run(void)
{
	char text[1024], path[64], *words[WORDS + 1], *rest = text;
	int count = 0, file;
	pid_t pid;

	snprintf(text, sizeof(text), "%s", word("argv"));
	while (count < WORDS && (words[count] = strsep(&rest, ",")))
		count++;
	words[count] = NULL;
	if (program_count == PROGRAMS)
		fail(ENOMEM, "%d programs", PROGRAMS);
	output_path(path, sizeof(path), program_count);
	file = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
	pid = file < 0 ? -1 : fork();
	if (pid < 0)
		fail(errno, "%s: %s", words[0], strerror(errno));
	if (!pid) {
		dup2(file, STDOUT_FILENO);
		dup2(file, STDERR_FILENO);
		execvp(words[0], words);
		dprintf(file, "%s: %s\n", words[0], strerror(errno));
		_exit(127);
	}
	close(file);
	programs[program_count] = pid;
	fprintf(answer, "ok program=%u", program_count++);
}

/* The end of a program, within timeout_ms; one that has not ended then is killed: status -1. */
void op_finish(void)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	uint64_t index = number("program", UINT32_MAX);
	uint64_t left = number_or("timeout_ms", 3600000, 0);
	static uint8_t told[TOLD];
	int status = 0, file, result = -1;
	char path[64];
	ssize_t size;
	pid_t pid;

	if (index >= program_count || !programs[index])
		fail(EINVAL, "no program %" PRIu64, index);
	while (!(pid = waitpid(programs[index], &status, WNOHANG)) && left--)
		nanosleep(&pause, NULL);
	if (pid) {
		result = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	} else {
		kill(programs[index], SIGKILL);
		waitpid(programs[index], &status, 0);
	}
	programs[index] = 0;
	output_path(path, sizeof(path), index);
	file = open(path, O_RDONLY | O_CLOEXEC);
	size = lseek(file, 0, SEEK_END);
	lseek(file, size > TOLD ? size - TOLD : 0, SEEK_SET);
	size = read(file, told, sizeof(told));
	close(file);
	unlink(path);
	fprintf(answer, "ok status=%d data=", result);
	put_hex(told, size > 0 ? size : 0);
}
