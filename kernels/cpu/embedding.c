// SPDX-License-Identifier: Apache-2.0
// embedding: rows of a table of the output's dtype are copied, others converted.
#include <cpu/cpu.h>

enum { TOKEN_IDS, WEIGHT };

#define CHUNK 256 // elements converted at a time

static void copy_row(const void *from, berth_dtype from_dtype, void *to, berth_dtype to_dtype,
                     int64_t width) {
    float chunk[CHUNK];
    if (from_dtype == to_dtype) {
        memcpy(to, from, (size_t)width * BERTH_DTYPE_BITS(to_dtype) / 8);
        return;
    }
    for (int64_t first = 0; first < width; first += CHUNK) {
        const int64_t count = width - first < CHUNK ? width - first : CHUNK;
        berth_load(from, from_dtype, first, count, chunk);
        berth_store(to, to_dtype, first, count, chunk);
    }
}

static berth_status forward(void *self, const berth_op_args *args) {
    const berth_op_site *site = self;
    const berth_tensor *ids = args->inputs[TOKEN_IDS];
    const berth_tensor *weight = args->inputs[WEIGHT];
    const berth_tensor *y = args->outputs[0];
    for (int64_t token = 0; token < y->shape[0]; ++token) {
        const int64_t id = berth_integer_at(berth_data(ids), ids->dtype, token);
        if (id < 0 || id >= weight->shape[0]) {
            return BERTH_PLUGIN_FAIL(site->host, BERTH_INVALID_ARGUMENT,
                                     "embedding: token id %lld is not in the vocabulary of %lld",
                                     (long long)id, (long long)weight->shape[0]);
        }
        copy_row(berth_row(weight, id), weight->dtype, berth_row(y, token), y->dtype, y->shape[1]);
    }
    return BERTH_OK;
}

const berth_op_impl berth_kernel_embedding = {
    .size = sizeof(berth_op_impl),
    .op = "embedding",
    .name = "cpu.embedding",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .forward = forward,
};
