// SPDX-License-Identifier: Apache-2.0
// quant_fp8 on a GPU with scales made on the way: one a token, or one for every group of a token's
// columns. A warp has a group; wide ones a block. Codes and scales are the reference's bits: every
// step is one correctly rounded operation. Given scales and one scale for a whole tensor are left
// to the reference.
#include "launch.h"

#include <fp8.h>

namespace {

enum { X, SCALE, SCALE_UB };
enum { Q, SCALE_OUT };

constexpr int MAX_THREADS = 256;

struct quantiser : gpu_op {
    int64_t group; // columns that share a scale, 0: all
    int is_column_major;
    int is_power_of_two;
};

struct operands {
    gpu_rows x;
    gpu_rows q;
    gpu_rows scales;
    const float *bound; // NULL: none
    int64_t width;
    int64_t group;
    int is_column_major;
    int is_power_of_two;
    int multiplies; // by the reciprocal, instead of dividing
};

// The larger over all threads of the block, the same bits in each; NaN where one is.
__device__ float block_max(float value, float *room) {
    for (int mask = 16; mask > 0; mask /= 2) {
        const float other = gpu_shuffle_xor(value, mask);
        value = value != value || value > other ? value : other;
    }
    if (threadIdx.x % 32 == 0) {
        room[threadIdx.x / 32] = value;
    }
    __syncthreads();
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) {
        const float other = room[warp];
        value = value != value || value > other ? value : other;
    }
    return value;
}

__device__ float scale_of(const operands &all, float largest) {
    if (all.bound && largest > *all.bound) {
        largest = *all.bound;
    }
    const float scale = __fdiv_rn(largest, BERTH_F8_MAX);
    const float least = scale < BERTH_F8_LEAST_SCALE ? BERTH_F8_LEAST_SCALE : scale;
    return all.is_power_of_two ? exp2f(ceilf(log2f(least))) : least;
}

// blockIdx.x: the token; blockIdx.y: the group.
template <typename T> __global__ void quantise_kernel(operands all) {
    __shared__ float room[MAX_THREADS / 32];
    const int64_t begin = blockIdx.y * all.group;
    const int64_t end = begin + all.group < all.width ? begin + all.group : all.width;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    const T *x = gpu_row<const T>(all.x, blockIdx.x);
    uint8_t *q = gpu_row<uint8_t>(all.q, blockIdx.x);
    float largest = 0;
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
        const float size = fabsf(gpu_float(x[i]));
        largest = size != size || size > largest ? size : largest;
    }
    const float scale = scale_of(all, block_max(largest, room));
    const float factor = __fdiv_rn(1.0f, scale);
    for (int64_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
        const float value = gpu_float(x[i]);
        q[i] = gpu_to_f8_bits(all.multiplies ? value * factor : __fdiv_rn(value, scale));
    }
    if (threadIdx.x == 0) {
        float *to = all.is_column_major ? gpu_row<float>(all.scales, blockIdx.y) + blockIdx.x
                                        : gpu_row<float>(all.scales, blockIdx.x) + blockIdx.y;
        *to = scale;
    }
}

// ---- the host's side ----------------------------------------------------------------------------

berth_status supports(const berth_op_site *site, const berth_device *) {
    const berth_attribute *shape = berth_site_attribute(site, "group_shape");
    if (berth_site_attribute(site, "static")->i64 || shape->i64s[0] != 1) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "only scales made per token or per group of a token");
    }
    if (berth_site_attribute(site, "num_token_padding")->kind != BERTH_ATTRIBUTE_NONE) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "no padding of tokens");
    }
    const berth_status status = gpu_check_floats(site, 0);
    return status == BERTH_OK ? gpu_check_rank(site, X) : status;
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_new<quantiser>(site, device, out_self);
    if (status == BERTH_OK) {
        quantiser *self = static_cast<quantiser *>(*out_self);
        const int64_t columns = berth_site_attribute(site, "group_shape")->i64s[1];
        self->group = columns > 0 ? columns : 0;
        self->is_column_major = berth_site_attribute(site, "column_major_scales")->i64 != 0;
        self->is_power_of_two = berth_site_attribute(site, "use_ue8m0")->i64 != 0;
    }
    return status;
}

berth_status forward(void *self, const berth_op_args *args) {
    const quantiser *op = static_cast<const quantiser *>(self);
    const berth_tensor *x = args->inputs[X];
    const berth_tensor *bound = args->inputs[SCALE_UB];
    const int64_t rows = berth_tensor_row_count(x);
    operands all = {};
    all.x = gpu_rows_of(x);
    all.q = gpu_rows_of(args->outputs[Q]);
    all.scales = gpu_rows_of(args->outputs[SCALE_OUT]);
    all.bound = bound ? static_cast<const float *>(berth_gpu_data(bound)) : nullptr;
    all.width = x->shape[x->ndim - 1];
    all.group = op->group > 0 ? op->group : all.width;
    all.is_column_major = op->group > 0 && op->is_column_major;
    all.is_power_of_two = op->group > 0 && op->is_power_of_two;
    all.multiplies = op->group == 0;
    if (rows == 0 || all.width == 0) {
        return BERTH_OK;
    }
    const gpu_grid grid = {dim3(static_cast<unsigned>(rows), gpu_ceil(all.width, all.group)),
                           dim3(all.group <= 256 ? 32 : MAX_THREADS), 0};
    return gpu_with_type(x->dtype, [&](auto type) {
        return gpu_run(op, "quant_fp8", grid, quantise_kernel<typename decltype(type)::type>, all);
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_quant_fp8;
const berth_op_impl berth_kernel_quant_fp8 = {
    BERTH_GPU_KERNEL("quant_fp8"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = forward,
    .destroy = gpu_destroy,
};
}
