// SPDX-License-Identifier: Apache-2.0
// What `make install` gives away is all that a vendor needs: into an empty prefix, then copies of
// platform-dummy and model-dummy are built with one line of cc each from the installed headers
// alone, and the installed program runs a model on them. `make uninstall` and `make clean` leave
// nothing of theirs behind and nothing else touched.
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "support/dummy_model.h"
#include "support/program.h"
#include "support/test.h"

#define STAGE "stage/usr/local"

// ---- make ---------------------------------------------------------------------------------------

// A make of its own: of the one that runs the tests only the variables of its command line count,
// so that nothing is built anew with other flags.
static void leave_outer_make(void) {
    const char *flags = getenv("MAKEFLAGS");
    const char *variables = flags == NULL ? NULL : strstr(flags, "-- ");
    char own[4096] = "";
    if (variables != NULL) {
        (void)snprintf(own, sizeof(own), "%s", variables);
    }
    CHECK_INT(setenv("MAKEFLAGS", own, 1), 0);
    CHECK_INT(unsetenv("MAKELEVEL"), 0);
    CHECK_INT(unsetenv("MFLAGS"), 0);
}

// `make WHAT` with the sandbox's "stage" as the root of the file system.
static void make(program *p, const sandbox *box, const char *what) {
    char root[PATH_MAX];
    (void)snprintf(root, sizeof(root), "DESTDIR=%s", sandbox_path(box, "stage"));
    leave_outer_make();
    const char *mode = "MODE=" TEST_MODE;
    PROGRAM_MUST(p, PROGRAM_OWN_ENV, "make", "--no-print-directory", what, mode, root,
                 "PREFIX=/usr/local");
}

static void install(program *p, const sandbox *box) {
    struct stat before;
    struct stat after;
    CHECK_INT(stat(BERTH, &before), 0);
    make(p, box, "install");
    CHECK_INT(stat(BERTH, &after), 0);
    CHECK_INT(after.st_mtim.tv_sec, before.st_mtim.tv_sec); // the build that runs stays as it is
    CHECK_INT(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
}

static int entry_count;
static int count_entry(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)path;
    (void)info;
    (void)kind;
    entry_count += where->level > 0;
    return 0;
}

// Files and directories below a directory.
static int entries_below(const char *path) {
    entry_count = 0;
    CHECK_INT(nftw(path, count_entry, 16, FTW_PHYS), 0);
    return entry_count;
}

static bool exists(const sandbox *box, const char *name) {
    return access(sandbox_path(box, name), F_OK) == 0;
}

// ---- the vendor's side --------------------------------------------------------------------------

// The line of plugin-api/README.md that builds plugin.c, with the installed headers where it asks
// pkg-config, which knows nothing of our stage.
static void read_cc_line(const sandbox *box, char *out, size_t size) {
    static const char *const asked = "$(pkg-config --cflags berth-plugin)";
    char *text = NULL;
    size_t length = 0;
    CHECK_OK(berth_file_read("plugin-api/README.md", 1 << 20, &text, &length));
    const char *line = strstr(text, "\n    cc ");
    const char *hole = line == NULL ? NULL : strstr(line, asked);
    CHECK(hole != NULL);
    const char *rest = hole + strlen(asked);
    (void)snprintf(out, size, "%.*s-I%s%.*s", (int)(hole - line), line,
                   sandbox_path(box, STAGE "/include"), (int)strcspn(rest, "\n"), rest);
    berth_free(text);
}

// What a vendor does: a source into a folder of its own, the line, the library to where plugins
// are.
static void build_library(program *p, const sandbox *box, const char *source, const char *library) {
    char cc[2 * PATH_MAX];
    char script[4 * PATH_MAX];
    read_cc_line(box, cc, sizeof(cc));
    (void)snprintf(script, sizeof(script),
                   "set -e\ncp plugins/%s %s/vendor/plugin.c\ncd %s/vendor\n%s\nmv libacme.so "
                   "../plugins/%s\n",
                   source, box->dir, box->dir, cc, library);
    PROGRAM_MUST(p, NULL, "sh", "-c", script);
    CHECK_STR(p->err, "");
}

static void build_plugins(program *p, const sandbox *box) {
    PROGRAM_MUST(p, NULL, "mkdir", sandbox_path(box, "vendor"), sandbox_path(box, "plugins"));
    PROGRAM_MUST(p, NULL, "cp", "plugins/platform-dummy/dummy.plugin.yaml",
                 "plugins/model-dummy/model-dummy.plugin.yaml", sandbox_path(box, "plugins"));
    build_library(p, box, "platform-dummy/plugin.c", "libberth-platform-dummy.so");
    build_library(p, box, "platform-dummy/fused/fused.c", "libberth-platform-dummy-fused.so");
    build_library(p, box, "model-dummy/plugin.c", "libberth-model-dummy.so");
}

TEST(installed_headers_alone_make_plugins_that_run_a_model) {
    sandbox box;
    program p;
    char search[PATH_MAX + 32];
    sandbox_make(&box);
    install(&p, &box);
    build_plugins(&p, &box);
    // Why the whole search is replaced: the dummies of the build are installed, too.
    (void)snprintf(search, sizeof(search), "BERTH_PLUGIN_DIRS=%s", sandbox_path(&box, "plugins"));
    char berth[PATH_MAX];
    (void)snprintf(berth, sizeof(berth), "%s/" STAGE "/bin/berth", box.dir);
    PROGRAM_MUST(&p, PROGRAM_ENV(search), berth, "eval", "--model", dummy_model_write(&box),
                 "--golden", LLAMA_GOLDEN, "--platform", "dummy", "--allow-fallback");
    CHECK_CONTAINS(p.out, "passed");
    CHECK_STR(p.err, ""); // the op library loads, too
    PROGRAM_MUST(&p, PROGRAM_ENV(search), berth, "plugins", "explain", "--platform", "dummy");
    CHECK_CONTAINS(p.out, "selected");
    sandbox_remove(&box);
}

TEST(installed_berth_finds_the_plugins_beside_it) {
    sandbox box;
    program p;
    sandbox_make(&box);
    install(&p, &box);
    const char *berth = sandbox_path(&box, STAGE "/bin/berth");
    PROGRAM_MUST(&p, NULL, berth, "plugins", "list");
    CHECK_CONTAINS(p.out, STAGE "/lib/berth/plugins/dummy.plugin.yaml");
    PROGRAM_MUST(&p, NULL, berth, "run", "--model", LLAMA, "--prompt", "ROMEO:", "-n", "4",
                 "--platform", "dummy", "--allow-fallback");
    CHECK_STR(p.err, "");
    PROGRAM_MUST(&p, NULL, "cat", sandbox_path(&box, STAGE "/lib/pkgconfig/berth-plugin.pc"));
    CHECK_CONTAINS(p.out, "prefix=/usr/local\n");
    CHECK_CONTAINS(p.out, "Cflags: -I${includedir}\n");
    sandbox_remove(&box);
}

// ---- taking it away again -----------------------------------------------------------------------

TEST(uninstall_leaves_nothing_behind) {
    sandbox box;
    program p;
    sandbox_make(&box);
    install(&p, &box);
    CHECK(entries_below(sandbox_path(&box, "stage")) > 10);
    make(&p, &box, "uninstall");
    CHECK_INT(entries_below(sandbox_path(&box, STAGE)), 0);
    sandbox_remove(&box);
}

TEST(uninstall_keeps_what_an_operator_dropped_in) {
    sandbox box;
    program p;
    sandbox_make(&box);
    install(&p, &box);
    (void)sandbox_write(&box, STAGE "/lib/berth/plugins/acme.plugin.yaml", "berth: 1\n");
    make(&p, &box, "uninstall");
    CHECK(exists(&box, STAGE "/lib/berth/plugins/acme.plugin.yaml"));
    CHECK(!exists(&box, STAGE "/bin"));
    CHECK(!exists(&box, STAGE "/include"));
    sandbox_remove(&box);
}

// In a tree of its own, which has just what the Makefile reads.
TEST(clean_removes_the_build_and_nothing_else) {
    sandbox box;
    program p;
    sandbox_make(&box);
    PROGRAM_MUST(&p, NULL, "mkdir", sandbox_path(&box, "tree"));
    PROGRAM_MUST(&p, NULL, "cp", "-r", "Makefile", "VERSION", "tools", sandbox_path(&box, "tree"));
    (void)sandbox_write(&box, "tree/build/release/berth", "built\n");
    (void)sandbox_write(&box, "tree/host/main.c", "kept\n");
    leave_outer_make();
    PROGRAM_MUST(&p, PROGRAM_OWN_ENV, "make", "-C", sandbox_path(&box, "tree"), "clean");
    CHECK(!exists(&box, "tree/build"));
    CHECK(exists(&box, "tree/host/main.c"));
    CHECK(exists(&box, "tree/tools/lint"));
    CHECK(exists(&box, "tree/Makefile"));
    sandbox_remove(&box);
}
