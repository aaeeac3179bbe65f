// SPDX-License-Identifier: Apache-2.0
// What the kernels of this folder share: the platform behind berth_device.self and its threads, the
// question whether a site is of one float type, and the life of an instance. Every kernel computes
// in float32, whatever the operands are; what its `supports` refuses runs the native reference.
//
// A kernel that is worth more than one thread keeps device->self of its create, puts what the parts
// need to know on its stack and calls run: every part takes berth_share of the rows, heads or
// outputs. A part writes what no other part touches, so nothing but run synchronises; scratch of a
// part is a piece of the workspace, of which there are `threads`. The result must not depend on how
// many parts there are.
#ifndef BERTH_KERNELS_CPU_CPU_H
#define BERTH_KERNELS_CPU_CPU_H

#include <berth/op.h>

#include <tensor.h>

#include <math.h>

// One part of a kernel's work; parts are numbered from 0. Must not fail, wait or call run.
typedef void (*berth_work_fn)(const void *work, int64_t part, int64_t parts);

// `self` of a platform that registers these kernels.
typedef struct berth_cpu {
    const berth_host *host;
    int64_t threads; // parts that run makes, at least 1
    // Whether the dot product of bf16 pairs is faster here than floats: 1 or -1, 0 before anybody
    // has measured it (in a create).
    int bf16_dot_wins;
    // The same of products of matrices (linear_choice.h).
    int matrices_win;
    // How many bytes of a weight a thread has to read once for asking for four places in turns to
    // be faster (places.h); 0 before anybody has measured it.
    int64_t places_from;
    // Measured with it: whether a weight below that is read faster where nothing is asked for.
    int reads_alone;
    // Whether rows that come later are better asked for far ahead (reads.h): 1 or -1, 0 before
    // anybody has measured it.
    int far_wins;
    // The same of the shifts that make codes of e4m3 floats (packed_e4m3.h).
    int e4m3_shifts_win;
    // Calls work(work, part, parts) once for every part, each on its own thread, the same part
    // always on the same one; returns when all have ended. From one thread at a time.
    void (*run)(const struct berth_cpu *cpu, berth_work_fn function, const void *work);
} berth_cpu;

typedef struct berth_span {
    int64_t first;
    int64_t end;
} berth_span;

// The part's share of `count` things, in order; shares differ by one at most.
static inline berth_span berth_share(int64_t count, int64_t part, int64_t parts) {
    return (berth_span){.first = count * part / parts, .end = count * (part + 1) / parts};
}

// So few elements are not worth waking other threads.
#define BERTH_ALONE (1 << 16)

static inline void berth_run(const berth_cpu *cpu, berth_work_fn function, const void *work,
                             int64_t elements) {
    if (elements < BERTH_ALONE) {
        function(work, 0, 1);
    } else {
        cpu->run(cpu, function, work);
    }
}

// The most rows that x can have; INT64_MAX where nobody says so.
static inline int64_t berth_most_rows(const berth_op_site *site, const berth_value_type *x) {
    int64_t rows = 1;
    for (uint32_t i = 0; i + 1 < x->ndim; ++i) {
        const berth_dim dim = x->dims[i];
        const uint64_t symbol = dim.symbol == BERTH_SYMBOL_SEQUENCES ? site->max_sequences
                                : dim.symbol == BERTH_SYMBOL_TOKENS  ? site->max_tokens
                                                                     : 0;
        if (dim.symbol != BERTH_SYMBOL_NONE && symbol == 0) {
            return INT64_MAX;
        }
        rows *= (dim.a * (int64_t)symbol + dim.b + dim.c - 1) / dim.c;
    }
    return rows < 1 ? 1 : rows;
}

// The loop's iterations are independent, whatever the pointers: an output may be the input itself.
#define BERTH_INDEPENDENT _Pragma("GCC ivdep")

// For functions that get a dtype as a constant, so that each caller has a copy of its own of their
// loops, without a question in them.
#define BERTH_INLINE static inline __attribute__((always_inline))

// `supports` of a kernel whose float operands all have the dtype of the first of them.
static inline berth_status berth_supports_same(const berth_op_site *site,
                                               const berth_device *device) {
    (void)device;
    berth_dtype first = BERTH_DTYPE_NONE;
    for (uint64_t i = 0; i < site->input_count; ++i) {
        const berth_dtype dtype = site->inputs[i] ? site->inputs[i]->dtype : BERTH_DTYPE_NONE;
        if (!berth_is_float(dtype)) {
            continue;
        }
        first = first == BERTH_DTYPE_NONE ? dtype : first;
        if (dtype != first) {
            return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                     "'%s' has another dtype than the inputs before it",
                                     site->op->inputs[i]->name);
        }
    }
    return BERTH_OK;
}

// Zeroed memory for an instance, whose first member is its host; berth_instance_free ends it.
static inline berth_status berth_instance_new(const berth_op_site *site, uint64_t bytes,
                                              void **out_self) {
    const berth_host **self = site->host->alloc(site->host, bytes, 0);
    if (!self) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_OUT_OF_MEMORY, "%s: no memory for %llu bytes",
                                 site->op->name, (unsigned long long)bytes);
    }
    *self = site->host;
    *out_self = self;
    return BERTH_OK;
}

static inline void berth_instance_free(void *self) {
    if (self) {
        const berth_host *host = *(const berth_host *const *)self;
        host->free(host, self);
    }
}

// The instance of a kernel that keeps nothing but where it runs.
typedef struct berth_instance {
    const berth_host *host;
    const berth_cpu *cpu;
} berth_instance;

static inline berth_status berth_instance_create(const berth_op_site *site,
                                                 const berth_device *device, void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(berth_instance), out_self);
    if (status == BERTH_OK) {
        ((berth_instance *)*out_self)->cpu = device->self;
    }
    return status;
}

// The forward of such a kernel, whose parts get the args and take a share of the tensor's rows.
static inline berth_status berth_run_rows(void *self, const berth_op_args *args, berth_work_fn part,
                                          const berth_tensor *rows) {
    berth_run(((const berth_instance *)self)->cpu, part, args,
              berth_row_count(rows) * berth_row_length(rows));
    return BERTH_OK;
}

// The rows of a tensor, one after the other for less than a look at all strides where all are as
// far apart.
typedef struct berth_rows {
    const berth_tensor *tensor;
    char *first;
    int64_t step; // bytes
    int is_even;
} berth_rows;

static inline berth_rows berth_rows_of(const berth_tensor *tensor) {
    const int64_t last = (int64_t)tensor->ndim - 2;
    berth_rows rows = {.tensor = tensor, .first = berth_data(tensor), .is_even = 1};
    for (int64_t dim = last; dim > 0; --dim) {
        rows.is_even &= tensor->strides[dim - 1] == tensor->shape[dim] * tensor->strides[dim];
    }
    rows.step =
        last < 0 ? 0 : tensor->strides[last] * (int64_t)(BERTH_DTYPE_BITS(tensor->dtype) / 8);
    return rows;
}

static inline void *berth_rows_at(const berth_rows *self, int64_t index) {
    return self->is_even ? self->first + index * self->step : berth_row(self->tensor, index);
}

// e^x within 2 units in the last place, as arithmetic that the compiler can vectorise; subnormal
// results, infinities and NaN as expf gives them.
static inline float berth_exp_f32(float x) {
    // x = n·ln 2 + r with |r| ≤ ln 2 / 2; adding 1.5·2^23 rounds to the integer n in the low bits.
    const float shifted = x * 0x1.715476p+0f + 0x1.8p+23f;
    const int32_t n = (int32_t)(berth_bits_of_float(shifted) - berth_bits_of_float(0x1.8p+23f));
    const float whole = shifted - 0x1.8p+23f;
    // ln 2 in two parts: the product with the first is exact.
    const float r = (x - whole * 0x1.62e4p-1f) - whole * 0x1.7f7d1cp-20f;
    float sum = 1.0f / 5040;
    sum = sum * r + 1.0f / 720;
    sum = sum * r + 1.0f / 120;
    sum = sum * r + 1.0f / 24;
    sum = sum * r + 1.0f / 6;
    sum = sum * r + 0.5f;
    sum = sum * r + 1.0f;
    sum = sum * r + 1.0f;
    // 2^n in two factors, so that each is a normal number for subnormal results too.
    const int32_t half = n >> 1;
    const float first = berth_float_of_bits((uint32_t)(half + 127) << 23);
    const float second = berth_float_of_bits((uint32_t)(n - half + 127) << 23);
    // Why here and not first: a bound on x makes the compiler branch around all of the above.
    const float value = sum * first * second;
    return x > 89.0f ? INFINITY : x < -104.0f ? 0.0f : value;
}

#endif
