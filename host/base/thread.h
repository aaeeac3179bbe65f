// SPDX-License-Identifier: Apache-2.0
// Threads, as thin as they can be: create and join, mutex, condition, the CPUs this process may
// use and giving way on one. What a thread does and owns is its module's business.
#ifndef BERTH_BASE_THREAD_H
#define BERTH_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

typedef void (*berth_thread_fn)(void *context);

typedef struct berth_thread {
    pthread_t handle;
    berth_thread_fn run;
    void *context; // borrowed until the join
} berth_thread;

typedef struct berth_mutex {
    pthread_mutex_t handle;
} berth_mutex;

typedef struct berth_cond {
    pthread_cond_t handle;
} berth_cond;

// Starts `run(context)`. The struct must stay where it is until the join. Every signal is blocked
// in the new thread, so that handlers run in the main thread only. `name` is cut to 15 bytes.
BERTH_MUST_CHECK berth_status berth_thread_start(berth_thread *thread, const char *name,
                                                 berth_thread_fn run, void *context);
void berth_thread_join(berth_thread *thread);
// CPUs that this process can keep busy: those in this thread's affinity mask, or fewer where a
// control group has a quota. At least 1.
uint32_t berth_thread_cpus(void);
// Between two looks at what another thread changes: lets it run, where it waits for this CPU.
void berth_thread_yield(void);

// These cannot fail on Linux short of a defect in the caller, which is asserted.
void berth_mutex_init(berth_mutex *mutex);
void berth_mutex_lock(berth_mutex *mutex);
void berth_mutex_unlock(berth_mutex *mutex);
void berth_mutex_deinit(berth_mutex *mutex);

void berth_cond_init(berth_cond *cond);
// The caller holds the mutex and tests its condition again afterwards.
void berth_cond_wait(berth_cond *cond, berth_mutex *mutex);
// The same until berth_clock_ns reaches the deadline; false when it has.
bool berth_cond_wait_until(berth_cond *cond, berth_mutex *mutex, uint64_t deadline_ns);
void berth_cond_signal(berth_cond *cond);
void berth_cond_broadcast(berth_cond *cond);
void berth_cond_deinit(berth_cond *cond);

#endif
