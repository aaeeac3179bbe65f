// SPDX-License-Identifier: Apache-2.0
// worker: in which type activations are, of what the user, the checkpoint and the platform say.
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/log.h"
#include "model/model.h"
#include "support/sandbox.h"
#include "support/tensor_file.h"
#include "support/test.h"
#include "worker/worker_private.h"

enum { AUTO, FLOAT32, BFLOAT16, FLOAT16 }; // as in berth_config_dtypes

static const berth_dtype some[] = {BERTH_DTYPE_F16, BERTH_DTYPE_F32};

static const berth_platform_entry silent = {.platform = {.name = "silent"}};
static const berth_platform_entry picky = {
    .platform = {.name = "picky"  },
    .capabilities = { .dtypes = some, .dtype_count = 2},
};

TEST(activations_are_what_the_user_names) {
    const berth_config config = {.dtype = FLOAT32};
    CHECK_UINT(berth_activation_choose(&config, NULL, BERTH_DTYPE_BF16), BERTH_DTYPE_F32);
    CHECK_UINT(berth_activation_choose(&config, &picky, BERTH_DTYPE_BF16), BERTH_DTYPE_F32);
}

TEST(activations_are_the_checkpoints_where_the_platform_has_them) {
    const berth_config config = {.dtype = AUTO};
    CHECK_UINT(berth_activation_choose(&config, NULL, BERTH_DTYPE_BF16), BERTH_DTYPE_BF16);
    CHECK_UINT(berth_activation_choose(&config, &silent, BERTH_DTYPE_BF16), BERTH_DTYPE_BF16);
    CHECK_UINT(berth_activation_choose(&config, &picky, BERTH_DTYPE_F32), BERTH_DTYPE_F32);
}

static void keep(void *context, berth_level level, berth_str line) {
    (void)level;
    (void)snprintf(context, 256, BERTH_STR_FMT, BERTH_STR_ARG(line));
}

TEST(activations_are_the_first_type_of_a_platform_that_lacks_the_checkpoints_and_it_says_so) {
    const berth_config config = {.dtype = AUTO};
    char line[256] = "";
    berth_log_set_sink(keep, line);
    berth_log_set_level(BERTH_LEVEL_INFO);
    CHECK_UINT(berth_activation_choose(&config, &picky, BERTH_DTYPE_BF16), BERTH_DTYPE_F16);
    berth_log_set_level(BERTH_LEVEL_WARN);
    berth_log_set_sink(NULL, NULL);
    CHECK_CONTAINS(line, "activations are float16: the checkpoint's bfloat16 is not a type of "
                         "platform 'picky'");
}

TEST(activations_that_the_platform_lacks_are_refused_unless_the_host_may_help) {
    berth_config config = {.dtype = BFLOAT16};
    CHECK_OK(berth_activation_check(&config, NULL));
    CHECK_OK(berth_activation_check(&config, &silent));
    CHECK_STATUS(berth_activation_check(&config, &picky), BERTH_UNSUPPORTED);
    CHECK_CONTAINS(berth_status_message(),
                   "--dtype bfloat16: platform 'picky' computes in float16, float32; use that, or "
                   "--allow-fallback");
    config.allow_fallback = true;
    CHECK_OK(berth_activation_check(&config, &picky));
    CHECK_UINT(berth_activation_choose(&config, &picky, BERTH_DTYPE_F32), BERTH_DTYPE_BF16);
    config = (berth_config){.dtype = FLOAT16};
    CHECK_OK(berth_activation_check(&config, &picky));
}

static size_t bytes_of(const char *dtype) {
    return strcmp(dtype, "F32") == 0 ? 4 : 2;
}

static void check_stored(const char *config, const char *small, const char *large,
                         berth_dtype wanted) {
    sandbox box;
    berth_checkpoint *checkpoint = NULL;
    sandbox_make(&box);
    const tensor_row rows[] = {
        {
         .name = "a",
         .dtype = small,
         .shape = "[2]",
         .bytes = 2 * bytes_of(small),
         },
        {
         .name = "b",
         .dtype = large,
         .shape = "[16]",
         .bytes = 16 * bytes_of(large),
         },
    };
    sandbox_write(&box, "config.json", config);
    tensor_file_write(sandbox_path(&box, "model.safetensors"), rows, BERTH_COUNT(rows));
    CHECK_OK(berth_checkpoint_open(box.dir, &checkpoint));
    CHECK_UINT(berth_checkpoint_dtype(checkpoint), wanted);
    berth_checkpoint_close(checkpoint);
    sandbox_remove(&box);
}

#define CONFIG(keys) "{\"architectures\": [\"A\"]" keys "}"

TEST(checkpoint_has_the_type_that_it_names_or_that_most_of_its_weights_have) {
    check_stored(CONFIG(", \"torch_dtype\": \"float16\""), "F32", "BF16", BERTH_DTYPE_F16);
    check_stored(CONFIG(", \"dtype\": \"float32\""), "F32", "BF16", BERTH_DTYPE_F32);
    check_stored(CONFIG(""), "F32", "BF16", BERTH_DTYPE_BF16);
    check_stored(CONFIG(", \"dtype\": \"complex64\""), "BF16", "F16", BERTH_DTYPE_F16);
    check_stored(CONFIG(", \"dtype\": null"), "BF16", "F32", BERTH_DTYPE_F32);
}
