// SPDX-License-Identifier: Apache-2.0
// registry: what plugins keep from one process to the next, and every way in which it is lost.
#include "registry_rig.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"

static char logged[2048];
static int lines;

static void keep_line(void *context, berth_level level, berth_str line) {
    (void)context, (void)level;
    (void)snprintf(logged, sizeof(logged), "%.*s", (int)line.size, line.data);
    ++lines;
}

// A registry whose cache is a folder under build/, inside of a call of plugin 'acme'.
typedef struct keeper {
    rig in;
    const berth_host *host;
    char dir[64];
} keeper;

static const berth_owner acme = {.id = "acme", .version = "1.0"};

static void open_keeper(keeper *k) {
    static int count;
    rig_open(&k->in);
    mkdir("build", 0777);
    (void)snprintf(k->dir, sizeof(k->dir), "build/registry_cache_test.%d.%d", (int)getpid(),
                   count++);
    k->in.config.cache_dir = k->dir;
    k->host = berth_registry_host(k->in.registry);
    berth_log_set_sink(keep_line, NULL);
    berth_log_set_level(BERTH_LEVEL_INFO);
    logged[0] = '\0';
    lines = 0;
    berth_plugin_enter(&acme, "create");
}

static const char *path_of(const keeper *k, const char *name) {
    static char path[128];
    (void)snprintf(path, sizeof(path), "%s/acme/%s", k->dir, name);
    return path;
}

static void close_keeper(keeper *k) {
    CHECK_OK(berth_plugin_leave(BERTH_OK));
    (void)unlink(path_of(k, "times"));
    (void)rmdir(path_of(k, ""));
    (void)rmdir(k->dir); // fails if anything else was left, and the next check sees it
    CHECK(!berth_path_exists(k->dir));
    berth_log_set_sink(NULL, NULL);
    berth_log_set_level(BERTH_LEVEL_WARN);
    rig_close(&k->in);
}

static berth_status write_times(const keeper *k, const char *key, const char *text) {
    return k->host->cache_write(k->host, "times", key, text, strlen(text));
}

// What is kept, compared; NULL: nothing is.
static void check_times(const keeper *k, const char *key, const char *text) {
    void *data = NULL;
    uint64_t bytes = 0;
    const berth_status status = k->host->cache_read(k->host, "times", key, &data, &bytes);
    CHECK_STATUS(status, text == NULL ? BERTH_NOT_FOUND : BERTH_OK);
    if (text != NULL) {
        CHECK_UINT(bytes, strlen(text));
        CHECK_BYTES(data, text, bytes);
        k->host->free(k->host, data);
    }
}

TEST(cache_keeps_for_the_next_process) {
    keeper k;
    open_keeper(&k);
    check_times(&k, "H200", NULL);
    CHECK_OK(write_times(&k, "H200", "1 2 3"));
    check_times(&k, "H200", "1 2 3");
    CHECK_OK(write_times(&k, "H200", "4"));
    check_times(&k, "H200", "4");
    CHECK_OK(write_times(&k, "H200", ""));
    check_times(&k, "H200", "");
    CHECK_INT(lines, 0);
    struct stat info;
    CHECK_INT(stat(k.dir, &info), 0);
    CHECK_INT(info.st_mode & 0777, 0700);
    close_keeper(&k);
}

TEST(cache_ignores_what_was_made_for_something_else) {
    keeper k;
    open_keeper(&k);
    CHECK_OK(write_times(&k, "driver 1", "old"));
    check_times(&k, "driver 2", NULL);
    CHECK_CONTAINS(logged, "info: cache: ");
    CHECK_CONTAINS(logged, "/acme/times is ignored and made anew: it is of another version");
    CHECK_INT(lines, 1);
    CHECK_OK(berth_plugin_leave(BERTH_OK));
    static const berth_owner later = {.id = "acme", .version = "1.1"};
    berth_plugin_enter(&later, "create");
    check_times(&k, "driver 1", NULL); // another version of the plugin
    CHECK_INT(lines, 2);
    CHECK_OK(write_times(&k, "driver 2", "new"));
    check_times(&k, "driver 2", "new");
    close_keeper(&k);
}

TEST(cache_ignores_what_is_damaged) {
    keeper k;
    open_keeper(&k);
    CHECK_OK(write_times(&k, "H200", "1 2 3"));
    char *file = NULL;
    size_t size = 0;
    CHECK_OK(berth_file_read(path_of(&k, "times"), 4096, &file, &size));
    for (size_t cut = 0; cut < size; ++cut) {
        lines = 0;
        CHECK_OK(berth_file_write(path_of(&k, "times"), (berth_str){.data = file, .size = cut}));
        check_times(&k, "H200", NULL);
        CHECK_CONTAINS(logged, "warn: cache: ");
        CHECK_INT(lines, 1);
    }
    file[size - 1] ^= 1;
    CHECK_OK(berth_file_write(path_of(&k, "times"), (berth_str){.data = file, .size = size}));
    check_times(&k, "H200", NULL);
    CHECK_CONTAINS(logged, "its checksum is not that of its bytes");
    CHECK_OK(write_times(&k, "H200", "5"));
    check_times(&k, "H200", "5");
    berth_free(file);
    close_keeper(&k);
}

TEST(cache_goes_on_where_nothing_can_be_kept) {
    keeper k;
    open_keeper(&k);
    CHECK_OK(berth_file_write(k.dir, BERTH_STR("a file"))); // where the folder should be
    check_times(&k, "H200", NULL);
    CHECK_STATUS(write_times(&k, "H200", "1"), BERTH_UNAVAILABLE);
    CHECK_STATUS(write_times(&k, "H200", "1"), BERTH_UNAVAILABLE);
    CHECK_CONTAINS(logged, "info: cache: measurements are not kept: ");
    CHECK_INT(lines, 1); // for all of them
    CHECK_INT(unlink(k.dir), 0);
    close_keeper(&k);
}

TEST(cache_ignores_what_is_no_file) {
    keeper k;
    open_keeper(&k);
    CHECK_OK(write_times(&k, "H200", "1"));
    CHECK_INT(unlink(path_of(&k, "times")), 0);
    CHECK_INT(mkfifo(path_of(&k, "times"), 0600), 0);
    check_times(&k, "H200", NULL); // and does not wait for a writer
    CHECK_CONTAINS(logged, "a FIFO");
    CHECK_STATUS(write_times(&k, "H200", "1"), BERTH_UNAVAILABLE);
    close_keeper(&k);
}

TEST(cache_is_off_when_the_user_wants_none) {
    keeper k;
    open_keeper(&k);
    k.in.config.cache_dir = "";
    CHECK_STATUS(write_times(&k, "H200", "1"), BERTH_UNAVAILABLE);
    check_times(&k, "H200", NULL);
    CHECK_INT(lines, 0);
    close_keeper(&k);
}

TEST(cache_lies_where_the_environment_says) {
    const char *dir = NULL;
    keeper k;
    open_keeper(&k);
    CHECK_OK(berth_config_cache_dir(&k.in.config, k.in.arena, &dir));
    CHECK_STR(dir, k.dir);
    k.in.config.cache_dir = NULL;
    setenv("XDG_CACHE_HOME", "/somewhere", 1);
    setenv("HOME", "/the/home", 1);
    CHECK_OK(berth_config_cache_dir(&k.in.config, k.in.arena, &dir));
    CHECK_STR(dir, "/somewhere/berth");
    setenv("XDG_CACHE_HOME", "not/absolute", 1);
    CHECK_OK(berth_config_cache_dir(&k.in.config, k.in.arena, &dir));
    CHECK_STR(dir, "/the/home/.cache/berth");
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    CHECK_OK(berth_config_cache_dir(&k.in.config, k.in.arena, &dir));
    CHECK_NULL(dir);
    check_times(&k, "H200", NULL);
    close_keeper(&k);
}

TEST(cache_refuses_what_is_no_entry) {
    static const char *const names[] = {"", ".", "..", "a/b", "../a", ".hidden", "a b", "a\n"};
    keeper k;
    void *data = NULL;
    uint64_t bytes = 0;
    open_keeper(&k);
    for (size_t i = 0; i < BERTH_COUNT(names); ++i) {
        CHECK_STATUS(k.host->cache_write(k.host, names[i], "", "x", 1), BERTH_INVALID_ARGUMENT);
        CHECK_CONTAINS(berth_status_message(), "is no name of an entry");
        CHECK_STATUS(k.host->cache_read(k.host, names[i], "", &data, &bytes),
                     BERTH_INVALID_ARGUMENT);
    }
    char longest[129];
    memset(longest, 'a', 128);
    longest[128] = '\0';
    CHECK_STATUS(k.host->cache_read(k.host, longest, "", &data, &bytes), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(k.host->cache_read(k.host, longest + 1, "", &data, &bytes), BERTH_NOT_FOUND);
    CHECK_STATUS(k.host->cache_read(k.host, NULL, "", &data, &bytes), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(k.host->cache_read(k.host, "times", NULL, &data, &bytes), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(k.host->cache_read(k.host, "times", "", NULL, &bytes), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(k.host->cache_read(k.host, "times", "", &data, NULL), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(k.host->cache_write(k.host, "times", "", NULL, 1), BERTH_INVALID_ARGUMENT);
    static char key[5000];
    memset(key, 'k', sizeof(key) - 1);
    CHECK_STATUS(write_times(&k, key, "1"), BERTH_INVALID_ARGUMENT);
    CHECK_NULL(data);
    close_keeper(&k);
}

TEST(cache_belongs_to_a_plugin) {
    keeper k;
    open_keeper(&k);
    CHECK_OK(berth_plugin_leave(BERTH_OK));
    CHECK_STATUS(write_times(&k, "", "1"), BERTH_WRONG_STATE);
    CHECK_CONTAINS(berth_status_message(), "only inside of a call");
    static const berth_owner odd = {.id = "../odd", .version = "1"};
    berth_plugin_enter(&odd, "create");
    CHECK_STATUS(write_times(&k, "", "1"), BERTH_UNAVAILABLE);
    CHECK(!berth_path_exists(k.dir));
    close_keeper(&k);
}

// Each writes its own text over and over; whoever reads sees one of them, whole.
TEST(cache_is_shared_by_processes) {
    enum { WRITERS = 3, TURNS = 20 };
    static const char *const texts[WRITERS] = {"first", "the second", "a third one"};
    keeper k;
    open_keeper(&k);
    CHECK_OK(write_times(&k, "", texts[0]));
    pid_t children[WRITERS];
    for (int i = 0; i < WRITERS; ++i) {
        children[i] = fork();
        for (int turn = 0; children[i] == 0 && turn < TURNS; ++turn) {
            if (write_times(&k, "", texts[i]) != BERTH_OK) {
                _exit(1);
            }
        }
        if (children[i] == 0) {
            _exit(0);
        }
    }
    for (int turn = 0; turn < TURNS; ++turn) {
        void *data = NULL;
        uint64_t bytes = 0;
        CHECK_OK(k.host->cache_read(k.host, "times", "", &data, &bytes));
        CHECK(bytes == 5 || bytes == 10 || bytes == 11);
        CHECK_BYTES(data, texts[bytes == 5 ? 0 : bytes - 9], bytes);
        k.host->free(k.host, data);
    }
    for (int i = 0; i < WRITERS; ++i) {
        int status = -1;
        CHECK_INT(waitpid(children[i], &status, 0), children[i]);
        CHECK_INT(status, 0);
    }
    CHECK_INT(lines, 0);
    close_keeper(&k);
}
