#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh [PLATFORM]: every checkpoint of the tests in every type of activations on a GPU (PLATFORM
# is cuda unless named), against their references and without a fallback; golden vectors of ops and
# layers where they are there; every kernel on every case of tests/ops that it takes; logits at a real
# width against platform-cpu's. Ends with a short table; status 1 if a line of it says no. MODELS:
# more folders of checkpoints, quantized ones among them.
#
# check.sh pack: gathers what that needs in build/gpu: the program, its plugins but those of the CPU,
# the programs that check and measure (tools/bench-gpu), the libraries that a bare machine lacks, and
# what platform-cpu computes at the real width, which takes a minute when it was rebuilt. Then
# build/gpu, tests/ and tools/ are all that has to travel to a machine with a driver; nothing is
# installed there. Run both in the root of the repository.
set -u
build=${B:-build/release}
gpu=build/gpu
golden=${GOLDEN:-../shared/golden/ops}

pack() {
    programs="$build/tests/gpu/kernels $build/tests/gpu/codes $build/tests/gpu/fused"
    programs="$programs $build/tests/gpu/gated $build/tests/gpu/model $build/tests/gpu/ops"
    programs="$programs $build/tests/integration/widths_test" # words, not to be quoted
    make -s B="$build" all $programs || exit 1
    rm -rf "$gpu" && mkdir -p "$gpu/lib" || exit 1
    cp -L "$build/berth" "$gpu/" && cp -R "$build/plugins" "$gpu/" || exit 1
    cp $programs "$gpu/" && (cd "$gpu" && strip berth kernels codes fused gated model ops widths_test) || exit 1
    B=$build tools/compare-widths keep "$build/widths" && cp -R "$build/widths" "$gpu/" || exit 1
    ${CC:-cc} -std=c11 -O3 -Wall -Wextra -o "$gpu/quantize-random" tools/quantize-random.c -lm || exit 1
    # Why: with it there the choice of a platform would not be the GPU's alone.
    rm -f "$gpu"/plugins/libberth-platform-cpu.so "$gpu/plugins/cpu.plugin.yaml"
    rm -rf "$gpu/checkpoint" && tools/make-checkpoint "$gpu/checkpoint" --shape tinyllama --layers 1 --vocab 300 >/dev/null &&
        cp build/tools/make-checkpoint "$gpu/" && rm -rf "$gpu/checkpoint" || exit 1
    [ -d "$golden" ] && cp -RL "$golden" "$gpu/golden"
    # What the C library brings itself must fit the loader of the machine, so it stays here.
    ldd "$build/berth" $programs | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
        grep -v -E '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*)\.so' |
        xargs -I '{}' cp -L '{}' "$gpu/lib/" || exit 1
    du -sh "$gpu"
}

if [ "${1:-}" = pack ]; then
    pack
    exit 0
fi
platform=${1:-cuda}
[ -x "$gpu/berth" ] || pack
# cuBLASLt is found by the loader; where the toolkit is not in its paths, here.
blas=$(find /usr/local /opt -name 'libcublasLt.so.*' 2>/dev/null | head -n 1)
export LD_LIBRARY_PATH="$gpu/lib${blas:+:${blas%/*}}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
table="$gpu/table"
bad=0
uname -srm
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
"$gpu/berth" plugins explain --platform "$platform"
printf '%s\n' 'checkpoint|activations|gate|largest logit error|tokens equal|sites on the device' >"$table"
for config in tests/data/models/*/config.json ${MODELS:+"$MODELS"/*/config.json}; do
    folder=${config%/*}
    model=${folder##*/}
    [ -f "$folder/golden.json" ] || continue
    for dtype in float32 bfloat16 float16; do
        options="--model $folder --platform $platform --dtype $dtype" # words, not to be quoted
        if "$gpu/berth" eval $options --golden "$folder/golden.json" >"$gpu/eval" 2>&1; then
            gate=passed
        else
            gate=FAILED bad=1
            echo "== $model, $dtype" && cat "$gpu/eval"
        fi
        "$gpu/berth" ops explain $options >"$gpu/explain" 2>&1 || bad=1
        awk -v model="$model" -v dtype="$dtype" -v gate="$gate" -F '  +' '
        FILENAME ~ /eval$/ && $1 == "all" { error = $3; tokens = $6 }
        FILENAME ~ /explain$/ && $4 ~ /^(override|implementation)$/ { ++sites }
        END { print model "|" dtype "|" gate "|" error "|" tokens "|" sites + 0 }' "$gpu/eval" "$gpu/explain" >>"$table"
    done
done
if [ -d "$gpu/golden" ]; then
    "$gpu/berth" ops check --golden "$gpu/golden" --platform "$platform" --allow-fallback >"$gpu/vectors" 2>&1 || bad=1
    cut -c 1-120 "$gpu/vectors"
fi
echo 'every kernel on the cases of tests/ops that it takes:'
TEST_PLUGINS="$gpu/plugins" OPS_PLATFORM="$platform" "$gpu/ops" >"$gpu/cases" 2>&1 || bad=1
grep -a -e '^element' -e '^\[  FAILED' -e '^\[  [A-Z]*  *\] [0-9]' "$gpu/cases" | cut -c 1-160
tools/compare-widths against "$gpu/widths" "$platform" || bad=1
echo
column -t -s '|' "$table" 2>/dev/null || awk -F '|' '{
    printf "%-24s%-13s%-8s%-21s%-14s%s\n", $1, $2, $3, $4, $5, $6
}' "$table"
exit $bad
