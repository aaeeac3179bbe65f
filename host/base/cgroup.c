// SPDX-License-Identifier: Apache-2.0
// Input: /proc/self/cgroup and the mounted groups. Output: the tightest memory limit from the
// process's own group up to the root. A container often sees its own group as the root, under a
// path of the machine's: then the path leads nowhere, and the root is what counts.
#include "base/cgroup.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 4096

// What one version of the interface calls its files.
typedef struct version {
    const char *folder; // in the mount
    const char *limit;
    const char *usage;
    const char *inactive; // in memory.stat: the group's page cache
    const char *active;
} version;

static const version first = {
    .folder = "/memory",
    .limit = "memory.limit_in_bytes",
    .usage = "memory.usage_in_bytes",
    .inactive = "total_inactive_file",
    .active = "total_active_file",
};
static const version second = {
    .folder = "",
    .limit = "memory.max",
    .usage = "memory.current",
    .inactive = "inactive_file",
    .active = "active_file",
};

static FILE *open_in(const char *directory, const char *name) {
    char path[PATH_BYTES];
    const int size = snprintf(path, sizeof path, "%s/%s", directory, name);
    return size < 0 || (size_t)size >= sizeof path ? NULL : fopen(path, "re");
}

// False for "max", and for a file that is not there.
static bool read_bytes(const char *directory, const char *name, uint64_t *out) {
    FILE *file = open_in(directory, name);
    const bool is_number = file != NULL && fscanf(file, "%" SCNu64, out) == 1;
    if (file != NULL) {
        (void)fclose(file);
    }
    return is_number;
}

static uint64_t read_page_cache(const char *directory, const version *v) {
    char key[64];
    uint64_t value = 0;
    uint64_t sum = 0;
    FILE *file = open_in(directory, "memory.stat");
    while (file != NULL && fscanf(file, "%63s %" SCNu64, key, &value) == 2) {
        sum += strcmp(key, v->inactive) == 0 || strcmp(key, v->active) == 0 ? value : 0;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return sum;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static void look_at(const char *directory, const version *v, berth_cgroup_memory *tightest) {
    uint64_t limit = 0;
    uint64_t usage = 0;
    if (!read_bytes(directory, v->limit, &limit) || limit >= (uint64_t)INT64_MAX / 2) {
        return; // version 1 writes a number for no limit
    }
    const bool is_known = read_bytes(directory, v->usage, &usage);
    const uint64_t cache = is_known ? smaller(read_page_cache(directory, v), usage) : 0;
    const uint64_t taken = smaller(usage - cache, limit);
    tightest->limit = smaller(tightest->limit, limit);
    tightest->available = smaller(tightest->available, limit - taken);
}

// The group, and every one that it is in.
static void look_up_from(const char *mount, const char *group, const version *v,
                         berth_cgroup_memory *tightest) {
    char path[PATH_BYTES];
    const int root = snprintf(path, sizeof path, "%s%s", mount, v->folder);
    const size_t room = sizeof path - (size_t)root;
    if (root < 0 || (size_t)root >= sizeof path || strlen(group) >= room) {
        return;
    }
    memcpy(path + root, group, strlen(group) + 1);
    for (char *slash = strrchr(path + root, '/'); slash != NULL;
         slash = strrchr(path + root, '/')) {
        look_at(path, v, tightest);
        *slash = '\0';
    }
    look_at(path, v, tightest);
}

// Whether `memory` is one of the names with commas between.
static bool has_memory(const char *controllers) {
    const char *found = strstr(controllers, "memory");
    while (found != NULL) {
        const bool begins = found == controllers || found[-1] == ',';
        const char end = found[strlen("memory")];
        if (begins && (end == ',' || end == '\0')) {
            return true;
        }
        found = strstr(found + 1, "memory");
    }
    return false;
}

berth_cgroup_memory berth_cgroup_memory_read(const char *groups, const char *mount) {
    berth_cgroup_memory tightest = {.limit = UINT64_MAX, .available = UINT64_MAX};
    char line[PATH_BYTES];
    FILE *file = fopen(groups, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':');
        char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (group == NULL) {
            continue;
        }
        *group++ = '\0';
        ++controllers;
        if (*controllers == '\0' || has_memory(controllers)) {
            look_up_from(mount, group, *controllers == '\0' ? &second : &first, &tightest);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return tightest;
}
