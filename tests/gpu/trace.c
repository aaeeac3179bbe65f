// SPDX-License-Identifier: Apache-2.0
// Input: what runs between begin and end. Output: the union of the intervals in which its kernels
// ran, so that kernels side by side count once.
#include "tests/gpu/trace.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cupti.h>

#define BUFFER_BYTES ((size_t)8 << 20)
#define MOST         65536 // kernels

typedef struct interval {
    uint64_t begin; // nanoseconds
    uint64_t end;
} interval;

// The functions, by the names of cupti.h.
typedef struct cupti {
    __typeof__(&cuptiActivityRegisterCallbacks) registers;
    __typeof__(&cuptiActivityEnable) enable;
    __typeof__(&cuptiActivityDisable) disable;
    __typeof__(&cuptiActivityFlushAll) flush;
    __typeof__(&cuptiActivityGetNextRecord) next;
    __typeof__(&cuptiGetResultString) text;
} cupti;

static cupti api;
static interval seen[MOST];
static size_t seen_count;
static char reason[256];

// ---- records ------------------------------------------------------------------------------------

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *most_records) {
    *buffer = aligned_alloc(64, BUFFER_BYTES);
    *size = *buffer == NULL ? 0 : BUFFER_BYTES;
    *most_records = 0;
}

static void CUPTIAPI take_buffer(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size,
                                 size_t valid) {
    CUpti_Activity *record = NULL;
    (void)context;
    (void)stream;
    (void)size;
    while (api.next(buffer, valid, &record) == CUPTI_SUCCESS) {
        if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL &&
            record->kind != CUPTI_ACTIVITY_KIND_KERNEL) {
            continue;
        }
        // Why the latest record: the members that are read here lie where they always did.
        const CUpti_ActivityKernel10 *kernel = (const CUpti_ActivityKernel10 *)record;
        if (kernel->end > kernel->start && seen_count < MOST) {
            seen[seen_count++] = (interval){.begin = kernel->start, .end = kernel->end};
        }
    }
    free(buffer);
}

static int compare(const void *a, const void *b) {
    const uint64_t left = ((const interval *)a)->begin;
    const uint64_t right = ((const interval *)b)->begin;
    return left < right ? -1 : left > right;
}

static trace_result sum_up(void) {
    uint64_t busy = 0;
    uint64_t end = 0;
    qsort(seen, seen_count, sizeof *seen, compare);
    for (size_t i = 0; i < seen_count; ++i) {
        const uint64_t begin = seen[i].begin > end ? seen[i].begin : end;
        busy += seen[i].end > begin ? seen[i].end - begin : 0;
        end = seen[i].end > end ? seen[i].end : end;
    }
    return (trace_result){
        .kernels = seen_count,
        .busy = (double)busy / 1e9,
        .span = seen_count > 0 ? (double)(end - seen[0].begin) / 1e9 : 0,
    };
}

// ---- the library --------------------------------------------------------------------------------

static const char *fail(const char *call, CUptiResult result) {
    const char *text = "";
    (void)api.text(result, &text);
    (void)snprintf(reason, sizeof reason, "%s: %s", call, text);
    return reason;
}

static const char *open_library(void) {
    static const char *const names[] = {"libcupti.so.13", "libcupti.so"};
    void *library = NULL;
    for (size_t i = 0; library == NULL && i < sizeof names / sizeof names[0]; ++i) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    if (library == NULL) {
        return "libcupti.so is not found";
    }
    *(void **)&api.registers = dlsym(library, "cuptiActivityRegisterCallbacks");
    *(void **)&api.enable = dlsym(library, "cuptiActivityEnable");
    *(void **)&api.disable = dlsym(library, "cuptiActivityDisable");
    *(void **)&api.flush = dlsym(library, "cuptiActivityFlushAll");
    *(void **)&api.next = dlsym(library, "cuptiActivityGetNextRecord");
    *(void **)&api.text = dlsym(library, "cuptiGetResultString");
    return api.registers && api.enable && api.disable && api.flush && api.next && api.text
               ? NULL
               : "libcupti.so lacks functions";
}

const char *trace_begin(void) {
    const char *why = api.registers ? NULL : open_library();
    if (why != NULL) {
        return why;
    }
    seen_count = 0;
    CUptiResult result = api.registers(give_buffer, take_buffer);
    if (result != CUPTI_SUCCESS) {
        return fail("cuptiActivityRegisterCallbacks", result);
    }
    result = api.enable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    return result == CUPTI_SUCCESS ? NULL : fail("cuptiActivityEnable", result);
}

const char *trace_end(trace_result *out) {
    const CUptiResult result = api.flush(1);
    (void)api.disable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    if (result != CUPTI_SUCCESS) {
        return fail("cuptiActivityFlushAll", result);
    }
    *out = sum_up();
    return out->kernels > 0 ? NULL : "CUPTI saw no kernel";
}
