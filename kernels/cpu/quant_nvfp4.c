// SPDX-License-Identifier: Apache-2.0
// quant_nvfp4. Of a group first the largest magnitude, then its scale as the reference makes it,
// then the codes: whatever lies above a bound between two of them is so much more. The operations
// are the reference's, so codes and scales are its bits.
#include <cpu/cpu.h>
#include <cpu/simd.h>

#include <codes.h>
#include <nvfp4.h>

enum { X, GLOBAL_SCALE };
enum { Q, SCALE };

#define GROUP   BERTH_NVFP4_GROUP
#define VECTORS (GROUP / BERTH_LANES)

// Twice the number of e2m1 that is nearest, ties to the even code; 12 of a NaN. A number between
// two codes is the upper one where it is not below the bound: a tie itself belongs to the lower one
// where that is even, so there the bound is the next float.
BERTH_INLINE berth_vec twice_of(berth_vec x) {
    static const float bounds[7] = {0x1.000002p-2f, 0.75f, 0x1.400002p+0f, 1.75f,
                                    0x1.400002p+1f, 3.5f,  0x1.400002p+2f};
    static const float steps[7] = {1, 1, 1, 1, 2, 2, 4};
    const berth_vec zero = berth_vec_of(0);
    const berth_vec magnitude = (berth_vec)((berth_vec_bits)x & 0x7fffffffu);
    berth_vec sum = zero;
    BERTH_UNROLL
    for (int i = 0; i < 7; ++i) {
        sum += berth_vec_if_less(magnitude, berth_vec_of(bounds[i]), zero, berth_vec_of(steps[i]));
    }
    return berth_vec_if_less(x, zero, -sum, sum);
}

// Adding 1.5 · 2^23 leaves a whole number in the lowest bits.
BERTH_INLINE berth_vec_bytes bytes_of(berth_vec whole) {
    return berth_vec_narrow_twice((berth_vec_bits)(whole + berth_vec_of(0x1.8p+23f)));
}

BERTH_INLINE float quantise_group(berth_dtype dtype, const void *row, int64_t first, float global,
                                  int8_t *q) {
    berth_vec x[VECTORS];
    berth_vec largest = berth_vec_of(0); // a NaN is passed over, as the reference does
    BERTH_UNROLL
    for (int i = 0; i < VECTORS; ++i) {
        x[i] = berth_vec_load_as(row, dtype, first + i * BERTH_LANES);
        largest = berth_vec_max((berth_vec)((berth_vec_bits)x[i] & 0x7fffffffu), largest);
    }
    const float local = berth_nvfp4_local(berth_vec_largest(largest), global);
    const float factor = berth_nvfp4_factor(local, global);
    BERTH_UNROLL
    for (int i = 0; i < VECTORS; ++i) {
        const berth_vec_bytes codes = bytes_of(twice_of(x[i] * berth_vec_of(factor)));
        memcpy(q + first + i * BERTH_LANES, &codes, sizeof codes);
    }
    return 0.5f * (local / global);
}

BERTH_INLINE void quantise_row(berth_dtype dtype, const berth_op_args *args, int64_t row) {
    const berth_tensor *x = args->inputs[X];
    const void *from = berth_row(x, row);
    const float global = *(const float *)berth_data(args->inputs[GLOBAL_SCALE]);
    int8_t *q = berth_row(args->outputs[Q], row);
    float *scales = berth_row(args->outputs[SCALE], row);
    for (int64_t first = 0; first < berth_row_length(x); first += GROUP) {
        scales[first / GROUP] = quantise_group(dtype, from, first, global, q);
    }
}

static void quantise_part(const void *work, int64_t part, int64_t parts) {
    const berth_op_args *args = work;
    const berth_tensor *x = args->inputs[X];
    const berth_span rows = berth_share(berth_row_count(x), part, parts);
    for (int64_t row = rows.first; row < rows.end; ++row) {
        if (x->dtype == BERTH_DTYPE_F32) {
            quantise_row(BERTH_DTYPE_F32, args, row);
        } else if (x->dtype == BERTH_DTYPE_BF16) {
            quantise_row(BERTH_DTYPE_BF16, args, row);
        } else {
            quantise_row(BERTH_DTYPE_F16, args, row);
        }
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    return berth_run_rows(self, args, quantise_part, args->inputs[X]);
}

const berth_op_impl berth_kernel_quant_nvfp4 = {
    .size = sizeof(berth_op_impl),
    .op = "quant_nvfp4",
    .name = "cpu.quant_nvfp4",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = berth_instance_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
