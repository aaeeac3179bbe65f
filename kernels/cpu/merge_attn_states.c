// SPDX-License-Identifier: Apache-2.0
// merge_attn_states: the weights of a head once, then its row in vectors. An empty side is not
// read: it may hold anything, NaN included.
#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <math.h>

enum { PREFIX_OUTPUT, PREFIX_LSE, SUFFIX_OUTPUT, SUFFIX_LSE };
enum { OUTPUT, OUTPUT_LSE };

// One side's row and its share of the sum; NULL: it is empty.
typedef struct side {
    const void *row;
    berth_vec share;
} side;

static float lse_at(const berth_tensor *tensor, int64_t head, int64_t token) {
    const float lse = ((const float *)berth_row(tensor, head))[token];
    return lse == INFINITY ? -INFINITY : lse;
}

BERTH_INLINE void add_sides(const side sides[2], void *to, berth_dtype dtype, int64_t width) {
    for (int64_t i = 0; i < width; i += BERTH_LANES) {
        berth_vec sum = berth_vec_of(0);
        BERTH_UNROLL
        for (int k = 0; k < 2; ++k) {
            if (sides[k].row) {
                sum = sum + berth_vec_load_some(sides[k].row, dtype, i, width) * sides[k].share;
            }
        }
        berth_vec_store_some(to, dtype, i, width, sum);
    }
}

static void merge(const berth_op_args *args, int64_t token, int64_t head) {
    const berth_tensor *prefix = args->inputs[PREFIX_OUTPUT];
    const berth_tensor *suffix = args->inputs[SUFFIX_OUTPUT];
    const berth_tensor *output = args->outputs[OUTPUT];
    const int64_t row = token * prefix->shape[1] + head;
    const float lse[] = {lse_at(args->inputs[PREFIX_LSE], head, token),
                         lse_at(args->inputs[SUFFIX_LSE], head, token)};
    const float largest = fmaxf(lse[0], lse[1]);
    const int is_empty = largest == -INFINITY;
    const float weights[] = {is_empty ? 0 : expf(lse[0] - largest),
                             is_empty ? 0 : expf(lse[1] - largest)};
    const float total = weights[0] + weights[1];
    // A NaN of a weight goes to all of the row.
    const int is_nan = total != total;
    const side sides[] = {
        {weights[0] > 0 || is_nan ? berth_row(prefix, row) : NULL,
         berth_vec_of(is_nan ? total : weights[0] / total)                                         },
        {weights[1] > 0 ? berth_row(suffix,           row) : NULL, berth_vec_of(weights[1] / total)},
    };
    void *to = berth_row(output, row);
    if (output->dtype == BERTH_DTYPE_F32) {
        add_sides(sides, to, BERTH_DTYPE_F32, output->shape[2]);
    } else if (output->dtype == BERTH_DTYPE_BF16) {
        add_sides(sides, to, BERTH_DTYPE_BF16, output->shape[2]);
    } else {
        add_sides(sides, to, BERTH_DTYPE_F16, output->shape[2]);
    }
    ((float *)berth_row(args->outputs[OUTPUT_LSE], head))[token] = logf(total) + largest;
}

static void merge_part(const void *work, int64_t part, int64_t parts) {
    const berth_op_args *args = work;
    const berth_tensor *output = args->outputs[OUTPUT];
    const int64_t heads = output->shape[1];
    const berth_span rows = berth_share(output->shape[0] * heads, part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        merge(args, row / heads, row % heads);
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    return berth_run_rows(self, args, merge_part, args->outputs[OUTPUT]);
}

const berth_op_impl berth_kernel_merge_attn_states = {
    .size = sizeof(berth_op_impl),
    .op = "merge_attn_states",
    .name = "cpu.merge_attn_states",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = berth_instance_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
