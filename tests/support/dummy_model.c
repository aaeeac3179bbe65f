// SPDX-License-Identifier: Apache-2.0
// Input: a sandbox. Output: a directory in it with a config.json and links to llama's other files.
#include "support/dummy_model.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "support/test.h"

static const char config[] = "{\"architectures\": [\"DummyForCausalLM\"], \"vocabulary\": 512,"
                             " \"width\": 64, \"mlp_width\": 688, \"depth\": 3, \"heads\": 8,"
                             " \"kv_heads\": 4, \"context\": 512, \"eos_token_id\": 0}\n";

static const char *const linked[] = {
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "generation_config.json",
};

const char *dummy_model_write(const sandbox *box) {
    (void)sandbox_write(box, "dummy-model/config.json", config);
    for (size_t i = 0; i < sizeof(linked) / sizeof(linked[0]); ++i) {
        char from[PATH_MAX];
        char name[256];
        char to[PATH_MAX];
        (void)snprintf(from, sizeof(from), LLAMA "/%s", linked[i]);
        (void)snprintf(name, sizeof(name), "dummy-model/%s", linked[i]);
        CHECK(realpath(from, to) != NULL);
        CHECK_INT(symlink(to, sandbox_path(box, name)), 0);
    }
    return sandbox_path(box, "dummy-model");
}
