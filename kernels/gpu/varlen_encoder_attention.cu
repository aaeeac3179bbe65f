// SPDX-License-Identifier: Apache-2.0
// varlen_encoder_attention on a GPU: encoder.h over the sequences of the batch, or over those whose
// lengths are given; then one block adds these up first.
#include "encoder.h"

namespace {

constexpr int THREADS = 1024; // of the block that adds lengths up

enum { QUERY, KEY, VALUE, SEQ_LENS };

struct encoder : gpu_op {
    berth_dim sequences; // of seq_lens
    int64_t has_lengths;
    int window;
    float scale;
};

// starts[i]: the sum of all lengths before i. Every thread has some in a row.
__global__ void __launch_bounds__(THREADS)
    starts_kernel(const void *lengths, berth_dtype dtype, int count, int64_t *starts) {
    __shared__ int64_t sums[2][THREADS];
    const int each = (count + THREADS - 1) / THREADS;
    const int first = min(static_cast<int>(threadIdx.x) * each, count);
    const int end = min(first + each, count);
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    int64_t own = 0;
    for (int i = first; i < end; ++i) {
        own += gpu_integer(lengths, dtype, i);
    }
    sums[0][threadIdx.x] = own;
    __syncthreads();
    int turn = 0;
    for (unsigned step = 1; step < THREADS; step *= 2, turn ^= 1) {
        const int64_t before = threadIdx.x >= step ? sums[turn][threadIdx.x - step] : 0;
        sums[turn ^ 1][threadIdx.x] = sums[turn][threadIdx.x] + before;
        __syncthreads();
    }
    int64_t start = sums[turn][threadIdx.x] - own;
    for (int i = first; i < end; ++i) {
        starts[i] = start;
        start += gpu_integer(lengths, dtype, i);
    }
    if (threadIdx.x == THREADS - 1) {
        starts[count] = sums[turn][threadIdx.x];
    }
}

// ---- the host's side ----------------------------------------------------------------------------

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_encoder_check(site, site->inputs[QUERY]->dims[2].b);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<encoder>(site, device, out_self);
    if (status == BERTH_OK) {
        encoder *self = static_cast<encoder *>(*out_self);
        self->has_lengths = site->inputs[SEQ_LENS] != nullptr;
        self->sequences = self->has_lengths ? site->inputs[SEQ_LENS]->dims[0] : berth_dim{};
        self->window = static_cast<int>(berth_site_attribute(site, "sliding_window")->i64);
        self->scale = static_cast<float>(berth_site_attribute(site, "scale")->f64);
    }
    return status;
}

uint64_t workspace(void *self, uint64_t tokens) {
    const encoder *op = static_cast<const encoder *>(self);
    return op->has_lengths ? (gpu_extent(op->sequences, tokens) + 1) * sizeof(int64_t) : 0;
}

gpu_encoder_field field_of(const berth_tensor *x) {
    gpu_encoder_field out = {};
    out.data = berth_gpu_data(x);
    out.inner_gap = x->strides[0];
    out.head_gap = x->strides[1];
    out.middle = INT_MAX;
    out.inner = INT_MAX;
    return out;
}

// Where sequences begin.
berth_status find_starts(const encoder *op, const berth_op_args *args, gpu_encoder_call *call) {
    const berth_tensor *lengths = args->inputs[SEQ_LENS];
    const berth_batch_view *view = args->batch ? args->batch->device : nullptr;
    if (lengths) {
        int64_t *starts = static_cast<int64_t *>(berth_gpu_data(args->workspace));
        call->starts = starts;
        call->starts_dtype = BERTH_DTYPE_I64;
        call->segments = static_cast<int>(lengths->shape[0]);
        return gpu_run(op, "starts of sequences", {dim3(1), dim3(THREADS), 0}, starts_kernel,
                       berth_gpu_data(lengths), lengths->dtype, call->segments, starts);
    }
    if (!view) {
        return BERTH_PLUGIN_FAIL(op->host, BERTH_INVALID_ARGUMENT,
                                 "varlen_encoder_attention: needs a batch or 'seq_lens'");
    }
    call->starts = berth_gpu_data(view->query_start_loc);
    call->starts_dtype = view->query_start_loc->dtype;
    call->segments = static_cast<int>(args->batch->sequence_count);
    return BERTH_OK;
}

berth_status forward(void *self, const berth_op_args *args) {
    const encoder *op = static_cast<const encoder *>(self);
    const berth_tensor *query = args->inputs[QUERY];
    gpu_encoder_call call = {};
    call.query = field_of(query);
    call.key = field_of(args->inputs[KEY]);
    call.value = field_of(args->inputs[VALUE]);
    call.out = field_of(args->outputs[0]);
    call.tokens = static_cast<int>(query->shape[0]);
    call.heads = static_cast<int>(query->shape[1]);
    call.kv_heads = static_cast<int>(args->inputs[KEY]->shape[1]);
    call.width = static_cast<int>(query->shape[2]);
    call.window = op->window;
    call.scale = op->scale;
    if (call.tokens == 0) {
        return BERTH_OK;
    }
    const berth_status status = find_starts(op, args, &call);
    return status == BERTH_OK ? gpu_encoder_run(op, call, query->dtype) : status;
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_varlen_encoder_attention;
const berth_op_impl berth_kernel_varlen_encoder_attention = {
    BERTH_GPU_KERNEL("varlen_encoder_attention"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
