// SPDX-License-Identifier: Apache-2.0
// What a captured decode step costs beside its kernels. It stands between the device facade and the
// platform's slots, so that what is measured runs as it always does.
#ifndef BERTH_GPU_CAPTURE_H
#define BERTH_GPU_CAPTURE_H

#include "platform/platform.h"

#define CAPTURE_SAMPLES 1000

// From the return of a step's wait, when its tokens can be read, to the return of the next launch.
typedef struct capture_turns {
    double cpu;    // median seconds of the thread
    double launch; // of them in the launch itself
    double wall;   // of the clock
    size_t count;
} capture_turns;

// Once, before the first step.
void capture_watch(const berth_platform_entry *platform);
// Forgets the turns so far.
void capture_begin(void);
capture_turns capture_get(void);
// Median seconds of the last recording, replayed and waited for so many times.
double capture_time_replays(void);
// Replays it once more, and waits.
void capture_replay(void);

#endif
