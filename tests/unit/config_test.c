// SPDX-License-Identifier: Apache-2.0
// config: every source of a value, what a platform's hooks may change, and the files in configs/.
#include "config/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/thread.h"
#include "support/sandbox.h"
#include "support/test.h"

// A configuration with its arena and the log lines of its changes.
typedef struct fixture {
    berth_arena *arena;
    berth_config config;
    char log[2048];
} fixture;

static void keep_line(void *context, berth_level level, berth_str line) {
    fixture *in = context;
    (void)level;
    const size_t used = strlen(in->log);
    (void)snprintf(in->log + used, sizeof(in->log) - used, BERTH_STR_FMT "\n", BERTH_STR_ARG(line));
}

static void open_fixture(fixture *in) {
    static const char *const variables[] = {
        "BERTH_MODEL",       "BERTH_PLATFORM",    "BERTH_CONFIG",     "BERTH_PLUGINS",
        "BERTH_PLUGIN_PATH", "BERTH_PLUGIN_DIRS", "BERTH_CUSTOM_OPS", "BERTH_ALLOW_FALLBACK",
        "BERTH_THREADS",     "BERTH_LOG",
    };
    for (size_t i = 0; i < BERTH_COUNT(variables); ++i) {
        unsetenv(variables[i]);
    }
    memset(in, 0, sizeof(*in));
    CHECK_OK(berth_arena_create(4096, 1 << 20, &in->arena));
    CHECK_OK(berth_config_init(&in->config, in->arena));
    berth_log_set_sink(keep_line, in);
    berth_log_set_level(BERTH_LEVEL_INFO);
}

static void close_fixture(fixture *in) {
    berth_log_set_sink(NULL, NULL);
    berth_log_set_level(BERTH_LEVEL_WARN);
    berth_arena_destroy(in->arena);
}

static berth_status load(fixture *in, uint64_t command, const char *const *arguments) {
    int count = 0;
    while (arguments[count] != NULL) {
        ++count;
    }
    return berth_config_load(&in->config, command, count, (char *const *)(uintptr_t)arguments);
}

#define LOAD(in, command, ...) load(in, command, (const char *const[]){__VA_ARGS__, NULL})
#define LOAD_NONE(in)          load(in, BERTH_COMMAND_RUN, (const char *const[]){NULL})

static berth_option_source source_of(const fixture *in, const char *name) {
    berth_option_source source = {0};
    CHECK_OK(berth_options_source(&in->config.options, name, &source));
    return source;
}

TEST(config_defaults_are_those_of_the_table) {
    fixture in;
    open_fixture(&in);
    CHECK_OK(LOAD_NONE(&in));
    const berth_config *config = &in.config;
    CHECK_NULL(config->platform);
    CHECK_NULL(config->plugins);
    CHECK_NULL(config->custom_ops.items);
    CHECK_STR(berth_config_dtypes[config->dtype], "auto");
    CHECK_STR(config->compilation_backend, "eager");
    CHECK_INT(config->compilation_mode, 0);
    CHECK_INT(config->block_size, 16);
    CHECK_INT(config->max_num_seqs, 64);
    CHECK_INT(config->max_num_batched_tokens, 512);
    CHECK_INT(config->max_tokens, 128);
    CHECK_NEAR(config->memory_utilization, 0.9, 0);
    CHECK_NEAR(config->temperature, 0, 0);
    CHECK_INT(config->log_level, BERTH_LEVEL_WARN);
    CHECK(!config->allow_fallback);
    close_fixture(&in);
}

TEST(config_takes_the_command_line_before_the_environment_before_the_file) {
    sandbox box;
    sandbox_make(&box);
    const char *file = sandbox_write(
        &box, "berth.yaml", "platform: from-file\nthreads: 2\nblock_size: 32\nlog: debug\n");
    fixture in;
    open_fixture(&in);
    setenv("BERTH_PLATFORM", "from-environment", 1);
    setenv("BERTH_THREADS", "3", 1);
    CHECK_OK(LOAD(&in, BERTH_COMMAND_RUN, "--config", file, "--platform", "from-line"));
    CHECK_STR(in.config.platform, "from-line");
    CHECK_INT(in.config.threads, 3);
    CHECK_INT(in.config.block_size, 32);
    CHECK_INT(source_of(&in, "platform").origin, BERTH_ORIGIN_COMMAND_LINE);
    CHECK_INT(source_of(&in, "threads").origin, BERTH_ORIGIN_ENVIRONMENT);
    CHECK_CONTAINS(source_of(&in, "block-size").detail, "berth.yaml:3");
    CHECK_INT(source_of(&in, "max-num-seqs").origin, BERTH_ORIGIN_DEFAULT);
    close_fixture(&in);
    sandbox_remove(&box);
}

TEST(config_file_may_come_from_the_environment) {
    sandbox box;
    sandbox_make(&box);
    fixture in;
    open_fixture(&in);
    setenv("BERTH_CONFIG", sandbox_write(&box, "c.yaml", "max_num_seqs: 5\n"), 1);
    CHECK_OK(LOAD_NONE(&in));
    CHECK_INT(in.config.max_num_seqs, 5);
    close_fixture(&in);
    sandbox_remove(&box);
}

// vLLM's filter: unset loads everything, empty loads nothing.
TEST(config_tells_an_empty_filter_of_plugins_from_an_unset_one) {
    fixture in;
    open_fixture(&in);
    CHECK_OK(LOAD_NONE(&in));
    CHECK_NULL(in.config.plugins);
    close_fixture(&in);
    open_fixture(&in);
    setenv("BERTH_PLUGINS", "", 1);
    CHECK_OK(LOAD_NONE(&in));
    CHECK_STR(in.config.plugins, "");
    unsetenv("BERTH_PLUGINS");
    close_fixture(&in);
}

TEST(config_splits_custom_ops_on_the_line_and_keeps_a_yaml_item_whole) {
    sandbox box;
    sandbox_make(&box);
    fixture in;
    open_fixture(&in);
    CHECK_OK(LOAD(&in, BERTH_COMMAND_OPS, "--custom-ops", "all, -rms_norm"));
    CHECK_UINT(in.config.custom_ops.count, 2);
    CHECK_STR(in.config.custom_ops.items[1], "-rms_norm");
    close_fixture(&in);
    open_fixture(&in);
    const char *file = sandbox_write(&box, "c.yaml", "custom_ops: ['all,-rms_norm']\n");
    CHECK_OK(LOAD(&in, BERTH_COMMAND_OPS, "--config", file));
    CHECK_UINT(in.config.custom_ops.count, 1);
    CHECK_STR(in.config.custom_ops.items[0], "all,-rms_norm");
    close_fixture(&in);
    sandbox_remove(&box);
}

TEST(config_resolves_plugin_places_of_a_file_beside_the_file) {
    sandbox box;
    sandbox_make(&box);
    const char *file =
        sandbox_write(&box, "etc/c.yaml", "plugin_dirs: [here, /there]\nplugin_files: [a.so]\n");
    fixture in;
    open_fixture(&in);
    CHECK_OK(LOAD(&in, BERTH_COMMAND_PLUGINS, "--config", file));
    CHECK_STR(in.config.plugin_dirs.items[0], sandbox_path(&box, "etc/here"));
    CHECK_STR(in.config.plugin_dirs.items[1], "/there");
    CHECK_STR(in.config.plugin_files.items[0], sandbox_path(&box, "etc/a.so"));
    close_fixture(&in);
    open_fixture(&in);
    CHECK_OK(LOAD(&in, BERTH_COMMAND_PLUGINS, "--config", file, "--plugin-dir", "mine"));
    CHECK_UINT(in.config.plugin_dirs.count, 1);
    CHECK_STR(in.config.plugin_dirs.items[0], "mine");
    close_fixture(&in);
    sandbox_remove(&box);
}

typedef struct refusal {
    const char *name;
    const char *file; // content of a config file, NULL: none
    const char *arguments[4];
    uint64_t command;
    const char *says;
} refusal;

static const refusal refusals[] = {
    {"unknown option",
     NULL,                                                     {"--custom-op", "all"},
     BERTH_COMMAND_RUN,                                                                                                  "did you mean --custom-ops?"                                        },
    {"option of another command", NULL,                        {"--golden", "x"},                 BERTH_COMMAND_RUN,     "--golden"                                                          },
    {"missing value",             NULL,                        {"--model"},                       BERTH_COMMAND_RUN,     "--model"                                                           },
    {"absurd threads",            NULL,                        {"--threads", "99999999"},         BERTH_COMMAND_RUN,     "0 to 4096"                                                         },
    {"no tokens",                 NULL,                        {"-n", "0"},                       BERTH_COMMAND_RUN,     "from 1 to"                                                         },
    {"negative temperature",      NULL,                        {"--temperature=-1"},              BERTH_COMMAND_RUN,     "from 0 to 100"                                                     },
    {"not a number",              NULL,                        {"--seed", "abc"},                 BERTH_COMMAND_RUN,     "--seed"                                                            },
    {"unknown dtype",             NULL,                        {"--dtype", "float8"},             BERTH_COMMAND_RUN,     "float32"                                                           },
    {"unknown level",             NULL,                        {"--log", "loud"},                 BERTH_COMMAND_PLUGINS, "one of error"                                                      },
    {"unknown backend",
     NULL,                                                     {"--compilation-backend", "llvm"},
     BERTH_COMMAND_RUN,                                                                                                  "no backend 'llvm'"                                                 },
    {"filter on the line",        NULL,                        {"--plugins", "a"},                BERTH_COMMAND_RUN,     "--plugins"                                                         },
    {"key with a typo",
     "max_num_seq: 3\n",                                       {NULL},
     BERTH_COMMAND_RUN,                                                                                                  "c.yaml:1:1: max_num_seq: unknown key; did you mean 'max_num_seqs'?"},
    {"nested key with a typo",    "compilation:\n  mod: 3\n",  {NULL},                            BERTH_COMMAND_RUN,     "c.yaml:2:3"                                                        },
    {"wrong type",                "block_size: [1]\n",         {NULL},                            BERTH_COMMAND_RUN,     "c.yaml:1:"                                                         },
    {"out of range",              "memory_utilization: 1.5\n", {NULL},                            BERTH_COMMAND_RUN,     "from 0.01 to 1"                                                    },
    {"not YAML",                  "a: [\n",                    {NULL},                            BERTH_COMMAND_RUN,     "c.yaml:2:1"                                                        },
    {"twice",                     "threads: 1\nthreads: 2\n",  {NULL},                            BERTH_COMMAND_RUN,     "c.yaml:2:1"                                                        },
};

static void check_refusal(void **state) {
    const refusal *row = *state;
    sandbox box;
    sandbox_make(&box);
    fixture in;
    open_fixture(&in);
    if (row->file != NULL) {
        setenv("BERTH_CONFIG", sandbox_write(&box, "c.yaml", row->file), 1);
    }
    CHECK(load(&in, row->command, row->arguments) != BERTH_OK);
    CHECK_CONTAINS(berth_status_message(), row->says);
    unsetenv("BERTH_CONFIG");
    close_fixture(&in);
    sandbox_remove(&box);
}

TEST_CASES(config_refuses) {
    for (size_t i = 0; i < BERTH_COUNT(refusals); ++i) {
        test_add(cases, refusals[i].name, check_refusal, (void *)(uintptr_t)&refusals[i]);
    }
}

TEST(config_file_that_is_missing_is_not_found) {
    fixture in;
    open_fixture(&in);
    CHECK_STATUS(LOAD(&in, BERTH_COMMAND_RUN, "--config", "/nonexistent/c.yaml"), BERTH_NOT_FOUND);
    CHECK_CONTAINS(berth_status_message(), "/nonexistent/c.yaml");
    close_fixture(&in);
}

// ---- what plugins see ---------------------------------------------------------------------------

TEST(config_gives_typed_values_by_key_path) {
    fixture in;
    open_fixture(&in);
    CHECK_OK(LOAD(&in, BERTH_COMMAND_RUN, "--custom-ops", "all,-silu", "--allow-fallback"));
    int64_t number = 7;
    double share = 7;
    const char *text = "unchanged";
    CHECK_OK(berth_config_get_i64(&in.config, "threads", &number));
    CHECK_INT(number, berth_thread_cpus());
    in.config.threads = 3;
    CHECK_OK(berth_config_get_i64(&in.config, "threads", &number));
    CHECK_INT(number, 3);
    CHECK_OK(berth_config_get_i64(&in.config, "block_size", &number));
    CHECK_INT(number, 16);
    CHECK_OK(berth_config_get_i64(&in.config, "allow_fallback", &number));
    CHECK_INT(number, 1);
    CHECK_OK(berth_config_get_f64(&in.config, "memory_utilization", &share));
    CHECK_NEAR(share, 0.9, 0);
    CHECK_OK(berth_config_get_str(&in.config, "dtype", &text));
    CHECK_STR(text, "auto");
    CHECK_OK(berth_config_get_str(&in.config, "compilation.backend", &text));
    CHECK_STR(text, "eager");
    CHECK_OK(berth_config_get_str(&in.config, "custom_ops", &text));
    CHECK_STR(text, "all,-silu");
    CHECK_STATUS(berth_config_get_str(&in.config, "platform", &text), BERTH_NOT_FOUND);
    CHECK_STATUS(berth_config_get_str(&in.config, "fallback_ops", &text), BERTH_NOT_FOUND);
    CHECK_STR(text, "all,-silu");
    CHECK_STATUS(berth_config_get_i64(&in.config, "block_sise", &number), BERTH_NOT_FOUND);
    CHECK_CONTAINS(berth_status_message(), "did you mean 'block_size'?");
    CHECK_STATUS(berth_config_get_i64(&in.config, NULL, &number), BERTH_NOT_FOUND);
    CHECK_STATUS(berth_config_get_i64(&in.config, "dtype", &number), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_config_get_f64(&in.config, "block_size", &share), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_config_get_str(&in.config, "block_size", &text), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "'block_size' is an integer");
    close_fixture(&in);
}

TEST(config_changes_only_inside_a_hook_and_says_who) {
    fixture in;
    open_fixture(&in);
    CHECK_OK(LOAD_NONE(&in));
    CHECK_STATUS(berth_config_set_i64(&in.config, "block_size", 64), BERTH_WRONG_STATE);
    berth_config_allow(&in.config, "acme");
    CHECK_OK(berth_config_set_i64(&in.config, "block_size", 64));
    CHECK_OK(berth_config_set_f64(&in.config, "memory_utilization", 0.25));
    CHECK_OK(berth_config_set_str(&in.config, "dtype", "float32"));
    berth_config_allow(&in.config, NULL);
    CHECK_STATUS(berth_config_set_i64(&in.config, "block_size", 16), BERTH_WRONG_STATE);
    CHECK_INT(in.config.block_size, 64);
    CHECK_NEAR(in.config.memory_utilization, 0.25, 0);
    CHECK_STR(berth_config_dtypes[in.config.dtype], "float32");
    CHECK_INT(source_of(&in, "block-size").origin, BERTH_ORIGIN_PLATFORM);
    CHECK_STR(source_of(&in, "block-size").detail, "acme");
    CHECK_CONTAINS(in.log, "block_size changed by acme from 16 to 64");
    CHECK_CONTAINS(in.log, "dtype changed by acme from 'auto' to 'float32'");
    close_fixture(&in);
}

TEST(config_keeps_what_the_user_gave_and_warns) {
    fixture in;
    open_fixture(&in);
    CHECK_OK(LOAD(&in, BERTH_COMMAND_RUN, "--block-size", "32"));
    berth_config_allow(&in.config, "acme");
    CHECK_OK(berth_config_set_i64(&in.config, "block_size", 64));
    CHECK_INT(in.config.block_size, 32);
    CHECK_CONTAINS(in.log, "block_size stays 32 as given by the command line, acme asked for 64");
    close_fixture(&in);
}

TEST(config_refuses_bad_changes) {
    fixture in;
    open_fixture(&in);
    CHECK_OK(LOAD_NONE(&in));
    berth_config *config = &in.config;
    berth_config_allow(config, "acme");
    CHECK_STATUS(berth_config_set_i64(config, "block_size", 0), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "acme");
    CHECK_STATUS(berth_config_set_f64(config, "memory_utilization", 7), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_config_set_str(config, "dtype", "int3"), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_config_set_str(config, "dtype", NULL), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_config_set_str(config, "block_size", "16"), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_config_set_i64(config, "dtype", 1), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_config_set_i64(config, "no_such", 1), BERTH_NOT_FOUND);
    CHECK_STATUS(berth_config_set_str(config, "compilation.backend", "x"), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_config_set_i64(config, "allow_fallback", 1), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "the user's alone");
    CHECK_STATUS(berth_config_set_str(config, "platform", "acme"), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_config_set_str(config, "fallback_ops", "silu"), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(berth_config_set_str(config, "custom_ops", "all,rms"), BERTH_INVALID_ARGUMENT);
    CHECK_STR(in.log, "");
    close_fixture(&in);
}

typedef struct merge {
    const char *name;
    const char *users; // NULL: not given
    const char *platforms;
    const char *result;
} merge;

static const merge merges[] = {
    {"nothing from the user",                               NULL,            "none,+rms_norm",  "none,+rms_norm"     },
    {"items survive a base",                                "-rms_norm",     "all",             "all,-rms_norm"      },
    {"a base survives a base",                              "none",          "all,+silu",       "+silu,none"         },
    {"an item survives its contrary",                       "all,-rms_norm", "+rms_norm,+silu", "+silu,all,-rms_norm"},
    {"an item survives its contrary in the other spelling", "-RMSNorm",      "all,+rms_norm",
     "all,-RMSNorm"                                                                                                  },
    {"an empty list",                                       "+silu",         "",                "+silu"              },
};

static void check_merge(void **state) {
    const merge *row = *state;
    fixture in;
    open_fixture(&in);
    if (row->users != NULL) {
        CHECK_OK(LOAD(&in, BERTH_COMMAND_RUN, "--custom-ops", row->users));
    } else {
        CHECK_OK(LOAD_NONE(&in));
    }
    berth_config_allow(&in.config, "acme");
    for (int twice = 0; twice < 2; ++twice) {
        const char *text = NULL;
        CHECK_OK(berth_config_set_str(&in.config, "custom_ops", row->platforms));
        CHECK_OK(berth_config_get_str(&in.config, "custom_ops", &text));
        CHECK_STR(text, row->result);
    }
    CHECK_CONTAINS(in.log, "custom_ops changed by acme");
    CHECK_CONTAINS(source_of(&in, "custom-ops").detail, "acme");
    close_fixture(&in);
}

TEST_CASES(config_merges_custom_ops) {
    for (size_t i = 0; i < BERTH_COUNT(merges); ++i) {
        test_add(cases, merges[i].name, check_merge, (void *)(uintptr_t)&merges[i]);
    }
}

// ---- configs/ -----------------------------------------------------------------------------------

static berth_str without_comments(berth_str text) {
    while (text.size > 0 && text.data[0] == '#') {
        const size_t line = berth_str_find(text, '\n');
        text = berth_str_slice(text, line + 1, text.size);
    }
    return text;
}

TEST(configs_default_is_what_berth_prints) {
    fixture in;
    open_fixture(&in);
    CHECK_OK(LOAD_NONE(&in));
    berth_text text;
    berth_text_init(&text, 65536);
    berth_options_print_yaml(&in.config.options, &text);
    const char *printed = NULL;
    CHECK_OK(berth_text_finish(&text, &printed));
    char *file = NULL;
    size_t size = 0;
    CHECK_OK(berth_file_read("configs/default.yaml", 65536, &file, &size));
    CHECK_STR(without_comments((berth_str){file, size}).data, printed);
    berth_free(file);
    berth_text_deinit(&text);
    close_fixture(&in);
    open_fixture(&in);
    CHECK_OK(LOAD(&in, BERTH_COMMAND_RUN, "--config", "configs/default.yaml"));
    CHECK_INT(in.config.block_size, 16);
    CHECK_NULL(in.config.platform);
    CHECK_NULL(in.config.custom_ops.items);
    close_fixture(&in);
}

TEST(configs_dummy_names_the_dummy_and_allows_fallback) {
    fixture in;
    open_fixture(&in);
    CHECK_OK(LOAD(&in, BERTH_COMMAND_RUN, "--config", "configs/dummy.yaml"));
    CHECK_STR(in.config.platform, "dummy");
    CHECK(in.config.allow_fallback);
    close_fixture(&in);
}
