// SPDX-License-Identifier: Apache-2.0
// quantized_experts on CUDA's tensor cores, 16-bit types. Few rows are codes/few_codes.cu's. Of
// many, those of e4m3 on both sides are experts/blocks.cu's, and numbers by codes
// experts/widened.cu's. Of others, and below compute capability 9.0, a block has 64 by 64 outputs
// of an expert; codes of both sides become numbers of x's type, exactly, on their way to shared
// memory, and sums of a group are scaled in f32. All else is gpu.quantized_experts'.
#include <cuda/codes/few_codes.h>
#include <cuda/experts/blocks.h>
#include <cuda/experts/widened.h>
#include <cuda/mma.h>
#include <cuda/pieces.h>
#include <gpu/coded_experts.h>

namespace {

constexpr int THREADS = 128; // four warps, two by two
constexpr int DEPTH = 64;    // of a slice
constexpr int CHUNK = 16;    // elements of one group that a thread loads at once
constexpr int OWN = 2;       // chunks of a thread in a slice, of rows and of outputs
constexpr int PIECES = DEPTH / 8;
constexpr int SIDE = GPU_TILE * DEPTH * 2; // bytes of a side's slice

// What a thread brings of a slice.
template <typename E> struct brought {
    gpu_codes_words<CHUNK> weights[OWN];
    gpu_pack<E, 8> x[OWN][2]; // 8 or 16 bytes each
    float zeros[OWN];
};

// The lines that a thread brings.
template <typename E> struct lines {
    const E *x;             // NULL: no row is there
    const uint8_t *weights; // of an output that is there
    int output;
    int first; // column in a slice
};

template <typename E>
__device__ lines<E> lines_of(const gpu_codes_product &all, const gpu_codes_tile &tile) {
    const int line = threadIdx.x / 2;
    const int output = tile.first_output + line;
    lines<E> own;
    own.x = line < tile.rows ? gpu_row<const E>(all.x, tile.its[line] / all.rows_per_x) : nullptr;
    own.output = output < all.outputs ? output : all.outputs - 1;
    own.weights = gpu_codes_row(all, tile.expert, own.output);
    own.first = threadIdx.x % 2 * OWN * CHUNK;
    return own;
}

// Beyond the depth, and for rows that are not there, x is zero.
template <typename E>
__device__ void bring(const gpu_codes_product &all, int expert, const lines<E> &own, int slice,
                      brought<E> *out) {
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        const int k = slice + own.first + i * CHUNK;
        const bool is_there = k < all.depth;
        out->weights[i] = gpu_codes_words<CHUNK>{};
        out->x[i][0] = out->x[i][1] = gpu_pack<E, 8>{};
        out->zeros[i] = 0;
        if (is_there) {
            const int group = k / static_cast<int>(all.scales.columns);
            out->weights[i] = gpu_codes_load<CHUNK>(all.code, own.weights, k);
            out->zeros[i] = gpu_codes_zero(all, gpu_codes_group(all, expert, own.output, group));
        }
        if (is_there && own.x) {
            out->x[i][0] = gpu_load<E, 8>(own.x, k);
            out->x[i][1] = gpu_load<E, 8>(own.x, k + 8);
        }
    }
}

__device__ uint32_t place_of(int line, int piece) {
    return static_cast<uint32_t>((line * PIECES + (piece ^ (line & 7))) * 16);
}

// Eight elements of x as T.
template <typename T, typename X>
__device__ uint4 eight_of_x(const gpu_pack<typename X::element, 8> &x) {
    if constexpr (sizeof(typename X::element) == 2) {
        return *reinterpret_cast<const uint4 *>(&x);
    } else {
        float numbers[8];
#pragma unroll
        for (int j = 0; j < 8; ++j) {
            numbers[j] = X::number(x.at[j]);
        }
        return cuda_pairs<T>(numbers);
    }
}

template <typename T, typename X>
__device__ void put(const gpu_codes_product &all, const brought<typename X::element> &from,
                    uint32_t rows) {
    const int line = threadIdx.x / 2;
#pragma unroll
    for (int i = 0; i < OWN; ++i) {
        const int piece = (threadIdx.x % 2 * OWN + i) * 2;
        float numbers[CHUNK];
        gpu_codes_widen<CHUNK>(all.code, from.weights[i], from.zeros[i], numbers);
        cuda_store_shared(rows + place_of(line, piece), eight_of_x<T, X>(from.x[i][0]));
        cuda_store_shared(rows + place_of(line, piece + 1), eight_of_x<T, X>(from.x[i][1]));
        cuda_store_shared(rows + SIDE + place_of(line, piece), cuda_pairs<T>(numbers));
        cuda_store_shared(rows + SIDE + place_of(line, piece + 1), cuda_pairs<T>(numbers + 8));
    }
}

// A warp's 32 rows by 32 outputs.
struct part {
    float at[2][4][4]; // two products' rows, four products' outputs
};

// Sixteen columns of a slice.
template <typename T> __device__ void multiply(uint32_t rows, int step, part *sums) {
    const int lane = threadIdx.x % 32;
    const int row = threadIdx.x / 64 * 32;
    const int output = threadIdx.x / 32 % 2 * 32;
    uint32_t a[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) {
        cuda_load_matrices(rows + place_of(row + m * 16 + lane % 16, 2 * step + lane / 16), a[m]);
    }
#pragma unroll
    for (int n = 0; n < 2; ++n) {
        uint32_t b[4];
        const int line = output + n * 16 + lane % 8 + lane / 16 * 8;
        cuda_load_matrices(rows + SIDE + place_of(line, 2 * step + lane / 8 % 2), b);
#pragma unroll
        for (int m = 0; m < 2; ++m) {
            cuda_mma(sums->at[m][2 * n], a[m], b, T{});
            cuda_mma(sums->at[m][2 * n + 1], a[m], b + 2, T{});
        }
    }
}

// The thread's first row of the tile and its first output.
__device__ int my_row() {
    return threadIdx.x / 64 * 32 + threadIdx.x % 32 / 4;
}
__device__ int my_output(const gpu_codes_tile &tile) {
    return tile.first_output + threadIdx.x / 32 % 2 * 32 + 2 * (threadIdx.x % 4);
}

// The thread's sums: call(m, n, i).
template <typename F> __device__ void for_each(F call) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                call(m, n, i);
            }
        }
    }
}

// A group's scales of the thread's rows and outputs; 0 where there is none.
struct scales_of_group {
    float rows[2][2];
    float outputs[4][2];
};

__device__ scales_of_group read_scales(const gpu_codes_product &all, const gpu_codes_tile &tile,
                                       int group) {
    scales_of_group scales;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        const int its = my_row() + i * 8;
        scales.rows[i / 2][i % 2] =
            its < tile.rows ? gpu_codes_x_scale(all, tile.its[its] / all.rows_per_x, group) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        const int output = my_output(tile) + i / 2 * 8 + i % 2;
        scales.outputs[i / 2][i % 2] =
            output < all.outputs ? gpu_codes_weight_scale(all, tile.expert, output, group) : 0.0f;
    }
    return scales;
}

__device__ void add_group(const gpu_codes_product &all, const gpu_codes_tile &tile, int group,
                          part *sums, part *totals) {
    const scales_of_group scales = read_scales(all, tile, group);
    for_each([&](int m, int n, int i) {
        totals->at[m][n][i] += sums->at[m][n][i] * scales.rows[m][i / 2] * scales.outputs[n][i % 2];
        sums->at[m][n][i] = 0;
    });
}

template <typename T, typename X, bool IS_GROUPED>
__global__ void __launch_bounds__(THREADS)
    experts_kernel(gpu_ordered ordered, int experts, gpu_codes_product all) {
    __shared__ __align__(128) unsigned char shared[2][2 * SIDE];
    gpu_codes_tile tile;
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    if (!gpu_codes_find_tile(ordered, experts, GPU_TILE, &tile)) {
        return; // the whole block
    }
    using element = typename X::element;
    const uint32_t room = static_cast<uint32_t>(__cvta_generic_to_shared(shared));
    const int columns = static_cast<int>(all.scales.columns);
    const lines<element> own = lines_of<element>(all, tile);
    brought<element> next;
    part sums = {};
    part totals = {};
    bring(all, tile.expert, own, 0, &next);
    int stage = 0;
    for (int slice = 0; slice < all.depth; slice += DEPTH, stage ^= 1) {
        const uint32_t rows = room + stage * 2 * SIDE;
        put<T, X>(all, next, rows);
        __syncthreads(); // whoever still reads has the other stage
        bring(all, tile.expert, own, slice + DEPTH, &next);
#pragma unroll
        for (int step = 0; step < DEPTH / 16; ++step) {
            const int end = slice + step * 16 + 16;
            multiply<T>(rows, step, &sums);
            if (IS_GROUPED && (end == all.depth || (end < all.depth && end % columns == 0))) {
                add_group(all, tile, (end - 1) / columns, &sums, &totals);
            }
        }
    }
    const part &results = IS_GROUPED ? totals : sums;
    for_each([&](int m, int n, int i) {
        const int its = my_row() + m * 16 + i / 2 * 8;
        const int output = my_output(tile) + n * 8 + i % 2;
        if (its < tile.rows && output < all.outputs) {
            const gpu_codes_place at = {tile.expert, tile.its[its], output};
            gpu_codes_store<T>(all, at, results.at[m][n][i], IS_GROUPED);
        }
    });
}

// ---- the host's side ----------------------------------------------------------------------------

template <typename T, typename X>
berth_status start(const gpu_coded *op, const gpu_coded_call &call, const gpu_codes_product &all,
                   unsigned tiles) {
    const gpu_grid grid = {dim3(gpu_ceil(all.outputs, GPU_TILE), tiles), dim3(THREADS), 0};
    const int experts = static_cast<int>(op->experts);
    const char *name = "experts of codes";
    return all.scales.across > 1
               ? gpu_run(op, name, grid, experts_kernel<T, X, true>, call.ordered, experts, all)
               : gpu_run(op, name, grid, experts_kernel<T, X, false>, call.ordered, experts, all);
}

template <typename T>
berth_status start(const gpu_coded *op, const gpu_coded_call &call, const gpu_codes_product &all,
                   unsigned tiles) {
    return op->kind == GPU_CODES_FLOAT   ? start<T, gpu_codes_x_floats<T>>(op, call, all, tiles)
           : op->code == BERTH_CODE_E4M3 ? start<T, gpu_codes_x_e4m3>(op, call, all, tiles)
                                         : start<T, gpu_codes_x_i8>(op, call, all, tiles);
}

berth_status multiply_many(const gpu_coded *op, const gpu_coded_call &call,
                           const gpu_codes_product &all, unsigned tiles) {
    return op->dtype == BERTH_DTYPE_BF16 ? start<gpu_bf16>(op, call, all, tiles)
                                         : start<gpu_f16>(op, call, all, tiles);
}

berth_status multiply_few(const gpu_coded *op, const gpu_coded_call &call,
                          const gpu_codes_product &all) {
    return cuda_run_few_codes(op, {call.choices, all, op->dtype});
}

berth_status multiply_blocks(const gpu_coded *op, const gpu_coded_call &call,
                             const gpu_codes_product &all, unsigned) {
    return cuda_experts_blocks(op, call, all);
}

// Numbers are written and read, four bytes a code: by codes of bytes few rows an expert do not pay
// for that. An H200 takes 1.2 times as long by u8 with 64, half as long with 256.
berth_status multiply_widened(const gpu_coded *op, const gpu_coded_call &call,
                              const gpu_codes_product &all, unsigned tiles) {
    constexpr int64_t LEAST = 128;
    return berth_code_is_half(op->code) || call.choices.count >= LEAST * op->experts
               ? cuda_experts_widened(op, call, all)
               : multiply_many(op, call, all, tiles);
}

// Whether both stacks are such.
bool are(const gpu_coded *op, bool (*such)(const gpu_coded *op, const gpu_coded_stack &of)) {
    return op->gpu->groups[op->device] && such(op, op->stacks[0]) && such(op, op->stacks[1]);
}

bool takes_few(const gpu_coded *op, int stack) {
    const gpu_coded_stack &of = op->stacks[stack];
    return cuda_few_codes_takes(op->code, of.scales, of.depth);
}

berth_status supports(const berth_op_site *site, const berth_device *) {
    const berth_dtype dtype = site->inputs[0]->dtype;
    return dtype == BERTH_DTYPE_BF16 || dtype == BERTH_DTYPE_F16
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "only bf16 and f16");
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    const berth_status status = gpu_coded_create(site, device, out_self);
    gpu_coded *self = static_cast<gpu_coded *>(*out_self);
    if (status == BERTH_OK) {
        self->multiply = are(self, cuda_experts_are_blocks)    ? multiply_blocks
                         : are(self, cuda_experts_are_widened) ? multiply_widened
                         : self->kind != GPU_CODES_NVFP4       ? multiply_many
                                                               : nullptr;
        self->multiply_few =
            self->gpu->overlaps[self->device] && takes_few(self, 0) && takes_few(self, 1)
                ? multiply_few
                : nullptr;
    }
    return status;
}

uint64_t workspace(void *self, uint64_t tokens) {
    const gpu_coded *op = static_cast<const gpu_coded *>(self);
    const int64_t shared = static_cast<int64_t>(gpu_coded_workspace(self, tokens));
    return static_cast<uint64_t>(gpu_even(shared)) +
           (op->multiply == multiply_widened ? cuda_experts_widened_bytes(op) : 0);
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_quantized_experts_fast;
const berth_op_impl berth_kernel_quantized_experts_fast = {
    .size = sizeof(berth_op_impl),
    .op = "quantized_experts",
    .name = "cuda.quantized_experts",
    .dispatch_key = BERTH_DISPATCH_CUDA,
    .revision = 2,
    .priority = 10,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = gpu_coded_forward,
    .destroy = gpu_destroy,
};
}
