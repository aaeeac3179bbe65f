// SPDX-License-Identifier: Apache-2.0
// rotary_embedding on a GPU: a block a token, of fope one for each part of its heads that has a
// circle of its own. Heads of query and key are on their way from memory while the cosines and
// sines are put into shared memory; products and sums in f32, one rounding. A position beyond the
// rope makes the token NaN, so that the step fails where a token is chosen.
#include "rotary.h"

#include <math.h>

#include <rope_axes.h>
#include <rope_cast.h>

namespace {

constexpr int MAX_THREADS = 256;
constexpr int KEPT = 2; // packs of pairs that a thread loads at once
constexpr int MAX_HALF = 512;

enum { POSITIONS, QUERY, KEY, CACHE, COS_COEF, SIN_COEF };

struct rotary : gpu_op {
    gpu_rotary of;
};

struct operands {
    const void *positions;
    berth_dtype position_dtype;
    gpu_rows x[2]; // query, key
    gpu_rows out[2];
    const void *cache; // [length, circles, 2 · half], NULL: computed
    berth_dtype cache_dtype;
    const void *mixtures[2]; // of cosines and sines, [circles, waves, waves]
    berth_dtype mixture_dtypes[2];
    const float *angles;
    const int32_t *axes;
    float scale;
    float sign;
    int half;
    int waves;
    int columns;
    int heads; // of query, with the same circle
    int all_heads;
    int width; // of a head
    int skipped;
    int is_neox;
    int rounds; // cosines and sines
    int64_t first_row;
    int64_t length;
};

// How far along a position is: a patch of an image turns by its column, then by its row, and the
// last position is no patch and does not turn.
__device__ float distance_of(const operands &all, int64_t position, int pair) {
    if (all.columns == 0) {
        return static_cast<float>(position);
    }
    const int64_t place = pair < all.half / 2 ? position % all.columns : position / all.columns;
    return position < all.length - 1 ? static_cast<float>(place + 1) : 0.0f;
}

__device__ gpu_point find_point(const operands &all, int64_t position, int pair) {
    gpu_point out = {NAN, NAN};
    const bool is_known = position >= 0 && position < all.length;
    if (is_known && all.cache) {
        const int64_t row = (all.first_row + position) * gridDim.y + blockIdx.y;
        out.cosine = gpu_load_any(all.cache, all.cache_dtype, row * 2 * all.half + pair);
        out.sine = gpu_load_any(all.cache, all.cache_dtype, (row * 2 + 1) * all.half + pair);
    } else if (is_known) {
        out = gpu_point_at(distance_of(all, position, pair), all.angles[pair], all.scale);
    }
    return out;
}

template <typename T> __device__ float kept(const operands &all, float value) {
    return all.rounds ? gpu_rounded<T>(value) : value;
}

// fope: learned mixtures of the waves; pairs beyond them have 1 for cosine and sine.
template <typename T> __device__ void mix_waves(const operands &all, float *circle) {
    __shared__ float waves[2][MAX_HALF];
    const int64_t position = gpu_integer(all.positions, all.position_dtype, blockIdx.x);
    for (int i = threadIdx.x; i < all.waves; i += static_cast<int>(blockDim.x)) {
        const gpu_point at = find_point(all, position, i);
        waves[0][i] = at.cosine;
        waves[1][i] = at.sine;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * all.half; i += static_cast<int>(blockDim.x)) {
        const int which = i < all.half ? 0 : 1;
        const int pair = i - which * all.half;
        const int64_t first = static_cast<int64_t>(blockIdx.y) * all.waves * all.waves + pair;
        float sum = pair < all.waves ? 0.0f : 1.0f;
        for (int wave = 0; wave < all.waves && pair < all.waves; ++wave) {
            sum += waves[which][wave] * gpu_load_any(all.mixtures[which], all.mixture_dtypes[which],
                                                     first + wave * all.waves);
        }
        circle[i] = (which == 0 ? 1.0f : all.sign) * kept<T>(all, sum);
    }
}

// Cosines [half], then sines [half]; rounded to T where the reference does.
template <typename T> __device__ void fill_circle(const operands &all, float *circle) {
    if (all.waves > 0) {
        mix_waves<T>(all, circle);
        return;
    }
    for (int i = threadIdx.x; i < all.half; i += static_cast<int>(blockDim.x)) {
        const int64_t axis = all.axes ? all.axes[i] : 0;
        const gpu_point at = find_point(
            all, gpu_integer(all.positions, all.position_dtype, axis * gridDim.x + blockIdx.x), i);
        circle[i] = kept<T>(all, at.cosine);
        circle[all.half + i] = all.sign * kept<T>(all, at.sine);
    }
}

// The token's heads of query that turn on the block's circle, then those of key.
template <typename T> struct head_of {
    const T *x;
    T *out;
};

template <typename T> __device__ head_of<T> find_head(const operands &all, int number) {
    const int which = number < all.heads ? 0 : 1;
    const int count = which == 0 ? all.heads : all.all_heads - all.heads;
    const int64_t head = blockIdx.y * count + number - which * all.heads;
    const auto at = [&](const gpu_rows &rows) {
        return rows.data + blockIdx.x * rows.outer_gap + head * rows.inner_gap;
    };
    return head_of<T>{reinterpret_cast<const T *>(at(all.x[which])),
                      reinterpret_cast<T *>(at(all.out[which]))};
}

// N neighbouring pairs of a head, as they are in memory.
template <typename T, int N> struct pairs {
    head_of<T> head;
    int i; // of the first pair
    int first;
    int second;
    gpu_pack<T, N> a;
    gpu_pack<T, N> b;

    __device__ void load(const operands &all, int number) {
        const int packs = all.half / N;
        const int which = number / packs;
        head = find_head<T>(all, which);
        i = (number - which * packs) * N;
        first = all.skipped + (all.is_neox ? i : 2 * i);
        second = first + (all.is_neox ? all.half : 1);
        a = gpu_load<T, N>(head.x, first);
        b = gpu_load<T, N>(head.x, second);
    }
    __device__ void rotate(const float *cosines, const float *sines) const {
        gpu_pack<T, N> low;
        gpu_pack<T, N> high;
#pragma unroll
        for (int j = 0; j < N; ++j) {
            const gpu_turned turned =
                gpu_turn(gpu_float(a.at[j]), gpu_float(b.at[j]), cosines[i + j], sines[i + j]);
            low.at[j] = gpu_round<T>(turned.first);
            high.at[j] = gpu_round<T>(turned.second);
        }
        gpu_store<T, N>(head.out, first, low);
        gpu_store<T, N>(head.out, second, high);
    }
};

// Columns that no pair has.
template <typename T> __device__ void copy_rest(const operands &all) {
    const int rest = all.width - 2 * all.half;
    for (int at = threadIdx.x; at < all.all_heads * rest; at += static_cast<int>(blockDim.x)) {
        const int number = at / rest;
        const int other = at - number * rest;
        const int i = other < all.skipped ? other : 2 * all.half + other;
        const head_of<T> head = find_head<T>(all, number);
        head.out[i] = head.x[i];
    }
}

template <typename T, int N>
__global__ void __launch_bounds__(MAX_THREADS) rotary_kernel(operands all) {
    __shared__ float circle[2 * MAX_HALF];
    const int threads = static_cast<int>(blockDim.x);
    const int count = all.all_heads * (all.half / N);
    gpu_let_next_begin();
    gpu_wait_for_inputs();
    for (int begin = 0; begin < count; begin += KEPT * threads) {
        pairs<T, N> kept[KEPT];
#pragma unroll
        for (int k = 0; k < KEPT; ++k) {
            const int number = begin + k * threads + static_cast<int>(threadIdx.x);
            if (number < count) {
                kept[k].load(all, number);
            }
        }
        if (begin == 0) {
            fill_circle<T>(all, circle);
            __syncthreads();
        }
#pragma unroll
        for (int k = 0; k < KEPT; ++k) {
            if (begin + k * threads + static_cast<int>(threadIdx.x) < count) {
                kept[k].rotate(circle, circle + all.half);
            }
        }
    }
    copy_rest<T>(all);
}

// ---- the host's side ----------------------------------------------------------------------------

// Angles and axes of the pairs, in device memory.
berth_status keep_pairs(const berth_op_site *site, const gpu_op *op, gpu_rotary *self) {
    float angles[MAX_HALF] = {};
    int32_t axes[MAX_HALF];
    const uint64_t count = static_cast<uint64_t>(self->half);
    const bool has_axes = site->inputs[POSITIONS]->ndim == 2;
    void *memory = nullptr;
    // fope: of the waves alone, which are no pairs.
    for (int64_t i = 0; i < self->waves; ++i) {
        angles[i] = berth_rope_angle(site, i);
    }
    if (!berth_rope_is(site, "fope")) {
        berth_rope_angles(site, angles);
    }
    for (int64_t i = 0; i < self->half && has_axes; ++i) {
        axes[i] = berth_rope_axis(site, i);
    }
    const berth_status status = gpu_keep(op, angles, count * sizeof angles[0], &memory);
    self->angles = static_cast<float *>(memory);
    if (status != BERTH_OK || !has_axes) {
        return status;
    }
    memory = nullptr;
    const berth_status kept = gpu_keep(op, axes, count * sizeof axes[0], &memory);
    self->axes = static_cast<int32_t *>(memory);
    return kept;
}

// Circles of a token, and the waves that are mixed to them: of fope by its cache or coefficients.
void count_circles(const berth_op_site *site, gpu_rotary *self) {
    const berth_value_type *cache = site->inputs[CACHE];
    const berth_value_type *mixture = site->inputs[COS_COEF];
    self->circles = 1;
    if (cache && cache->ndim == 3) {
        self->circles = cache->dims[1].b;
    } else if (!cache && mixture) {
        self->circles = mixture->dims[0].b;
        self->waves = mixture->dims[1].b;
    }
}

operands operands_of(const gpu_rotary &of, const berth_op_args *args, const gpu_rows *turned) {
    const berth_tensor *positions = args->inputs[POSITIONS];
    const berth_tensor *query = args->inputs[QUERY];
    const berth_tensor *cache = args->inputs[CACHE];
    operands all = {};
    all.positions = berth_gpu_data(positions);
    all.position_dtype = positions->dtype;
    for (int which = 0; which < 2; ++which) {
        all.x[which] = gpu_rows_of(args->inputs[QUERY + which]);
        all.out[which] = turned[which];
    }
    all.cache = cache ? berth_gpu_data(cache) : nullptr;
    all.cache_dtype = cache ? cache->dtype : query->dtype;
    for (int which = 0; which < 2 && of.waves > 0; ++which) {
        all.mixtures[which] = berth_gpu_data(args->inputs[COS_COEF + which]);
        all.mixture_dtypes[which] = args->inputs[COS_COEF + which]->dtype;
    }
    all.angles = of.angles;
    all.axes = of.axes;
    all.scale = of.scale;
    all.sign = of.sign;
    all.half = static_cast<int>(of.half);
    all.waves = static_cast<int>(of.waves);
    all.columns = static_cast<int>(of.columns);
    all.heads = static_cast<int>(all.x[0].inner / of.circles);
    all.all_heads = all.heads + (all.x[1].data ? static_cast<int>(all.x[1].inner / of.circles) : 0);
    all.width = static_cast<int>(query->shape[2]);
    all.skipped = static_cast<int>(of.skipped);
    all.is_neox = of.is_neox != 0;
    all.rounds = cache ? of.is_cast || cache->dtype != BERTH_DTYPE_F32 : !of.is_f32;
    all.first_row = of.first_row;
    all.length = of.length;
    return all;
}

struct work {
    operands all;
    int64_t tokens;
    int64_t circles; // of a token
};

template <typename T, int N> berth_status start(const gpu_op *op, const work &at_hand) {
    const operands &all = at_hand.all;
    const int64_t wanted = gpu_ceil(all.all_heads * (all.half / N), KEPT);
    const int64_t even = (wanted + 31) / 32 * 32;
    const int64_t threads = even < MAX_THREADS ? even : int64_t{MAX_THREADS};
    const gpu_grid grid = {
        dim3(static_cast<unsigned>(at_hand.tokens), static_cast<unsigned>(at_hand.circles)),
        dim3(static_cast<unsigned>(threads)), 0};
    return gpu_run(op, "rotary_embedding", grid, rotary_kernel<T, N>, all);
}

berth_status supports(const berth_op_site *site, const berth_device *) {
    return gpu_rotary_check(site);
}

void destroy(void *self) {
    gpu_rotary_free(&static_cast<rotary *>(self)->of);
    gpu_destroy(self);
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    berth_status status = gpu_new<rotary>(site, device, out_self);
    if (status != BERTH_OK) {
        return status;
    }
    rotary *self = static_cast<rotary *>(*out_self);
    status = gpu_rotary_read(site, self, &self->of);
    if (status != BERTH_OK) {
        destroy(self);
    }
    return status;
}

berth_status forward(void *self, const berth_op_args *args) {
    const rotary *op = static_cast<const rotary *>(self);
    const gpu_rows turned[] = {gpu_rows_of(args->outputs[0]),
                               gpu_rows_of(args->inputs[KEY] ? args->outputs[1] : nullptr)};
    return gpu_rotary_run(op, op->of, args, turned);
}

} // namespace

berth_status gpu_rotary_check(const berth_op_site *site) {
    if (!berth_rope_is_known(site) && !berth_rope_is(site, "mllama4") &&
        !berth_rope_is(site, "fope")) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "rope_type is '%s'",
                                 berth_site_attribute(site, "rope_type")->str);
    }
    return berth_rope_pairs(site) <= MAX_HALF
               ? BERTH_OK
               : BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED, "at most %d pairs of a head",
                                   MAX_HALF);
}

berth_status gpu_rotary_read(const berth_op_site *site, const gpu_op *op, gpu_rotary *self) {
    const bool is_last = berth_rope_number(site, "is_deepseek_v4", 0) != 0;
    const bool is_image = berth_rope_is(site, "mllama4");
    self->half = berth_rope_pairs(site);
    self->length = static_cast<int64_t>(berth_rope_length(site));
    self->is_neox = berth_site_attribute(site, "is_neox_style")->i64;
    self->first_row = berth_rope_first_row(site);
    self->skipped = is_last ? site->inputs[QUERY]->dims[2].b - 2 * self->half : 0;
    self->scale = berth_rope_scale(site);
    self->sign = berth_rope_number(site, "inverse", 0) != 0 ? -1.0f : 1.0f;
    self->is_cast = berth_rope_is_cast(site);
    self->is_f32 = is_last || is_image;
    self->columns = is_image ? static_cast<int64_t>(sqrt(berth_rope_length(site) - 1)) : 0;
    count_circles(site, self);
    return keep_pairs(site, op, self);
}

void gpu_rotary_free(const gpu_rotary *self) {
    (void)gpuFree(self->angles);
    (void)gpuFree(self->axes);
}

berth_status gpu_rotary_run(const gpu_op *op, const gpu_rotary &rotary, const berth_op_args *args,
                            const gpu_rows *turned) {
    const work at_hand = {operands_of(rotary, args, turned), args->inputs[QUERY]->shape[0],
                          rotary.circles};
    const operands &all = at_hand.all;
    if (at_hand.tokens == 0) {
        return BERTH_OK;
    }
    return gpu_with_type(args->inputs[QUERY]->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        constexpr int N = gpu_wide<T>;
        const bool is_wide = all.is_neox && all.half % N == 0 && all.skipped % N == 0 &&
                             gpu_is_aligned(all.x[0]) && gpu_is_aligned(all.x[1]) &&
                             gpu_is_aligned(all.out[0]) && gpu_is_aligned(all.out[1]);
        return is_wide ? start<T, N>(op, at_hand) : start<T, 1>(op, at_hand);
    });
}

extern "C" {
extern const berth_op_impl berth_kernel_rotary_embedding;
const berth_op_impl berth_kernel_rotary_embedding = {
    .size = sizeof(berth_op_impl),
    .op = "rotary_embedding",
    .name = "gpu.rotary_embedding",
    .dispatch_key = BERTH_GPU_KEY,
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .forward = forward,
    .destroy = destroy,
};
}
