// SPDX-License-Identifier: Apache-2.0
// packed_linear on compute capability 9.0 with activations of 16 bits. Codes of 4 bits in groups of
// a multiple of 128 and very few rows: the kernel that streams them. Some rows: that of
// batch_packed.cu, 128 at a time, for which x is put into another order. More rows: weights become
// numbers of 16 bits, some outputs at a time, which cuBLASLt multiplies. Inputs in an order of
// their own are put into the weight's first. Few rows of other codes and groups are few_codes.cu's,
// or gpu.packed_linear's, as is all that this does not take.
#include <cuda/codes/few_codes.h>
#include <cuda/codes/packed.h>
#include <cuda/codes/widen.h>
#include <cuda/product/product.h>
#include <gpu/codes.h>

extern "C" {
extern const berth_op_impl berth_kernel_packed_linear;
}

namespace {

enum { X, WEIGHT, WEIGHT_SCALE, ZERO_POINTS, PERMUTATION, BIAS, OUTPUT_SCALE };

constexpr int FEW_ROWS = 4; // of a batch there are more
constexpr int THREADS = 256;

struct fast_packed : gpu_op {
    const cuda_lt *lt;
    void *plain; // gpu.packed_linear
    berth_code code;
    gpu_code_scales scales;
    uint64_t *arrivals; // of batches; NULL: none are multiplied
    int batch_rows;     // at most
    int is_streamed;
    int takes_few; // few_codes.cu does
    int has_permutation;
    int max_rows;
    int slice; // outputs that are widened at a time
    int depth;
};

// ---- device code --------------------------------------------------------------------------------

// blockIdx.y: the row of x.
__global__ void gather_kernel(const uint16_t *x, int64_t gap, const int32_t *permutation,
                              uint16_t *to, int depth) {
    const int k = static_cast<int>(blockIdx.x) * THREADS + threadIdx.x;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    if (k < depth) {
        to[static_cast<int64_t>(blockIdx.y) * depth + k] =
            x[static_cast<int64_t>(blockIdx.y) * gap + permutation[k]];
    }
}

// ---- what it takes ------------------------------------------------------------------------------

berth_status refuse(const berth_op_site *site, const char *why) {
    return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "%s", why);
}

berth_status supports(const berth_op_site *site, const berth_device *device) {
    const berth_gpu *gpu = static_cast<const berth_gpu *>(device->self);
    const berth_value_type *x = site->inputs[X];
    const berth_value_type *bias = site->inputs[BIAS];
    const int64_t outputs = site->inputs[WEIGHT]->dims[0].b;
    const int64_t depth = x->dims[x->ndim - 1].b;
    if (!gpu->groups[device->index]) {
        return refuse(site, "not of compute capability 9.0");
    }
    if (x->dtype == BERTH_DTYPE_F32) {
        return refuse(site, "activations in f32");
    }
    if (!(site->parameter_mask >> WEIGHT & 1) || x->ndim > 2) {
        return refuse(site, "only rows times a weight that stays");
    }
    if (bias && bias->dtype != x->dtype) {
        return refuse(site, "a bias of another type than x");
    }
    if (outputs % 16 != 0 || depth % 16 != 0 ||
        gpu_code_scales_of(site, outputs, depth).columns % CUDA_WIDE != 0) {
        return refuse(site, "outputs or inputs are no multiple of 16, or groups none of 8");
    }
    return cuda_lt_check(site->host, device);
}

// ---- an instance --------------------------------------------------------------------------------

void destroy(void *self) {
    (void)cudaFree(static_cast<fast_packed *>(self)->arrivals);
    berth_kernel_packed_linear.destroy(static_cast<fast_packed *>(self)->plain);
    gpu_destroy(self);
}

// Up to which batches, each of which reads the codes again, take less time than widening them once
// and a product of 16 bits. Microseconds of a full batch, of widening, and of a product of as many
// rows: as measured on an H200, of weights of 17 to 117 million codes.
int most_batch_rows(int64_t codes) {
    const double millions = static_cast<double>(codes) / 1e6;
    const double batch = 10 + 0.434 * millions;
    const double widening = 3 + 0.85 * millions;
    const double product = 0.371 * millions;
    const int batches = static_cast<int>(widening / (batch - product));
    return (batches < 1 ? 1 : batches) * CUDA_BATCH_ROWS;
}

void read_site(const berth_op_site *site, fast_packed *self) {
    const berth_value_type *x = site->inputs[X];
    const int64_t outputs = site->inputs[WEIGHT]->dims[0].b;
    self->depth = static_cast<int>(x->dims[x->ndim - 1].b);
    self->code = berth_code_of(berth_site_attribute(site, "code")->str);
    self->scales = gpu_code_scales_of(site, outputs, self->depth);
    self->has_permutation = site->inputs[PERMUTATION] != nullptr;
    self->max_rows = cuda_max_rows(site, X);
    self->is_streamed = self->code == BERTH_CODE_U4 && !site->inputs[OUTPUT_SCALE] &&
                        self->depth % CUDA_CODED_GROUP == 0 &&
                        self->scales.columns % CUDA_CODED_GROUP == 0 && self->scales.rows == 1 &&
                        site->inputs[WEIGHT_SCALE]->dtype != BERTH_DTYPE_F32;
    self->takes_few = cuda_few_codes_takes(self->code, self->scales, self->depth);
    self->slice = cuda_widened_slice(outputs, self->depth);
    self->batch_rows = most_batch_rows(outputs * self->depth);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    berth_status status = gpu_new<fast_packed>(site, device, out_self);
    if (status != BERTH_OK) {
        return status;
    }
    fast_packed *self = static_cast<fast_packed *>(*out_self);
    read_site(site, self);
    status = berth_kernel_packed_linear.create(site, device, &self->plain);
    if (status != BERTH_OK) {
        gpu_destroy(self);
        return status;
    }
    if (self->is_streamed && self->depth <= CUDA_BEFORE_WIDTH) {
        status = cuda_batch_keep_arrivals(self, site->inputs[WEIGHT]->dims[0].b, &self->arrivals);
    }
    cuda_product shape = {};
    shape.outputs = self->slice;
    shape.depth = self->depth;
    shape.dtype = site->inputs[X]->dtype;
    shape.bias = site->inputs[BIAS] ? self : nullptr; // only whether there is one
    status = status == BERTH_OK ? cuda_lt_open(self, shape, self->max_rows, &self->lt) : status;
    if (status != BERTH_OK) {
        destroy(self);
    }
    return status;
}

// The workspace: cuBLASLt's, widened weights, inputs in the weight's order; then what the blocks of
// a batch exchange and its inputs in its own order.
uint64_t rows_bytes(const fast_packed *op, int rows) {
    return static_cast<uint64_t>(rows) * static_cast<uint64_t>(op->depth) * 2;
}
uint64_t gathered_from(const fast_packed *op) {
    return CUDA_LT_WORKSPACE + rows_bytes(op, op->slice);
}
uint64_t batch_from(const fast_packed *op) {
    return gathered_from(op) + (op->has_permutation ? rows_bytes(op, op->max_rows) : 0);
}
uint64_t workspace(void *self, uint64_t) {
    const fast_packed *op = static_cast<const fast_packed *>(self);
    const int rows = op->max_rows < op->batch_rows ? op->max_rows : op->batch_rows;
    const uint64_t batch =
        op->arrivals ? cuda_batch_bytes(op->gpu->multiprocessors[op->device]) + rows_bytes(op, rows)
                     : 0;
    return batch_from(op) + batch;
}

// ---- a step -------------------------------------------------------------------------------------

cuda_coded operands_of(const fast_packed *op, const berth_op_args *args) {
    const berth_tensor *scales = args->inputs[WEIGHT_SCALE];
    const berth_tensor *zeros = args->inputs[ZERO_POINTS];
    const berth_tensor *factors = args->inputs[OUTPUT_SCALE];
    cuda_coded all =
        cuda_coded_of(args->inputs[X], args->inputs[WEIGHT], args->inputs[BIAS], args->outputs[0]);
    all.group_scales = static_cast<const uint16_t *>(berth_gpu_data(scales));
    all.scale_dtype = scales->dtype;
    all.zeros = zeros ? static_cast<const uint8_t *>(berth_gpu_data(zeros)) : nullptr;
    all.scales = factors ? static_cast<const float *>(berth_gpu_data(factors)) : nullptr;
    all.across = static_cast<int>(op->scales.across);
    all.group = static_cast<int>(op->scales.columns);
    return all;
}

berth_status gather(const fast_packed *op, const berth_op_args *args, char *room, cuda_coded *all) {
    uint16_t *to = reinterpret_cast<uint16_t *>(room + gathered_from(op));
    const gpu_grid grid = {dim3(gpu_ceil(op->depth, THREADS), static_cast<unsigned>(all->rows)),
                           dim3(THREADS), 0};
    const berth_status status = gpu_run(
        op, "packed_linear's inputs", grid, gather_kernel,
        reinterpret_cast<const uint16_t *>(all->x), all->x_gap / 2,
        static_cast<const int32_t *>(berth_gpu_data(args->inputs[PERMUTATION])), to, op->depth);
    all->x = reinterpret_cast<const char *>(to);
    all->x_gap = static_cast<int64_t>(op->depth) * 2;
    return status;
}

// Whether few_codes.cu can have the call; its results have no gaps.
bool is_few(const fast_packed *op, const cuda_coded &all) {
    return op->takes_few && gpu_is_aligned(all.x, all.x_gap) &&
           gpu_is_aligned(all.weight, all.bytes) && (all.rows == 1 || all.y_gap == all.outputs);
}

// x is in the weight's order by now.
berth_status run_few(const fast_packed *op, const cuda_coded &from, berth_dtype dtype) {
    cuda_few_codes call = {};
    gpu_codes_product &all = call.all;
    call.dtype = dtype;
    call.choices.count = from.rows;
    all.code = op->code;
    all.weight = from.weight;
    all.scales = op->scales;
    all.scales.data = from.group_scales;
    all.scales.dtype = from.scale_dtype;
    all.zeros = from.zeros;
    all.bias = from.bias;
    all.bias_dtype = from.bias_dtype;
    all.factors = from.scales;
    all.x = gpu_rows{const_cast<char *>(from.x), 1, from.x_gap, 0};
    all.rows_per_x = 1;
    all.y = from.y;
    all.outputs = from.outputs;
    all.depth = op->depth;
    return cuda_run_few_codes(op, call);
}

bool is_batch(const fast_packed *op, int rows) {
    return op->arrivals && rows > FEW_ROWS && rows <= op->batch_rows;
}

// `room`: of what its blocks exchange.
berth_status run_batch(const fast_packed *op, const cuda_coded &all, berth_dtype dtype,
                       char *room) {
    return cuda_batch_packed(op, all, {reinterpret_cast<float *>(room), op->arrivals}, dtype);
}

// x is in the weight's order by now, and is put into that of a batch.
berth_status order_and_run(const fast_packed *op, cuda_coded all, berth_dtype dtype, char *room) {
    char *to = room + cuda_batch_bytes(op->gpu->multiprocessors[op->device]);
    cuda_before order = {};
    order.step = CUDA_AS_IS;
    order.codes = BERTH_DTYPE_NONE;
    order.x = all.x;
    order.x_gap = all.x_gap;
    order.rows = all.rows;
    order.width = op->depth;
    order.layout = CUDA_IN_BATCHES;
    const berth_status status = cuda_run_before(op, order, dtype, to, nullptr);
    all.x = to;
    all.x_gap = static_cast<int64_t>(op->depth) * 2;
    return status == BERTH_OK ? run_batch(op, all, dtype, room) : status;
}

berth_status multiply(const fast_packed *op, const cuda_coded &all, berth_dtype dtype, char *room) {
    cuda_widened weights = {};
    weights.codes = all.weight;
    weights.zeros = all.zeros;
    weights.factors = all.scales;
    weights.scales = op->scales;
    weights.scales.data = all.group_scales;
    weights.scales.dtype = all.scale_dtype;
    weights.code = op->code;
    weights.gap = all.bytes;
    weights.depth = op->depth;
    cuda_product p = {};
    p.x = all.x;
    p.weight = room + CUDA_LT_WORKSPACE;
    p.bias = all.bias;
    p.y = all.y;
    p.x_gap = all.x_gap / 2;
    p.y_gap = all.y_gap;
    p.rows = all.rows;
    p.outputs = all.outputs;
    p.depth = op->depth;
    p.dtype = dtype;
    return cuda_multiply_widened(op, op->lt, {weights, op->slice}, p, room);
}

berth_status forward(void *self, const berth_op_args *args) {
    const fast_packed *op = static_cast<const fast_packed *>(self);
    const berth_dtype dtype = args->inputs[X]->dtype;
    char *room = static_cast<char *>(berth_gpu_data(args->workspace));
    cuda_coded all = operands_of(op, args);
    if (all.rows == 0) {
        return BERTH_OK;
    }
    const bool are_few = !op->is_streamed && all.rows <= CUDA_FEW_CODES_ROWS;
    if (are_few && !op->takes_few) {
        return berth_kernel_packed_linear.forward(op->plain, args);
    }
    if (op->has_permutation) {
        const berth_status status = gather(op, args, room, &all);
        if (status != BERTH_OK) {
            return status;
        }
    }
    if (are_few) {
        return is_few(op, all) ? run_few(op, all, dtype)
                               : berth_kernel_packed_linear.forward(op->plain, args);
    }
    const bool is_aligned = gpu_is_aligned(all.x, all.x_gap);
    if (is_aligned && is_batch(op, all.rows)) {
        return order_and_run(op, all, dtype, room + batch_from(op));
    }
    if (is_aligned && op->is_streamed && all.rows <= CUDA_PACKED_ROWS) {
        return cuda_coded_packed(op, all, dtype);
    }
    return multiply(op, all, dtype, room);
}

} // namespace

cuda_layout cuda_packed_layout(const void *self, const berth_op_args *args) {
    const fast_packed *op = static_cast<const fast_packed *>(self);
    const cuda_coded all = operands_of(op, args);
    return op->has_permutation                               ? CUDA_IN_ROWS
           : is_batch(op, all.rows)                          ? CUDA_IN_BATCHES
           : op->is_streamed && cuda_coded_takes_digits(all) ? CUDA_IN_DIGITS
                                                             : CUDA_IN_ROWS;
}

berth_status cuda_packed_run_laid_out(const void *self, const berth_op_args *args) {
    const fast_packed *op = static_cast<const fast_packed *>(self);
    const cuda_coded all = operands_of(op, args);
    const berth_dtype dtype = args->inputs[X]->dtype;
    char *room = static_cast<char *>(berth_gpu_data(args->workspace));
    return is_batch(op, all.rows) ? run_batch(op, all, dtype, room + batch_from(op))
                                  : cuda_coded_digits(op, all, dtype);
}

extern "C" {
extern const berth_op_impl berth_kernel_packed_linear_fast;
const berth_op_impl berth_kernel_packed_linear_fast = {
    .size = sizeof(berth_op_impl),
    .op = "packed_linear",
    .name = "cuda.packed_linear",
    .dispatch_key = BERTH_DISPATCH_CUDA,
    .revision = 2,
    .priority = 10,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = destroy,
};
}
