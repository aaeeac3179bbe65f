// SPDX-License-Identifier: Apache-2.0
// Input: work in parts. Output: every part has run on its own thread. A call is published by a new
// number and is over when no worker is left in it; who waits for either looks for a moment, gives
// way between two looks, then sleeps on a condition. Whoever goes to sleep says so first and looks
// once more, whoever publishes looks for sleepers last: one of the two sees the other (all four are
// sequentially consistent).
#include "pool.h"

#include <cpu/simd.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>

// How long somebody looks before he sleeps: longer than what lies between two kernels of a step,
// shorter than a time slice that somebody else could use. From GIVING_NS on he gives way at every
// look: of two processes with as many threads each as there are cores, one's looking kept the other
// from the work that it was looking for, and they took 15 times as long as one after the other.
// With 50 us they take 1.6 times as long as with 20, with 5 a process alone may be slower. Why by
// the clock: a pause takes 40 cycles on one processor and 140 on another.
#define LOOK_NS   INT64_C(1000000)
#define GIVING_NS INT64_C(20000)
#define LOOKS     64 // between two looks at the clock, before

typedef struct worker {
    cpu_pool *pool;
    int64_t part;
    pthread_t thread;
} worker;

struct cpu_pool {
    const berth_host *host;
    berth_work_fn function; // NULL: the workers shall end
    const void *work;
    int64_t parts;
    _Alignas(64) _Atomic int64_t call; // number of the last one
    _Atomic int64_t sleepers;
    _Alignas(64) _Atomic int64_t left; // workers that are still in it
    _Atomic int64_t is_caller_asleep;
    pthread_mutex_t mutex;
    pthread_cond_t called;
    pthread_cond_t ended;
    int64_t started; // workers
    worker workers[];
};

static int64_t nanoseconds_now(void) {
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// Looks for a value for a moment; 0: it has not come.
static int look_for(const _Atomic int64_t *where, int64_t value) {
    const int64_t start = nanoseconds_now();
    for (int64_t past = 0; past < LOOK_NS; past = nanoseconds_now() - start) {
        const int gives_way = past >= GIVING_NS;
        for (int look = 0; look < (gives_way ? 1 : LOOKS); ++look) {
            if (atomic_load_explicit(where, memory_order_acquire) == value) {
                return 1;
            }
            BERTH_PAUSE();
        }
        if (gives_way) {
            (void)sched_yield();
        }
    }
    return 0;
}

// ---- workers ------------------------------------------------------------------------------------

static void wait_for_call(cpu_pool *pool, int64_t seen) {
    if (look_for(&pool->call, seen + 1)) {
        return;
    }
    (void)pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->sleepers, 1);
    while (atomic_load(&pool->call) == seen) {
        (void)pthread_cond_wait(&pool->called, &pool->mutex);
    }
    atomic_fetch_sub(&pool->sleepers, 1);
    (void)pthread_mutex_unlock(&pool->mutex);
}

static void leave_call(cpu_pool *pool) {
    if (atomic_fetch_sub(&pool->left, 1) == 1 && atomic_load(&pool->is_caller_asleep)) {
        (void)pthread_mutex_lock(&pool->mutex);
        (void)pthread_cond_signal(&pool->ended);
        (void)pthread_mutex_unlock(&pool->mutex);
    }
}

static void *work(void *context) {
    const worker *self = context;
    cpu_pool *pool = self->pool;
    for (int64_t seen = 0;; ++seen) {
        wait_for_call(pool, seen);
        if (!pool->function) {
            return NULL;
        }
        pool->function(pool->work, self->part, pool->parts);
        leave_call(pool);
    }
}

// ---- the caller ---------------------------------------------------------------------------------

static void publish(cpu_pool *pool, berth_work_fn function, const void *what) {
    pool->function = function;
    pool->work = what;
    atomic_store(&pool->left, pool->started);
    atomic_fetch_add(&pool->call, 1);
    if (atomic_load(&pool->sleepers) > 0) {
        (void)pthread_mutex_lock(&pool->mutex);
        (void)pthread_cond_broadcast(&pool->called);
        (void)pthread_mutex_unlock(&pool->mutex);
    }
}

static void wait_for_end(cpu_pool *pool) {
    if (look_for(&pool->left, 0)) {
        return;
    }
    (void)pthread_mutex_lock(&pool->mutex);
    atomic_store(&pool->is_caller_asleep, 1);
    while (atomic_load(&pool->left) > 0) {
        (void)pthread_cond_wait(&pool->ended, &pool->mutex);
    }
    atomic_store(&pool->is_caller_asleep, 0);
    (void)pthread_mutex_unlock(&pool->mutex);
}

void cpu_pool_run(cpu_pool *pool, berth_work_fn function, const void *what) {
    if (pool->started == 0) {
        function(what, 0, 1);
        return;
    }
    publish(pool, function, what);
    function(what, 0, pool->parts);
    wait_for_end(pool);
}

// ---- life ---------------------------------------------------------------------------------------

// Why all signals are blocked meanwhile: a new thread inherits that, and a handler belongs on the
// threads of the host.
static berth_status start(cpu_pool *pool, int64_t threads) {
    sigset_t all;
    sigset_t before;
    int failed = 0;
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int64_t i = 0; i + 1 < threads && !failed; ++i) {
        pool->workers[i] = (worker){.pool = pool, .part = i + 1};
        failed = pthread_create(&pool->workers[i].thread, NULL, work, &pool->workers[i]);
        pool->started += !failed;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed ? BERTH_PLUGIN_FAIL(pool->host, BERTH_UNAVAILABLE,
                                      "the system gives %lld of %lld threads (error %d); lower "
                                      "--threads",
                                      (long long)pool->started + 1, (long long)threads, failed)
                  : BERTH_OK;
}

berth_status cpu_pool_create(const berth_host *host, int64_t threads, cpu_pool **out_pool) {
    const uint64_t bytes = sizeof(cpu_pool) + (uint64_t)threads * sizeof(worker);
    cpu_pool *pool = host->alloc(host, bytes, 64);
    if (!pool) {
        return BERTH_PLUGIN_FAIL(host, BERTH_OUT_OF_MEMORY, "no memory for %lld threads",
                                 (long long)threads);
    }
    memset(pool, 0, sizeof *pool);
    pool->host = host;
    pool->parts = threads;
    (void)pthread_mutex_init(&pool->mutex, NULL);
    (void)pthread_cond_init(&pool->called, NULL);
    (void)pthread_cond_init(&pool->ended, NULL);
    const berth_status status = start(pool, threads);
    if (status != BERTH_OK) {
        cpu_pool_destroy(pool);
        return status;
    }
    *out_pool = pool;
    return BERTH_OK;
}

void cpu_pool_destroy(cpu_pool *pool) {
    if (!pool) {
        return;
    }
    publish(pool, NULL, NULL);
    for (int64_t i = 0; i < pool->started; ++i) {
        (void)pthread_join(pool->workers[i].thread, NULL);
    }
    (void)pthread_cond_destroy(&pool->ended);
    (void)pthread_cond_destroy(&pool->called);
    (void)pthread_mutex_destroy(&pool->mutex);
    pool->host->free(pool->host, pool);
}
