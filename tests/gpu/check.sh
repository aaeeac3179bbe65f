#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh [PLATFORM]: the three checkpoints on a GPU (PLATFORM is cuda unless named), against their
# references, and which ops ran there. Ends with a short table; status 1 if a line of it says no.
#
# check.sh pack: gathers what that needs in build/gpu: the program, its plugins but those of the CPU,
# and the libraries that a bare machine lacks. Then build/gpu and tests/ are all that has to travel
# to a machine with a driver; nothing is installed there. Run both in the root of the repository.
set -u
build=${B:-build/release}
gpu=build/gpu

pack() {
    rm -rf "$gpu" && mkdir -p "$gpu/lib" || exit 1
    cp -L "$build/berth" "$gpu/" && cp -R "$build/plugins" "$gpu/" || exit 1
    rm -f "$gpu"/plugins/libberth-platform-cpu.so "$gpu/plugins/cpu.plugin.yaml"
    # What the C library brings itself must fit the loader of the machine, so it stays here.
    ldd "$build/berth" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' |
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
export LD_LIBRARY_PATH="$gpu/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
table="$gpu/table"
bad=0
uname -srm
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null
"$gpu/berth" plugins explain --platform "$platform"
printf '%s\n' 'checkpoint|gate|largest logit error|tokens equal|sites on the device|bounced' >"$table"
for model in llama qwen3 shakespeare; do
    folder=tests/data/models/$model
    options="--model $folder --platform $platform --allow-fallback" # words, not to be quoted
    echo "== $model"
    if "$gpu/berth" eval $options --golden "$folder/golden.json" >"$gpu/eval" 2>&1; then
        gate=passed
    else
        gate=FAILED bad=1
    fi
    cat "$gpu/eval"
    "$gpu/berth" ops explain $options >"$gpu/explain" 2>&1 || { cat "$gpu/explain"; bad=1; }
    awk -v model="$model" -v gate="$gate" -F '  +' '
    FILENAME ~ /eval$/ && $1 == "all" { error = $3; tokens = $6 }
    FILENAME ~ /explain$/ && $4 == "bounced" && !seen[$1]++ { bounced = bounced " " $1 }
    FILENAME ~ /explain$/ && $4 ~ /^(override|implementation)$/ { ++sites }
    END { print model "|" gate "|" error "|" tokens "|" sites + 0 "|" substr(bounced, 2) }' "$gpu/eval" "$gpu/explain" >>"$table"
done
echo
column -t -s '|' "$table" 2>/dev/null || awk -F '|' '{
    printf "%-13s%-8s%-21s%-14s%-21s%s\n", $1, $2, $3, $4, $5, $6
}' "$table"
exit $bad
