#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sanitize.sh: the kernels of platform-cuda under compute-sanitizer, on the cases of sanitize.txt:
# who touches memory that is not his (memcheck), and whose threads meet in shared memory without a
# barrier (racecheck). Prints one line a tool, and what it found; status 1 if that is anything, and
# where a kernel has no case on the list. Says that it is left out where there is no such program.
# Run in the root of the repository, build/gpu as tests/gpu/check.sh pack makes it.
set -u
gpu=build/gpu
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [ -z "$sanitizer" ]; then
    echo 'sanitize: left out, compute-sanitizer is not found'
    exit 0
fi
blas=$(find /usr/local /opt -name 'libcublasLt.so.*' 2>/dev/null | head -n 1)
export LD_LIBRARY_PATH="$gpu/lib${blas:+:${blas%/*}}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export OPS_LIST=tests/gpu/sanitize.txt OPS_GUARDS=0 TEST_PLUGINS=$gpu/plugins
# Why not cuBLASLt's own kernels: they are not ours to mend, and take minutes. Why not all kernels in
# racecheck: it breaks off with an error of its own ("failed to handle a hardware exception") in those
# that stream weights, and takes every later case along. That threads do not meet in these is asked
# in another way: tests/gpu/kernels, codes, fused and gated compare their results bit by bit, again and
# again.
library='nvjet|cutlass|cublas|splitK|gemm|gemv'
streaming='cuda.linear cuda.linear_silu_and_mul cuda.packed_linear cuda.scaled_linear cuda.fused_packed_linear cuda.fused_scaled_linear'
failed=0

begin() { # TOOL WITHOUT [OPTION...]: in the background
    tool=$1
    export OPS_WITHOUT="$2"
    shift 2
    "$sanitizer" --tool "$tool" --error-exitcode 9 --kernel-name-exclude "regex=$library" "$@" "$gpu/ops" \
        >"$gpu/$tool" 2>&1 &
}

finish() { # TOOL PROCESS [NOTE]
    wait "$2" || failed=1
    cases=$(grep -c '^\[       OK \]' "$gpu/$1")
    found=$(sed -n 's/^========= \(ERROR SUMMARY\|RACECHECK SUMMARY\): //p' "$gpu/$1" | tail -n 1)
    echo "$1: $cases cases${3:-}: ${found:-no summary}"
    awk '/^\[ RUN/ { at = $0 } /^\[  FAILED  \] [^0-9]/ || (/^========= [A-Z]/ && !/SUMMARY|COMPUTE-SANITIZER/) {
        if (!told[at]++) print at
        print
    }' "$gpu/$1" | head -n 40 | cut -c 1-180
}

begin memcheck '' --padding 256
memcheck=$!
begin racecheck "$streaming"
racecheck=$!
finish memcheck "$memcheck"
finish racecheck "$racecheck" ", without $streaming"
exit $failed
