# SPDX-License-Identifier: Apache-2.0
# Optional libraries. CUDA, HIP, ONEDNN, OPENCL: unset = use it when it is there (but HIP), 0 = off,
# 1 = required. The result is always printed (make help), and a plugin that is left out says why.
program = $(firstword $(wildcard $(addsuffix /$1,$2 $(subst :, ,$(PATH)))))
header = $(firstword $(wildcard $(addsuffix /$1,$2 $(subst :, ,$(CPATH)) /usr/local/include /usr/include)))
library = $(firstword $(wildcard $(addsuffix /lib$1.so,$2 $(subst :, ,$(LIBRARY_PATH)) \
          /usr/local/lib /usr/lib /usr/lib64 /usr/lib/*-linux-gnu)))
optional := CUDA HIP ONEDNN OPENCL

# decide NAME,WHAT WAS FOUND,HOW TO GET IT: sets NAME_FOUND (yes or no) and NAME_WHY (the sentence).
define decide
$1_FOUND := $(if $(filter 0,$($1)),no,$(if $2,yes,no))
$1_WHY := $(if $(filter 0,$($1)),switched off by $1=0,$(if $2,$2,$3))
$(if $(and $(filter 1,$($1)),$(if $2,,missing)),$$(error $1=1 but $3))
endef

# CUDA: nvcc compiles kernels/gpu and kernels/cuda; the runtime is linked statically. Exceptions and
# guarded statics are off, so that no C++ library is needed.
NVCC := $(call program,nvcc,$(CUDA_HOME)/bin /usr/local/cuda/bin)
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(NVCC))
CUDA_ARCH ?= 80 90a
# Why without the a: code for 9.0's own features is for that one alone, and newer devices translate.
CUDA_PTX = $(patsubst %a,%,$(lastword $(CUDA_ARCH)))
CUDA_CFLAGS := -isystem $(CUDA_HOME)/include
CUDA_LIBS := $(addprefix -L,$(wildcard $(CUDA_HOME)/lib64)) -lcudart_static -ldl -lrt
NVCC_FLAGS = -std=c++20 -O3 $(if $(filter 1,$(WERROR)),-Werror all-warnings) -Xcompiler \
  -fPIC,-fvisibility=hidden,-Wall,-fno-exceptions,-fno-threadsafe-statics $(foreach a,$(CUDA_ARCH),-gencode arch=compute_$a,code=sm_$a) \
  -gencode arch=compute_$(CUDA_PTX),code=compute_$(CUDA_PTX)
$(eval $(call decide,CUDA,$(and $(call program,g++,),$(wildcard $(CUDA_HOME)/include/cublasLt.h),$(NVCC)),nvcc \
  or cublasLt.h or g++ not found; set CUDA_HOME and install g++ to build platform-cuda))

# HIP: hipcc (Debian's package of that name is enough) compiles kernels/gpu. Only where it is asked
# for by HIP=1: it takes longer than all the rest. gfx90a has wavefronts of 64 lanes, gfx1030 of 32.
HIPCC := $(call program,hipcc,$(HIP_HOME)/bin /opt/rocm/bin)
HIP_HOME ?= $(filter-out /usr,$(patsubst %/bin/hipcc,%,$(HIPCC)))
HIP_ARCH ?= gfx90a gfx1030
HIP_CFLAGS := -D__HIP_PLATFORM_AMD__ $(if $(HIP_HOME),-isystem $(HIP_HOME)/include)
# Why no new tags: what the runtime itself needs is found by the same path then.
HIP_LIBS := $(if $(HIP_HOME),-L$(HIP_HOME)/lib -Wl$(,)-rpath$(,)$(HIP_HOME)/lib$(,)--disable-new-dtags) -lamdhip64
HIPCC_FLAGS = -std=c++20 -O3 -fPIC -fvisibility=hidden -Wall $(if $(filter 1,$(WERROR)),-Werror) \
  -fno-exceptions -fno-threadsafe-statics -D__HIP_PLATFORM_AMD__ $(addprefix --offload-arch=,$(HIP_ARCH))
$(eval $(call decide,HIP,$(if $(HIP),$(HIPCC)),$(if $(HIPCC),HIP=1 builds \
  platform-hip with $(HIPCC),hipcc not found; install hipcc or set HIP_HOME to build platform-hip)))

# oneDNN: what the matrix products of platform-cpu are measured beside (tests/bench).
ONEDNN_CFLAGS := $(if $(ONEDNN_HOME),-isystem $(ONEDNN_HOME)/include)
ONEDNN_LIBS := $(if $(ONEDNN_HOME),-L$(ONEDNN_HOME)/lib -Wl$(,)-rpath$(,)$(ONEDNN_HOME)/lib) -ldnnl
$(eval $(call decide,ONEDNN,$(and $(call header,dnnl.h,$(ONEDNN_HOME)/include),$(call \
  library,dnnl,$(ONEDNN_HOME)/lib)),dnnl.h or libdnnl not found; install libdnnl-dev or set ONEDNN_HOME to build tests/bench))

# OpenCL: the loader library and its headers.
OPENCL_LIBS := -lOpenCL
$(eval $(call decide,OPENCL,$(and $(call header,CL/cl.h,),$(call library,OpenCL,)),CL/cl.h or \
  libOpenCL not found; install ocl-icd-opencl-dev to build platform-opencl))
