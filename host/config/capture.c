// SPDX-License-Identifier: Apache-2.0
// Input: what the user says of recorded steps. Output: the numbers of sequences that are recorded,
// by vLLM's rules: few at first, then in steps of 8, then of 16, since what is filled up costs time
// and what is recorded memory.
#include <stdlib.h>

#include "config/config.h"

#define USUAL_MOST 512

static int compare(const void *a, const void *b) {
    const int64_t left = *(const int64_t *)a;
    const int64_t right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

// ---- the user's list ----------------------------------------------------------------------------

static berth_status parse(const char *item, int64_t *out_size) {
    const berth_str text = berth_str_trim(berth_str_from(item));
    if (berth_str_parse_i64(text, out_size) != BERTH_OK || *out_size < 1) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "compilation.cudagraph_capture_sizes: '%s' is no number of sequences",
                          item);
    }
    return BERTH_OK;
}

// Sorted, each once, none beyond a step's tokens.
static berth_status take_list(const berth_config *config, int64_t *sizes, size_t *out_count) {
    size_t count = 0;
    for (size_t i = 0; i < config->capture_sizes.count; ++i) {
        BERTH_TRY(parse(config->capture_sizes.items[i], &sizes[count]));
        count += sizes[count] <= config->max_num_batched_tokens;
    }
    if (count > 0) {
        qsort(sizes, count, sizeof *sizes, compare);
    }
    *out_count = 0;
    for (size_t i = 0; i < count; ++i) {
        if (*out_count == 0 || sizes[*out_count - 1] != sizes[i]) {
            sizes[(*out_count)++] = sizes[i];
        }
    }
    const int64_t largest = *out_count > 0 ? sizes[*out_count - 1] : 0;
    return config->max_capture_size < 0 || config->max_capture_size == largest
               ? BERTH_OK
               : BERTH_FAIL(INVALID_ARGUMENT,
                            "compilation.max_cudagraph_capture_size is %lld, the largest of "
                            "cudagraph_capture_sizes %lld: give one of the two, or equal ones",
                            (long long)config->max_capture_size, (long long)largest);
}

// ---- the usual list -----------------------------------------------------------------------------

// 1, 2, 4, 8, 16, 24 … 256, 272 …
static int64_t next_of(int64_t size) {
    return size < 8 ? size * 2 : size < 256 ? size + 8 : size + 16;
}

static int64_t usual_most(const berth_config *config) {
    const int64_t wanted = config->max_capture_size >= 0
                               ? config->max_capture_size
                               : smaller(config->max_num_seqs * 2, USUAL_MOST);
    return smaller(wanted, config->max_num_batched_tokens);
}

static size_t make_list(const berth_config *config, int64_t most, int64_t *sizes) {
    size_t count = 0;
    for (int64_t size = 1; size <= most; size = next_of(size)) {
        sizes[count++] = size;
    }
    const bool is_all = most > 0 && config->max_num_batched_tokens == most;
    if (is_all && sizes[count - 1] != most) {
        sizes[count++] = most;
    }
    return count;
}

bool berth_config_records_whole(const berth_config *config) {
    return !config->enforce_eager && (config->capture_mode == BERTH_CAPTURE_FULL_AND_PIECEWISE ||
                                      config->capture_mode == BERTH_CAPTURE_FULL_DECODE_ONLY);
}

bool berth_config_records_pieces(const berth_config *config) {
    return !config->enforce_eager && (config->capture_mode == BERTH_CAPTURE_FULL_AND_PIECEWISE ||
                                      config->capture_mode == BERTH_CAPTURE_PIECEWISE);
}

berth_status berth_config_capture_sizes(const berth_config *config, berth_arena *arena,
                                        berth_capture_sizes *out) {
    const bool is_given = config->capture_sizes.items != NULL;
    const int64_t most = usual_most(config);
    const size_t room = is_given ? config->capture_sizes.count : 64 + (size_t)most / 16;
    *out = (berth_capture_sizes){.count = 0};
    out->sizes = BERTH_ARENA_ARRAY(arena, int64_t, room + 1);
    if (out->sizes == NULL) {
        return berth_arena_exhausted(arena, "sizes of recorded steps");
    }
    if (is_given) {
        BERTH_TRY(take_list(config, out->sizes, &out->count));
    } else {
        out->count = make_list(config, most, out->sizes);
    }
    if (out->count == 0 &&
        (berth_config_records_whole(config) || berth_config_records_pieces(config))) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "compilation.%s leaves no step to record: use --enforce-eager to record "
                          "none",
                          is_given ? "cudagraph_capture_sizes" : "max_cudagraph_capture_size");
    }
    return BERTH_OK;
}
