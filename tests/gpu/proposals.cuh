// SPDX-License-Identifier: Apache-2.0
// The best of the algorithms that cuBLASLt proposes for a product of bf16, each timed with the
// weights it is given in turn: what cuda.linear is measured by. Nothing here is shared with what it
// measures, which keeps its own choice (kernels/cuda/product).
#ifndef BERTH_TESTS_GPU_PROPOSALS_CUH
#define BERTH_TESTS_GPU_PROPOSALS_CUH

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdio.h>

#define BEST_OF        32 // algorithms
#define BEST_WORKSPACE ((size_t)64 << 20)

class proposals {
  public:
    // `x` [rows, depth] times the transposed `weight` [outputs, depth] to `y` [rows, outputs];
    // false where there is no cuBLASLt, or none of its algorithms.
    bool open(int64_t rows, int64_t outputs, int64_t depth) {
        char name[64];
        (void)snprintf(name, sizeof name, "libcublasLt.so.%d", CUBLAS_VER_MAJOR);
        library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (!library || !find()) {
            return false;
        }
        const cublasOperation_t turned = CUBLAS_OP_T;
        const size_t room = BEST_WORKSPACE;
        const bool is_ready =
            create(&handle) == CUBLAS_STATUS_SUCCESS &&
            create_description(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F) ==
                CUBLAS_STATUS_SUCCESS &&
            describe(description, CUBLASLT_MATMUL_DESC_TRANSA, &turned, sizeof turned) ==
                CUBLAS_STATUS_SUCCESS &&
            lay_out(&a, depth, outputs) && lay_out(&b, depth, rows) && lay_out(&c, outputs, rows) &&
            create_preference(&preference) == CUBLAS_STATUS_SUCCESS &&
            prefer(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room) ==
                CUBLAS_STATUS_SUCCESS &&
            cudaMalloc(&workspace, room) == cudaSuccess;
        return is_ready &&
               propose(handle, description, &a, &b, &c, &c, preference, BEST_OF, results, &count) ==
                   CUBLAS_STATUS_SUCCESS &&
               count > 0;
    }

    int size() const {
        return count;
    }

    bool run(int algorithm, const void *x, const void *weight, void *y, cudaStream_t stream) const {
        const float one = 1;
        const float zero = 0;
        return multiply(handle, description, &one, weight, &a, x, &b, &zero, y, &c, y, &c,
                        &results[algorithm].algo, workspace, BEST_WORKSPACE,
                        stream) == CUBLAS_STATUS_SUCCESS;
    }

    ~proposals() {
        (void)cudaFree(workspace);
        if (preference) {
            (void)destroy_preference(preference);
        }
        if (description) {
            (void)destroy_description(description);
        }
        if (handle) {
            (void)destroy(handle);
        }
    }

  private:
    template <typename F> bool load(F *function, const char *name) {
        *function = reinterpret_cast<F>(dlsym(library, name));
        return *function != nullptr;
    }

    bool find() {
        return load(&create, "cublasLtCreate") && load(&destroy, "cublasLtDestroy") &&
               load(&create_description, "cublasLtMatmulDescCreate") &&
               load(&destroy_description, "cublasLtMatmulDescDestroy") &&
               load(&describe, "cublasLtMatmulDescSetAttribute") &&
               load(&init_layout, "cublasLtMatrixLayoutInit_internal") &&
               load(&create_preference, "cublasLtMatmulPreferenceCreate") &&
               load(&destroy_preference, "cublasLtMatmulPreferenceDestroy") &&
               load(&prefer, "cublasLtMatmulPreferenceSetAttribute") &&
               load(&propose, "cublasLtMatmulAlgoGetHeuristic") &&
               load(&multiply, "cublasLtMatmul");
    }

    // cuBLAS counts in columns.
    bool lay_out(cublasLtMatrixLayoutOpaque_t *out, int64_t rows, int64_t columns) {
        return init_layout(out, sizeof *out, CUDA_R_16BF, (uint64_t)rows, (uint64_t)columns,
                           rows) == CUBLAS_STATUS_SUCCESS;
    }

    void *library = nullptr; // stays open
    void *workspace = nullptr;
    cublasLtHandle_t handle = nullptr;
    cublasLtMatmulDesc_t description = nullptr;
    cublasLtMatmulPreference_t preference = nullptr;
    mutable cublasLtMatrixLayoutOpaque_t a, b, c;
    cublasLtMatmulHeuristicResult_t results[BEST_OF];
    int count = 0;
    decltype(&cublasLtCreate) create;
    decltype(&cublasLtDestroy) destroy;
    decltype(&cublasLtMatmulDescCreate) create_description;
    decltype(&cublasLtMatmulDescDestroy) destroy_description;
    decltype(&cublasLtMatmulDescSetAttribute) describe;
    decltype(&cublasLtMatrixLayoutInit_internal) init_layout;
    decltype(&cublasLtMatmulPreferenceCreate) create_preference;
    decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference;
    decltype(&cublasLtMatmulPreferenceSetAttribute) prefer;
    decltype(&cublasLtMatmulAlgoGetHeuristic) propose;
    decltype(&cublasLtMatmul) multiply;
};

#endif
