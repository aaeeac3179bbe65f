// SPDX-License-Identifier: Apache-2.0
// silu_and_mul on a GPU: silu of the first half, rounded as in the reference, times the second.
#include "activation.h"
#include "silu_and_mul.h"

namespace {

struct formula {
    void read(const berth_op_site *) {
    }
    template <typename T> __device__ float at(float gate, float up) const {
        return gpu_rounded<T>(gpu_silu<T>(gate)) * up;
    }
};

} // namespace

berth_status gpu_silu_and_mul_run(const gpu_op *op, berth_dtype dtype, const gpu_rows &x,
                                  const gpu_rows &y, int64_t rows, int64_t width) {
    return gpu_activation_run<GPU_HALVES>(op, formula{}, dtype, x, y, rows, width);
}

extern "C" {
extern const berth_op_impl berth_kernel_silu_and_mul;
const berth_op_impl berth_kernel_silu_and_mul = {
    BERTH_GPU_KERNEL("silu_and_mul"),
    .revision = 1,
    GPU_ACTIVATION_SLOTS(GPU_HALVES, formula),
};
}
