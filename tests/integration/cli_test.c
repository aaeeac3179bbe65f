// SPDX-License-Identifier: Apache-2.0
// Every command of the program as an operator and a script see it: tables, JSON, order, streams.
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "support/program.h"
#include "support/sandbox.h"

#define NO_SYMBOL (TEST_BUILD "/tests/plugins/no-symbol/no-symbol.plugin.yaml")
#define DUMMY     (TEST_BUILD "/plugins/libberth-platform-dummy.so")
#define LLAMA     "tests/data/models/llama"
#define QWEN3     "tests/data/models/qwen3"
#define ALONE     PROGRAM_ENV("BERTH_PLUGIN_DIRS=/nonexistent")

#define JSON(p, root) CHECK_OK(berth_json_parse(berth_str_from((p)->out), "output", NULL, (root)))

static void check_text(const berth_json *node, const char *path, const char *wanted) {
    berth_str value;
    CHECK_OK(berth_json_get_str(node, path, &value));
    CHECK_STR(value.data, wanted);
}

// ---- help and configuration ---------------------------------------------------------------------

TEST(cli_help_lists_every_command_and_each_has_its_own) {
    static const char *const commands[][3] = {
        {"run",      NULL     },
        {"eval",     NULL     },
        {"tokenize", NULL     },
        {"plugins",  "list"   },
        {"plugins",  "inspect"},
        {"plugins",  "explain"},
        {"ops",      "list"   },
        {"ops",      "explain"},
        {"ops",      "check"  },
        {"graph",    NULL     },
        {"bench",    "host"   },
        {"bench",    "model"  },
        {"bench",    "op"     },
        {"config",   NULL     },
    };
    program all;
    program one;
    PROGRAM_MUST(&all, ALONE, BERTH, "help");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; ++i) {
        char name[64];
        const char *second = commands[i][1];
        (void)snprintf(name, sizeof name, "%s%s%s", commands[i][0], second ? " " : "",
                       second ? second : "");
        CHECK_CONTAINS(all.out, name);
        PROGRAM_MUST(&one, ALONE, BERTH, commands[i][0], second ? second : "--help", "--help");
        CHECK_CONTAINS(one.out, name);
        CHECK_CONTAINS(one.out, "--log LEVEL");
        CHECK_STR(one.err, "");
    }
}

TEST(cli_version_names_program_and_abi) {
    program p;
    PROGRAM_MUST(&p, ALONE, BERTH, "--version");
    CHECK_STR(p.out, "berth " BERTH_VERSION ", plugin ABI 1.1\n");
}

TEST(cli_config_reads_back_what_it_prints) {
    sandbox box;
    program first;
    program second;
    sandbox_make(&box);
    PROGRAM_MUST(&first, ALONE, BERTH, "config", "--threads", "3", "--custom-ops", "none,+rms_norm",
                 "--block-size", "32");
    const char *path = sandbox_write(&box, "berth.yaml", first.out);
    PROGRAM_MUST(&second, ALONE, BERTH, "config", "--config", path, "--json");
    berth_json *root = NULL;
    int64_t threads = 0;
    JSON(&second, &root);
    CHECK_OK(berth_json_get_i64(root, "threads.value", &threads));
    CHECK_INT(threads, 3);
    check_text(root, "threads.source", "config file");
    check_text(root, "custom_ops.value.1", "+rms_norm");
    check_text(root, "dtype.source", "config file");
    berth_json_destroy(root);
    sandbox_remove(&box);
}

// ---- run ----------------------------------------------------------------------------------------

#define RUN_LLAMA BERTH, "run", "--model", LLAMA, "--allow-fallback"

TEST(cli_run_gives_the_golden_text) {
    berth_json *golden = NULL;
    berth_str text;
    berth_str prompt;
    program p;
    CHECK_OK(berth_json_load(LLAMA "/golden.json", NULL, &golden));
    CHECK_OK(berth_json_get_str(golden, "prompts.2.prompt", &prompt));
    CHECK_OK(berth_json_get_str(golden, "prompts.2.greedy_text", &text));
    PROGRAM_MUST(&p, ALONE, RUN_LLAMA, "--prompt", prompt.data, "-n", "20");
    CHECK_STR(p.err, ""); // no progress where there is no terminal
    CHECK(strlen(p.out) > 20);
    CHECK(strncmp(p.out, text.data, strlen(p.out) - 1) == 0);
    CHECK_INT(p.out[strlen(p.out) - 1], '\n');
    berth_json_destroy(golden);
}

// Two prompts of different lengths end in different steps; their texts come in order.
TEST(cli_run_prints_texts_in_the_order_of_the_prompts) {
    sandbox box;
    program both;
    program json;
    berth_json *root = NULL;
    sandbox_make(&box);
    const char *path = sandbox_write(&box, "prompts", "First Citizen:\r\n\nROMEO:\n");
    PROGRAM_MUST(&both, ALONE, RUN_LLAMA, "--prompts", path, "-n", "8");
    PROGRAM_MUST(&json, ALONE, RUN_LLAMA, "--prompts", path, "-n", "8", "--json");
    JSON(&json, &root);
    CHECK_UINT(berth_json_size(root), 2);
    check_text(root, "0.prompt", "First Citizen:");
    check_text(root, "1.prompt", "ROMEO:");
    check_text(root, "0.finish", "length");
    const char *first = strstr(both.out, "--- 1: First Citizen:\n");
    const char *second = strstr(both.out, "--- 2: ROMEO:\n");
    CHECK(first == both.out);
    CHECK(second != NULL);
    berth_str text;
    CHECK_OK(berth_json_get_str(root, "0.text", &text));
    CHECK(strncmp(first + strlen("--- 1: First Citizen:\n"), text.data, text.size) == 0);
    CHECK_OK(berth_json_get_str(root, "1.text", &text));
    CHECK(strncmp(second + strlen("--- 2: ROMEO:\n"), text.data, text.size) == 0);
    const berth_json *ids = NULL;
    CHECK_OK(berth_json_get_array(root, "1.ids", &ids));
    CHECK_UINT(berth_json_size(ids), 8);
    berth_json_destroy(root);
    sandbox_remove(&box);
}

TEST(cli_run_with_a_seed_repeats_itself_and_with_another_does_not) {
    program a;
    program b;
    program c;
    PROGRAM_MUST(&a, ALONE, RUN_LLAMA, "--prompt", "ROMEO:", "-n", "24", "--temperature", "1",
                 "--seed", "1");
    PROGRAM_MUST(&b, ALONE, RUN_LLAMA, "--prompt", "ROMEO:", "-n", "24", "--temperature", "1",
                 "--seed", "1");
    PROGRAM_MUST(&c, ALONE, RUN_LLAMA, "--prompt", "ROMEO:", "-n", "24", "--temperature", "1",
                 "--seed", "2");
    CHECK_STR(a.out, b.out);
    CHECK(strcmp(a.out, c.out) != 0);
}

// llama with other stop ids; `ids` is what stands behind "eos_token_id".
static void check_stop(const char *ids, const char *finish, size_t count) {
    static const char *const files[] = {"config.json", "model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json"};
    sandbox box;
    program p;
    berth_json *root = NULL;
    const berth_json *list = NULL;
    char text[128];
    sandbox_make(&box);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i) {
        char *data = NULL;
        size_t size = 0;
        char path[256];
        (void)snprintf(path, sizeof path, LLAMA "/%s", files[i]);
        CHECK_OK(berth_file_read(path, 1 << 24, &data, &size));
        CHECK_OK(berth_file_write(sandbox_path(&box, files[i]),
                                  (berth_str){.data = data, .size = size}));
        berth_free(data);
    }
    (void)snprintf(text, sizeof text, "{\"eos_token_id\": %s}", ids);
    (void)sandbox_write(&box, "generation_config.json", text);
    PROGRAM_MUST(&p, ALONE, BERTH, "run", "--model", box.dir, "--allow-fallback", "--prompt",
                 "ROMEO:", "-n", "6", "--json");
    JSON(&p, &root);
    check_text(root, "0.finish", finish);
    CHECK_OK(berth_json_get_array(root, "0.ids", &list));
    CHECK_UINT(berth_json_size(list), count);
    berth_json_destroy(root);
    sandbox_remove(&box);
}

TEST(cli_run_stops_at_the_ids_of_generation_config) {
    program p;
    berth_json *root = NULL;
    int64_t third = 0;
    char list[64];
    PROGRAM_MUST(&p, ALONE, RUN_LLAMA, "--prompt", "ROMEO:", "-n", "6", "--json");
    JSON(&p, &root);
    CHECK_OK(berth_json_get_i64(root, "0.ids.2", &third));
    berth_json_destroy(root);
    (void)snprintf(list, sizeof list, "[511, %d]", (int)third);
    check_stop(list, "stop", 3);
    (void)snprintf(list, sizeof list, "%d", (int)third);
    check_stop(list, "stop", 3);
    check_stop("511", "length", 6);
}

// ---- tokenize -----------------------------------------------------------------------------------

TEST(cli_tokenize_is_undone_by_ids) {
    static const char text[] = "But, soft!\n  caf\xc3\xa9 \xe6\x97\xa5\xe6\x9c\xac\n\n";
    sandbox box;
    program p;
    char line[4096];
    sandbox_make(&box);
    const char *path = sandbox_write(&box, "text", text);
    (void)snprintf(line, sizeof line,
                   BERTH_FILE " tokenize --model " LLAMA " <%s | " BERTH_FILE
                              " tokenize --model " LLAMA " --ids",
                   path);
    PROGRAM_MUST(&p, ALONE, "sh", "-c", line);
    CHECK_STR(p.out, text);
    sandbox_remove(&box);
}

TEST(cli_tokenize_needs_nothing_but_the_tokenizer) {
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json"};
    sandbox box;
    program p;
    program with_model;
    sandbox_make(&box);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i) {
        char *data = NULL;
        size_t size = 0;
        char path[256];
        (void)snprintf(path, sizeof path, LLAMA "/%s", files[i]);
        CHECK_OK(berth_file_read(path, 1 << 24, &data, &size));
        (void)sandbox_write(&box, files[i], data);
        berth_free(data);
    }
    PROGRAM_MUST(&p, ALONE, BERTH, "tokenize", "--model", box.dir, "ROMEO:");
    PROGRAM_MUST(&with_model, ALONE, BERTH, "tokenize", "--model", LLAMA, "--json", "ROMEO:");
    berth_json *root = NULL;
    int64_t first = -1;
    char wanted[32];
    JSON(&with_model, &root);
    CHECK_OK(berth_json_get_i64(root, "ids.0", &first));
    (void)snprintf(wanted, sizeof wanted, "%d ", (int)first);
    CHECK(strncmp(p.out, wanted, strlen(wanted)) == 0);
    berth_json_destroy(root);
    sandbox_remove(&box);
}

// ---- plugins ------------------------------------------------------------------------------------

TEST(cli_plugins_list_without_plugins_shows_the_core) {
    program p;
    berth_json *root = NULL;
    PROGRAM_MUST(&p, ALONE, BERTH, "plugins", "list", "--json");
    JSON(&p, &root);
    CHECK_UINT(berth_json_size(root), 5);
    check_text(root, "0.id", "core-layers");
    check_text(root, "0.state", "active");
    check_text(root, "0.entry_points.0.group", "berth.general_plugins");
    berth_json_destroy(root);
}

TEST(cli_plugins_list_static_opens_nothing) {
    program p;
    program full;
    PROGRAM_MUST(&p, ALONE, BERTH, "plugins", "list", "--static", "--plugin", NO_SYMBOL,
                 "--platform", "no-symbol");
    CHECK_CONTAINS(p.out, "no-symbol  1.0.0    found");
    CHECK(strstr(p.out, "core-ops") == NULL);
    PROGRAM_MUST(&full, ALONE, BERTH, "plugins", "list", "--plugin", NO_SYMBOL, "--platform",
                 "no-symbol");
    CHECK_CONTAINS(full.out, "load failed");
}

TEST(cli_plugins_inspect_shows_what_a_plugin_registered) {
    program p;
    berth_json *root = NULL;
    PROGRAM_MUST(&p, NULL, BERTH, "plugins", "inspect", "dummy", "--platform", "dummy", "--json");
    JSON(&p, &root);
    check_text(root, "id", "dummy");
    check_text(root, "state", "selected");
    check_text(root, "activation", "named");
    check_text(root, "registered.0.kind", "platform");
    CHECK_CONTAINS(p.out, "dummy_rms_norm");
    berth_json_destroy(root);
}

TEST(cli_plugins_inspect_takes_a_library_without_a_manifest) {
    program p;
    PROGRAM_MUST(&p, ALONE, BERTH, "plugins", "inspect", DUMMY);
    CHECK_CONTAINS(p.out, "libberth-platform-dummy.so");
    CHECK_CONTAINS(p.out, "dummy");
}

TEST(cli_plugins_explain_names_winner_and_losers) {
    program p;
    berth_json *root = NULL;
    PROGRAM_MUST(&p, NULL, BERTH, "plugins", "explain", "--platform", "dummy", "--json");
    JSON(&p, &root);
    check_text(root, "platform", "dummy");
    const berth_json *candidates = NULL;
    CHECK_OK(berth_json_get_array(root, "candidates", &candidates));
    CHECK(berth_json_size(candidates) >= 1);
    berth_json_destroy(root);
}

// ---- ops and graph ------------------------------------------------------------------------------

#define EXPLAIN_ON_DUMMY                                                                           \
    BERTH, "ops", "explain", "RMSNorm", "--model", LLAMA, "--platform", "dummy",                   \
        "--allow-fallback", "--json"

TEST(cli_ops_explain_names_the_override_and_the_runner_up) {
    program p;
    berth_json *root = NULL;
    berth_str runner_up;
    PROGRAM_MUST(&p, NULL, EXPLAIN_ON_DUMMY);
    JSON(&p, &root);
    check_text(root, "sites.0.op", "rms_norm");
    check_text(root, "sites.0.implementation", "dummy_rms_norm");
    check_text(root, "sites.0.plugin", "dummy");
    check_text(root, "sites.0.how", "override");
    CHECK_OK(berth_json_get_str(root, "sites.0.runner_up", &runner_up));
    CHECK_CONTAINS(runner_up.data, "dummy_rms_norm of dummy: ");
    berth_json_destroy(root);
}

TEST(cli_ops_explain_shows_an_op_that_is_switched_off) {
    program p;
    berth_json *root = NULL;
    PROGRAM_MUST(&p, NULL, EXPLAIN_ON_DUMMY, "--custom-ops", "all,-rms_norm");
    JSON(&p, &root);
    check_text(root, "sites.0.implementation", "native");
    check_text(root, "sites.0.reason", "-rms_norm");
    CHECK_CONTAINS(p.out, "is never used");
    berth_json_destroy(root);
}

TEST(cli_ops_explain_notes_names_that_match_nothing) {
    program p;
    PROGRAM_MUST(&p, NULL, EXPLAIN_ON_DUMMY, "--custom-ops", "all,-rms_norn");
    CHECK_CONTAINS(p.out, "rms_norn");
}

TEST(cli_ops_list_has_every_native_op) {
    program p;
    berth_json *root = NULL;
    PROGRAM_MUST(&p, ALONE, BERTH, "ops", "list", "--json");
    JSON(&p, &root);
    CHECK(berth_json_size(root) >= 8);
    CHECK_CONTAINS(p.out, "\"RMSNorm\"");
    CHECK_CONTAINS(p.out, "\"absent\": \"vLLM has no portable reference of it\"");
    berth_json_destroy(root);
}

TEST(cli_graph_needs_no_platform) {
    program p;
    program dot;
    program json;
    berth_json *root = NULL;
    berth_str text;
    PROGRAM_MUST(&p, ALONE, BERTH, "graph", "--model", QWEN3);
    CHECK(strncmp(p.out, "graph \"Qwen3ForCausalLM\" {\n", 27) == 0);
    PROGRAM_MUST(&dot, ALONE, BERTH, "graph", "--model", QWEN3, "--dot");
    CHECK(strncmp(dot.out, "digraph", 7) == 0);
    PROGRAM_MUST(&json, ALONE, BERTH, "graph", "--model", QWEN3, "--json");
    JSON(&json, &root);
    check_text(root, "architecture", "Qwen3ForCausalLM");
    CHECK_OK(berth_json_get_str(root, "text", &text));
    CHECK_STR(text.data, p.out);
    berth_json_destroy(root);
}

// ---- bench --------------------------------------------------------------------------------------

TEST(cli_bench_host_prints_a_row_per_case) {
    static const char *const cases[] = {"discover_16", "register_64", "seal_1000",
                                        "select_14",   "bind_1000",   "bound_call"};
    program p;
    berth_json *root = NULL;
    PROGRAM_MUST(&p, ALONE, BERTH, "bench", "host", "--json");
    JSON(&p, &root);
    CHECK_UINT(berth_json_size(root), sizeof cases / sizeof cases[0]);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; ++i) {
        const berth_json *row = berth_json_at(root, i);
        double value = 0;
        check_text(row, "case", cases[i]);
        CHECK_OK(berth_json_get_f64(row, "value", &value));
        CHECK(value > 0);
        CHECK(berth_json_find(row, "ceiling") != NULL);
        CHECK(berth_json_find(row, "share") != NULL);
    }
    berth_json_destroy(root);
}
