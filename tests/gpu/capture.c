// SPDX-License-Identifier: Apache-2.0
// The slots of a platform's device table that a decode step calls, with a clock before or behind.
#include "tests/gpu/capture.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static berth_device_api slots; // the platform's own
static void *device_self;
static uint64_t device_index;
static void *last_graph;

static double cpu[CAPTURE_SAMPLES];
static double wall[CAPTURE_SAMPLES];
static double launch[CAPTURE_SAMPLES];
static size_t count;
static double visible_cpu; // 0: no wait since the last launch
static double visible_wall;

static double now(clockid_t clock) {
    struct timespec time;
    (void)clock_gettime(clock, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static berth_status copy_to_host(void *self, uint64_t device, const berth_copy *copy) {
    const berth_status status = slots.copy_to_host(self, device, copy);
    visible_wall = now(CLOCK_MONOTONIC);
    visible_cpu = now(CLOCK_THREAD_CPUTIME_ID);
    return status;
}

static berth_status replay(void *self, uint64_t device, void *graph) {
    const double begin = now(CLOCK_THREAD_CPUTIME_ID);
    const berth_status status = slots.replay(self, device, graph);
    const double end = now(CLOCK_THREAD_CPUTIME_ID);
    device_self = self;
    device_index = device;
    last_graph = graph;
    if (visible_cpu > 0 && count < CAPTURE_SAMPLES) {
        cpu[count] = end - visible_cpu;
        launch[count] = end - begin;
        wall[count++] = now(CLOCK_MONOTONIC) - visible_wall;
    }
    visible_cpu = 0;
    return status;
}

void capture_watch(const berth_platform_entry *platform) {
    // Why the cast: the registry's copy of the table is its own memory, and nobody else's.
    berth_device_api *table = &((berth_platform_entry *)(uintptr_t)platform)->device;
    slots = *table;
    table->copy_to_host = copy_to_host;
    table->replay = replay;
}

void capture_begin(void) {
    count = 0;
    visible_cpu = 0;
}

static int compare(const void *a, const void *b) {
    const double left = *(const double *)a;
    const double right = *(const double *)b;
    return left < right ? -1 : left > right;
}

static double median_of(double *samples, size_t of) {
    qsort(samples, of, sizeof *samples, compare);
    return of > 0 ? samples[of / 2] : 0;
}

capture_turns capture_get(void) {
    return (capture_turns){
        .cpu = median_of(cpu, count),
        .launch = median_of(launch, count),
        .wall = median_of(wall, count),
        .count = count,
    };
}

void capture_replay(void) {
    if (last_graph == NULL || slots.replay(device_self, device_index, last_graph) != BERTH_OK ||
        slots.synchronize(device_self, device_index) != BERTH_OK) {
        (void)fprintf(stderr, "no decode step was replayed\n");
        exit(1);
    }
}

double capture_time_replays(void) {
    static double samples[CAPTURE_SAMPLES];
    for (size_t i = 0; i < CAPTURE_SAMPLES; ++i) {
        const double begin = now(CLOCK_MONOTONIC);
        capture_replay();
        samples[i] = now(CLOCK_MONOTONIC) - begin;
    }
    return median_of(samples, CAPTURE_SAMPLES);
}
