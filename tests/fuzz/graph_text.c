// SPDX-License-Identifier: Apache-2.0
// Any bytes as a graph's text over the core ops: refused with a place, or a graph whose own text
// reads back to the same text.
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

#define TEXT_BYTES ((size_t)1 << 24)

// The generated catalog of the plugins in this binary.
extern const berth_plugin *const berth_core_plugins[];
extern const size_t berth_core_plugins_count;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static berth_registry *core_registry(void) {
    static berth_config config;
    static berth_arena *arena;
    berth_registry *registry = NULL;
    if (berth_arena_create(1u << 16, 1u << 24, &arena) != BERTH_OK ||
        berth_config_init(&config, arena) != BERTH_OK ||
        berth_registry_create(&config, NULL, &registry) != BERTH_OK ||
        berth_registry_add_core(registry, berth_core_plugins, berth_core_plugins_count) !=
            BERTH_OK ||
        berth_registry_freeze(registry) != BERTH_OK) {
        abort();
    }
    return registry;
}

static void print(const berth_graph *graph, berth_text *text) {
    berth_text_init(text, TEXT_BYTES);
    berth_graph_print(graph, text);
    if (berth_text_finish(text, NULL) != BERTH_OK) {
        abort();
    }
}

static void check_exact(const berth_registry *registry, const berth_graph *graph) {
    berth_text first;
    berth_text second;
    berth_graph *again = NULL;
    print(graph, &first);
    if (berth_graph_parse(registry, berth_text_str(&first), &again) != BERTH_OK) {
        abort();
    }
    print(again, &second);
    if (!berth_str_equal(berth_text_str(&first), berth_text_str(&second))) {
        abort();
    }
    berth_graph_destroy(again);
    berth_text_deinit(&first);
    berth_text_deinit(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static berth_registry *registry; // one for all inputs: it is frozen
    if (registry == NULL) {
        registry = core_registry();
    }
    berth_graph *graph = NULL;
    const berth_str text = {.data = (const char *)data, .size = size};
    if (berth_graph_parse(registry, text, &graph) == BERTH_OK) {
        check_exact(registry, graph);
        berth_graph_destroy(graph);
    } else if (strstr(berth_status_message(), "graph text:") == NULL &&
               berth_status_code() != BERTH_OUT_OF_MEMORY) {
        abort();
    }
    return 0;
}
