// SPDX-License-Identifier: Apache-2.0
// embedding: rows of a table of the output's dtype are copied, others converted.
#include <cpu/cpu.h>
#include <cpu/simd.h>

enum { TOKEN_IDS, WEIGHT };

static int64_t id_at(const berth_op_args *args, int64_t token) {
    const berth_tensor *ids = args->inputs[TOKEN_IDS];
    return berth_integer_at(berth_data(ids), ids->dtype, token);
}

static void copy_part(const void *work, int64_t part, int64_t parts) {
    const berth_op_args *args = work;
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *y = args->outputs[0];
    const berth_span tokens = berth_share(y->shape[0], part, parts);
    for (int64_t token = tokens.first; token < tokens.end; ++token) {
        berth_vec_copy(berth_row(y, token), y->dtype, berth_row(weight, id_at(args, token)),
                       weight->dtype, y->shape[1]);
    }
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
