// SPDX-License-Identifier: Apache-2.0
// The host's own pass and every pass of core-passes on the graphs of tests/passes/<pass>.txt:
// "before" a graph, "after" the graph that it must become, the other passes being off; or "same".
// The ops are the real ones, and a platform without a device has them all.
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "base/memory.h"
#include "passes/narrow.h"
#include "passes/passes.h"
#include "support/core_registry.h"
#include "support/test.h"

#define FOLDER     "tests/passes/"
#define MAX_BYTES  ((size_t)1 << 20)
#define MAX_CASES  128
#define MAX_PASSES 16
#define MAX_TOKENS 8

extern const berth_pass *const berth_core_passes[]; // ends with NULL
extern const berth_op *const berth_native_ops[];    // likewise

// ---- a platform with all ops --------------------------------------------------------------------

static berth_status forward(void *self, const berth_op_args *args) {
    return ((const berth_op_site *)self)->op->reference(self, args);
}

static const char *const on_host[] = {"host"};

// Every op, so that a pass that brings one changes nothing here. References run them.
static berth_status add_all(const berth_host *host, berth_registrar *registrar) {
    berth_status status = BERTH_OK;
    (void)host;
    for (const berth_op *const *op = berth_native_ops; *op != NULL && status == BERTH_OK; ++op) {
        const berth_op_impl impl = {
            .size = sizeof impl,
            .op = (*op)->name,
            .name = "test",
            .revision = (*op)->revision,
            .forward = forward,
            .device_types = on_host,
            .device_type_count = 1,
        };
        status = registrar->add_op_override(registrar, &impl, 0);
    }
    return status;
}

static const berth_entry_point entry = {
    .size = sizeof(berth_entry_point),
    .group = BERTH_GROUP_GENERAL,
    .name = "fused",
    .register_plugin = add_all,
};
static const berth_entry_point *const entries[] = {&entry};
static const berth_plugin fused_plugin = {
    .size = sizeof(berth_plugin),
    .abi_min = BERTH_ABI(1, 0),
    .abi_max = BERTH_ABI_CURRENT,
    .id = "fused",
    .version = "1.0.0",
    .vendor = "berth tests",
    .entry_points = entries,
    .entry_point_count = 1,
};

// ---- cases --------------------------------------------------------------------------------------

typedef struct pass_case {
    const char *pass;
    const char *before;
    const char *after; // NULL: the same
} pass_case;

// NULL behind the last.
static const char *pass_at(size_t index) {
    const berth_pass *pass = index > 0 ? berth_core_passes[index - 1] : NULL;
    return index == 0 ? BERTH_NARROW_ROWS : pass != NULL ? pass->name : NULL;
}

// Every other pass is off.
static void switch_off(core_registry *core, const char *pass) {
    const char **names = BERTH_ARENA_ARRAY(core->arena, const char *, MAX_PASSES);
    size_t count = 0;
    for (size_t i = 0; pass_at(i) != NULL; ++i) {
        assert(i < MAX_PASSES);
        if (strcmp(pass_at(i), pass) != 0) {
            names[count++] = pass_at(i);
        }
    }
    core->config.disabled_passes = (berth_option_list){.items = names, .count = count};
}

static void run_case(void **state) {
    const pass_case *it = *state;
    core_registry core;
    berth_runtime *runtime = NULL;
    berth_graph *graph = NULL;
    berth_graph *better = NULL;
    berth_text text;
    core_registry_init(&core, &fused_plugin);
    switch_off(&core, it->pass);
    CHECK_OK(berth_runtime_open(NULL, 0, berth_registry_host(core.registry), &runtime));
    berth_status status = berth_graph_parse(core.registry, berth_str_from(it->before), &graph);
    CHECK_STR(status == BERTH_OK ? "" : berth_status_message(), "");
    const berth_plan_request request = {
        .registry = core.registry,
        .config = &core.config,
        .graph = graph,
        .runtime = runtime,
        .max_tokens = MAX_TOKENS,
        .max_sequences = MAX_TOKENS,
        .max_seq_len = MAX_TOKENS,
    };
    status = berth_passes_run(&request, &better);
    CHECK_STR(status == BERTH_OK ? "" : berth_status_message(), "");
    CHECK(it->after != NULL || better == NULL);
    if (it->after != NULL) {
        CHECK(better != NULL);
        berth_text_init(&text, MAX_BYTES);
        berth_graph_print(better, &text);
        CHECK_STR(text.data, it->after);
        berth_text_deinit(&text);
    }
    berth_graph_destroy(better);
    berth_graph_destroy(graph);
    berth_runtime_close(runtime);
    core_registry_deinit(&core);
}

// From the line that begins with the word on; the text before it ends there.
static char *cut(char *text, const char *word) {
    char *at = strstr(text, word);
    if (at == NULL) {
        print_error("a case of " FOLDER " has no line '%s'\n", word);
        abort();
    }
    *at = '\0';
    return at + strlen(word);
}

// "case NAME\nbefore\n…after\n…" with lines of comments in front.
static void add_cases(test_cases *cases, const char *pass, char *text) {
    static pass_case all[MAX_CASES];
    static size_t count;
    for (char *next = strstr(text, "\ncase "); next != NULL;) {
        char *name = next + strlen("\ncase ");
        next = strstr(name, "\ncase ");
        if (next != NULL) {
            *next = '\0';
        }
        char *before = cut(name, "\nbefore\n");
        char *after = cut(before, "after\n");
        assert(count < MAX_CASES);
        all[count] = (pass_case){pass, before, strncmp(after, "same\n", 5) == 0 ? NULL : after};
        char label[160];
        (void)snprintf(label, sizeof label, "%s: %s", pass, name);
        test_add(cases, label, run_case, &all[count++]);
    }
}

TEST_CASES(passes_make_of_a_graph) {
    for (size_t i = 0; pass_at(i) != NULL; ++i) {
        char path[160];
        char *text = NULL;
        size_t size = 0;
        (void)snprintf(path, sizeof path, FOLDER "%s.txt", pass_at(i));
        CHECK_OK(berth_file_read(path, MAX_BYTES, &text, &size));
        add_cases(cases, pass_at(i), text); // which keeps the text
    }
}
