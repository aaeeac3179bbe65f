// SPDX-License-Identifier: Apache-2.0
// SIGINT and SIGTERM: the first ends `berth run` in order, with what was produced so far; the
// second kills.
#include "support/test.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/interrupt.h"
#include "support/flow.h"
#include "support/program.h"
#include "support/sandbox.h"

#define MODEL "tests/data/models/shakespeare"
#define MS    1000000L

extern char **environ;

// A program under way, whose standard output is read piece by piece.
typedef struct child {
    pid_t pid;
    int out;
    program result; // what came so far
    size_t size;
    int status; // of waitpid
} child;

static void start(child *c, const char *const *arguments) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t defaults;
    int ends[2];
    memset(c, 0, sizeof *c);
    CHECK_INT(setenv("BERTH_PLUGINS", "", 1), 0);
    CHECK_INT(pipe2(ends, O_CLOEXEC), 0);
    (void)sigemptyset(&defaults);
    (void)sigaddset(&defaults, SIGINT);
    CHECK_INT(posix_spawnattr_init(&attributes), 0);
    CHECK_INT(posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF), 0);
    CHECK_INT(posix_spawnattr_setsigdefault(&attributes, &defaults), 0);
    CHECK_INT(posix_spawn_file_actions_init(&actions), 0);
    CHECK_INT(posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0), 0);
    CHECK_INT(posix_spawn_file_actions_adddup2(&actions, ends[1], 1), 0);
    CHECK_INT(posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0), 0);
    CHECK_INT(posix_spawnp(&c->pid, arguments[0], &actions, &attributes, (char *const *)arguments,
                           environ),
              0);
    CHECK_INT(posix_spawn_file_actions_destroy(&actions), 0);
    CHECK_INT(posix_spawnattr_destroy(&attributes), 0);
    CHECK_INT(close(ends[1]), 0);
    c->out = ends[0];
}

#define START(c, ...) start((c), (const char *const[]){__VA_ARGS__, NULL})
// Why native ops: they take their time.
#define RUN BERTH, "run", "--model", MODEL, "--allow-fallback"

static void wait_ms(long milliseconds) {
    const struct timespec time = {.tv_sec = milliseconds / 1000,
                                  .tv_nsec = milliseconds % 1000 * MS};
    (void)nanosleep(&time, NULL);
}

// Until it looks after interrupts, however long it takes to start.
static void wait_until_watching(const child *c) {
    char path[64];
    char line[256];
    unsigned long long caught = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)c->pid);
    for (size_t i = 0; i < 1000 && !(caught & 1ULL << (SIGINT - 1)); ++i) {
        FILE *file = fopen(path, "r");
        CHECK(file != NULL);
        while (fgets(line, sizeof line, file) != NULL) {
            (void)sscanf(line, "SigCgt: %llx", &caught);
        }
        CHECK_INT(fclose(file), 0);
        wait_ms(10);
    }
    CHECK(caught & 1ULL << (SIGINT - 1));
}

// Until so many bytes are there, or the end.
static void read_until(child *c, size_t size) {
    while (c->size < size) {
        const ssize_t got =
            read(c->out, c->result.out + c->size, sizeof c->result.out - 1 - c->size);
        CHECK(got >= 0);
        if (got == 0) {
            return;
        }
        c->size += (size_t)got;
    }
}

static void finish(child *c) {
    read_until(c, sizeof c->result.out - 1);
    CHECK_INT(close(c->out), 0);
    CHECK_INT(waitpid(c->pid, &c->status, 0), c->pid);
}

static void check_exited(const child *c, int status) {
    CHECK(WIFEXITED(c->status));
    CHECK_INT(WEXITSTATUS(c->status), status);
}

// A JSON array of so many objects, each of which has its keys.
static size_t count_aborted(const child *c, size_t count) {
    size_t aborted = 0;
    berth_json *root = program_json(&c->result);
    CHECK_UINT(berth_json_size(root), count);
    for (size_t i = 0; i < count; ++i) {
        const berth_json *one = berth_json_at(root, i);
        const berth_json *ids = NULL;
        berth_str finish_text;
        berth_str text;
        CHECK_OK(berth_json_get_str(one, "finish", &finish_text));
        CHECK_OK(berth_json_get_str(one, "text", &text));
        CHECK_OK(berth_json_get_array(one, "ids", &ids));
        CHECK(berth_json_size(ids) > 0 || text.size == 0);
        aborted += strcmp(finish_text.data, "aborted") == 0;
    }
    berth_json_destroy(root);
    return aborted;
}

// ---- while texts come ---------------------------------------------------------------------------

static void check_cut(int signal_number, int status) {
    static child whole;
    static child cut;
    START(&whole, RUN, "--prompt", "ROMEO:", "-n", "450");
    finish(&whole);
    check_exited(&whole, 0);
    START(&cut, RUN, "--prompt", "ROMEO:", "-n", "450");
    read_until(&cut, 10);
    CHECK_INT(kill(cut.pid, signal_number), 0);
    finish(&cut);
    check_exited(&cut, status);
    CHECK(cut.size > 10 && cut.size < whole.size);
    CHECK(strncmp(cut.result.out, whole.result.out, cut.size - 1) == 0);
    CHECK_STR(cut.result.out + cut.size - 1, "\n");
}

TEST(an_interrupt_ends_a_text_where_it_is) {
    check_cut(SIGINT, 130);
}

TEST(a_termination_ends_a_text_where_it_is) {
    check_cut(SIGTERM, 143);
}

// What may be the beginning of a stop string is held back, and is text when nothing more comes.
TEST(an_interrupt_ends_several_texts_in_their_order) {
    static child c;
    sandbox box;
    sandbox_make(&box);
    const char *path = sandbox_write(&box, "prompts", "ROMEO:\nJULIET:\nFirst Citizen:\n");
    START(&c, RUN, "--prompts", path, "-n", "450", "--stop", "@@@");
    read_until(&c, 40);
    CHECK_INT(kill(c.pid, SIGINT), 0);
    finish(&c);
    check_exited(&c, 130);
    const char *first = strstr(c.result.out, "--- 1: ROMEO:\n");
    const char *second = strstr(c.result.out, "\n\n--- 2: JULIET:\n");
    const char *third = strstr(c.result.out, "\n\n--- 3: First Citizen:\n");
    CHECK(first == c.result.out && second > first && third > second);
    CHECK_STR(c.result.out + c.size - 1, "\n");
    sandbox_remove(&box);
}

// So many prompts that no machine is done with them before the interrupt.
#define MANY 16

static const char *write_many(const sandbox *box) {
    char text[MANY * 8] = "";
    for (size_t i = 0; i < MANY; ++i) {
        memcpy(text + 7 * i, "ROMEO:\n", 8);
    }
    return sandbox_write(box, "prompts", text);
}

TEST(an_interrupt_closes_the_json) {
    static child c;
    sandbox box;
    sandbox_make(&box);
    const char *path = write_many(&box);
    START(&c, RUN, "--prompts", path, "-n", "450", "--json");
    wait_until_watching(&c);
    wait_ms(150);
    CHECK_INT(kill(c.pid, SIGINT), 0);
    finish(&c);
    check_exited(&c, 130);
    CHECK_UINT(count_aborted(&c, MANY), MANY);
    sandbox_remove(&box);
}

// ---- at any time --------------------------------------------------------------------------------

// Before the program looks after signals it dies of one, after that its answer is complete. Where
// 80 ms are not enough to come that far, later ones are tried.
TEST(an_interrupt_at_any_time_leaves_nothing_half_written) {
    static child c;
    sandbox box;
    size_t ended = 0;
    sandbox_make(&box);
    const char *path = write_many(&box);
    for (long delay = 0; delay < 80 || (ended == 0 && delay < 10000);
         delay += delay < 80 ? 4 : delay) {
        START(&c, RUN, "--prompts", path, "-n", "450", "--json");
        wait_ms(delay);
        CHECK_INT(kill(c.pid, SIGINT), 0);
        finish(&c);
        if (WIFSIGNALED(c.status)) {
            CHECK_INT(WTERMSIG(c.status), SIGINT);
            CHECK_UINT(c.size, 0);
        } else {
            check_exited(&c, 130);
            CHECK_UINT(count_aborted(&c, MANY), MANY);
            ++ended;
        }
    }
    CHECK(ended > 0);
    sandbox_remove(&box);
}

// More text than a pipe of a page takes, and nobody who reads it: when no more comes, the program
// waits in a write.
TEST(a_second_interrupt_kills) {
    static child c;
    sandbox box;
    char prompts[2048];
    int now = 0;
    sandbox_make(&box);
    for (size_t i = 0; i + 2 < sizeof prompts; i += 2) {
        memcpy(prompts + i, "a\n", 3);
    }
    START(&c, RUN, "--prompts", sandbox_write(&box, "prompts", prompts), "-n", "8");
    CHECK(fcntl(c.out, F_SETPIPE_SZ, 4096) >= 4096);
    for (size_t i = 0, same = 0; same < 3 && i < 300; ++i) {
        const int before = now;
        wait_ms(200);
        CHECK_INT(ioctl(c.out, FIONREAD, &now), 0);
        same = now > 0 && now == before ? same + 1 : 0;
    }
    CHECK(now > 0);
    CHECK_INT(kill(c.pid, SIGINT), 0);
    wait_ms(100);
    CHECK_INT(waitpid(c.pid, &c.status, WNOHANG), 0);
    CHECK_INT(kill(c.pid, SIGINT), 0);
    finish(&c);
    CHECK(WIFSIGNALED(c.status));
    CHECK_INT(WTERMSIG(c.status), SIGINT);
    sandbox_remove(&box);
}

// Why the last test: from here on this process has had its interrupt.
TEST(an_interrupt_ends_the_loading_of_weights) {
    flow f;
    CHECK_INT(unsetenv("BERTH_PLUGINS"), 0);
    flow_init(&f);
    f.config.model = MODEL;
    flow_start_worker(&f);
    berth_interrupt_watch();
    CHECK_INT(berth_interrupt_signal(), 0);
    CHECK_INT(raise(SIGINT), 0);
    CHECK_INT(berth_interrupt_signal(), SIGINT);
    CHECK_STATUS(berth_worker_load_model(f.worker), BERTH_UNAVAILABLE);
    CHECK_CONTAINS(berth_status_message(), "interrupted");
    flow_deinit(&f);
}
