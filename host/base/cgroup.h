// SPDX-License-Identifier: Apache-2.0
// What the control groups that this process is in leave it of the machine's memory: how a container
// or a service is kept small.
#ifndef BERTH_BASE_CGROUP_H
#define BERTH_BASE_CGROUP_H

#include <stdint.h>

// Of the tightest group; UINT64_MAX where there is no limit.
typedef struct berth_cgroup_memory {
    uint64_t limit;     // bytes
    uint64_t available; // of these, the page cache of the group included
} berth_cgroup_memory;

// `groups` is a file like /proc/self/cgroup, `mount` the folder that the groups are mounted in:
// version 2 there itself, version 1 in its folder `memory`. What cannot be read limits nothing.
berth_cgroup_memory berth_cgroup_memory_read(const char *groups, const char *mount);

#endif
