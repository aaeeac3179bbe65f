// SPDX-License-Identifier: Apache-2.0
// vocab_parallel_mask on a GPU: token ids as the rows of one rank's share of a vocabulary.
#include "launch.h"

namespace {

constexpr int THREADS = 256;

enum { MASKED_INPUT, INPUT_MASK };

struct share {
    int64_t org_start;
    int64_t org_end;
    int64_t padding;
    int64_t added_start;
    int64_t added_end;

    // The row of an id that the rank has, −1 otherwise.
    __device__ int64_t row_of(int64_t id) const {
        if (id >= org_start && id < org_end) {
            return id - org_start;
        }
        return id >= added_start && id < added_end
                   ? id - added_start + org_end - org_start + padding
                   : -1;
    }
};

struct masker : gpu_op {
    share own;
};

template <typename I>
__global__ void vocab_kernel(share own, const I *ids, I *rows, uint8_t *mask, int64_t count) {
    const int64_t i = static_cast<int64_t>(blockIdx.x) * THREADS + threadIdx.x;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    if (i < count) {
        const int64_t row = own.row_of(ids[i]);
        rows[i] = static_cast<I>(row < 0 ? 0 : row);
        mask[i] = row < 0;
    }
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<masker>(site, device, out_self);
    if (status == BERTH_OK) {
        static_cast<masker *>(*out_self)->own = {
            berth_site_attribute(site, "org_vocab_start_index")->i64,
            berth_site_attribute(site, "org_vocab_end_index")->i64,
            berth_site_attribute(site, "num_org_vocab_padding")->i64,
            berth_site_attribute(site, "added_vocab_start_index")->i64,
            berth_site_attribute(site, "added_vocab_end_index")->i64};
    }
    return status;
}

template <typename I> berth_status run(const masker *op, const berth_op_args *args) {
    const berth_tensor *out = args->outputs[MASKED_INPUT];
    int64_t count = 1;
    for (int32_t dim = 0; dim < out->ndim; ++dim) {
        count *= out->shape[dim];
    }
    const gpu_grid grid = {dim3(gpu_ceil(count, THREADS)), dim3(THREADS), 0};
    return count == 0
               ? BERTH_OK
               : gpu_run(op, "vocab_parallel_mask", grid, vocab_kernel<I>, op->own,
                         static_cast<const I *>(berth_gpu_data(args->inputs[0])),
                         static_cast<I *>(berth_gpu_data(out)),
                         static_cast<uint8_t *>(berth_gpu_data(args->outputs[INPUT_MASK])), count);
}

berth_status forward(void *self, const berth_op_args *args) {
    const masker *op = static_cast<const masker *>(self);
    return args->inputs[0]->dtype == BERTH_DTYPE_I64 ? run<int64_t>(op, args)
                                                     : run<int32_t>(op, args);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_vocab_parallel_mask;
const berth_op_impl berth_kernel_vocab_parallel_mask = {
    BERTH_GPU_KERNEL("vocab_parallel_mask"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
