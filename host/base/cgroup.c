// SPDX-License-Identifier: Apache-2.0
// Input: /proc/self/cgroup and the mounted groups. Output: the tightest limit from the process's
// own group up to the root. A container often sees its own group as the root, under a path of the
// machine's: then the path leads nowhere, and the root is what counts.
#include "base/cgroup.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PATH_BYTES 4096
// From here on it is what version 1 writes for no limit: of CPUs −1, which is read as the largest.
#define NO_LIMIT ((uint64_t)INT64_MAX / 2)

// What one version of the interface calls the files of memory.
typedef struct memory_files {
    const char *limit;
    const char *usage;
    const char *inactive; // in memory.stat: the group's page cache
    const char *active;
} memory_files;

static const memory_files first_memory = {
    .limit = "memory.limit_in_bytes",
    .usage = "memory.usage_in_bytes",
    .inactive = "total_inactive_file",
    .active = "total_active_file",
};
static const memory_files second_memory = {
    .limit = "memory.max",
    .usage = "memory.current",
    .inactive = "inactive_file",
    .active = "active_file",
};

// What is asked of every group, and what the answers make.
typedef struct question {
    const char *controller; // who answers it; its folder in the mount, in version 1
    void (*ask)(const char *directory, bool is_first, void *tightest);
    void *tightest;
} question;

static FILE *open_in(const char *directory, const char *name) {
    char path[PATH_BYTES];
    const int size = snprintf(path, sizeof path, "%s/%s", directory, name);
    return size < 0 || (size_t)size >= sizeof path ? NULL : fopen(path, "re");
}

// False for "max", and for a file that is not there.
static bool read_number(const char *directory, const char *name, uint64_t *out) {
    FILE *file = open_in(directory, name);
    const bool is_number = file != NULL && fscanf(file, "%" SCNu64, out) == 1;
    if (file != NULL) {
        (void)fclose(file);
    }
    return is_number;
}

static uint64_t read_page_cache(const char *directory, const memory_files *files) {
    char key[64];
    uint64_t value = 0;
    uint64_t sum = 0;
    FILE *file = open_in(directory, "memory.stat");
    while (file != NULL && fscanf(file, "%63s %" SCNu64, key, &value) == 2) {
        sum += strcmp(key, files->inactive) == 0 || strcmp(key, files->active) == 0 ? value : 0;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    return sum;
}

static uint64_t smaller(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static void ask_memory(const char *directory, bool is_first, void *tightest) {
    const memory_files *files = is_first ? &first_memory : &second_memory;
    berth_cgroup_memory *memory = tightest;
    uint64_t limit = 0;
    uint64_t usage = 0;
    if (!read_number(directory, files->limit, &limit) || limit >= NO_LIMIT) {
        return;
    }
    const bool is_known = read_number(directory, files->usage, &usage);
    const uint64_t cache = is_known ? smaller(read_page_cache(directory, files), usage) : 0;
    const uint64_t taken = smaller(usage - cache, limit);
    memory->limit = smaller(memory->limit, limit);
    memory->available = smaller(memory->available, limit - taken);
}

// Microseconds of all CPUs together in every period. False for "max", and for what is not there.
static bool read_quota(const char *directory, bool is_first, uint64_t *quota, uint64_t *period) {
    if (is_first) {
        return read_number(directory, "cpu.cfs_quota_us", quota) &&
               read_number(directory, "cpu.cfs_period_us", period);
    }
    FILE *file = open_in(directory, "cpu.max");
    const bool is_both = file != NULL && fscanf(file, "%" SCNu64 " %" SCNu64, quota, period) == 2;
    if (file != NULL) {
        (void)fclose(file);
    }
    return is_both;
}

static void ask_cpus(const char *directory, bool is_first, void *tightest) {
    uint32_t *cpus = tightest;
    uint64_t quota = 0;
    uint64_t period = 0;
    if (read_quota(directory, is_first, &quota, &period) && quota > 0 && quota < NO_LIMIT &&
        period > 0) {
        *cpus = (uint32_t)smaller(quota / period + (quota % period != 0), *cpus);
    }
}

// The group, and every one that it is in.
static void ask_up_from(const char *mount, const char *group, bool is_first, const question *q) {
    char path[PATH_BYTES];
    const int root = snprintf(path, sizeof path, "%s%s%s", mount, is_first ? "/" : "",
                              is_first ? q->controller : "");
    const size_t room = sizeof path - (size_t)root;
    if (root < 0 || (size_t)root >= sizeof path || strlen(group) >= room) {
        return;
    }
    memcpy(path + root, group, strlen(group) + 1);
    for (char *slash = strrchr(path + root, '/'); slash != NULL;
         slash = strrchr(path + root, '/')) {
        q->ask(path, is_first, q->tightest);
        *slash = '\0';
    }
    q->ask(path, is_first, q->tightest);
}

// Whether `name` is one of those with commas between.
static bool has_name(const char *names, const char *name) {
    const size_t length = strlen(name);
    for (const char *one = names; one != NULL;) {
        const char *comma = strchr(one, ',');
        const size_t size = comma == NULL ? strlen(one) : (size_t)(comma - one);
        if (size == length && memcmp(one, name, length) == 0) {
            return true;
        }
        one = comma == NULL ? NULL : comma + 1;
    }
    return false;
}

static void ask_groups(const char *groups, const char *mount, const question *q) {
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
        const bool is_first = *controllers != '\0';
        if (!is_first || has_name(controllers, q->controller)) {
            ask_up_from(mount, group, is_first, q);
        }
    }
    if (file != NULL) {
        (void)fclose(file);
    }
}

berth_cgroup_memory berth_cgroup_memory_read(const char *groups, const char *mount) {
    berth_cgroup_memory tightest = {.limit = UINT64_MAX, .available = UINT64_MAX};
    ask_groups(groups, mount,
               &(question){.controller = "memory", .ask = ask_memory, .tightest = &tightest});
    return tightest;
}

uint32_t berth_cgroup_cpus_read(const char *groups, const char *mount) {
    uint32_t tightest = UINT32_MAX;
    ask_groups(groups, mount,
               &(question){.controller = "cpu", .ask = ask_cpus, .tightest = &tightest});
    return tightest;
}
