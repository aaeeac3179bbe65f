// SPDX-License-Identifier: Apache-2.0
// A host for programs that call kernels of a GPU without one: memory, failures and warnings. It has
// no cache, so what is measured is measured anew.
#ifndef BERTH_TESTS_GPU_HOST_CUH
#define BERTH_TESTS_GPU_HOST_CUH

#include <berth/host.h>

#include <stdio.h>
#include <stdlib.h>

static void test_host_log(const berth_host *, uint64_t, const char *, const char *text,
                          uint64_t length) {
    (void)fprintf(stderr, "%.*s\n", static_cast<int>(length), text);
}
static uint64_t test_host_logs(const berth_host *, uint64_t level) {
    return level <= BERTH_LOG_WARN;
}
static void test_host_fail(const berth_host *, berth_status, const char *text, uint64_t length) {
    (void)fprintf(stderr, "%.*s\n", static_cast<int>(length), text);
}
static void *test_host_alloc(const berth_host *, uint64_t bytes, uint64_t) {
    return calloc(1, bytes);
}
static void test_host_free(const berth_host *, void *memory) {
    free(memory);
}

static berth_host test_host() {
    berth_host host = {};
    host.size = sizeof host;
    host.log = test_host_log;
    host.log_enabled = test_host_logs;
    host.fail = test_host_fail;
    host.alloc = test_host_alloc;
    host.free = test_host_free;
    return host;
}

#endif
