// SPDX-License-Identifier: Apache-2.0
// linear's products for ops that have them: a site, what is kept of it, and the kernel that a
// number of rows is for. Floats of one type; compute capability 8 and on.
#ifndef BERTH_KERNELS_CUDA_PRODUCT_LINEAR_H
#define BERTH_KERNELS_CUDA_PRODUCT_LINEAR_H

#include <cuda/product/product.h>
#include <cuda/product/some.h>

// Of ops that are linear, or begin with it.
enum { CUDA_LINEAR_X, CUDA_LINEAR_WEIGHT, CUDA_LINEAR_BIAS };

// What is kept of a site.
struct cuda_linear {
    const cuda_lt *lt;
    int has_few; // the kernel of few rows takes it
    cuda_some_plan some;
};

static inline int64_t cuda_const_dim(const berth_value_type *type, uint32_t dim) {
    return type->dims[dim].b;
}

berth_status cuda_linear_supports(const berth_op_site *site, const berth_device *device);
// At start-up: it may time what it can choose between.
berth_status cuda_linear_open(const gpu_op *op, const berth_op_site *site, cuda_linear *out);
// A call's product, whose y is the tensor at `y`.
cuda_product cuda_linear_product(const berth_op_args *args, const berth_tensor *y);
// At least one row; CUDA_LT_WORKSPACE bytes of workspace.
berth_status cuda_linear_run(const gpu_op *op, const cuda_linear &linear,
                             const cuda_product &product, void *workspace);

#endif
