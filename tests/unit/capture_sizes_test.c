// SPDX-License-Identifier: Apache-2.0
// The numbers of sequences whose decode steps are recorded: vLLM's known answers, and what is
// refused in the same cases.
#include <string.h>

#include "base/array.h"
#include "config/config.h"
#include "support/test.h"

typedef struct sizes_case {
    const char *list; // NULL: none was given
    int64_t max;      // -1: none was given
    int64_t sequences;
    int64_t tokens;
    bool is_eager;
    int64_t largest;     // what comes out,
    const char *refusal; // or this
} sizes_case;

static void open_config(const sizes_case *one, berth_arena **out_arena, berth_config *out) {
    CHECK_OK(berth_arena_create(1 << 16, 1 << 22, out_arena));
    CHECK_OK(berth_config_init(out, *out_arena));
    out->max_capture_size = one->max;
    out->max_num_seqs = one->sequences;
    out->max_num_batched_tokens = one->tokens;
    out->enforce_eager = one->is_eager;
    if (one->list != NULL) {
        berth_str rest = berth_str_from(one->list);
        out->capture_sizes.items = BERTH_ARENA_ARRAY(*out_arena, const char *, 8);
        for (berth_str item; rest.size > 0 && berth_str_split_first(&rest, ',', &item);) {
            out->capture_sizes.items[out->capture_sizes.count++] =
                berth_arena_copy(*out_arena, item);
        }
    }
}

TEST(capture_sizes_are_those_of_vllm) {
    static const sizes_case cases[] = {
        {NULL,       -1,   128, 8192, false, 256, NULL                                          },
        {NULL,       -1,   64,  512,  false, 128, NULL                                          },
        {NULL,       -1,   300, 8192, false, 512, NULL                                          },
        {NULL,       -1,   1,   8192, false, 2,   NULL                                          },
        {NULL,       -1,   128, 1,    false, 1,   NULL                                          },
        {"1,2,4",    4,    128, 8192, false, 4,   NULL                                          },
        {"1,2,4",    8,    128, 8192, false, 0,   "max_cudagraph_capture_size is 8, the largest"},
        {"1,256",    -1,   128, 8192, false, 256, NULL                                          },
        {NULL,       257,  128, 8192, false, 256, NULL                                          },
        {NULL,       2048, 128, 257,  false, 257, NULL                                          },
        {"1,2,4,15", -1,   128, 8192, false, 15,  NULL                                          },
        {"1,2,4,15", -1,   128, 8,    false, 4,   NULL                                          },
        {"",         -1,   128, 8192, true,  0,   NULL                                          },
        {NULL,       0,    128, 8192, true,  0,   NULL                                          },
        {"",         -1,   128, 8192, false, 0,   "cudagraph_capture_sizes leaves no step"      },
        {NULL,       0,    128, 8192, false, 0,   "max_cudagraph_capture_size leaves no step"   },
        {"16",       -1,   128, 8,    false, 0,   "cudagraph_capture_sizes leaves no step"      },
        {"1,x",      -1,   128, 8192, false, 0,   "'x' is no number of sequences"               },
        {"0,1",      -1,   128, 8192, false, 0,   "'0' is no number of sequences"               },
    };
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        berth_arena *arena = NULL;
        berth_config config;
        berth_capture_sizes sizes;
        open_config(&cases[i], &arena, &config);
        const berth_status status = berth_config_capture_sizes(&config, arena, &sizes);
        if (cases[i].refusal != NULL) {
            CHECK_STATUS(status, BERTH_INVALID_ARGUMENT);
            CHECK_CONTAINS(berth_status_message(), cases[i].refusal);
        } else {
            CHECK_OK(status);
            CHECK_INT(sizes.count > 0 ? sizes.sizes[sizes.count - 1] : 0, cases[i].largest);
        }
        berth_arena_destroy(arena);
    }
}

TEST(capture_sizes_may_be_none_where_nothing_is_recorded) {
    const sizes_case one = {"", -1, 128, 8192, false, 0, NULL};
    for (int32_t mode = 0; mode <= BERTH_CAPTURE_NONE; ++mode) {
        berth_arena *arena = NULL;
        berth_config config;
        berth_capture_sizes sizes;
        open_config(&one, &arena, &config);
        config.capture_mode = mode;
        CHECK_STATUS(berth_config_capture_sizes(&config, arena, &sizes),
                     mode == BERTH_CAPTURE_NONE ? BERTH_OK : BERTH_INVALID_ARGUMENT);
        berth_arena_destroy(arena);
    }
}

TEST(capture_sizes_grow_in_steps_of_8_and_16) {
    static const int64_t begin[] = {1, 2, 4, 8, 16, 24};
    static const int64_t end[] = {240, 248, 256, 272, 288};
    const sizes_case one = {NULL, -1, 512, 8192, false, 0, NULL};
    berth_arena *arena = NULL;
    berth_config config;
    berth_capture_sizes sizes;
    open_config(&one, &arena, &config);
    CHECK_OK(berth_config_capture_sizes(&config, arena, &sizes));
    CHECK_UINT(sizes.count, 3 + 31 + 17);
    for (size_t i = 0; i < BERTH_COUNT(begin); ++i) {
        CHECK_INT(sizes.sizes[i], begin[i]);
    }
    for (size_t i = 0; i < BERTH_COUNT(end); ++i) {
        CHECK_INT(sizes.sizes[3 + 29 + i], end[i]);
    }
    CHECK_INT(sizes.sizes[sizes.count - 1], 512);
    berth_arena_destroy(arena);
}

TEST(capture_sizes_are_sorted_and_each_is_there_once) {
    const sizes_case one = {"8, 2,8,4 ,2", -1, 64, 512, false, 0, NULL};
    berth_arena *arena = NULL;
    berth_config config;
    berth_capture_sizes sizes;
    open_config(&one, &arena, &config);
    CHECK_OK(berth_config_capture_sizes(&config, arena, &sizes));
    CHECK_UINT(sizes.count, 3);
    CHECK_INT(sizes.sizes[0], 2);
    CHECK_INT(sizes.sizes[1], 4);
    CHECK_INT(sizes.sizes[2], 8);
    berth_arena_destroy(arena);
}

TEST(capture_sizes_are_judged_when_the_configuration_is_loaded) {
    char *argv[] = {"--cudagraph-capture-sizes", "1,2", "--max-cudagraph-capture-size", "3"};
    berth_arena *arena = NULL;
    berth_config config;
    CHECK_OK(berth_arena_create(1 << 16, 1 << 22, &arena));
    CHECK_OK(berth_config_init(&config, arena));
    CHECK_STATUS(berth_config_load(&config, BERTH_COMMAND_RUN, 4, argv), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "give one of the two, or equal ones");
    berth_arena_destroy(arena);
}
