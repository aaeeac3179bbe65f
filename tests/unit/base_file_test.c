// SPDX-License-Identifier: Apache-2.0
// base/file, base/log, base/clock and base/thread: what the operating system gives and refuses.
#include "base/file.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "support/test.h"

// A fresh directory under build/, and paths inside it.
typedef struct sandbox {
    char dir[64];
    char path[128];
} sandbox;

static sandbox make_sandbox(void) {
    static int count;
    sandbox box = {0};
    mkdir("build", 0777);
    snprintf(box.dir, sizeof(box.dir), "build/base_file_test.%d.%d", (int)getpid(), count++);
    CHECK_INT(mkdir(box.dir, 0777), 0);
    return box;
}

static const char *inside(sandbox *box, const char *name) {
    snprintf(box->path, sizeof(box->path), "%s/%s", box->dir, name);
    return box->path;
}

static void remove_sandbox(sandbox *box, const char *const *names, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        remove(inside(box, names[i]));
    }
    CHECK_INT(rmdir(box->dir), 0);
}

TEST(file_reads_back_what_was_written) {
    sandbox box = make_sandbox();
    CHECK_OK(berth_file_write(inside(&box, "a"), BERTH_STR("one")));
    CHECK_OK(berth_file_write(inside(&box, "a"), BERTH_STR("a\0b")));
    char *data = NULL;
    size_t size = 0;
    CHECK_OK(berth_file_read(inside(&box, "a"), 3, &data, &size));
    CHECK_UINT(size, 3);
    CHECK_BYTES(data, "a\0b", 4);
    berth_free(data);
    data = NULL;
    CHECK_STATUS(berth_file_read(inside(&box, "a"), 2, &data, &size), BERTH_OUT_OF_MEMORY);
    CHECK_CONTAINS(berth_status_message(), "/a: has 3 bytes, the limit is 2");
    CHECK_NULL(data);
    remove_sandbox(&box, (const char *const[]){"a"}, 1);
}

TEST(file_write_keeps_links_and_permissions) {
    sandbox box = make_sandbox();
    CHECK_OK(berth_file_write(inside(&box, "target"), BERTH_STR("old")));
    CHECK_INT(chmod(inside(&box, "target"), 0640), 0);
    CHECK_INT(symlink("target", inside(&box, "link")), 0);
    CHECK_OK(berth_file_write(inside(&box, "link"), BERTH_STR("new")));
    struct stat info;
    CHECK_INT(lstat(inside(&box, "link"), &info), 0);
    CHECK(S_ISLNK(info.st_mode));
    CHECK_INT(lstat(inside(&box, "target"), &info), 0);
    CHECK_INT(info.st_mode & 07777, 0640);
    CHECK_INT(info.st_size, 3);
    remove_sandbox(&box, (const char *const[]){"link", "target"}, 2);
}

TEST(file_write_refuses_what_is_no_file_and_leaves_nothing) {
    sandbox box = make_sandbox();
    CHECK_INT(mkfifo(inside(&box, "fifo"), 0600), 0);
    CHECK_STATUS(berth_file_write(inside(&box, "fifo"), BERTH_STR("x")), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "is a FIFO");
    CHECK_STATUS(berth_file_write(box.dir, BERTH_STR("x")), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_file_write("/dev/null", BERTH_STR("x")), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_file_write(inside(&box, "no/such"), BERTH_STR("x")), BERTH_NOT_FOUND);
    remove_sandbox(&box, (const char *const[]){"fifo"}, 1);
}

TEST(file_write_that_fails_keeps_the_old_file) {
    sandbox box = make_sandbox();
    CHECK_OK(berth_file_write(inside(&box, "a"), BERTH_STR("old")));
    static char content[10000];
    const struct rlimit small = {.rlim_cur = 4096, .rlim_max = RLIM_INFINITY};
    struct rlimit usual;
    CHECK_INT(getrlimit(RLIMIT_FSIZE, &usual), 0);
    signal(SIGXFSZ, SIG_IGN);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &small), 0);
    const berth_status status =
        berth_file_write(inside(&box, "a"), (berth_str){.data = content, .size = sizeof(content)});
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &usual), 0);
    CHECK_STATUS(status, BERTH_IO);
    CHECK_CONTAINS(berth_status_message(), "/a: cannot write: File too large");
    char *data = NULL;
    size_t size = 0;
    CHECK_OK(berth_file_read(inside(&box, "a"), 100, &data, &size));
    CHECK_STR(data, "old");
    berth_free(data);
    remove_sandbox(&box, (const char *const[]){"a"}, 1); // fails if anything is left beside it
}

TEST(dir_make_makes_what_is_missing) {
    sandbox box = make_sandbox();
    CHECK_OK(berth_dir_make(inside(&box, "a/b//c/")));
    CHECK(berth_path_is_dir(inside(&box, "a/b/c")));
    struct stat info;
    CHECK_INT(stat(inside(&box, "a"), &info), 0);
    CHECK_INT(info.st_mode & 0777, 0700);
    CHECK_OK(berth_dir_make(inside(&box, "a/b/c")));
    CHECK_OK(berth_dir_make("/"));
    CHECK_STATUS(berth_dir_make(""), BERTH_NOT_FOUND);
    CHECK_OK(berth_file_write(inside(&box, "file"), BERTH_STR("x")));
    CHECK_STATUS(berth_dir_make(inside(&box, "file")), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_dir_make(inside(&box, "file/x")), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "a directory is needed");
    remove_sandbox(&box, (const char *const[]){"a/b/c", "a/b", "a", "file"}, 4);
}

TEST(file_refuses_what_is_no_file) {
    sandbox box = make_sandbox();
    char *data = NULL;
    size_t size = 0;
    berth_file_map map = {0};
    CHECK_INT(mkfifo(inside(&box, "fifo"), 0600), 0);
    CHECK_STATUS(berth_file_read(inside(&box, "fifo"), 10, &data, &size), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "is a FIFO, a regular file is needed");
    CHECK_STATUS(berth_file_map_open(inside(&box, "fifo"), &map), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_file_read(box.dir, 10, &data, &size), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "is a directory");
    CHECK_STATUS(berth_file_read("/dev/zero", 10, &data, &size), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_file_read(inside(&box, "none"), 10, &data, &size), BERTH_NOT_FOUND);
    CHECK_CONTAINS(berth_status_message(), "/none: no such file");
    CHECK_STATUS(berth_file_map_open(inside(&box, "fifo/x"), &map), BERTH_NOT_FOUND);
    CHECK_NULL(map.data);
    remove_sandbox(&box, (const char *const[]){"fifo"}, 1);
}

TEST(file_map_shows_the_content_even_after_a_drop) {
    sandbox box = make_sandbox();
    static char content[20000];
    memset(content, 'q', sizeof(content));
    const berth_str whole = {.data = content, .size = sizeof(content)};
    CHECK_OK(berth_file_write(inside(&box, "big"), whole));
    CHECK_OK(berth_file_write(inside(&box, "empty"), BERTH_STR("")));
    berth_file_map map = {0};
    CHECK_OK(berth_file_map_open(inside(&box, "big"), &map));
    CHECK_UINT(map.size, sizeof(content));
    CHECK_BYTES(map.data, content, sizeof(content));
    berth_file_map_drop(&map, 10, 9000);
    berth_file_map_drop(&map, 0, SIZE_MAX);
    CHECK_BYTES(map.data, content, sizeof(content));
    berth_file_map_close(&map);
    berth_file_map_close(&map);
    CHECK_OK(berth_file_map_open(inside(&box, "empty"), &map));
    CHECK_NULL(map.data);
    CHECK_UINT(map.size, 0);
    berth_file_map_close(&map);
    remove_sandbox(&box, (const char *const[]){"big", "empty"}, 2);
}

TEST(dir_listing_is_in_byte_order) {
    sandbox box = make_sandbox();
    static const char *const names[] = {"b", "B", "\xc3\xa4", "a.yaml", "a"};
    static const char *const sorted[] = {"B", "a", "a.yaml", "b", "\xc3\xa4"};
    for (size_t i = 0; i < BERTH_COUNT(names); ++i) {
        CHECK_OK(berth_file_write(inside(&box, names[i]), BERTH_STR("")));
    }
    berth_arena *arena = NULL;
    CHECK_OK(berth_arena_create(4096, 1 << 20, &arena));
    berth_dir_listing listing = {0};
    CHECK_OK(berth_dir_list(box.dir, arena, &listing));
    CHECK_UINT(listing.count, BERTH_COUNT(sorted));
    for (size_t i = 0; i < listing.count; ++i) {
        CHECK_STR(listing.names[i], sorted[i]);
    }
    CHECK_STATUS(berth_dir_list(inside(&box, "a"), arena, &listing), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "is a file, a directory is needed");
    CHECK_STATUS(berth_dir_list(inside(&box, "none"), arena, &listing), BERTH_NOT_FOUND);
    berth_arena_destroy(arena);
    remove_sandbox(&box, names, BERTH_COUNT(names));
}

TEST(paths_are_joined_and_taken_apart) {
    berth_arena *arena = NULL;
    CHECK_OK(berth_arena_create(4096, 1 << 20, &arena));
    CHECK_STR(berth_path_join(arena, "/a", "b"), "/a/b");
    CHECK_STR(berth_path_join(arena, "/a/", "b"), "/a/b");
    CHECK_STR(berth_path_join(arena, "", "b"), "b");
    CHECK_STR(berth_path_join(arena, "/a", "/b"), "/b");
    CHECK_STR(berth_path_name("/a/b.yaml"), "b.yaml");
    CHECK_STR(berth_path_name("b"), "b");
    CHECK(berth_str_equal_cstr(berth_path_dir("/a/b"), "/a"));
    CHECK(berth_str_equal_cstr(berth_path_dir("/a"), "/"));
    CHECK(berth_str_equal_cstr(berth_path_dir("a"), "."));
    CHECK(berth_path_is_dir("/"));
    CHECK(!berth_path_is_dir("/dev/null"));
    CHECK(berth_path_exists("/dev/null"));
    CHECK(!berth_path_exists("/no such path"));
    const char *dir = NULL;
    CHECK_OK(berth_path_executable_dir(arena, &dir));
    CHECK_INT(dir[0], '/');
    CHECK(berth_path_exists(berth_path_join(arena, dir, "base_file_test")));
    berth_arena_destroy(arena);
}

typedef struct log_capture {
    char line[2000];
    int count;
} log_capture;

static void capture(void *context, berth_level level, berth_str line) {
    log_capture *captured = context;
    (void)level;
    snprintf(captured->line, sizeof(captured->line), BERTH_STR_FMT, BERTH_STR_ARG(line));
    ++captured->count;
}

static int count_call(int *calls) {
    return ++*calls;
}

TEST(log_formats_only_what_is_enabled) {
    log_capture captured = {0};
    int calls = 0;
    berth_log_set_sink(capture, &captured);
    berth_log_set_level(BERTH_LEVEL_WARN);
    BERTH_WARN("discovery", "no plugin named '%s', call %d", "x", count_call(&calls));
    CHECK_STR(captured.line, "berth: warn: discovery: no plugin named 'x', call 1");
    BERTH_INFO("discovery", "call %d", count_call(&calls));
    CHECK_INT(calls, 1);
    CHECK_INT(captured.count, 1);
    berth_log_set_level(BERTH_LEVEL_TRACE);
    const uint64_t before = berth_memory_allocations();
    BERTH_TRACE("m", "one\ntwo");
    CHECK_STR(captured.line, "berth: trace: m: one two");
    CHECK_UINT(berth_memory_allocations(), before);
    berth_log_set_level(BERTH_LEVEL_WARN);
    berth_log_set_sink(NULL, NULL);
}

TEST(log_cuts_a_long_line) {
    log_capture captured = {0};
    char text[3000];
    memset(text, 'x', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    berth_log_set_sink(capture, &captured);
    BERTH_ERROR("m", "%s", text);
    berth_log_set_sink(NULL, NULL);
    CHECK_UINT(strlen(captured.line), 1023);
    CHECK_CONTAINS(captured.line, "xxx\xe2\x80\xa6");
}

// What the call writes to standard error.
static void read_stderr(void (*write_log)(void), char out[200]) {
    int pipe_ends[2];
    CHECK_INT(pipe(pipe_ends), 0);
    const int saved = dup(STDERR_FILENO);
    dup2(pipe_ends[1], STDERR_FILENO);
    write_log();
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(pipe_ends[1]);
    const ssize_t size = read(pipe_ends[0], out, 199);
    close(pipe_ends[0]);
    out[size < 0 ? 0 : size] = '\0';
}

static void log_an_error(void) {
    BERTH_ERROR("engine", "worker %d is gone", 3);
}

TEST(log_goes_to_standard_error_as_one_line) {
    char line[200];
    read_stderr(log_an_error, line);
    CHECK_STR(line, "berth: error: engine: worker 3 is gone\n");
}

TEST(log_levels_have_names) {
    berth_level level = BERTH_LEVEL_ERROR;
    CHECK_OK(berth_log_parse_level(BERTH_STR("debug"), &level));
    CHECK_INT(level, BERTH_LEVEL_DEBUG);
    CHECK_STR(berth_log_level_name(BERTH_LEVEL_TRACE), "trace");
    CHECK_STATUS(berth_log_parse_level(BERTH_STR("loud"), &level), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "'loud' is no log level; use error, warn");
}

TEST(clock_does_not_go_back) {
    const uint64_t first = berth_clock_ns();
    uint64_t last = first;
    for (int i = 0; i < 1000; ++i) {
        const uint64_t now = berth_clock_ns();
        CHECK(now >= last);
        last = now;
    }
    CHECK(last > first);
}

typedef struct handover {
    berth_mutex mutex;
    berth_cond cond;
    int value;
} handover;

static void hand_over(void *context) {
    handover *shared = context;
    berth_mutex_lock(&shared->mutex);
    shared->value = 7;
    berth_cond_signal(&shared->cond);
    berth_mutex_unlock(&shared->mutex);
}

TEST(threads_hand_values_over) {
    handover shared = {0};
    berth_mutex_init(&shared.mutex);
    berth_cond_init(&shared.cond);
    berth_thread thread;
    CHECK_OK(berth_thread_start(&thread, "a name that is too long", hand_over, &shared));
    berth_mutex_lock(&shared.mutex);
    while (shared.value == 0) {
        berth_cond_wait(&shared.cond, &shared.mutex);
    }
    CHECK_INT(shared.value, 7);
    const uint64_t deadline = berth_clock_ns() + 1000000;
    CHECK(!berth_cond_wait_until(&shared.cond, &shared.mutex, deadline));
    CHECK(berth_clock_ns() >= deadline);
    berth_mutex_unlock(&shared.mutex);
    berth_thread_join(&thread);
    berth_cond_broadcast(&shared.cond);
    berth_cond_deinit(&shared.cond);
    berth_mutex_deinit(&shared.mutex);
    CHECK(berth_thread_cpus() >= 1);
}
