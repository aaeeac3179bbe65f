// SPDX-License-Identifier: Apache-2.0
// What norms but rms_norm share: a row at a time, read twice while it stays in the first cache: for
// its mean and mean of squares, then for the result. A kernel says how a value comes about and what
// becomes of it. All in float32 with one rounding.
#ifndef BERTH_KERNELS_CPU_NORM_H
#define BERTH_KERNELS_CPU_NORM_H

#include <cpu/elementwise.h>

// Begins as berth_instance does.
typedef struct berth_norm {
    const berth_host *host;
    const berth_cpu *cpu;
    float eps;
    int64_t group;       // columns of one mean; 0: all
    int64_t options;     // the kernel's own
    int64_t weight_rows; // of x so many rows in turn have one of the weight; 0: all have the same
} berth_norm;

static inline berth_status berth_norm_create(const berth_op_site *site, const berth_device *device,
                                             void **out_self) {
    const berth_status status = berth_instance_new(site, sizeof(berth_norm), out_self);
    if (status == BERTH_OK) {
        berth_norm *self = *out_self;
        self->cpu = device->self;
        self->eps = (float)berth_site_attribute(site, "eps")->f64;
    }
    return status;
}

static inline int berth_norm_gate_is_sigmoid(const berth_op_site *site) {
    return strcmp(berth_site_attribute(site, "activation")->str, "sigmoid") == 0;
}

// One row of each operand, NULL where absent. `gate` has x's dtype, `weight` and `bias` their own.
typedef struct berth_norm_row {
    const berth_norm *self;
    int64_t hidden;
    const void *x;
    const void *gate;
    const void *weight;
    const void *bias;
    void *sum; // where x + gate goes, for a gate that is a residual
    void *y;
    berth_dtype weight_dtype;
    berth_dtype bias_dtype;
} berth_norm_row;

// Lanes [first, first + BERTH_LANES) of a row before its norm; zero behind its end.
typedef berth_vec (*berth_norm_take)(const berth_norm_row *row, berth_dtype dtype, int64_t first);
// The same after it, times what the kernel multiplies by.
typedef berth_vec (*berth_norm_give)(const berth_norm_row *row, berth_dtype dtype, int64_t first,
                                     berth_vec normal);

BERTH_INLINE berth_vec berth_norm_weight(const berth_norm_row *row, int64_t first) {
    return row->weight ? berth_vec_load_some(row->weight, row->weight_dtype, first, row->hidden)
                       : berth_vec_of(1);
}

// Zero in the lanes from `count` on.
BERTH_INLINE berth_vec berth_norm_cut(berth_vec a, int64_t count) {
    float lanes[BERTH_LANES];
    if (count >= BERTH_LANES) {
        return a;
    }
    berth_vec_store(lanes, a);
    return berth_vec_load_part(lanes, BERTH_DTYPE_F32, 0, count);
}

BERTH_INLINE float berth_norm_mean(const berth_norm_row *row, berth_dtype dtype,
                                   berth_norm_take take) {
    berth_vec sums[2] = {berth_vec_of(0), berth_vec_of(0)};
    for (int64_t first = 0; first < row->hidden; first += 2 * BERTH_LANES) {
        sums[0] = sums[0] + take(row, dtype, first);
        sums[1] = sums[1] + take(row, dtype, first + BERTH_LANES);
    }
    return berth_vec_sum(sums[0] + sums[1]) / (float)row->hidden;
}

// 1 / sqrt of the mean of (value − mean)² over columns [begin, end), plus eps.
BERTH_INLINE berth_vec berth_norm_factor(const berth_norm_row *row, berth_dtype dtype,
                                         berth_norm_take take, float mean, berth_span columns) {
    berth_vec sums[2] = {berth_vec_of(0), berth_vec_of(0)};
    for (int64_t first = columns.first; first < columns.end; first += 2 * BERTH_LANES) {
        BERTH_UNROLL
        for (int i = 0; i < 2; ++i) {
            const int64_t at = first + i * BERTH_LANES;
            const berth_vec distance = berth_norm_cut(take(row, dtype, at) - berth_vec_of(mean),
                                                      columns.end > at ? columns.end - at : 0);
            sums[i] = berth_vec_fma(distance, distance, sums[i]);
        }
    }
    const float squares = berth_vec_sum(sums[0] + sums[1]);
    const float count = (float)(columns.end - columns.first);
    return berth_vec_of(1.0f / sqrtf(squares / count + row->self->eps));
}

// Columns that have one mean, which is taken off, and one factor.
typedef struct berth_norm_slice {
    float mean;
    berth_span columns;
} berth_norm_slice;

// Why the store by parts: a group may end inside a vector, whose other lanes are the next group's.
BERTH_INLINE void berth_norm_columns(const berth_norm_row *row, berth_dtype dtype,
                                     berth_norm_take take, berth_norm_give give,
                                     berth_norm_slice of) {
    const float mean = of.mean;
    const berth_span columns = of.columns;
    const berth_vec factor = berth_norm_factor(row, dtype, take, mean, columns);
    for (int64_t first = columns.first; first < columns.end; first += BERTH_LANES) {
        const berth_vec normal = (take(row, dtype, first) - berth_vec_of(mean)) * factor;
        berth_vec_store_some(row->y, dtype, first, columns.end, give(row, dtype, first, normal));
    }
}

BERTH_INLINE void berth_norm_groups(const berth_norm_row *row, berth_dtype dtype,
                                    berth_norm_take take, berth_norm_give give) {
    const int64_t group = row->self->group > 0 ? row->self->group : row->hidden;
    for (int64_t first = 0; first < row->hidden; first += group) {
        berth_norm_columns(row, dtype, take, give,
                           (berth_norm_slice){
                               0, {.first = first, .end = first + group}
        });
    }
}

// Which of a kernel's operands a row is made of; −1: none.
typedef struct berth_norm_operands {
    int gate;
    int weight;
    int bias;
    int sum; // an output
} berth_norm_operands;

typedef struct berth_norm_job {
    const berth_norm *self;
    const berth_op_args *args;
    const berth_norm_operands *operands;
} berth_norm_job;

static inline const berth_tensor *berth_norm_input(const berth_norm_job *in, int input) {
    return input < 0 ? NULL : in->args->inputs[input];
}

// Fills in what all rows share.
static inline void berth_norm_begin(const berth_norm_job *in, berth_norm_row *row) {
    const berth_tensor *weight = berth_norm_input(in, in->operands->weight);
    const berth_tensor *bias = berth_norm_input(in, in->operands->bias);
    *row = (berth_norm_row){
        .self = in->self,
        .hidden = berth_row_length(in->args->inputs[0]),
        .weight = weight ? berth_data(weight) : NULL,
        .bias = bias ? berth_data(bias) : NULL,
        .weight_dtype = weight ? weight->dtype : BERTH_DTYPE_F32,
        .bias_dtype = bias ? bias->dtype : BERTH_DTYPE_F32,
    };
}

// The row of the weight that row i of x has.
static inline void berth_norm_turn(const berth_norm_job *in, int64_t i, berth_norm_row *row) {
    if (in->self->weight_rows > 0) {
        const berth_tensor *weight = berth_norm_input(in, in->operands->weight);
        row->weight = berth_row(weight, i % in->self->weight_rows);
    }
}

// A part's rows; `one` is a constant function where this is inlined.
typedef void (*berth_norm_one)(const berth_norm_row *row, berth_dtype dtype);
BERTH_INLINE void berth_norm_part(const berth_norm_job *in, berth_norm_one one, int64_t part,
                                  int64_t parts) {
    const berth_tensor *gate = berth_norm_input(in, in->operands->gate);
    const berth_rows x = berth_rows_of(in->args->inputs[0]);
    const berth_rows y = berth_rows_of(in->args->outputs[0]);
    const berth_rows gates = gate ? berth_rows_of(gate) : x;
    const int has_sum = gate && in->operands->sum >= 0;
    const berth_rows sums = has_sum ? berth_rows_of(in->args->outputs[in->operands->sum]) : y;
    const berth_span rows = berth_share(berth_row_count(in->args->inputs[0]), part, parts);
    berth_norm_row row;
    berth_norm_begin(in, &row);
    for (int64_t i = rows.first; i < rows.end; ++i) {
        row.x = berth_rows_at(&x, i);
        row.y = berth_rows_at(&y, i);
        row.gate = gate ? berth_rows_at(&gates, i) : NULL;
        row.sum = has_sum ? berth_rows_at(&sums, i) : NULL;
        berth_norm_turn(in, i, &row);
        if (in->args->inputs[0]->dtype == BERTH_DTYPE_F32) {
            one(&row, BERTH_DTYPE_F32);
        } else if (in->args->inputs[0]->dtype == BERTH_DTYPE_BF16) {
            one(&row, BERTH_DTYPE_BF16);
        } else {
            one(&row, BERTH_DTYPE_F16);
        }
    }
}

// The part and the forward of a kernel: `one` does a row, `operands` says what it is made of.
#define BERTH_NORM(one, which)                                                                     \
    static void part_of(const void *work, int64_t part, int64_t parts) {                           \
        berth_norm_part(work, one, part, parts);                                                   \
    }                                                                                              \
    static berth_status forward(void *self, const berth_op_args *args) {                           \
        const berth_norm_job in = {.self = self, .args = args, .operands = &(which)};              \
        const berth_tensor *x = args->inputs[0];                                                   \
        berth_run(in.self->cpu, part_of, &in, 2 * berth_row_count(x) * berth_row_length(x));       \
        return BERTH_OK;                                                                           \
    }

#define BERTH_NORM_KERNEL(op_name, op_create)                                                      \
    .size = sizeof(berth_op_impl), .op = (op_name), .name = "cpu." op_name,                        \
    .dispatch_key = BERTH_DISPATCH_CPU, .flags = BERTH_IMPL_DETERMINISTIC, .create = (op_create),  \
    .forward = forward, .destroy = berth_instance_free

#endif
