# SPDX-License-Identifier: Apache-2.0
# Why no trapping math: a selection between two floats may then become vector code; no result changes.
platform-cpu_KERNELS := kernels/cpu/*.c
platform-cpu_CFLAGS := -D_GNU_SOURCE -fno-trapping-math
# Every kernel once per instruction set; the platform chooses when it is loaded.
platform-cpu_SETS := portable $(if $(filter x86_64%,$(shell $(CC) -dumpmachine)),avx2 avx512)
SET_avx2 := -mavx2 -mfma -mf16c
SET_avx512 := $(SET_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512 \
	$(STACK_FRAMES_$(MODE))
