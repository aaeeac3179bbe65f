// SPDX-License-Identifier: Apache-2.0
// Input: what runs between begin and end. Output: the union of the intervals in which its kernels
// ran, so that kernels side by side count once; and the time of each kernel by its name.
#include "tests/gpu/trace.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cupti.h>

#define BUFFER_BYTES ((size_t)8 << 20)
#define MOST         65536 // kernels
#define NAMES        256   // of different kernels

typedef struct interval {
    uint64_t begin; // nanoseconds
    uint64_t end;
    const char *name; // mangled; CUPTI's, as long as the module is loaded
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
            seen[seen_count++] =
                (interval){.begin = kernel->start, .end = kernel->end, .name = kernel->name};
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

// ---- by name ------------------------------------------------------------------------------------

typedef struct named_time {
    const char *name;
    size_t count;
    uint64_t time;
    uint64_t idle; // before it, since the one that ran last had ended
} named_time;

static int longest_first(const void *a, const void *b) {
    const uint64_t left = ((const named_time *)a)->time;
    const uint64_t right = ((const named_time *)b)->time;
    return left > right ? -1 : left < right;
}

static void add_time(named_time *names, size_t *count, const interval *kernel, uint64_t end) {
    size_t i = 0;
    while (i < *count && strcmp(names[i].name, kernel->name) != 0) {
        ++i;
    }
    if (i == NAMES) {
        return;
    }
    *count += i == *count;
    names[i].name = kernel->name;
    names[i].count += 1;
    names[i].time += kernel->end - kernel->begin;
    names[i].idle += end > 0 && kernel->begin > end ? kernel->begin - end : 0;
}

void trace_print_names(void) {
    static named_time names[NAMES];
    size_t count = 0;
    uint64_t end = 0;
    memset(names, 0, sizeof names);
    for (size_t i = 0; i < seen_count; ++i) {
        add_time(names, &count, &seen[i], end);
        end = seen[i].end > end ? seen[i].end : end;
    }
    qsort(names, count, sizeof *names, longest_first);
    for (size_t i = 0; i < count; ++i) {
        (void)printf("%10.3f ms behind %8.3f ms of nothing, %6zu times  %.120s\n",
                     (double)names[i].time / 1e6, (double)names[i].idle / 1e6, names[i].count,
                     names[i].name);
    }
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
