// SPDX-License-Identifier: Apache-2.0
// Input: names and texts. Output: files below the build directory.
#include "support/sandbox.h"

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "support/test.h"

#define KEPT_PATHS 8

void sandbox_make(sandbox *box) {
    static int count;
    char name[256];
    char resolved[PATH_MAX];
    (void)snprintf(name, sizeof(name), TEST_BUILD "/sandbox.%d.%d", (int)getpid(), count++);
    CHECK_INT(mkdir(name, 0777), 0);
    CHECK(realpath(name, resolved) != NULL);
    CHECK(strlen(resolved) < sizeof(box->dir));
    memcpy(box->dir, resolved, strlen(resolved) + 1);
}

const char *sandbox_path(const sandbox *box, const char *name) {
    static char paths[KEPT_PATHS][PATH_MAX];
    static size_t next;
    char *path = paths[next++ % KEPT_PATHS];
    (void)snprintf(path, PATH_MAX, "%s/%s", box->dir, name);
    return path;
}

const char *sandbox_write(const sandbox *box, const char *name, const char *text) {
    char dir[PATH_MAX];
    const char *path = sandbox_path(box, name);
    for (const char *slash = strchr(path + strlen(box->dir) + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        (void)snprintf(dir, sizeof(dir), "%.*s", (int)(slash - path), path);
        (void)mkdir(dir, 0777);
    }
    FILE *file = fopen(path, "w");
    CHECK(file != NULL);
    CHECK(fputs(text, file) >= 0);
    CHECK_INT(fclose(file), 0);
    return path;
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

void sandbox_remove(sandbox *box) {
    CHECK_INT(nftw(box->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}
