// SPDX-License-Identifier: Apache-2.0
// Any bytes as a config.json: refused with a text, or a document without the keys of
// transformers 4.
#include <stdlib.h>

#include "model/config_json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const berth_json *config) {
    static const char *const old[] = {"torch_dtype", "rope_theta", "rope_scaling"};
    for (size_t i = 0; i < sizeof old / sizeof old[0]; ++i) {
        if (berth_json_member(config, berth_str_from(old[i])) != NULL) {
            abort();
        }
    }
    const berth_json *rope = berth_json_member(config, BERTH_STR("rope_parameters"));
    if (rope != NULL && berth_json_kind_of(rope) != BERTH_JSON_OBJECT) {
        abort();
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    berth_json *config = NULL;
    const berth_str text = {.data = (const char *)data, .size = size};
    if (berth_config_json_parse(text, "config.json", &config) == BERTH_OK) {
        check(config);
        berth_json_destroy(config);
    } else if (berth_status_message()[0] == '\0') {
        abort();
    }
    return 0;
}
