// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: any bytes as a manifest. There must be an answer, and a text when it is no.
#include <stdlib.h>

#include "discovery/search.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const berth_str text = {.data = (const char *)data, .size = size};
    berth_arena *arena = NULL;
    berth_candidate candidate;
    berth_demands demands;
    berth_machine machine = {.arch = "x86_64", .flags = " avx2 fma "};
    if (berth_arena_create(4096, 1 << 22, &arena) != BERTH_OK) {
        return 0;
    }
    berth_status_clear();
    const berth_status status =
        berth_manifest_read("fuzz.plugin.yaml", &text, arena, &candidate, &demands);
    const char *reason = NULL;
    if ((status == BERTH_OK) != (berth_status_message()[0] == '\0') || candidate.id == NULL ||
        berth_demands_judge(&demands, &machine, arena, &reason) != BERTH_OK) {
        abort();
    }
    berth_arena_destroy(arena);
    return 0;
}
