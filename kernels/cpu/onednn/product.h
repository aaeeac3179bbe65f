// SPDX-License-Identifier: Apache-2.0
// A product y = x · weightᵀ + bias as oneDNN describes it, and the packed weight that every such
// product of a site reads, however many rows x has.
#ifndef BERTH_KERNELS_CPU_ONEDNN_PRODUCT_H
#define BERTH_KERNELS_CPU_ONEDNN_PRODUCT_H

#include <berth/op.h>

#include <dnnl.h>

typedef struct berth_product {
    const berth_host *host;
    int64_t in;  // features of x
    int64_t out; // features of y
    int has_bias;
} berth_product;

// In a function that returns a berth_status: ends it when the call fails.
#define BERTH_DNNL_TRY(host, call)                                                                 \
    do {                                                                                           \
        const dnnl_status_t dnnl_status_ = (call);                                                 \
        if (dnnl_status_ != dnnl_success) {                                                        \
            return berth_dnnl_failed((host), dnnl_status_, #call);                                 \
        }                                                                                          \
    } while (0)

berth_status berth_dnnl_failed(const berth_host *host, dnnl_status_t status, const char *call);

// A float32 matrix. An invalid size gives a description that oneDNN's next call refuses.
dnnl_memory_desc_t berth_dnnl_matrix(int64_t rows, int64_t columns, dnnl_format_tag_t tag);

// The product of that many rows. `weight` NULL: in the layout that oneDNN likes best. Uses the
// calling thread's number of OpenMP threads.
dnnl_status_t berth_product_describe(const berth_product *product, dnnl_engine_t engine,
                                     int64_t rows, const dnnl_memory_desc_t *weight,
                                     dnnl_primitive_desc_t *out);

// The resident layout of the weight, the same for whoever asks; leaves one OpenMP thread set.
dnnl_status_t berth_product_layout(const berth_product *product, dnnl_engine_t engine,
                                   dnnl_memory_desc_t *out);
// Its size, 0 when oneDNN has no such product.
uint64_t berth_product_packed_bytes(const berth_product *product);
// Widens the weight [out, in] of any float dtype to float32 in that layout.
berth_status berth_product_pack(const berth_product *product, const berth_tensor *source,
                                const berth_tensor *destination);

#endif
