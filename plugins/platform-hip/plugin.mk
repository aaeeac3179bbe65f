# SPDX-License-Identifier: Apache-2.0
# A file of the same name in kernels/hip takes the place of the one in kernels/gpu.
platform-hip_REQUIRES := HIP
platform-hip_KERNELS := kernels/gpu/*.cu kernels/hip/*.cu
platform-hip_COMPILER := hip
platform-hip_CFLAGS := $(HIP_CFLAGS)
platform-hip_LIBS := $(HIP_LIBS)
