// SPDX-License-Identifier: Apache-2.0
// Input: the sizes of a product. Output: descriptions of it, and a weight in the layout that oneDNN
// prefers. Apart from the kernel that runs it because packing happens before there is an instance.
#include "product.h"

#include <tensor.h>

#include <omp.h>

#define LAYOUT_ROWS 32 // oneDNN chooses the layout for so many rows; all other numbers can read it
#define PACKED_ROWS 64 // rows of the weight that are widened at a time

berth_status berth_dnnl_failed(const berth_host *host, dnnl_status_t status, const char *call) {
    return BERTH_PLUGIN_FAIL(host,
                             status == dnnl_out_of_memory ? BERTH_OUT_OF_MEMORY : BERTH_INTERNAL,
                             "linear: oneDNN status %d of %s", (int)status, call);
}

dnnl_memory_desc_t berth_dnnl_matrix(int64_t rows, int64_t columns, dnnl_format_tag_t tag) {
    dnnl_memory_desc_t description = {0};
    (void)dnnl_memory_desc_init_by_tag(&description, 2, (dnnl_dims_t){rows, columns}, dnnl_f32,
                                       tag);
    return description;
}

dnnl_status_t berth_product_describe(const berth_product *sizes, dnnl_engine_t engine, int64_t rows,
                                     const dnnl_memory_desc_t *weight, dnnl_primitive_desc_t *out) {
    const dnnl_memory_desc_t x = berth_dnnl_matrix(rows, sizes->in, dnnl_ab);
    const dnnl_memory_desc_t any = berth_dnnl_matrix(sizes->in, sizes->out, dnnl_format_tag_any);
    const dnnl_memory_desc_t bias = berth_dnnl_matrix(1, sizes->out, dnnl_ab);
    const dnnl_memory_desc_t y = berth_dnnl_matrix(rows, sizes->out, dnnl_ab);
    dnnl_matmul_desc_t product;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_status_t status = dnnl_matmul_desc_init(&product, &x, weight ? weight : &any,
                                                 sizes->has_bias ? &bias : NULL, &y);
    if (status == dnnl_success) {
        status = dnnl_primitive_attr_create(&attributes);
    }
    if (status == dnnl_success) {
        (void)dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
        status = dnnl_primitive_desc_create(out, &product, attributes, engine, NULL);
    }
    (void)dnnl_primitive_attr_destroy(attributes);
    return status;
}

dnnl_status_t berth_product_layout(const berth_product *sizes, dnnl_engine_t engine,
                                   dnnl_memory_desc_t *out) {
    dnnl_primitive_desc_t product = NULL;
    omp_set_num_threads(1); // the choice must not depend on them
    const dnnl_status_t status = berth_product_describe(sizes, engine, LAYOUT_ROWS, NULL, &product);
    if (status == dnnl_success) {
        *out = *dnnl_primitive_desc_query_md(product, dnnl_query_weights_md, 0);
    }
    (void)dnnl_primitive_desc_destroy(product);
    return status;
}

uint64_t berth_product_packed_bytes(const berth_product *sizes) {
    dnnl_engine_t engine = NULL;
    dnnl_memory_desc_t layout;
    uint64_t bytes = 0;
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success &&
        berth_product_layout(sizes, engine, &layout) == dnnl_success) {
        bytes = dnnl_memory_desc_get_size(&layout);
    }
    (void)dnnl_engine_destroy(engine);
    return bytes;
}

// ---- packing ------------------------------------------------------------------------------------

typedef struct packing {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_memory_desc_t layout; // of the whole weight
    float *slab;               // [PACKED_ROWS, in]
    void *destination;
} packing;

// One reorder: `count` widened rows to their place in the packed weight.
static dnnl_status_t reorder(const packing *self, int64_t first, int64_t count) {
    const int64_t in = self->layout.dims[0];
    const dnnl_memory_desc_t from = berth_dnnl_matrix(in, count, dnnl_ba);
    dnnl_memory_desc_t to = {0};
    dnnl_primitive_desc_t description = NULL;
    dnnl_primitive_t primitive = NULL;
    dnnl_memory_t source = NULL;
    dnnl_memory_t target = NULL;
    dnnl_status_t status = dnnl_memory_desc_init_submemory(
        &to, &self->layout, (dnnl_dims_t){in, count}, (dnnl_dims_t){0, first});
    // The offset goes into the address, so that oneDNN makes one primitive for all of them.
    char *place = (char *)self->destination + to.offset0 * (int64_t)sizeof(float);
    to.offset0 = 0;
    if (status == dnnl_success) {
        status = dnnl_reorder_primitive_desc_create(&description, &from, self->engine, &to,
                                                    self->engine, NULL);
    }
    if (status == dnnl_success) {
        status = dnnl_primitive_create(&primitive, description);
    }
    if (status == dnnl_success) {
        status = dnnl_memory_create(&source, &from, self->engine, self->slab);
    }
    if (status == dnnl_success) {
        status = dnnl_memory_create(&target, &to, self->engine, place);
    }
    if (status == dnnl_success) {
        const dnnl_exec_arg_t arguments[] = {
            {DNNL_ARG_FROM, source},
            {DNNL_ARG_TO,   target},
        };
        status = dnnl_primitive_execute(primitive, self->stream, 2, arguments);
    }
    (void)dnnl_memory_destroy(target);
    (void)dnnl_memory_destroy(source);
    (void)dnnl_primitive_destroy(primitive);
    (void)dnnl_primitive_desc_destroy(description);
    return status;
}

static berth_status pack_rows(packing *self, const berth_product *sizes,
                              const berth_tensor *source) {
    const berth_host *host = sizes->host;
    BERTH_DNNL_TRY(host, dnnl_engine_create(&self->engine, dnnl_cpu, 0));
    BERTH_DNNL_TRY(host,
                   dnnl_stream_create(&self->stream, self->engine, dnnl_stream_default_flags));
    BERTH_DNNL_TRY(host, berth_product_layout(sizes, self->engine, &self->layout));
    const int64_t in = source->shape[1];
    for (int64_t first = 0; first < source->shape[0]; first += PACKED_ROWS) {
        const int64_t left = source->shape[0] - first;
        const int64_t count = left < PACKED_ROWS ? left : PACKED_ROWS;
        for (int64_t row = 0; row < count; ++row) {
            berth_load(berth_row(source, first + row), source->dtype, 0, in, self->slab + row * in);
        }
        BERTH_DNNL_TRY(host, reorder(self, first, count));
    }
    return BERTH_OK;
}

berth_status berth_product_pack(const berth_product *sizes, const berth_tensor *source,
                                const berth_tensor *destination) {
    const berth_host *host = sizes->host;
    const uint64_t slab_bytes = PACKED_ROWS * (uint64_t)source->shape[1] * sizeof(float);
    packing self = {
        .destination = berth_data(destination),
        .slab = host->alloc(host, slab_bytes, 0),
    };
    // Whoever reads a blocked weight reads its padding too.
    memset(self.destination, 0, berth_product_packed_bytes(sizes));
    const berth_status status =
        self.slab ? pack_rows(&self, sizes, source)
                  : BERTH_PLUGIN_FAIL(host, BERTH_OUT_OF_MEMORY,
                                      "linear: no memory for %llu bytes to pack a weight",
                                      (unsigned long long)slab_bytes);
    host->free(host, self.slab);
    (void)dnnl_stream_destroy(self.stream);
    (void)dnnl_engine_destroy(self.engine);
    return status;
}
