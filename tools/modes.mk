# SPDX-License-Identifier: Apache-2.0
# One line per flavour; each builds in build/<mode>/, so they live side by side.
FLAVOUR_release  := -O2 -g -DNDEBUG
FLAVOUR_debug    := -O0 -g3
FLAVOUR_asan     := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=all
FLAVOUR_tsan     := -O1 -g -fno-omit-frame-pointer -fsanitize=thread
FLAVOUR_fuzz     := -O1 -g -fno-omit-frame-pointer -fsanitize=address,fuzzer-no-link -Wno-unknown-warning-option
FLAVOUR_coverage := -O0 -g --coverage

# gcc 12 aligns the frames that ASan keeps on a heap to 32 bytes and stores 64 aligned ones to them (its
# bug 110027): code for AVX-512 keeps its frames on the stack.
STACK_FRAMES_asan := --param asan-use-after-return=0

# Kernels and plugins of a release are optimised harder than the host, which is bound by nothing. Their
# debug information has lines and calls, not variables: of code that is inlined this often those take a
# third of the time to compile and three quarters of platform-cpu's size.
CONTENT_release := -O3 -g1
CONTENT_asan    := -g1
CONTENT_tsan    := -g1

FLAVOUR := $(or $(FLAVOUR_$(MODE)),$(error MODE=$(MODE) is none of release debug asan tsan fuzz coverage))
CONTENT := $(CONTENT_$(MODE))
ifeq ($(origin CC),default)
CC := $(if $(filter fuzz,$(MODE)),clang,gcc)
endif
# A sanitizer's own allocator cannot be replaced: those flavours count through its hooks instead.
ALLOC_COUNTER := $(if $(filter asan tsan fuzz,$(MODE)),alloc_hooks,alloc_replace)
