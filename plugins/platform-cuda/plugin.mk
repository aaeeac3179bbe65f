# SPDX-License-Identifier: Apache-2.0
# A file of the same name in kernels/cuda takes the place of the one in kernels/gpu.
platform-cuda_REQUIRES := CUDA
platform-cuda_KERNELS := kernels/gpu/*.cu kernels/cuda/*.cu
platform-cuda_CFLAGS := $(CUDA_CFLAGS)
platform-cuda_LIBS := $(CUDA_LIBS)
