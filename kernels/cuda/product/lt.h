// SPDX-License-Identifier: Apache-2.0
// What lt.cu, which multiplies through cuBLASLt, and lt_choose.cu, which chooses its algorithms,
// have in common.
#ifndef BERTH_KERNELS_CUDA_PRODUCT_LT_H
#define BERTH_KERNELS_CUDA_PRODUCT_LT_H

#include <cuda/product/choices.h>
#include <cuda/product/product.h>

#include <cublasLt.h>

// The functions that are used, by their names in the library.
#define CUDA_LT_FUNCTIONS(F)                                                                       \
    F(cublasLtCreate)                                                                              \
    F(cublasLtDestroy)                                                                             \
    F(cublasLtGetVersion)                                                                          \
    F(cublasLtMatmul)                                                                              \
    F(cublasLtMatmulAlgoConfigGetAttribute)                                                        \
    F(cublasLtMatmulAlgoConfigSetAttribute)                                                        \
    F(cublasLtMatmulAlgoCheck)                                                                     \
    F(cublasLtMatmulAlgoGetHeuristic)                                                              \
    F(cublasLtMatmulDescCreate)                                                                    \
    F(cublasLtMatmulDescDestroy)                                                                   \
    F(cublasLtMatmulDescSetAttribute)                                                              \
    F(cublasLtMatmulPreferenceCreate)                                                              \
    F(cublasLtMatmulPreferenceDestroy)                                                             \
    F(cublasLtMatmulPreferenceSetAttribute)                                                        \
    F(cublasLtMatrixLayoutInit_internal)

struct cuda_lt_functions {
#define MEMBER(name) decltype(&::name) name;
    CUDA_LT_FUNCTIONS(MEMBER)
#undef MEMBER
};

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof cuda_choice{}.algorithm,
              "cuBLASLt's own size");

struct cuda_lt {
    struct cuda_lt_library *all;
    cuda_lt *next;
    cuda_product shape;
    cublasLtMatmulDesc_t description;
    cuda_choice buckets[CUDA_CHOICES_MAX];
    int count;
};

// What the platform keeps: the library, a handle, the shapes.
struct cuda_lt_library {
    const berth_host *host;
    void *library;
    cuda_lt_functions call;
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    cuda_lt *shapes;
};

// cuBLAS counts in columns: yᵀ [outputs, rows] = weight [depth, outputs]ᵀ · xᵀ [depth, rows].
struct cuda_lt_layouts {
    cublasLtMatrixLayoutOpaque_t weight;
    cublasLtMatrixLayoutOpaque_t x;
    cublasLtMatrixLayoutOpaque_t y;
};

// The type of x and weight.
static inline berth_dtype cuda_lt_operand(const cuda_product &p) {
    return p.codes == BERTH_DTYPE_NONE ? p.dtype : p.codes;
}

// A product's layouts, and in the description what that knows by its address.
berth_status cuda_lt_describe(const cuda_lt *lt, const cuda_product &p, cuda_lt_layouts *out);
// Up to `wanted` algorithms that cuBLASLt proposes, best first; returns how many.
int cuda_lt_propose(const cuda_lt *lt, cuda_lt_layouts *with,
                    cublasLtMatmulHeuristicResult_t *results, int wanted);
// Whether cuBLASLt takes the algorithm for what is described, in the workspace that there will be.
cublasStatus_t cuda_lt_ask(const cuda_lt *lt, cuda_lt_layouts *with,
                           const cublasLtMatmulAlgo_t *algorithm);
cublasStatus_t cuda_lt_multiply(const cuda_lt *lt, cuda_lt_layouts *with, const cuda_product &p,
                                const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                                cudaStream_t stream);
// Fills the shape's buckets, timing on the device.
void cuda_lt_choose(const gpu_op *op, cuda_lt *lt, int max_rows);

#endif
