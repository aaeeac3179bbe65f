// SPDX-License-Identifier: Apache-2.0
// linear in float32 by oneDNN: y = x · weightᵀ + bias, the weight packed once, when it is loaded.
//
// Packing widens the weight to float32 in the blocked layout that oneDNN prefers; all primitives of
// a site read that one layout. oneDNN is fast only when every size is known, so there is a
// primitive for each bucket of 1, 2, 4 … 512 rows. A batch is cut into the largest buckets that
// fit; a rest of fewer than 64 rows is padded to the next bucket. Why padded and not cut further:
// so few rows cost what reading the weight costs, and each further cut reads it once more, while
// padding copies at most 63 rows.
//
// Everything is made in create. What oneDNN 2.6 itself takes from the heap in a call is the list of
// its arguments.
#include <cpu/cpu.h>

#include "onednn/product.h"

#include <omp.h>

enum { X, WEIGHT, BIAS };

#define BUCKETS      10        // of 1, 2, 4 … 512 rows
#define PADDED_ROWS  64        // a smaller rest is padded
#define ALONE_FLOATS (1 << 20) // a smaller weight is multiplied by one thread

typedef struct bucket {
    dnnl_primitive_t primitive;
    dnnl_memory_t x;
    dnnl_memory_t y;
    dnnl_memory_t scratch;
} bucket;

typedef struct linear {
    const berth_host *host;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_memory_t weight;
    dnnl_memory_t bias; // NULL: none
    berth_product product;
    int64_t padded_rows; // that the workspace has room for
    uint64_t scratch_bytes;
    int threads;
    int64_t bucket_count;
    bucket buckets[BUCKETS];
} linear;

// ---- shapes and layouts -------------------------------------------------------------------------

static berth_product product_of(const berth_op_site *site) {
    return (berth_product){
        .host = site->host,
        .in = site->inputs[WEIGHT]->dims[1].b,
        .out = site->inputs[WEIGHT]->dims[0].b,
        .has_bias = site->inputs[BIAS] != NULL,
    };
}

// The most rows that x can have; a site without bounds has as many as the largest bucket.
static int64_t most_rows(const berth_op_site *site) {
    const berth_value_type *x = site->inputs[X];
    int64_t rows = 1;
    for (uint32_t i = 0; i + 1 < x->ndim; ++i) {
        const berth_dim dim = x->dims[i];
        const uint64_t symbol = dim.symbol == BERTH_SYMBOL_SEQUENCES ? site->max_sequences
                                : dim.symbol == BERTH_SYMBOL_TOKENS  ? site->max_tokens
                                                                     : 0;
        if (dim.symbol != BERTH_SYMBOL_NONE && symbol == 0) {
            return INT64_C(1) << (BUCKETS - 1);
        }
        rows *= (dim.a * (int64_t)symbol + dim.b + dim.c - 1) / dim.c;
    }
    return rows;
}

// The smallest bucket that holds the rows, of which there are at most 512.
static int64_t bucket_of(int64_t rows) {
    int64_t index = 0;
    while (index < BUCKETS - 1 && INT64_C(1) << index < rows) {
        ++index;
    }
    return index;
}

static berth_status supports(const berth_op_site *site, const berth_device *device) {
    (void)device;
    const berth_status status = berth_needs_f32(site, X);
    if (status != BERTH_OK) {
        return status;
    }
    if (!(site->parameter_mask & UINT64_C(1) << WEIGHT)) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "'weight' is not a parameter and cannot be packed");
    }
    const berth_product product = product_of(site);
    if (berth_product_packed_bytes(&product) == 0) {
        return BERTH_PLUGIN_FAIL(site->host, BERTH_UNSUPPORTED,
                                 "oneDNN has no product of %lld x %lld", (long long)product.in,
                                 (long long)product.out);
    }
    return berth_needs_f32(site, BIAS);
}

static uint64_t packed_bytes(const berth_op_site *site, uint64_t input) {
    const berth_product product = product_of(site);
    return input == WEIGHT ? berth_product_packed_bytes(&product) : 0;
}

static berth_status pack(const berth_op_site *site, uint64_t input, const berth_tensor *source,
                         const berth_tensor *destination) {
    (void)input; // the weight is the only one with a packed size
    const berth_product product = product_of(site);
    return berth_product_pack(&product, source, destination);
}

// ---- instances ----------------------------------------------------------------------------------

static void destroy(void *state) {
    linear *self = state;
    if (!self) {
        return;
    }
    for (int64_t i = 0; i < BUCKETS; ++i) {
        (void)dnnl_primitive_destroy(self->buckets[i].primitive);
        (void)dnnl_memory_destroy(self->buckets[i].x);
        (void)dnnl_memory_destroy(self->buckets[i].y);
        (void)dnnl_memory_destroy(self->buckets[i].scratch);
    }
    (void)dnnl_memory_destroy(self->weight);
    (void)dnnl_memory_destroy(self->bias);
    (void)dnnl_stream_destroy(self->stream);
    (void)dnnl_engine_destroy(self->engine);
    berth_instance_free(self);
}

// Takes the description over.
static dnnl_status_t fill_bucket(linear *self, dnnl_primitive_desc_t product, bucket *out) {
    const dnnl_memory_desc_t *x = dnnl_primitive_desc_query_md(product, dnnl_query_src_md, 0);
    const dnnl_memory_desc_t *y = dnnl_primitive_desc_query_md(product, dnnl_query_dst_md, 0);
    const dnnl_memory_desc_t *scratch =
        dnnl_primitive_desc_query_md(product, dnnl_query_scratchpad_md, 0);
    const uint64_t scratch_bytes = dnnl_memory_desc_get_size(scratch);
    if (self->scratch_bytes < scratch_bytes) {
        self->scratch_bytes = scratch_bytes;
    }
    dnnl_status_t status = dnnl_primitive_create(&out->primitive, product);
    if (status == dnnl_success) {
        status = dnnl_memory_create(&out->x, x, self->engine, DNNL_MEMORY_NONE);
    }
    if (status == dnnl_success) {
        status = dnnl_memory_create(&out->y, y, self->engine, DNNL_MEMORY_NONE);
    }
    if (status == dnnl_success) {
        status = dnnl_memory_create(&out->scratch, scratch, self->engine, DNNL_MEMORY_NONE);
    }
    (void)dnnl_primitive_desc_destroy(product);
    return status;
}

static berth_status fill(linear *self, const berth_op_site *site) {
    const berth_host *host = site->host;
    dnnl_memory_desc_t layout;
    const dnnl_memory_desc_t bias = berth_dnnl_matrix(1, self->product.out, dnnl_ab);
    BERTH_DNNL_TRY(host, dnnl_engine_create(&self->engine, dnnl_cpu, 0));
    BERTH_DNNL_TRY(host,
                   dnnl_stream_create(&self->stream, self->engine, dnnl_stream_default_flags));
    BERTH_DNNL_TRY(host, berth_product_layout(&self->product, self->engine, &layout));
    BERTH_DNNL_TRY(host,
                   dnnl_memory_create(&self->weight, &layout, self->engine, DNNL_MEMORY_NONE));
    if (site->inputs[BIAS]) {
        BERTH_DNNL_TRY(host,
                       dnnl_memory_create(&self->bias, &bias, self->engine, DNNL_MEMORY_NONE));
    }
    omp_set_num_threads(self->threads);
    for (int64_t i = 0; i < self->bucket_count; ++i) {
        dnnl_primitive_desc_t product = NULL;
        BERTH_DNNL_TRY(host, berth_product_describe(&self->product, self->engine, INT64_C(1) << i,
                                                    &layout, &product));
        BERTH_DNNL_TRY(host, fill_bucket(self, product, &self->buckets[i]));
    }
    return BERTH_OK;
}

// Why one thread for a small weight: a barrier costs more than the other threads save, and far more
// when another process holds one of their cores.
static int thread_count(const linear *self, const berth_cpu *cpu) {
    const int all = cpu->threads > 0 ? (int)cpu->threads : omp_get_num_procs();
    return self->product.in * self->product.out < ALONE_FLOATS ? 1 : all;
}

static berth_status create(const berth_op_site *site, const berth_device *device, void **out_self) {
    berth_status status = berth_instance_new(site, sizeof(linear), out_self);
    if (status != BERTH_OK) {
        return status;
    }
    linear *self = *out_self;
    const int64_t rows = most_rows(site);
    self->product = product_of(site);
    self->threads = thread_count(self, device->self);
    self->bucket_count = bucket_of(rows) + 1;
    self->padded_rows = INT64_C(1) << bucket_of(rows < PADDED_ROWS ? rows : PADDED_ROWS);
    status = fill(self, site);
    if (status != BERTH_OK) {
        destroy(self);
    }
    return status;
}

// ---- running ------------------------------------------------------------------------------------

static uint64_t aligned(uint64_t bytes) {
    return (bytes + 63) / 64 * 64;
}

// oneDNN's scratch, then padded rows of x, then of y.
static uint64_t workspace(void *state, uint64_t tokens) {
    (void)tokens;
    const linear *self = state;
    const uint64_t rows = (uint64_t)self->padded_rows;
    return aligned(self->scratch_bytes) +
           aligned(rows * (uint64_t)self->product.in * sizeof(float)) +
           aligned(rows * (uint64_t)self->product.out * sizeof(float));
}

static int is_dense(const berth_tensor *tensor) {
    int64_t stride = 1;
    for (int32_t dim = tensor->ndim - 1; dim >= 0; --dim) {
        if (tensor->shape[dim] != 1 && tensor->strides[dim] != stride) {
            return 0;
        }
        stride *= tensor->shape[dim];
    }
    return 1;
}

// Runs the bucket on dense rows.
static berth_status run(const linear *self, int64_t index, const void *x, void *y, void *scratch) {
    const bucket *chosen = &self->buckets[index];
    const dnnl_exec_arg_t arguments[] = {
        {DNNL_ARG_SRC,        chosen->x      },
        {DNNL_ARG_WEIGHTS,    self->weight   },
        {DNNL_ARG_DST,        chosen->y      },
        {DNNL_ARG_SCRATCHPAD, chosen->scratch},
        {DNNL_ARG_BIAS,       self->bias     },
    };
    BERTH_DNNL_TRY(self->host, dnnl_memory_set_data_handle(chosen->x, (void *)(uintptr_t)x));
    BERTH_DNNL_TRY(self->host, dnnl_memory_set_data_handle(chosen->y, y));
    BERTH_DNNL_TRY(self->host, dnnl_memory_set_data_handle(chosen->scratch, scratch));
    BERTH_DNNL_TRY(self->host, dnnl_primitive_execute(chosen->primitive, self->stream,
                                                      self->bias ? 5 : 4, arguments));
    return BERTH_OK;
}

// Rows [first, first + count) by way of the workspace: padded, and together if they were not.
static berth_status run_padded(const linear *self, const berth_op_args *args, int64_t first,
                               int64_t count) {
    const int64_t index = bucket_of(count);
    const int64_t rows = INT64_C(1) << index;
    char *scratch = berth_data(args->workspace);
    float *x = (float *)(void *)(scratch + aligned(self->scratch_bytes));
    float *y =
        (float *)(void *)((char *)x + aligned((uint64_t)(self->padded_rows * self->product.in) *
                                              sizeof(float)));
    for (int64_t row = 0; row < count; ++row) {
        memcpy(x + row * self->product.in, berth_row(args->inputs[X], first + row),
               (size_t)self->product.in * sizeof(float));
    }
    memset(x + count * self->product.in, 0,
           (size_t)((rows - count) * self->product.in) * sizeof(float));
    const berth_status status = run(self, index, x, y, scratch);
    if (status == BERTH_OK) {
        memcpy(berth_row(args->outputs[0], first), y,
               (size_t)(count * self->product.out) * sizeof(float));
    }
    return status;
}

static berth_status forward(void *state, const berth_op_args *args) {
    const linear *self = state;
    const berth_tensor *x = args->inputs[X];
    const int64_t rows = berth_row_count(x);
    const int can_run_in_place = is_dense(x);
    omp_set_num_threads(self->threads); // of this thread, whoever created the instance
    BERTH_DNNL_TRY(self->host,
                   dnnl_memory_set_data_handle(self->weight, berth_data(args->inputs[WEIGHT])));
    if (self->bias) {
        BERTH_DNNL_TRY(self->host,
                       dnnl_memory_set_data_handle(self->bias, berth_data(args->inputs[BIAS])));
    }
    berth_status status = BERTH_OK;
    for (int64_t first = 0, count; first < rows && status == BERTH_OK; first += count) {
        const int64_t left = rows - first;
        int64_t index = bucket_of(left < self->padded_rows ? left : self->padded_rows);
        while (index + 1 < self->bucket_count && INT64_C(2) << index <= left) {
            ++index;
        }
        count = INT64_C(1) << index;
        if (can_run_in_place && count <= left) {
            status = run(self, index, berth_row(x, first), berth_row(args->outputs[0], first),
                         berth_data(args->workspace));
        } else {
            count = left < self->padded_rows ? left : self->padded_rows;
            status = run_padded(self, args, first, count);
        }
    }
    return status;
}

const berth_op_impl berth_kernel_linear = {
    .size = sizeof(berth_op_impl),
    .op = "linear",
    .name = "cpu.linear",
    .dispatch_key = BERTH_DISPATCH_CPU,
    .revision = 1,
    .flags = BERTH_IMPL_DETERMINISTIC,
    .supports = supports,
    .create = create,
    .workspace = workspace,
    .forward = forward,
    .destroy = destroy,
    .packed_bytes = packed_bytes,
    .pack = pack,
};
