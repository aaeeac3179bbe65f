// SPDX-License-Identifier: Apache-2.0
// What the control groups that this process is in leave it of the machine's memory and CPUs: how a
// container or a service is kept small.
#ifndef BERTH_BASE_CGROUP_H
#define BERTH_BASE_CGROUP_H

#include <stdint.h>

// Of the tightest group; UINT64_MAX where there is no limit.
typedef struct berth_cgroup_memory {
    uint64_t limit;     // bytes
    uint64_t available; // of these, the page cache of the group included
} berth_cgroup_memory;

// Where Linux has both.
#define BERTH_CGROUP_FILE  "/proc/self/cgroup"
#define BERTH_CGROUP_MOUNT "/sys/fs/cgroup"

// `groups` is a file like /proc/self/cgroup, `mount` the folder that the groups are mounted in:
// version 2 there itself, version 1 in a folder by the controller's name. What cannot be read
// limits nothing.
berth_cgroup_memory berth_cgroup_memory_read(const char *groups, const char *mount);
// CPUs whose whole time the tightest quota is worth, a part of one counted as one; UINT32_MAX where
// there is none. Threads beyond it would stand still together for the rest of every period.
uint32_t berth_cgroup_cpus_read(const char *groups, const char *mount);

#endif
