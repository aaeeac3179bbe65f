// SPDX-License-Identifier: Apache-2.0
// embedding: rows of a table of the output's dtype are copied, others converted.
#include <cpu/cpu.h>
#include <cpu/simd.h>

enum { TOKEN_IDS, WEIGHT };

static int64_t id_at(const berth_op_args *args, int64_t token) {
    const berth_tensor *ids = args->inputs[TOKEN_IDS];
    return berth_integer_at(berth_data(ids), ids->dtype, token);
}

BERTH_INLINE void widen_past(const void *from, berth_dtype dtype, void *to, int64_t width) {
    int64_t first = 0;
    for (; first + BERTH_LANES <= width; first += BERTH_LANES) {
        berth_vec_pass_as(to, BERTH_DTYPE_F32, first, berth_vec_load_as(from, dtype, first));
    }
    if (first < width) {
        berth_vec_store_part(to, BERTH_DTYPE_F32, first, width - first,
                             berth_vec_load_part(from, dtype, first, width - first));
    }
}

// A row past the caches, where there is a way to do so. Why these: models have tables of their
// activations' dtype, or of 16 bits for activations of float32.
static void copy_past(void *to, berth_dtype to_dtype, const void *from, berth_dtype from_dtype,
                      int64_t width) {
    const int is_wide = to_dtype == BERTH_DTYPE_F32 && berth_vec_can_pass(to);
    if (to_dtype == from_dtype) {
        berth_copy_past(to, from, (size_t)width * BERTH_DTYPE_BITS(to_dtype) / 8);
    } else if (is_wide && from_dtype == BERTH_DTYPE_BF16) {
        widen_past(from, BERTH_DTYPE_BF16, to, width);
    } else if (is_wide && from_dtype == BERTH_DTYPE_F16) {
        widen_past(from, BERTH_DTYPE_F16, to, width);
    } else {
        berth_vec_copy(to, to_dtype, from, from_dtype, width);
    }
}

static void copy_part(const void *work, int64_t part, int64_t parts) {
    const berth_op_args *args = work;
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *y = args->outputs[0];
    const berth_span tokens = berth_share(y->shape[0], part, parts);
    const int is_past = berth_is_past(y->shape[0] * y->shape[1], y->dtype);
    for (int64_t token = tokens.first; token < tokens.end; ++token) {
        const void *from = berth_row(weight, id_at(args, token));
        void *to = berth_row(y, token);
        if (is_past) {
            copy_past(to, y->dtype, from, weight->dtype, y->shape[1]);
        } else {
            berth_vec_copy(to, y->dtype, from, weight->dtype, y->shape[1]);
        }
    }
    berth_past_end();
}

static berth_status forward(void *state, const berth_op_args *args) {
    const berth_instance *self = state;
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *y = args->outputs[0];
    for (int64_t token = 0; token < y->shape[0]; ++token) {
        const int64_t id = id_at(args, token);
        if (id < 0 || id >= weight->shape[0]) {
            return BERTH_PLUGIN_FAIL(self->host, BERTH_INVALID_ARGUMENT,
                                     "embedding: token id %lld is not in the vocabulary of %lld",
                                     (long long)id, (long long)weight->shape[0]);
        }
    }
    berth_run(self->cpu, copy_part, args, y->shape[0] * y->shape[1]);
    return BERTH_OK;
}

const berth_op_impl berth_kernel_embedding = {
    .size = sizeof(berth_op_impl),
    .op = "embedding",
    .name = "cpu.embedding",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .create = berth_instance_create,
    .forward = forward,
    .destroy = berth_instance_free,
};
