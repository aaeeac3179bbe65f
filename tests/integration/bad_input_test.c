// SPDX-License-Identifier: Apache-2.0
// Whatever is wrong with what an operator gives: one clear line on standard error, the exit status
// that the documentation promises, nothing on standard output, no signal.
#include "support/test.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/array.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/str.h"
#include "support/program.h"
#include "support/sandbox.h"

#define LLAMA   "tests/data/models/llama"
#define FAKES   TEST_BUILD "/tests/plugins"
#define HOSTILE "../shared/data/conformance/safetensors"

// Nothing is searched but what the test names.
#define ALONE PROGRAM_ENV("BERTH_PLUGIN_DIRS=/nonexistent")

#define RUN(p, ...) PROGRAM_RUN(p, ALONE, BERTH, "run", __VA_ARGS__)

// One line, "berth: …", with both parts in it.
static void check_refused(const program *p, int status, const char *part, const char *other) {
    if (p->status != status) {
        print_error("%s%s", p->out, p->err);
    }
    CHECK_INT(p->status, status);
    CHECK(strncmp(p->err, "berth: ", 7) == 0);
    CHECK_CONTAINS(p->err, part);
    CHECK_CONTAINS(p->err, other);
    CHECK(strchr(p->err, '\n') == p->err + strlen(p->err) - 1);
}

static void check_silent(const program *p, int status, const char *part, const char *other) {
    check_refused(p, status, part, other);
    CHECK_STR(p->out, "");
}

// ---- the command line ---------------------------------------------------------------------------

TEST(bad_input_no_command) {
    program p;
    PROGRAM_RUN(&p, ALONE, BERTH);
    check_silent(&p, 2, "no command", "berth help");
}

TEST(bad_input_unknown_command) {
    program p;
    PROGRAM_RUN(&p, ALONE, BERTH, "evall");
    check_silent(&p, 2, "evall", "did you mean 'eval'");
}

TEST(bad_input_unknown_option) {
    program p;
    RUN(&p, "--modle", LLAMA);
    check_silent(&p, 2, "--modle", "--model");
}

TEST(bad_input_option_out_of_range) {
    program p;
    RUN(&p, "--model", LLAMA, "--prompt", "x", "-n", "0");
    check_silent(&p, 2, "max-tokens", "'0'");
}

TEST(bad_input_no_model) {
    program p;
    RUN(&p, "--prompt", "x");
    check_silent(&p, 2, "no model", "--model DIR");
}

TEST(bad_input_no_prompt) {
    program p;
    RUN(&p, "--model", LLAMA);
    check_silent(&p, 2, "no prompt", "--prompt");
}

TEST(bad_input_unknown_key_of_the_environment_is_no_usage_error) {
    program p;
    PROGRAM_RUN(&p, PROGRAM_ENV("BERTH_PLUGIN_DIRS=/nonexistent", "BERTH_THREADS=many"), BERTH,
                "run", "--model", LLAMA, "--prompt", "x");
    check_silent(&p, 3, "BERTH_THREADS", "many");
}

TEST(bad_input_unknown_key_of_the_config_file) {
    sandbox box;
    program p;
    sandbox_make(&box);
    const char *path = sandbox_write(&box, "berth.yaml", "threads: 1\nmodle: x\n");
    RUN(&p, "--config", path, "--prompt", "x");
    check_silent(&p, 3, "berth.yaml:2:1", "model");
    sandbox_remove(&box);
}

TEST(bad_input_custom_ops_that_contradict_themselves) {
    program p;
    RUN(&p, "--model", LLAMA, "--prompt", "x", "--custom-ops", "all,+rms_norm,-rms_norm");
    check_silent(&p, 3, "+rms_norm", "-rms_norm");
    // The same op under both names, in the model or not.
    RUN(&p, "--model", LLAMA, "--prompt", "x", "--allow-fallback", "--custom-ops",
        "+RMSNorm,-rms_norm");
    check_silent(&p, 3, "+RMSNorm", "-rms_norm");
    RUN(&p, "--model", LLAMA, "--prompt", "x", "--allow-fallback", "--custom-ops",
        "+Contiguous,-contiguous");
    check_silent(&p, 3, "+Contiguous", "-contiguous");
}

TEST(bad_input_length_beyond_the_model) {
    program p;
    RUN(&p, "--model", LLAMA, "--prompt", "x", "--allow-fallback", "--max-model-len", "100000");
    check_silent(&p, 3, "--max-model-len", "512");
}

// What is only misspelled does not stop a run, and is said once.
TEST(bad_input_names_of_ops_that_match_nothing_are_warned_of) {
    program p;
    RUN(&p, "--model", LLAMA, "--prompt", "x", "-n", "1", "--allow-fallback", "--custom-ops",
        "all,-rms_nrm", "--fallback-ops", "linaer");
    CHECK_INT(p.status, 0);
    CHECK_CONTAINS(p.err, "warn: ops: custom_ops: '-rms_nrm' matches nothing");
    CHECK_CONTAINS(p.err, "warn: ops: fallback_ops: 'linaer' matches nothing");
}

// ---- directories and plugins --------------------------------------------------------------------

TEST(bad_input_missing_directories) {
    program p;
    RUN(&p, "--model", "/nonexistent/model", "--prompt", "x");
    check_silent(&p, 3, "/nonexistent/model", "no such directory");
    RUN(&p, "--model", LLAMA, "--prompt", "x", "--plugin-dir", "/nonexistent/plugins");
    check_silent(&p, 3, "/nonexistent/plugins", "--plugin-dir");
    RUN(&p, "--model", LLAMA, "--prompt", "x", "--plugin", "/nonexistent/acme.plugin.yaml");
    check_silent(&p, 3, "/nonexistent/acme.plugin.yaml", "--plugin");
    RUN(&p, "--model", LLAMA, "--prompts", "/nonexistent/prompts");
    check_silent(&p, 3, "/nonexistent/prompts", "--prompts");
}

TEST(bad_input_no_plugins) {
    program p;
    RUN(&p, "--model", LLAMA, "--prompt", "x");
    check_silent(&p, 6, "no platform is active", "--allow-fallback");
}

TEST(bad_input_unknown_platform) {
    program p;
    RUN(&p, "--model", LLAMA, "--prompt", "x", "--platform", "acme");
    check_silent(&p, 6, "acme", "no platform");
}

// A manifest with a library beside it that nothing opens.
static const char *write_manifest(const sandbox *box, const char *name, const char *text) {
    char library[128];
    (void)snprintf(library, sizeof library, "%.*s/libacme.so", (int)strcspn(name, "/"), name);
    (void)sandbox_write(box, library, "not a library\n");
    return sandbox_write(box, name, text);
}

#define MANIFEST(extra)                                                                            \
    "berth: 1\nid: acme\nversion: 1.0.0\nlibrary: libacme.so\nabi: \"1.0\"\n" extra                \
    "entry_points:\n  berth.platform_plugins: [acme]\n"

TEST(bad_input_manifest_with_a_typo) {
    sandbox box;
    program p;
    sandbox_make(&box);
    const char *path =
        write_manifest(&box, "a/acme.plugin.yaml", MANIFEST("importence: optional\n"));
    PROGRAM_RUN(&p, ALONE, BERTH, "plugins", "inspect", path);
    check_refused(&p, 4, "acme.plugin.yaml:6:1", "importance");
    CHECK_CONTAINS(p.out, "refused");
    // A plugin that may be the wanted platform is not passed over in silence.
    RUN(&p, "--model", LLAMA, "--prompt", "x", "--plugin", path, "--allow-fallback");
    check_silent(&p, 4, "acme.plugin.yaml:6:1", "--platform");
    // The listing is an answer all the same.
    PROGRAM_RUN(&p, ALONE, BERTH, "plugins", "list", "--plugin", path);
    CHECK_INT(p.status, 0);
    CHECK_CONTAINS(p.out, "refused");
    sandbox_remove(&box);
}

TEST(bad_input_duplicate_ids) {
    sandbox box;
    program p;
    sandbox_make(&box);
    (void)write_manifest(&box, "a/acme.plugin.yaml", MANIFEST("activation: named\n"));
    (void)write_manifest(&box, "a/zeta.plugin.yaml", MANIFEST(""));
    RUN(&p, "--model", LLAMA, "--prompt", "x", "--plugin-dir", sandbox_path(&box, "a"),
        "--allow-fallback");
    check_silent(&p, 4, "the id 'acme' is taken", "zeta.plugin.yaml");
    sandbox_remove(&box);
}

TEST(bad_input_required_plugin_that_fails) {
    sandbox box;
    program p;
    sandbox_make(&box);
    const char *path =
        write_manifest(&box, "a/acme.plugin.yaml", MANIFEST("importance: required\n"));
    RUN(&p, "--model", LLAMA, "--prompt", "x", "--plugin", path, "--allow-fallback");
    check_silent(&p, 4, "acme", "libacme.so");
    PROGRAM_RUN(&p, ALONE, BERTH, "plugins", "list", "--plugin", path);
    check_refused(&p, 4, "acme", "libacme.so");
    CHECK_CONTAINS(p.out, "load failed");
    sandbox_remove(&box);
}

// Two platforms of one library, both of which come without being asked.
TEST(bad_input_two_platforms_at_once) {
    sandbox box;
    program p;
    char manifest[PATH_MAX + 512];
    char library[PATH_MAX];
    sandbox_make(&box);
    CHECK(realpath(FAKES "/platforms/libberth-platforms.so", library) != NULL);
    CHECK_INT(symlink(library, sandbox_path(&box, "libplatforms.so")), 0);
    (void)snprintf(manifest, sizeof manifest,
                   "berth: 1\nid: fake-platforms\nversion: 1.0.0\nlibrary: libplatforms.so\n"
                   "entry_points:\n  berth.platform_plugins: [alpha, beta]\n");
    const char *path = sandbox_write(&box, "platforms.plugin.yaml", manifest);
    RUN(&p, "--model", LLAMA, "--prompt", "x", "--plugin", path);
    check_silent(&p, 6, "--platform alpha", "--platform beta");
    PROGRAM_RUN(&p, ALONE, BERTH, "plugins", "explain", "--plugin", path);
    check_refused(&p, 6, "'alpha'", "'beta'");
    CHECK_CONTAINS(p.out, "several out-of-tree platforms");
    sandbox_remove(&box);
}

// A fake of tests/fakes, inspected: the plugin's own failure, exit status 4.
static void check_fake(const char *name, const char *part, const char *other) {
    char path[256];
    program p;
    (void)snprintf(path, sizeof path, FAKES "/%s/%s.plugin.yaml", name, name);
    PROGRAM_RUN(&p, ALONE, BERTH, "plugins", "inspect", path, "--platform", name);
    check_refused(&p, 4, part, other);
}

TEST(bad_input_library_without_the_symbol) {
    check_fake("no-symbol", "berth_plugin_v1", "libberth-no-symbol.so");
}

TEST(bad_input_abi_from_the_future) {
    check_fake("abi-future", "1.0", "abi-future");
}

TEST(bad_input_null_required_slot) {
    program p;
    check_fake("null-slot", "null-slot", "required");
    RUN(&p, "--model", LLAMA, "--prompt", "x", "--plugin", FAKES "/null-slot/null-slot.plugin.yaml",
        "--platform", "null-slot", "--allow-fallback");
    check_silent(&p, 4, "null-slot", "required");
}

TEST(bad_input_library_with_an_undefined_symbol) {
    program p;
    PROGRAM_RUN(&p, ALONE, BERTH, "plugins", "inspect",
                FAKES "/undefined-symbol/undefined-symbol.plugin.yaml", "--platform", "variant");
    check_refused(&p, 4, "undefined symbol", "libberth-undefined-symbol.so");
}

TEST(bad_input_override_of_an_unknown_op) {
    program p;
    RUN(&p, "--model", LLAMA, "--prompt", "x", "--plugin",
        FAKES "/unknown-op/unknown-op.plugin.yaml", "--platform", "unknown-op", "--allow-fallback");
    check_silent(&p, 4, "rms_norn", "did you mean 'rms_norm'");
}

TEST(bad_input_plugin_that_is_not_there) {
    program p;
    PROGRAM_RUN(&p, ALONE, BERTH, "plugins", "inspect", "acme");
    check_silent(&p, 2, "acme", "plugins list");
}

// An optional plugin that fails costs a warning, not the run.
TEST(bad_input_optional_plugin_only_warns) {
    sandbox box;
    program p;
    char library[PATH_MAX];
    sandbox_make(&box);
    CHECK(realpath(FAKES "/no-symbol/libberth-no-symbol.so", library) != NULL);
    CHECK_INT(symlink(library, sandbox_path(&box, "libberth-no-symbol.so")), 0);
    const char *path = sandbox_write(&box, "no-symbol.plugin.yaml",
                                     "berth: 1\nid: no-symbol\nversion: 1.0.0\n"
                                     "library: libberth-no-symbol.so\n"
                                     "entry_points:\n  berth.general_plugins: [no-symbol]\n");
    RUN(&p, "--model", LLAMA, "--prompt", "ROMEO:", "-n", "2", "--plugin", path,
        "--allow-fallback");
    CHECK_INT(p.status, 0);
    CHECK_CONTAINS(p.err, "berth: warn: plugins: no-symbol is not used: load failed");
    CHECK(strchr(p.err, '\n') == p.err + strlen(p.err) - 1);
    CHECK(strlen(p.out) > 1);
    sandbox_remove(&box);
}

// ---- checkpoints --------------------------------------------------------------------------------

static const char *const model_files[] = {
    "config.json",    "generation_config.json", "model.safetensors",
    "tokenizer.json", "tokenizer_config.json",
};

// llama in the sandbox, all files but one as links.
static const char *link_model(const sandbox *box, const char *without) {
    char source[PATH_MAX];
    for (size_t i = 0; i < sizeof model_files / sizeof model_files[0]; ++i) {
        char relative[PATH_MAX];
        if (strcmp(model_files[i], without) == 0) {
            continue;
        }
        (void)snprintf(relative, sizeof relative, LLAMA "/%s", model_files[i]);
        CHECK(realpath(relative, source) != NULL);
        CHECK_INT(symlink(source, sandbox_path(box, model_files[i])), 0);
    }
    return box->dir;
}

static void check_model(const char *dir, const char *part, const char *other) {
    program p;
    RUN(&p, "--model", dir, "--prompt", "x", "--allow-fallback");
    check_silent(&p, 5, part, other);
}

TEST(bad_input_missing_files_of_a_checkpoint) {
    static const char *const needed[] = {"config.json", "model.safetensors", "tokenizer.json"};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; ++i) {
        sandbox box;
        sandbox_make(&box);
        check_model(link_model(&box, needed[i]), needed[i], box.dir);
        sandbox_remove(&box);
    }
}

static void check_safetensors(const char *data, size_t size, const char *part) {
    sandbox box;
    sandbox_make(&box);
    const char *dir = link_model(&box, "model.safetensors");
    CHECK_OK(berth_file_write(sandbox_path(&box, "model.safetensors"),
                              (berth_str){.data = data, .size = size}));
    check_model(dir, "model.safetensors", part);
    sandbox_remove(&box);
}

TEST(bad_input_truncated_safetensors) {
    static const size_t cuts[] = {0, 7, 8, 100, 3000, 500000};
    char *data = NULL;
    size_t size = 0;
    CHECK_OK(berth_file_read(LLAMA "/model.safetensors", 1 << 24, &data, &size));
    for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; ++i) {
        check_safetensors(data, cuts[i], "");
    }
    check_safetensors(data, size - 1, "");
    berth_free(data);
}

TEST(bad_input_hostile_safetensors) {
    static const char huge[] = "\xff\xff\xff\xff\xff\xff\xff\x7f{}";
    static const char overlap[] =
        "\x84\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,8],\"data_offsets\":[0,8]}}"
        "                                  12345678";
    check_safetensors(huge, sizeof huge - 1, "");
    check_safetensors(overlap, sizeof overlap - 1, "");
}

TEST(bad_input_hostile_safetensors_from_elsewhere) {
    char *data = NULL;
    size_t size = 0;
    if (!berth_path_is_dir(HOSTILE)) {
        SKIP("../shared/data is not here");
    }
    CHECK_OK(
        berth_file_read(HOSTILE "/safetensors_abuse_attempt_1.safetensors", 1 << 24, &data, &size));
    check_safetensors(data, size, "");
    berth_free(data);
}

// llama's config.json with one value replaced.
static void check_config(const char *key, const char *value, const char *part) {
    sandbox box;
    char *data = NULL;
    size_t size = 0;
    char wanted[64];
    char changed[4096];
    sandbox_make(&box);
    const char *dir = link_model(&box, "config.json");
    CHECK_OK(berth_file_read(LLAMA "/config.json", sizeof changed / 2, &data, &size));
    (void)snprintf(wanted, sizeof wanted, "\"%s\": ", key);
    const char *found = strstr(data, wanted);
    const size_t before = found == NULL ? 0 : (size_t)(found - data);
    CHECK(before > 0);
    const char *end = data + before + strlen(wanted);
    end += strcspn(end, *end == '[' ? "]" : ",\n");
    end += *end == ']' ? 1 : 0;
    if (value == NULL) {
        (void)snprintf(changed, sizeof changed, "%.*s\"x\": 1%s", (int)before, data, end);
    } else {
        (void)snprintf(changed, sizeof changed, "%.*s%s%s%s", (int)before, data, wanted, value,
                       end);
    }
    (void)sandbox_write(&box, "config.json", changed);
    check_model(dir, part, "");
    berth_free(data);
    sandbox_remove(&box);
}

TEST(bad_input_config_without_numbers) {
    static const char *const keys[] = {"hidden_size", "num_hidden_layers", "num_attention_heads",
                                       "vocab_size", "intermediate_size"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; ++i) {
        check_config(keys[i], NULL, keys[i]);
    }
}

TEST(bad_input_config_with_absurd_numbers) {
    static const char *const keys[] = {"hidden_size",
                                       "num_hidden_layers",
                                       "num_attention_heads",
                                       "num_key_value_heads",
                                       "vocab_size",
                                       "intermediate_size",
                                       "head_dim",
                                       "max_position_embeddings"};
    static const char *const values[] = {"0",    "-1",     "9223372036854775807",
                                         "1e30", "\"64\"", "4000000000"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; ++i) {
        for (size_t k = 0; k < sizeof values / sizeof values[0]; ++k) {
            check_config(keys[i], values[k], "");
        }
    }
    check_config("rms_norm_eps", "-1", "eps");
    check_config("rope_theta", "0", "rope_theta");
}

TEST(bad_input_unknown_architecture) {
    check_config("architectures", "[\"LamaForCausalLM\"]", "nearest one is 'LlamaForCausalLM'");
    check_config("architectures", "[7]", "architectures is missing or no list of names");
}

TEST(bad_input_config_that_is_no_json) {
    sandbox box;
    sandbox_make(&box);
    const char *dir = link_model(&box, "config.json");
    (void)sandbox_write(&box, "config.json", "{\"architectures\": [\"LlamaForCausalLM\"");
    check_model(dir, "config.json", "");
    sandbox_remove(&box);
}

TEST(bad_input_broken_tokenizer) {
    sandbox box;
    sandbox_make(&box);
    const char *dir = link_model(&box, "tokenizer.json");
    (void)sandbox_write(&box, "tokenizer.json", "{\"model\": {\"type\": \"BPE\", \"vocab\": 3}}");
    check_model(dir, "tokenizer.json", "");
    sandbox_remove(&box);
}

TEST(bad_input_stop_ids_that_are_no_numbers) {
    sandbox box;
    sandbox_make(&box);
    const char *dir = link_model(&box, "generation_config.json");
    (void)sandbox_write(&box, "generation_config.json", "{\"eos_token_id\": \"zero\"}");
    check_model(dir, "generation_config.json", "eos_token_id");
    sandbox_remove(&box);
}

// ---- prompts ------------------------------------------------------------------------------------

TEST(bad_input_prompt_that_is_not_utf8) {
    sandbox box;
    program p;
    RUN(&p, "--model", LLAMA, "--prompt", "ROMEO \xff", "--allow-fallback");
    check_silent(&p, 2, "the prompt", "UTF-8");
    sandbox_make(&box);
    const char *path = sandbox_write(&box, "prompts", "good\nbad \xc3\x28\n");
    RUN(&p, "--model", LLAMA, "--prompts", path, "--allow-fallback");
    check_silent(&p, 2, "prompt 2", "UTF-8");
    PROGRAM_RUN(&p, ALONE, BERTH, "tokenize", "--model", LLAMA, "\xff");
    check_silent(&p, 2, "UTF-8", "");
    sandbox_remove(&box);
}

TEST(bad_input_prompt_longer_than_the_context) {
    char prompt[4096];
    program p;
    for (size_t i = 0; i < sizeof prompt - 1; ++i) {
        prompt[i] = i % 2 == 0 ? 'x' : ' ';
    }
    prompt[sizeof prompt - 1] = '\0';
    RUN(&p, "--model", LLAMA, "--prompt", prompt, "--allow-fallback");
    check_silent(&p, 2, "context", "512");
}

TEST(bad_input_empty_prompt) {
    program p;
    RUN(&p, "--model", LLAMA, "--prompt", "", "--allow-fallback");
    check_silent(&p, 2, "empty", "");
}

// ---- golden files -------------------------------------------------------------------------------

TEST(bad_input_golden_file_of_another_checkpoint) {
    program p;
    PROGRAM_RUN(&p, ALONE, BERTH, "eval", "--model", LLAMA, "--golden",
                "tests/data/models/shakespeare/golden.json", "--allow-fallback");
    check_silent(&p, 3, "golden", "another checkpoint");
}

TEST(bad_input_golden_file_that_differs_is_the_answer_no) {
    sandbox box;
    program p;
    sandbox_make(&box);
    char *data = NULL;
    size_t size = 0;
    CHECK_OK(berth_file_read(LLAMA "/golden.safetensors", 1 << 20, &data, &size));
    memset(data + size - 70000, 0, 64); // logits of some prompt
    CHECK_OK(berth_file_write(sandbox_path(&box, "golden.safetensors"),
                              (berth_str){.data = data, .size = size}));
    berth_free(data);
    CHECK_OK(berth_file_read(LLAMA "/golden.json", 1 << 20, &data, &size));
    (void)sandbox_write(&box, "golden.json", data);
    berth_free(data);
    PROGRAM_RUN(&p, ALONE, BERTH, "eval", "--model", LLAMA, "--golden",
                sandbox_path(&box, "golden.json"), "--allow-fallback");
    CHECK_INT(p.status, 1);
    CHECK_CONTAINS(p.out, "FAILED");
    CHECK_STR(p.err, "");
    sandbox_remove(&box);
}

// ---- output -------------------------------------------------------------------------------------

static void run_shell(program *p, const char *line) {
    PROGRAM_RUN(p, ALONE, "sh", "-c", line);
}

#define SEVERAL                                                                                    \
    "printf 'ROMEO\\nJULIET\\n' >" TEST_BUILD "/prompts.$$; " BERTH_FILE " run --model " LLAMA     \
    " --prompts " TEST_BUILD "/prompts.$$ --allow-fallback -n "

TEST(bad_input_output_that_cannot_be_written) {
    static const char *const several[] = {
        SEVERAL "4 >/dev/full; s=$?; rm " TEST_BUILD "/prompts.$$; exit $s",
        SEVERAL "4 --json >/dev/full; s=$?; rm " TEST_BUILD "/prompts.$$; exit $s",
    };
    program p;
    run_shell(&p, BERTH_FILE " plugins list >/dev/full");
    check_silent(&p, 7, "standard output", "No space left");
    run_shell(&p,
              BERTH_FILE " run --model " LLAMA " --prompt ROMEO --allow-fallback -n 4 >/dev/full");
    check_silent(&p, 7, "standard output", "No space left");
    for (size_t i = 0; i < BERTH_COUNT(several); ++i) {
        run_shell(&p, several[i]);
        check_silent(&p, 7, "standard output", "No space left");
    }
    run_shell(&p, BERTH_FILE " help >&-");
    check_silent(&p, 7, "standard output", "");
}

TEST(bad_input_reader_that_goes_away) {
    static const char *const several[] = {
        "{ " SEVERAL "200; echo status $? >&2; rm " TEST_BUILD "/prompts.$$; } | head -c 1",
        // JSON comes at once, when nobody is there any more.
        "{ " SEVERAL "4 --json; echo status $? >&2; rm " TEST_BUILD "/prompts.$$; } | true",
    };
    program p;
    run_shell(&p, "{ " BERTH_FILE " run --model " LLAMA
                  " --prompt ROMEO --allow-fallback -n 200; echo status $? >&2; } | head -c 1");
    CHECK_CONTAINS(p.err, "berth: standard output");
    CHECK_CONTAINS(p.err, "status 7");
    for (size_t i = 0; i < BERTH_COUNT(several); ++i) {
        run_shell(&p, several[i]);
        CHECK_CONTAINS(p.err, "berth: standard output");
        CHECK_CONTAINS(p.err, "status 7");
    }
}
