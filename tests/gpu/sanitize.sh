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
# Why not cuBLASLt's own kernels: they are not ours to mend, and take minutes. Why not streamed_codes and
# streamed_rows in racecheck: it breaks off in them with an error of its own ("failed to handle a
# hardware exception"), and takes every later case along. What they do is repeated in tests/gpu/kernels
# and codes, bit by bit.
memcheck='--padding 256 --kernel-name-exclude regex=nvjet|cutlass|cublas|splitK|gemm|gemv'
racecheck='--kernel-name-exclude regex=nvjet|cutlass|cublas|splitK|gemm|gemv|streamed_'
failed=0
for tool in memcheck racecheck; do
    eval "options=\$$tool"
    "$sanitizer" --tool "$tool" --error-exitcode 9 $options "$gpu/ops" >"$gpu/$tool" 2>&1 & # words, not quoted
    eval "$tool=\$!"
done
for tool in memcheck racecheck; do
    eval "wait \$$tool" || failed=1
    cases=$(grep -c '^\[       OK \]' "$gpu/$tool")
    found=$(sed -n 's/^========= \(ERROR SUMMARY\|RACECHECK SUMMARY\): //p' "$gpu/$tool" | tail -n 1)
    echo "$tool: $cases cases: ${found:-no summary}"
    awk '/^\[ RUN/ { at = $0 } /^\[  FAILED  \] [^0-9]/ || (/^========= [A-Z]/ && !/SUMMARY|COMPUTE-SANITIZER/) {
        if (!told[at]++) print at
        print
    }' "$gpu/$tool" | head -n 40 | cut -c 1-180
done
exit $failed
