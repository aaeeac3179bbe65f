// SPDX-License-Identifier: Apache-2.0
// base/option: one table, five sources, one meaning; and what is printed can be read back.
#include "base/option.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/memory.h"
#include "support/test.h"

enum { RUN = 1, LIST = 2 };

typedef struct settings {
    const char *model;
    const char *prompt;
    int64_t tokens;
    double temperature;
    int32_t dtype;
    int32_t mode;
    bool allow_fallback;
    bool is_static;
    berth_option_list plugin_dirs;
    berth_option_list custom_ops;
    int64_t seed;
} settings;

static const char *const dtypes[] = {"auto", "float32", NULL};
static const char *const modes[] = {"eager", "inductor", NULL};

static const berth_option rows[] = {
    {
     .name = "model",
     .key = "model",
     .value_name = "DIR",
     .help = "the checkpoint",
     .commands = RUN,
     .offset = offsetof(settings,                         model),
     .type = BERTH_OPTION_STR,
     },
    {
     .name = "prompt",
     .value_name = "TEXT",
     .help = "what the text begins with",
     .commands = RUN,
     .offset = offsetof(settings,          prompt),
     .type = BERTH_OPTION_STR,
     },
    {
     .name = "max-tokens",
     .key = "max_tokens",
     .value_name = "N",
     .help = "tokens to generate",
     .default_text = "16",
     .minimum = 1,
     .maximum = 65536,
     .commands = RUN,
     .offset = offsetof(settings, tokens),
     .type = BERTH_OPTION_I64,
     .short_name = 'n',
     },
    {
     .name = "temperature",
     .key = "temperature",
     .env = "BERTH_TEST_TEMPERATURE",
     .value_name = "T",
     .help = "0 takes the likeliest token",
     .default_text = "0",
     .minimum = 0,
     .maximum = 2,
     .commands = RUN,
     .offset = offsetof(settings, temperature),
     .type = BERTH_OPTION_F64,
     },
    {
     .name = "dtype",
     .key = "dtype",
     .value_name = "D",
     .help = "type of activations",
     .default_text = "auto",
     .choices = dtypes,
     .commands = RUN,
     .offset = offsetof(settings, dtype),
     .type = BERTH_OPTION_ENUM,
     },
    {
     .name = "compilation-backend",
     .key = "compilation.backend",
     .value_name = "B",
     .help = "compile backend",
     .default_text = "eager",
     .choices = modes,
     .commands = RUN,
     .offset = offsetof(settings, mode),
     .type = BERTH_OPTION_ENUM,
     },
    {
     .name = "allow-fallback",
     .key = "allow_fallback",
     .help = "run ops without a kernel on the host",
     .commands = RUN,
     .offset = offsetof(settings,                            allow_fallback),
     .type = BERTH_OPTION_FLAG,
     .short_name = 'f',
     },
    {
     .name = "static",
     .help = "open no library",
     .commands = LIST,
     .offset = offsetof(settings,             is_static),
     .type = BERTH_OPTION_FLAG,
     },
    {
     .name = "plugin-dir",
     .key = "plugin_dirs",
     .env = "BERTH_TEST_DIRS",
     .value_name = "DIR",
     .help = "search here first",
     .commands = RUN | LIST,
     .offset = offsetof(settings,                                                                 plugin_dirs),
     .type = BERTH_OPTION_LIST,
     },
    {
     .name = "custom-ops",
     .key = "compilation.custom_ops",
     .env = "BERTH_TEST_OPS",
     .value_name = "LIST",
     .help = "ops to switch",
     .commands = RUN,
     .offset = offsetof(settings,                                          custom_ops),
     .type = BERTH_OPTION_LIST,
     .separator = ',',
     },
    {
     .name = "seed",
     .key = "seed",
     .value_name = "S",
     .help = "of the random numbers",
     .commands = RUN,
     .offset = offsetof(settings,                         seed),
     .type = BERTH_OPTION_I64,
     },
};

typedef struct fixture {
    settings values;
    berth_options options;
    berth_arena *arena;
} fixture;

static void begin(fixture *fix) {
    CHECK_OK(berth_arena_create(4096, 1 << 20, &fix->arena));
    memset(&fix->values, 0xee, sizeof(fix->values));
    CHECK_OK(berth_options_init(&fix->options, rows, BERTH_COUNT(rows), &fix->values, fix->arena));
}

static void end(fixture *fix) {
    berth_arena_destroy(fix->arena);
}

#define ARGS(...)                                                                                  \
    (int)BERTH_COUNT(((char *[]){__VA_ARGS__})), (char *[]) {                                      \
        __VA_ARGS__                                                                                \
    }

static berth_status apply_yaml(fixture *fix, const char *text) {
    berth_yaml *root = NULL;
    CHECK_OK(berth_yaml_parse(berth_str_from(text), "c.yaml", NULL, &root));
    const berth_status status = berth_options_apply_yaml(&fix->options, root);
    berth_yaml_destroy(root);
    return status;
}

static void check_source(const fixture *fix, const char *name, berth_option_origin origin,
                         const char *detail) {
    berth_option_source source = {0};
    CHECK_OK(berth_options_source(&fix->options, name, &source));
    CHECK_STR(berth_option_origin_name(source.origin), berth_option_origin_name(origin));
    CHECK_STR(source.detail == NULL ? "" : source.detail, detail);
}

TEST(options_begin_with_their_defaults) {
    fixture fix;
    begin(&fix);
    CHECK_NULL(fix.values.model);
    CHECK_INT(fix.values.tokens, 16);
    CHECK_NEAR(fix.values.temperature, 0, 0);
    CHECK_INT(fix.values.dtype, 0);
    CHECK(!fix.values.allow_fallback);
    CHECK_NULL(fix.values.plugin_dirs.items);
    CHECK_INT(fix.values.seed, 0);
    check_source(&fix, "max-tokens", BERTH_ORIGIN_DEFAULT, "");
    end(&fix);
}

TEST(options_are_read_in_every_spelling) {
    fixture fix;
    begin(&fix);
    CHECK_OK(berth_options_apply_argv(&fix.options, RUN,
                                      ARGS("first", "--model", "m", "--max-tokens=5", "-f",
                                           "--dtype", "float32", "-n", "7", "--plugin-dir", "/a",
                                           "--plugin-dir=/b,c", "--custom-ops", "-rms_norm, ,+rope",
                                           "-", "--prompt=--x", "--", "--not-an-option", "-n")));
    CHECK_STR(fix.values.model, "m");
    CHECK_STR(fix.values.prompt, "--x");
    CHECK_INT(fix.values.tokens, 7);
    CHECK(fix.values.allow_fallback);
    CHECK_INT(fix.values.dtype, 1);
    CHECK_UINT(fix.values.plugin_dirs.count, 2);
    CHECK_STR(fix.values.plugin_dirs.items[0], "/a");
    CHECK_STR(fix.values.plugin_dirs.items[1], "/b,c");
    CHECK_UINT(fix.values.custom_ops.count, 2);
    CHECK_STR(fix.values.custom_ops.items[0], "-rms_norm");
    CHECK_STR(fix.values.custom_ops.items[1], "+rope");
    CHECK_UINT(fix.options.positional_count, 4);
    CHECK_STR(fix.options.positional[0], "first");
    CHECK_STR(fix.options.positional[1], "-");
    CHECK_STR(fix.options.positional[2], "--not-an-option");
    CHECK_STR(fix.options.positional[3], "-n");
    check_source(&fix, "model", BERTH_ORIGIN_COMMAND_LINE, "");
    CHECK_OK(berth_options_apply_argv(&fix.options, RUN, ARGS("-n12", "--no-allow-fallback")));
    CHECK_INT(fix.values.tokens, 12);
    CHECK(!fix.values.allow_fallback);
    CHECK_UINT(fix.options.positional_count, 0);
    CHECK_OK(berth_options_apply_argv(&fix.options, RUN, 0, NULL));
    end(&fix);
}

static void check_argv(const char *argument, const char *value, const char *message) {
    fixture fix;
    begin(&fix);
    char *const argv[] = {(char *)(uintptr_t)argument, (char *)(uintptr_t)value};
    const int argc = value == NULL ? 1 : 2;
    CHECK_STATUS(berth_options_apply_argv(&fix.options, RUN, argc, argv), BERTH_INVALID_ARGUMENT);
    CHECK_STR(berth_status_message(), message);
    end(&fix);
}

TEST(options_refuse_a_wrong_command_line) {
    check_argv("--modle", "x", "unknown option --modle; did you mean --model?");
    check_argv("--zzzzzzzz", NULL, "unknown option --zzzzzzzz; see --help");
    check_argv("--statik", NULL, "unknown option --statik; see --help");
    check_argv("--static", NULL, "option --static does not belong to this command; see --help");
    check_argv("--no-static", NULL, "option --static does not belong to this command; see --help");
    check_argv("--no-model", NULL, "unknown option --no-model; see --help");
    check_argv("--modle=x", NULL, "unknown option --modle; did you mean --model?");
    check_argv("-x", NULL, "unknown option -x; see --help");
    check_argv("-fx", NULL, "unknown option -fx; write -f by itself");
    check_argv("--model", NULL, "option --model needs a value; write --model=DIR");
    check_argv("--model", "--dtype", "option --model needs a value; write --model=DIR");
    check_argv("-n", NULL, "option --max-tokens needs a value; write --max-tokens=N");
    check_argv("-n", "12x", "--max-tokens: is '12x', needed is a whole number from 1 to 65536");
    check_argv("-n", "0", "--max-tokens: is '0', needed is a whole number from 1 to 65536");
    check_argv("--seed=x", NULL, "--seed: is 'x', needed is a whole number");
    check_argv("--temperature", "3", "--temperature: is '3', needed is a number from 0 to 2");
    check_argv("--temperature", "nan", "--temperature: is 'nan', needed is a number from 0 to 2");
    check_argv("--dtype", "f32", "--dtype: is 'f32', needed is one of auto, float32");
    check_argv("--allow-fallback=maybe", NULL,
               "--allow-fallback: is 'maybe', needed is true or false");
}

TEST(options_come_from_the_environment) {
    fixture fix;
    begin(&fix);
    setenv("BERTH_TEST_TEMPERATURE", "0.5", 1);
    setenv("BERTH_TEST_OPS", "", 1);
    unsetenv("BERTH_TEST_DIRS");
    CHECK_OK(berth_options_apply_env(&fix.options));
    CHECK_NEAR(fix.values.temperature, 0.5, 0);
    CHECK(fix.values.custom_ops.items != NULL);
    CHECK_UINT(fix.values.custom_ops.count, 0);
    CHECK_NULL(fix.values.plugin_dirs.items);
    check_source(&fix, "temperature", BERTH_ORIGIN_ENVIRONMENT, "BERTH_TEST_TEMPERATURE");
    setenv("BERTH_TEST_TEMPERATURE", "hot", 1);
    CHECK_STATUS(berth_options_apply_env(&fix.options), BERTH_INVALID_ARGUMENT);
    CHECK_STR(berth_status_message(),
              "BERTH_TEST_TEMPERATURE: is 'hot', needed is a number from 0 to 2");
    setenv("BERTH_TEST_TEMPERATURE", "", 1);
    CHECK_OK(berth_options_apply_env(&fix.options));
    CHECK_NEAR(fix.values.temperature, 0.5, 0);
    unsetenv("BERTH_TEST_TEMPERATURE");
    unsetenv("BERTH_TEST_OPS");
    end(&fix);
}

TEST(options_come_from_yaml) {
    fixture fix;
    begin(&fix);
    CHECK_OK(apply_yaml(&fix, "model: \"12\"\nmax_tokens: 9\nseed:\nallow_fallback: yes\n"
                              "plugin_dirs: [/x, \"/y z\"]\n"
                              "compilation:\n  backend: inductor\n  custom_ops: all,-rope\n"));
    CHECK_STR(fix.values.model, "12");
    CHECK_INT(fix.values.tokens, 9);
    CHECK(fix.values.allow_fallback);
    CHECK_UINT(fix.values.plugin_dirs.count, 2);
    CHECK_STR(fix.values.plugin_dirs.items[1], "/y z");
    CHECK_INT(fix.values.mode, 1);
    CHECK_UINT(fix.values.custom_ops.count, 2);
    check_source(&fix, "seed", BERTH_ORIGIN_DEFAULT, "");
    check_source(&fix, "max-tokens", BERTH_ORIGIN_CONFIG, "c.yaml:2:1");
    check_source(&fix, "compilation-backend", BERTH_ORIGIN_CONFIG, "c.yaml:7:3");
    CHECK_OK(apply_yaml(&fix, "compilation.backend: eager\ncompilation:\n"));
    CHECK_INT(fix.values.mode, 0);
    end(&fix);
}

static void check_yaml(const char *text, const char *message) {
    fixture fix;
    begin(&fix);
    CHECK_STATUS(apply_yaml(&fix, text), BERTH_INVALID_ARGUMENT);
    CHECK_STR(berth_status_message(), message);
    end(&fix);
}

TEST(options_refuse_wrong_yaml_with_its_place) {
    check_yaml("- a\n", "c.yaml:1:1: needed is a mapping of keys to values");
    check_yaml("max_token: 1\n", "c.yaml:1:1: max_token: unknown key; did you mean 'max_tokens'?");
    check_yaml("\ncompilation:\n  bakend: eager\n",
               "c.yaml:3:3: compilation.bakend: unknown key; did you mean 'compilation.backend'?");
    check_yaml("qqqqqq: 1\n", "c.yaml:1:1: qqqqqq: unknown key");
    check_yaml("prompt: x\n", "c.yaml:1:1: prompt: unknown key");
    check_yaml("compilation: 3\n", "c.yaml:1:1: compilation: needed is a mapping");
    check_yaml("model: [a]\n", "c.yaml:1:1: model: is a list, needed is one value");
    check_yaml("model: {a: b}\n", "c.yaml:1:1: model: is a mapping, needed is one value");
    check_yaml("max_tokens: \"3\"\n",
               "c.yaml:1:1: max_tokens: is a text; write the value without quotes");
    check_yaml("max_tokens: 70000\n",
               "c.yaml:1:1: max_tokens: is '70000', needed is a whole number from 1 to 65536");
    check_yaml("plugin_dirs: [[a]]\n", "c.yaml:1:15: plugin_dirs.0: is a list, needed is a text");
}

// Applies the sources in one of two orders.
static void apply_all(fixture *fix, bool is_strongest_first) {
    const berth_option_source platform = {.origin = BERTH_ORIGIN_PLATFORM, .detail = "acme"};
    begin(fix);
    if (is_strongest_first) {
        CHECK_OK(berth_options_apply_argv(&fix->options, RUN, ARGS("-n", "4")));
        CHECK_OK(berth_options_apply_env(&fix->options));
    }
    CHECK_OK(
        apply_yaml(fix, "max_tokens: 3\ntemperature: 1.5\ndtype: float32\nplugin_dirs: [y]\n"));
    CHECK_OK(berth_options_set(&fix->options, "max-tokens", "2", platform));
    CHECK_OK(berth_options_set(&fix->options, "dtype", "auto", platform));
    CHECK_OK(berth_options_set(&fix->options, "seed", "5", platform));
    if (!is_strongest_first) {
        CHECK_OK(berth_options_apply_env(&fix->options));
        CHECK_OK(berth_options_apply_argv(&fix->options, RUN, ARGS("-n", "4")));
    }
}

TEST(options_keep_the_strongest_source_in_any_order) {
    setenv("BERTH_TEST_TEMPERATURE", "0.5", 1);
    setenv("BERTH_TEST_DIRS", "e", 1);
    for (int order = 0; order < 2; ++order) {
        fixture fix;
        apply_all(&fix, order == 1);
        CHECK_INT(fix.values.tokens, 4);
        CHECK_NEAR(fix.values.temperature, 0.5, 0);
        CHECK_INT(fix.values.dtype, 1);
        CHECK_INT(fix.values.seed, 5);
        CHECK_UINT(fix.values.plugin_dirs.count, 1);
        CHECK_STR(fix.values.plugin_dirs.items[0], "e");
        check_source(&fix, "seed", BERTH_ORIGIN_PLATFORM, "acme");
        check_source(&fix, "dtype", BERTH_ORIGIN_CONFIG, "c.yaml:3:1");
        end(&fix);
    }
    unsetenv("BERTH_TEST_TEMPERATURE");
    unsetenv("BERTH_TEST_DIRS");
}

TEST(options_refuse_a_wrong_set_even_if_it_would_not_count) {
    fixture fix;
    begin(&fix);
    const berth_option_source platform = {.origin = BERTH_ORIGIN_PLATFORM, .detail = "acme"};
    CHECK_OK(berth_options_apply_argv(&fix.options, RUN, ARGS("-n", "4")));
    CHECK_STATUS(berth_options_set(&fix.options, "max-tokens", "many", platform),
                 BERTH_INVALID_ARGUMENT);
    CHECK_STR(berth_status_message(),
              "max-tokens (set by acme): is 'many', needed is a whole number from 1 to 65536");
    CHECK_STATUS(berth_options_set(&fix.options, "max-token", "1", platform), BERTH_NOT_FOUND);
    CHECK_STR(berth_status_message(), "no option 'max-token'; did you mean 'max-tokens'?");
    const char *const items[] = {"a,b", "c"};
    const berth_option_list list = {.items = (const char **)(uintptr_t)items, .count = 2};
    CHECK_OK(berth_options_set_list(&fix.options, "custom-ops", list, platform));
    CHECK_UINT(fix.values.custom_ops.count, 2);
    CHECK_STR(fix.values.custom_ops.items[0], "a,b");
    end(&fix);
}

TEST(options_print_help_for_one_command) {
    fixture fix;
    begin(&fix);
    berth_text text;
    berth_text_init(&text, 1 << 16);
    berth_options_print_help(&fix.options, LIST, &text);
    CHECK_STR(text.data, "      --static          open no library\n"
                         "      --plugin-dir DIR  search here first (BERTH_TEST_DIRS)\n");
    berth_text_clear(&text);
    berth_options_print_help(&fix.options, RUN, &text);
    CHECK_CONTAINS(text.data,
                   "  -n, --max-tokens N           tokens to generate (1 to 65536; default"
                   " 16)\n");
    CHECK_CONTAINS(text.data, "type of activations (auto or float32; default auto)\n");
    CHECK_OK(berth_text_finish(&text, NULL));
    berth_text_deinit(&text);
    end(&fix);
}

static const char *print_yaml(const fixture *fix, berth_text *text) {
    const char *cstr = NULL;
    berth_text_init(text, 1 << 16);
    berth_options_print_yaml(&fix->options, text);
    CHECK_OK(berth_text_finish(text, &cstr));
    return cstr;
}

TEST(options_print_the_effective_configuration) {
    fixture fix;
    begin(&fix);
    CHECK_OK(apply_yaml(&fix, "plugin_dirs: ['/a b', c-d, 'yes', '']\n"));
    CHECK_OK(berth_options_apply_argv(
        &fix.options, RUN, ARGS("--model", "a: \"b\"\n", "--temperature=.1", "--custom-ops=")));
    berth_text text;
    CHECK_STR(print_yaml(&fix, &text),
              "model: \"a: \\\"b\\\"\\n\"  # command line\n"
              "max_tokens: 16  # default\n"
              "temperature: 0.1  # command line\n"
              "dtype: auto  # default\n"
              "compilation:\n"
              "  backend: eager  # default\n"
              "  custom_ops: []  # command line\n"
              "allow_fallback: false  # default\n"
              "plugin_dirs: [\"/a b\", c-d, \"yes\", \"\"]  # config file c.yaml:1:1\n"
              "seed: 0  # default\n");
    fixture again;
    begin(&again);
    CHECK_OK(apply_yaml(&again, text.data));
    CHECK_STR(again.values.model, fix.values.model);
    CHECK_NEAR(again.values.temperature, 0.1, 0);
    CHECK_UINT(again.values.plugin_dirs.count, 4);
    CHECK_STR(again.values.plugin_dirs.items[3], "");
    CHECK(again.values.custom_ops.items != NULL);
    CHECK_UINT(again.values.custom_ops.count, 0);
    end(&again);
    berth_text_deinit(&text);
    end(&fix);
}

TEST(options_survive_every_failed_allocation) {
    for (uint64_t n = 1;; ++n) {
        settings values;
        berth_options options;
        berth_arena *arena = NULL;
        berth_memory_fail_after(n);
        berth_status status = berth_arena_create(64, 1 << 20, &arena);
        if (status == BERTH_OK) {
            status = berth_options_init(&options, rows, BERTH_COUNT(rows), &values, arena);
        }
        if (status == BERTH_OK) {
            status = berth_options_apply_argv(
                &options, RUN, ARGS("x", "--model=a model", "--custom-ops", "all,-rope,-mlp"));
        }
        const bool is_done = berth_memory_fail_after(0) > 0;
        CHECK_STATUS(status, is_done ? BERTH_OK : BERTH_OUT_OF_MEMORY);
        berth_arena_destroy(arena);
        if (is_done) {
            return;
        }
    }
}
