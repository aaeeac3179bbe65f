# SPDX-License-Identifier: Apache-2.0
# Why no trapping math: a selection between two floats may then become vector code; no result changes.
platform-cpu_KERNELS := kernels/cpu/*.c
platform-cpu_CFLAGS := -D_GNU_SOURCE -fno-trapping-math
# Every kernel once per instruction set; the platform chooses when it is loaded.
x86 := $(filter x86_64%,$(shell $(CC) -dumpmachine))
platform-cpu_SETS := portable $(if $(x86),avx2 avx512)
# Where the others are, this one is for machines of before 2013: it compiles in three fifths of the time.
SET_portable := $(if $(x86),$(if $(filter release,$(MODE)),-O1))
SET_avx2 := -mavx2 -mfma -mf16c
SET_avx512 := $(SET_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512 \
	$(STACK_FRAMES_$(MODE))
