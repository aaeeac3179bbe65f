# SPDX-License-Identifier: Apache-2.0
# Why nodelete: OpenMP's threads outlive dlclose, and their code must stay mapped.
# Why no trapping math: a selection between two floats may then become vector code; no result changes.
platform-cpu_REQUIRES := ONEDNN
platform-cpu_KERNELS := kernels/cpu/*.c
platform-cpu_CFLAGS := $(ONEDNN_CFLAGS) -fno-trapping-math
platform-cpu_LIBS := $(ONEDNN_LIBS) -lgomp -Wl,-z,nodelete
