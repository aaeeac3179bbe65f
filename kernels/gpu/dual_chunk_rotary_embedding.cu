// SPDX-License-Identifier: Apache-2.0
// dual_chunk_rotary_embedding on a GPU: an element a thread. Frequencies are the host's; a position
// that is out of range makes a row of NaN, so that the step fails where a token is chosen.
#include "each.h"

namespace {

enum { POSITIONS, QUERY, KEY };
enum { QUERY_OUT, KEY_OUT };

struct chunks {
    int64_t positions; // that there are
    int64_t chunk;
    int64_t length; // of a chunk without its local part
    int half;       // of the turned columns
    int is_neox;
    const float *frequencies; // [half]
};

struct rotary : gpu_op {
    chunks all;
};

// Heads of one tensor, each version of a token's after the one before it.
struct turned {
    chunks all;
    gpu_rows x; // rows are (token, head)
    const void *positions;
    berth_dtype positions_dtype;
    int heads;
    int width;
    bool is_key;

    __device__ int64_t distance(int64_t place, int64_t version) const {
        const int64_t reach = place + all.length;
        const int64_t last = 2 * all.length - 1;
        return version == 0   ? place
               : version == 1 ? (reach < all.chunk ? reach : all.chunk)
               : version == 2 ? (last < all.chunk ? last : all.chunk)
               : version == 3 ? reach
                              : place + all.chunk;
    }

    // Column `at` of a head, turned.
    template <typename T> __device__ float turn(const T *from, int at, int64_t by) const {
        const int step = all.is_neox ? 1 : 2;
        const int apart = all.is_neox ? all.half : 1;
        const int pair = all.is_neox ? at % all.half : at / 2;
        const bool is_second = all.is_neox ? at >= all.half : at % 2 != 0;
        const float angle = static_cast<float>(by) * all.frequencies[pair];
        const float c = gpu_rounded<T>(cosf(angle));
        const float s = gpu_rounded<T>(sinf(angle));
        const float x1 = gpu_float(from[pair * step]);
        const float x2 = gpu_float(from[pair * step + apart]);
        return is_second ? gpu_add_rn(gpu_rounded<T>(gpu_mul_rn(x2, c)),
                                      gpu_rounded<T>(gpu_mul_rn(x1, s)))
                         : gpu_add_rn(gpu_rounded<T>(gpu_mul_rn(x1, c)),
                                      -gpu_rounded<T>(gpu_mul_rn(x2, s)));
    }

    template <typename T> __device__ float at(int64_t row, int64_t i) const {
        const int64_t token = is_key ? row / heads : row;
        const int64_t head = is_key ? row % heads : i / width % heads;
        const int64_t version = is_key ? 0 : i / width / heads;
        const int column = static_cast<int>(i % width);
        const int64_t position = gpu_integer(positions, positions_dtype, token);
        const T *from = gpu_row<const T>(x, token * heads + head);
        return position < 0 || position >= all.positions ? NAN
               : column >= 2 * all.half
                   ? gpu_float(from[column])
                   : turn(from, column, distance(position % all.length, version));
    }
};

berth_status keep_frequencies(const berth_op_site *site, rotary *self) {
    const int half = self->all.half;
    const float base = static_cast<float>(berth_site_attribute(site, "base")->f64);
    float *made = static_cast<float *>(self->host->alloc(self->host, half * sizeof(float), 0));
    if (!made) {
        return BERTH_PLUGIN_FAIL(self->host, BERTH_OUT_OF_MEMORY, "no memory for frequencies");
    }
    for (int i = 0; i < half; ++i) {
        made[i] = 1 / powf(base, static_cast<float>(2 * i) / static_cast<float>(2 * half));
    }
    void *memory = nullptr;
    const berth_status status = gpu_keep(self, made, half * sizeof(float), &memory);
    self->host->free(self->host, made);
    self->all.frequencies = static_cast<const float *>(memory);
    return status;
}

berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    berth_status status = gpu_new<rotary>(site, device, out_self);
    if (status != BERTH_OK) {
        return status;
    }
    rotary *self = static_cast<rotary *>(*out_self);
    self->all.positions = berth_site_attribute(site, "max_position_embeddings")->i64;
    self->all.chunk = berth_site_attribute(site, "chunk_size")->i64;
    self->all.length = self->all.chunk - berth_site_attribute(site, "local_size")->i64;
    self->all.half = static_cast<int>(berth_site_attribute(site, "rotary_dim")->i64 / 2);
    self->all.is_neox = berth_site_attribute(site, "is_neox_style")->i64 != 0;
    status = keep_frequencies(site, self);
    if (status != BERTH_OK) {
        gpu_destroy(self);
    }
    return status;
}

void destroy(void *self) {
    (void)gpuFree(const_cast<float *>(static_cast<rotary *>(self)->all.frequencies));
    gpu_destroy(self);
}

turned turned_of(const rotary *op, const berth_op_args *args, int which) {
    const berth_tensor *x = args->inputs[which];
    const berth_tensor *positions = args->inputs[POSITIONS];
    return turned{op->all,
                  gpu_rows_of(x),
                  berth_gpu_data(positions),
                  positions->dtype,
                  static_cast<int>(x->shape[1]),
                  static_cast<int>(x->shape[2]),
                  which == KEY};
}

berth_status forward(void *self, const berth_op_args *args) {
    const rotary *op = static_cast<const rotary *>(self);
    return gpu_with_type(args->inputs[QUERY]->dtype, [&](auto type) {
        using T = typename decltype(type)::type;
        const berth_status status =
            gpu_each<T, T>(op, turned_of(op, args, QUERY), args->outputs[QUERY_OUT]);
        return status == BERTH_OK
                   ? gpu_each<T, T>(op, turned_of(op, args, KEY), args->outputs[KEY_OUT])
                   : status;
    });
}

} // namespace

extern "C" {
extern const berth_op_impl berth_kernel_dual_chunk_rotary_embedding;
const berth_op_impl berth_kernel_dual_chunk_rotary_embedding = {
    BERTH_GPU_KERNEL("dual_chunk_rotary_embedding"),
    .revision = 1,
    .flags = BERTH_IMPL_CAPTURABLE | BERTH_IMPL_DETERMINISTIC,
    .create = create,
    .forward = forward,
    .destroy = destroy,
};
}
