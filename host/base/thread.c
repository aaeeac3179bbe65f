// SPDX-License-Identifier: Apache-2.0
// Input: a function and its context. Output: a running thread. The wrappers assert what cannot
// fail, so that callers have no error paths that no test could reach.
#include "base/thread.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/cgroup.h"
#include "base/clock.h"

#define NS_PER_S UINT64_C(1000000000)

// Why: evaluated even where assertions are off.
static void must_be_zero(int result) {
    assert(result == 0);
    (void)result;
}

static void *enter(void *argument) {
    const berth_thread *thread = argument;
    thread->run(thread->context);
    return NULL;
}

// Everything but the signals that a thread raises by its own mistake.
static void block_signals(sigset_t *out_old) {
    sigset_t blocked;
    sigfillset(&blocked);
    sigdelset(&blocked, SIGSEGV);
    sigdelset(&blocked, SIGBUS);
    sigdelset(&blocked, SIGILL);
    sigdelset(&blocked, SIGFPE);
    sigdelset(&blocked, SIGABRT);
    must_be_zero(pthread_sigmask(SIG_SETMASK, &blocked, out_old));
}

berth_status berth_thread_start(berth_thread *thread, const char *name, berth_thread_fn run,
                                void *context) {
    thread->run = run;
    thread->context = context;
    sigset_t old;
    block_signals(&old);
    const int error = pthread_create(&thread->handle, NULL, enter, thread);
    must_be_zero(pthread_sigmask(SIG_SETMASK, &old, NULL));
    if (error != 0) {
        return BERTH_FAIL(UNAVAILABLE, "cannot start thread '%s': %s; lower --threads or the load",
                          name, strerror(error));
    }
    char short_name[16];
    snprintf(short_name, sizeof(short_name), "%s", name);
    pthread_setname_np(thread->handle, short_name);
    return BERTH_OK;
}

void berth_thread_join(berth_thread *thread) {
    must_be_zero(pthread_join(thread->handle, NULL));
}

uint32_t berth_thread_cpus(void) {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0) {
        return 1; // more CPUs than the set has bits: nobody is misled by too few
    }
    const uint32_t count = (uint32_t)CPU_COUNT(&set);
    const uint32_t quota = berth_cgroup_cpus_read(BERTH_CGROUP_FILE, BERTH_CGROUP_MOUNT);
    const uint32_t both = quota < count ? quota : count;
    return both < 1 ? 1 : both;
}

void berth_thread_yield(void) {
    must_be_zero(sched_yield());
}

void berth_mutex_init(berth_mutex *mutex) {
    must_be_zero(pthread_mutex_init(&mutex->handle, NULL));
}

void berth_mutex_lock(berth_mutex *mutex) {
    must_be_zero(pthread_mutex_lock(&mutex->handle));
}

void berth_mutex_unlock(berth_mutex *mutex) {
    must_be_zero(pthread_mutex_unlock(&mutex->handle));
}

void berth_mutex_deinit(berth_mutex *mutex) {
    must_be_zero(pthread_mutex_destroy(&mutex->handle));
}

void berth_cond_init(berth_cond *cond) {
    pthread_condattr_t attributes;
    must_be_zero(pthread_condattr_init(&attributes));
    must_be_zero(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC));
    must_be_zero(pthread_cond_init(&cond->handle, &attributes));
    must_be_zero(pthread_condattr_destroy(&attributes));
}

void berth_cond_wait(berth_cond *cond, berth_mutex *mutex) {
    must_be_zero(pthread_cond_wait(&cond->handle, &mutex->handle));
}

bool berth_cond_wait_until(berth_cond *cond, berth_mutex *mutex, uint64_t deadline_ns) {
    const struct timespec deadline = {
        .tv_sec = (time_t)(deadline_ns / NS_PER_S),
        .tv_nsec = (long)(deadline_ns % NS_PER_S),
    };
    const int error = pthread_cond_timedwait(&cond->handle, &mutex->handle, &deadline);
    assert(error == 0 || error == ETIMEDOUT);
    return error != ETIMEDOUT;
}

void berth_cond_signal(berth_cond *cond) {
    must_be_zero(pthread_cond_signal(&cond->handle));
}

void berth_cond_broadcast(berth_cond *cond) {
    must_be_zero(pthread_cond_broadcast(&cond->handle));
}

void berth_cond_deinit(berth_cond *cond) {
    must_be_zero(pthread_cond_destroy(&cond->handle));
}
