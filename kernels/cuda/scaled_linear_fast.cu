// SPDX-License-Identifier: Apache-2.0
// scaled_linear on compute capability 9.0 with results of 16 bits, where an output has one scale:
// the kernel that streams codes for few rows; of e4m3 those of batch_scaled.cu and some_scaled.cu
// for more of them and that of many_scaled.cu for many; cuBLASLt for the rest. Of e4m3 it scales by
// rows and outputs itself; of i8, and where that is faster, since it can then share out the depth,
// it makes sums in i32 and f32, and a kernel behind it scales them. What this does not take is left
// to gpu.scaled_linear.
#include <cuda/codes/batch.h>
#include <cuda/codes/many.h>
#include <cuda/product/product.h>
#include <cuda/product/some.h>

#include <tensor.h>

namespace {

enum { X, X_SCALE, WEIGHT, WEIGHT_SCALE, SUM_BIAS, BIAS };

constexpr int64_t SUMS_BYTES = INT64_C(128) << 20; // at a time
constexpr int SUMMED_ROWS = 256;                   // of e4m3, at most
constexpr int BATCH_DEPTH = 128;                   // a multiple
constexpr int FEW_ROWS = 8;                        // fewer than a batch has
constexpr int THREADS = 256;
constexpr int SIDE = 4; // results of a thread that scales sums

struct fast_scaled : gpu_op {
    const cuda_lt *scaled; // NULL: none
    const cuda_lt *sums;
    berth_dtype codes;
    int max_rows;    // of a step
    int summed_rows; // at a time
    int outputs;
    uint64_t *arrivals;  // of batches; NULL: none are multiplied
    cuda_some_plan some; // of more rows
};

// ---- device code --------------------------------------------------------------------------------

__global__ void spread_kernel(const float *one, float *to, int count) {
    const int i = static_cast<int>(blockIdx.x) * THREADS + threadIdx.x;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    if (i < count) {
        to[i] = *one;
    }
}

// Sums of products of codes, scaled, to y: four neighbours a thread.
template <typename T, typename S> __global__ void finish_kernel(const S *sums, cuda_coded all) {
    const int output = (static_cast<int>(blockIdx.x) * THREADS + threadIdx.x) * SIDE;
    const int64_t row = blockIdx.y;
    float scales[SIDE];
    float more[SIDE] = {};
    gpu_let_next_begin();
    if (output >= all.outputs) {
        return;
    }
    const gpu_pack<float, SIDE> of_outputs = gpu_load<float, SIDE>(all.scales, output);
#pragma unroll
    for (int i = 0; i < SIDE; ++i) {
        scales[i] = of_outputs.at[i];
        more[i] = all.bias ? gpu_load_any(all.bias, all.bias_dtype, output + i) : 0.0f;
    }
    gpu_wait_for_inputs();
    const gpu_pack<S, SIDE> sum = gpu_load<S, SIDE>(sums, row * all.outputs + output);
    const float of_row = all.x_scales[row * all.x_scale_gap];
    gpu_pack<T, SIDE> out;
#pragma unroll
    for (int i = 0; i < SIDE; ++i) {
        const S corrected = sum.at[i] + static_cast<S>(all.sum_bias ? all.sum_bias[output + i] : 0);
        out.at[i] = gpu_round<T>(static_cast<float>(corrected) * (of_row * scales[i]) + more[i]);
    }
    T *to = static_cast<T *>(all.y) + row * all.y_gap + output;
    if (all.y_gap % SIDE == 0) {
        gpu_store<T, SIDE>(to, 0, out);
        return;
    }
#pragma unroll
    for (int i = 0; i < SIDE; ++i) {
        to[i] = out.at[i];
    }
}

// ---- what it takes ------------------------------------------------------------------------------

berth_status refuse(const berth_op_site *site, const char *why) {
    return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "%s", why);
}

berth_status supports(const berth_op_site *site, const berth_device *device) {
    const berth_gpu *gpu = static_cast<const berth_gpu *>(device->self);
    const berth_value_type *weight = site->inputs[WEIGHT];
    const berth_value_type *bias = site->inputs[BIAS];
    const uint64_t stays = UINT64_C(1) << WEIGHT | UINT64_C(1) << WEIGHT_SCALE;
    const char *dtype = berth_site_attribute(site, "dtype")->str;
    if (!gpu->groups[device->index]) {
        return refuse(site, "not of compute capability 9.0: codes are widened instead");
    }
    if (strcmp(dtype, "f32") == 0) {
        return refuse(site, "results in f32: sums of the tensor cores are too coarse");
    }
    if (site->inputs[WEIGHT_SCALE]->dims[1].b != 1) {
        return refuse(site, "several groups of columns");
    }
    if ((site->parameter_mask & stays) != stays || site->inputs[X]->ndim > 2) {
        return refuse(site, "only rows times a weight that stays");
    }
    if (bias && bias->dtype != (strcmp(dtype, "bf16") == 0 ? BERTH_DTYPE_BF16 : BERTH_DTYPE_F16)) {
        return refuse(site, "a bias of another type than the result");
    }
    if (weight->dims[0].b % 16 != 0 || weight->dims[1].b % CUDA_CODED_BYTES != 0) {
        return refuse(site, "outputs are no multiple of 16, or inputs none of 64");
    }
    return cuda_lt_check(site->host, device);
}

// A scale in f32 for every output.
uint64_t packed_bytes(const berth_op_site *site, uint64_t input) {
    return input == WEIGHT_SCALE
               ? static_cast<uint64_t>(site->inputs[WEIGHT]->dims[0].b) * sizeof(float)
               : 0;
}

berth_status pack(const berth_op_site *site, uint64_t, const berth_tensor *source,
                  const berth_tensor *destination) {
    const int64_t outputs = site->inputs[WEIGHT]->dims[0].b;
    const int64_t shared = berth_site_attribute(site, "group_shape")->i64s[0];
    float *to = static_cast<float *>(berth_data(destination));
    for (int64_t n = 0; n < outputs; ++n) {
        to[n] = berth_load_at(berth_row(source, shared < 1 ? 0 : n / shared), source->dtype, 0);
    }
    return BERTH_OK;
}

// ---- an instance --------------------------------------------------------------------------------

int at_most(int64_t count, int most) {
    return count < most ? static_cast<int>(count) : most;
}

berth_status open_products(const berth_op_site *site, fast_scaled *self) {
    const bool is_bf16 = strcmp(berth_site_attribute(site, "dtype")->str, "bf16") == 0;
    const bool is_whole = self->codes == BERTH_DTYPE_I8;
    cuda_product shape = {};
    shape.outputs = self->outputs;
    shape.depth = static_cast<int>(site->inputs[WEIGHT]->dims[1].b);
    shape.codes = self->codes;
    shape.dtype = is_whole ? BERTH_DTYPE_I32 : BERTH_DTYPE_F32;
    const berth_status status = cuda_lt_open(self, shape, self->summed_rows, &self->sums);
    if (status != BERTH_OK || is_whole) {
        return status;
    }
    shape.dtype = is_bf16 ? BERTH_DTYPE_BF16 : BERTH_DTYPE_F16;
    shape.bias = site->inputs[BIAS] ? self : nullptr; // only whether there is one
    return cuda_lt_open(self, shape, self->max_rows, &self->scaled);
}

void destroy(void *self) {
    (void)cudaFree(static_cast<fast_scaled *>(self)->arrivals);
    gpu_destroy(self);
}

berth_status make_room(const berth_op_site *site, fast_scaled *self) {
    const int depth = static_cast<int>(site->inputs[WEIGHT]->dims[1].b);
    if (self->codes == BERTH_DTYPE_I8 || depth % BATCH_DEPTH != 0) {
        return BERTH_OK;
    }
    self->some = cuda_some_plan_for(self, {CUDA_SOME_ROWS, self->outputs, depth});
    return cuda_batch_keep_arrivals(self, self->outputs, &self->arrivals);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    berth_status status = gpu_new<fast_scaled>(site, device, out_self);
    if (status != BERTH_OK) {
        return status;
    }
    fast_scaled *self = static_cast<fast_scaled *>(*out_self);
    self->codes = site->inputs[X]->dtype;
    self->outputs = static_cast<int>(site->inputs[WEIGHT]->dims[0].b);
    self->max_rows = cuda_max_rows(site, X);
    const int64_t fit = SUMS_BYTES / 4 / self->outputs / 128 * 128;
    self->summed_rows = self->codes == BERTH_DTYPE_I8
                            ? at_most(fit > 128 ? fit : 128, self->max_rows)
                            : at_most(SUMMED_ROWS, self->max_rows);
    status = open_products(site, self);
    status = status == BERTH_OK ? make_room(site, self) : status;
    if (status != BERTH_OK) {
        destroy(self);
    }
    return status;
}

// Behind cuBLASLt's own: sums, or one scale for every row.
uint64_t workspace(void *self, uint64_t) {
    const fast_scaled *op = static_cast<const fast_scaled *>(self);
    const int64_t sums = static_cast<int64_t>(op->summed_rows) * op->outputs;
    const uint64_t others =
        CUDA_LT_WORKSPACE + 4 * static_cast<uint64_t>(sums > op->max_rows ? sums : op->max_rows);
    const uint64_t batch = cuda_batch_bytes(op->gpu->multiprocessors[op->device]);
    return op->arrivals && batch > others ? batch : others;
}

cuda_coded operands_of(const berth_op_args *args) {
    const berth_tensor *x_scale = args->inputs[X_SCALE];
    const berth_tensor *sum_bias = args->inputs[SUM_BIAS];
    cuda_coded all =
        cuda_coded_of(args->inputs[X], args->inputs[WEIGHT], args->inputs[BIAS], args->outputs[0]);
    all.scales = static_cast<const float *>(berth_gpu_data(args->inputs[WEIGHT_SCALE]));
    all.x_scales = static_cast<const float *>(berth_gpu_data(x_scale));
    all.x_scale_gap = berth_tensor_row_count(x_scale) > 1;
    all.sum_bias = sum_bias ? static_cast<const int32_t *>(berth_gpu_data(sum_bias)) : nullptr;
    return all;
}

cuda_product product_of(const cuda_coded &all, berth_dtype codes, berth_dtype y) {
    cuda_product p = {};
    p.x = all.x;
    p.weight = all.weight;
    p.bias = all.bias;
    p.y = all.y;
    p.x_gap = all.x_gap;
    p.y_gap = all.y_gap;
    p.rows = all.rows;
    p.outputs = all.outputs;
    p.depth = all.bytes;
    p.dtype = y;
    p.codes = codes;
    p.scales = all.scales;
    p.x_scales = all.x_scales;
    return p;
}

cuda_some some_of(const cuda_coded &all) {
    return cuda_some{all.rows,   all.outputs,  all.bytes,      all.x,    all.x_gap,
                     all.weight, all.y,        all.y_gap,      all.bias, all.bias_dtype,
                     all.scales, all.x_scales, all.x_scale_gap};
}

// ---- a step -------------------------------------------------------------------------------------

berth_status run_scaled(const fast_scaled *op, const cuda_coded &all, berth_dtype y, char *room) {
    cuda_product p = product_of(all, op->codes, y);
    berth_status status = BERTH_OK;
    if (!all.x_scale_gap) {
        float *scales = reinterpret_cast<float *>(room + CUDA_LT_WORKSPACE);
        const gpu_grid grid = {dim3(gpu_ceil(all.rows, THREADS)), dim3(THREADS), 0};
        status = gpu_run(op, "scaled_linear's scales", grid, spread_kernel, all.x_scales, scales,
                         all.rows);
        p.x_scales = scales;
    }
    return status == BERTH_OK ? cuda_lt_run(op, op->scaled, p, room) : status;
}

// Some rows. S: i32 or float.
template <typename T, typename S>
berth_status run_some(const fast_scaled *op, const cuda_coded &all, char *room) {
    S *sums = reinterpret_cast<S *>(room + CUDA_LT_WORKSPACE);
    const bool is_whole = op->codes == BERTH_DTYPE_I8;
    cuda_product p = product_of(all, op->codes, is_whole ? BERTH_DTYPE_I32 : BERTH_DTYPE_F32);
    p.bias = nullptr;
    p.y = sums;
    p.y_gap = all.outputs;
    const berth_status status = cuda_lt_run(op, op->sums, p, room);
    const gpu_grid grid = {
        dim3(gpu_ceil(all.outputs, THREADS * SIDE), static_cast<unsigned>(all.rows)), dim3(THREADS),
        0};
    return status == BERTH_OK ? gpu_run(op, "scaled_linear's results", grid, finish_kernel<T, S>,
                                        static_cast<const S *>(sums), all)
                              : status;
}

template <typename T>
berth_status run_sums(const fast_scaled *op, const cuda_coded &all, char *room) {
    berth_status status = BERTH_OK;
    for (int first = 0; first < all.rows && status == BERTH_OK; first += op->summed_rows) {
        cuda_coded some = all;
        some.rows = at_most(all.rows - first, op->summed_rows);
        some.x += first * all.x_gap;
        some.y = static_cast<T *>(all.y) + first * all.y_gap;
        some.x_scales += first * all.x_scale_gap;
        status = op->codes == BERTH_DTYPE_I8 ? run_some<T, int32_t>(op, some, room)
                                             : run_some<T, float>(op, some, room);
    }
    return status;
}

// Of e4m3: where sums are fewer than bytes, and made so much faster that scaling them is paid for.
bool is_summed(const fast_scaled *op, int rows) {
    constexpr float FINISHING = 0.002f;         // milliseconds
    constexpr float BYTES_A_MILLISECOND = 3e9f; // sums that are read, results that are written
    const float bytes = 6.0f * static_cast<float>(rows) * static_cast<float>(op->outputs);
    return rows <= op->summed_rows &&
           cuda_lt_milliseconds(op->sums, rows) + FINISHING + bytes / BYTES_A_MILLISECOND <
               cuda_lt_milliseconds(op->scaled, rows);
}

// Of the four products of a layer of Llama-3-8B on an H200 16 rows take 67 us so, 69 as some rows
// do; 32 take 71 and 68.
bool is_batch(const fast_scaled *op, const cuda_coded &all) {
    return op->arrivals && all.rows > FEW_ROWS && all.rows <= CUDA_BATCH_SCALED_ROWS &&
           gpu_is_aligned(all.x, all.x_gap);
}

berth_status forward(void *self, const berth_op_args *args) {
    const fast_scaled *op = static_cast<const fast_scaled *>(self);
    const berth_dtype y = args->outputs[0]->dtype;
    const cuda_coded all = operands_of(args);
    char *room = static_cast<char *>(berth_gpu_data(args->workspace));
    if (all.rows == 0) {
        return BERTH_OK;
    }
    if (is_batch(op, all)) {
        return cuda_batch_scaled(op, all, {reinterpret_cast<float *>(room), op->arrivals}, y);
    }
    if (all.rows <= CUDA_CODED_ROWS) {
        return cuda_coded_scaled(op, all, op->codes, y);
    }
    const cuda_some some = some_of(all);
    if (cuda_some_takes(some, op->some)) {
        return cuda_some_scaled(op, some, op->some, y);
    }
    if (op->codes == BERTH_DTYPE_F8_E4M3FN && cuda_many_takes(op, all)) {
        return cuda_many_scaled(op, all, y);
    }
    if (op->scaled && !is_summed(op, all.rows)) {
        return run_scaled(op, all, y, room);
    }
    return y == BERTH_DTYPE_BF16 ? run_sums<gpu_bf16>(op, all, room)
                                 : run_sums<gpu_f16>(op, all, room);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_scaled_linear_fast;
const berth_op_impl berth_kernel_scaled_linear_fast = {
    .size = sizeof(berth_op_impl),
    .op = "scaled_linear",
    .name = "cuda.scaled_linear",
    .dispatch_key = BERTH_DISPATCH_CUDA,
    .revision = 1,
    .priority = 10,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = destroy,
    .packed_bytes = packed_bytes,
    .pack = pack,
};
}
