// SPDX-License-Identifier: Apache-2.0
// The threads of platform-cpu: one for every part of a kernel's work but the first, which is the
// caller's. They look for work without sleeping for a moment after each call, then sleep until the
// next one. Why not bound to cores: the caller's thread is not ours to bind, and a bound thread
// beside an unbound one, or beside another process, waits for a core while others are free.
#ifndef BERTH_PLATFORM_CPU_POOL_H
#define BERTH_PLATFORM_CPU_POOL_H

#include <berth/host.h>

#include <cpu/cpu.h>

typedef struct cpu_pool cpu_pool;

// `threads` counts the caller's. Threads that the system refuses are an error.
berth_status cpu_pool_create(const berth_host *host, int64_t threads, cpu_pool **out_pool);
void cpu_pool_destroy(cpu_pool *pool); // takes NULL

// berth_cpu.run with as many parts as there are threads.
void cpu_pool_run(cpu_pool *pool, berth_work_fn function, const void *work);

#endif
