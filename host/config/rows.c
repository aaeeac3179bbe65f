// SPDX-License-Identifier: Apache-2.0
// Every option of berth in one table: command line, environment, config file, help and the printed
// effective configuration are read from these rows. An option without a YAML key asks something of
// one command; an option without a command comes from the environment or the config file only.
#include "config/rows.h"

#include <stdbool.h>

#include "base/array.h"
#include "config/config.h"

#define MODEL_COMMANDS                                                                             \
    (BERTH_COMMAND_RUN | BERTH_COMMAND_EVAL | BERTH_COMMAND_BENCH | BERTH_COMMAND_OPS |            \
     BERTH_COMMAND_GRAPH | BERTH_COMMAND_CONFIG | BERTH_COMMAND_CHECK)
#define PLATFORM_COMMANDS (MODEL_COMMANDS | BERTH_COMMAND_PLUGINS)
#define ALL_COMMANDS      (PLATFORM_COMMANDS | BERTH_COMMAND_TOKENIZE)
#define PROMPT_COMMANDS   (BERTH_COMMAND_RUN | BERTH_COMMAND_BENCH)

// Why a macro: clang-format 14 crashes on rows in braces that differ in the number of members.
#define ROW(...)                                                                                   \
    { __VA_ARGS__ }
#define AT(member) offsetof(berth_config, member)

const char *const berth_config_dtypes[] = {"auto", "float32", "bfloat16", "float16", NULL};

// In the order of berth_level.
static const char *const log_levels[] = {"error", "warn", "info", "debug", "trace", NULL};

// Why these defaults: block size and memory share are vLLM's. 512 tokens in a step already keep a
// CPU's or GPU's matrix units busy, and scratch memory grows with that number.
const berth_option berth_config_rows[] = {
    ROW(.name = "model", .key = "model", .env = "BERTH_MODEL", .value_name = "DIR",
        .help = "checkpoint directory: config.json, *.safetensors, tokenizer.json",
        .commands = MODEL_COMMANDS | BERTH_COMMAND_TOKENIZE, .type = BERTH_OPTION_STR,
        .offset = AT(model)),
    ROW(.name = "platform", .key = "platform", .env = "BERTH_PLATFORM", .value_name = "NAME",
        .help = "platform to run on, an entry of berth.platform_plugins; without it berth chooses",
        .commands = PLATFORM_COMMANDS, .type = BERTH_OPTION_STR, .offset = AT(platform)),
    ROW(.name = "config", .env = "BERTH_CONFIG", .value_name = "FILE",
        .help = "YAML file with any of the keys that `berth config` prints",
        .commands = ALL_COMMANDS, .type = BERTH_OPTION_STR, .offset = AT(config_file)),
    ROW(.name = "plugin-dir", .key = "plugin_dirs", .value_name = "DIR",
        .help = "search this directory for *.plugin.yaml before all others; may be repeated",
        .commands = ALL_COMMANDS, .type = BERTH_OPTION_LIST, .offset = AT(plugin_dirs)),
    ROW(.name = "plugin", .key = "plugin_files", .value_name = "FILE",
        .help = "load this manifest, or this library without one; may be repeated",
        .commands = ALL_COMMANDS, .type = BERTH_OPTION_LIST, .offset = AT(plugin_files)),
    ROW(.name = "plugins", .key = "plugins", .env = "BERTH_PLUGINS", .value_name = "NAMES",
        .help = "entry points to load, with commas between; unset: all, empty: none",
        .type = BERTH_OPTION_STR, .takes_empty = true, .offset = AT(plugins)),
    ROW(.name = "plugin-path", .env = "BERTH_PLUGIN_PATH", .value_name = "DIRS",
        .help = "directories searched before the default ones, with colons between",
        .type = BERTH_OPTION_STR, .offset = AT(plugin_path)),
    ROW(.name = "plugin-search", .env = "BERTH_PLUGIN_DIRS", .value_name = "DIRS",
        .help = "directories searched instead of the default ones, with colons between",
        .type = BERTH_OPTION_STR, .offset = AT(plugin_search)),
    ROW(.name = "dtype", .key = "dtype", .value_name = "TYPE",
        .help = "type of the activations between ops", .default_text = "auto",
        .choices = berth_config_dtypes, .commands = MODEL_COMMANDS, .type = BERTH_OPTION_ENUM,
        .offset = AT(dtype)),
    ROW(.name = "custom-ops", .key = "custom_ops", .env = "BERTH_CUSTOM_OPS", .value_name = "LIST",
        .help = "one of all and none, then +op and -op: which ops use their fast versions",
        .commands = MODEL_COMMANDS, .type = BERTH_OPTION_LIST, .separator = ',',
        .offset = AT(custom_ops)),
    ROW(.name = "allow-fallback", .key = "allow_fallback", .env = "BERTH_ALLOW_FALLBACK",
        .help = "run ops that the platform lacks natively on the host",
        .commands = PLATFORM_COMMANDS, .type = BERTH_OPTION_FLAG, .offset = AT(allow_fallback)),
    ROW(.name = "fallback-ops", .key = "fallback_ops", .value_name = "LIST",
        .help = "only these ops may run natively on the host", .commands = MODEL_COMMANDS,
        .type = BERTH_OPTION_LIST, .separator = ',', .offset = AT(fallback_ops)),
    ROW(.name = "threads", .key = "threads", .env = "BERTH_THREADS", .value_name = "N",
        .help = "threads for CPU kernels; 0: every core this process may use", .default_text = "0",
        .minimum = 0, .maximum = 4096, .commands = MODEL_COMMANDS, .type = BERTH_OPTION_I64,
        .offset = AT(threads)),
    ROW(.name = "compilation-mode", .key = "compilation.mode", .value_name = "N",
        .help = "graph compilation: 0 none", .default_text = "0", .minimum = 0, .maximum = 3,
        .commands = MODEL_COMMANDS, .type = BERTH_OPTION_I64, .offset = AT(compilation_mode)),
    ROW(.name = "compilation-backend", .key = "compilation.backend", .value_name = "NAME",
        .help = "compile backend: eager or inductor", .default_text = "eager",
        .commands = MODEL_COMMANDS, .type = BERTH_OPTION_STR, .offset = AT(compilation_backend)),
    ROW(.name = "quantization", .key = "quantization", .value_name = "NAME",
        .help = "quantization scheme; without it the checkpoint's own", .commands = MODEL_COMMANDS,
        .type = BERTH_OPTION_STR, .offset = AT(quantization)),
    ROW(.name = "max-model-len", .key = "max_model_len", .value_name = "N",
        .help = "longest sequence in tokens, prompt and output; 0: the model's",
        .default_text = "0", .minimum = 0, .maximum = 1 << 26, .commands = MODEL_COMMANDS,
        .type = BERTH_OPTION_I64, .offset = AT(max_model_len)),
    ROW(.name = "block-size", .key = "block_size", .value_name = "N",
        .help = "tokens per block of the KV cache", .default_text = "16", .minimum = 1,
        .maximum = 4096, .commands = MODEL_COMMANDS, .type = BERTH_OPTION_I64,
        .offset = AT(block_size)),
    ROW(.name = "kv-cache-blocks", .key = "kv_cache_blocks", .value_name = "N",
        .help = "blocks of the KV cache; 0: what fits the free memory", .default_text = "0",
        .minimum = 0, .maximum = INT32_MAX, .commands = MODEL_COMMANDS, .type = BERTH_OPTION_I64,
        .offset = AT(kv_cache_blocks)),
    ROW(.name = "memory-utilization", .key = "memory_utilization", .value_name = "SHARE",
        .help = "share of the device memory that may be used", .default_text = "0.9",
        .minimum = 0.01, .maximum = 1, .commands = MODEL_COMMANDS, .type = BERTH_OPTION_F64,
        .offset = AT(memory_utilization)),
    ROW(.name = "prefix-caching", .key = "enable_prefix_caching",
        .help = "use KV blocks again for prompts that begin alike; --no-prefix-caching: do not",
        .default_text = "true", .commands = MODEL_COMMANDS, .type = BERTH_OPTION_FLAG,
        .offset = AT(enable_prefix_caching)),
    ROW(.name = "max-num-seqs", .key = "max_num_seqs", .value_name = "N",
        .help = "most sequences in one step", .default_text = "64", .minimum = 1, .maximum = 65536,
        .commands = MODEL_COMMANDS, .type = BERTH_OPTION_I64, .offset = AT(max_num_seqs)),
    ROW(.name = "max-num-batched-tokens", .key = "max_num_batched_tokens", .value_name = "N",
        .help = "most tokens in one step; longer prompts take several", .default_text = "512",
        .minimum = 1, .maximum = 1 << 20, .commands = MODEL_COMMANDS, .type = BERTH_OPTION_I64,
        .offset = AT(max_num_batched_tokens)),
    ROW(.name = "prompt", .value_name = "TEXT", .help = "text to continue",
        .commands = PROMPT_COMMANDS, .type = BERTH_OPTION_STR, .offset = AT(prompt)),
    ROW(.name = "prompts", .value_name = "FILE", .help = "one prompt per line, all at once",
        .commands = PROMPT_COMMANDS, .type = BERTH_OPTION_STR, .offset = AT(prompts_file)),
    ROW(.name = "max-tokens", .short_name = 'n', .value_name = "N",
        .help = "tokens to generate per prompt", .default_text = "128", .minimum = 1,
        .maximum = 1 << 26, .commands = PROMPT_COMMANDS, .type = BERTH_OPTION_I64,
        .offset = AT(max_tokens)),
    ROW(.name = "min-tokens", .value_name = "N",
        .help = "no stop id and no --stop ends the text before so many tokens", .default_text = "0",
        .minimum = 0, .maximum = 1 << 26, .commands = BERTH_COMMAND_RUN, .type = BERTH_OPTION_I64,
        .offset = AT(min_tokens)),
    ROW(.name = "temperature", .value_name = "T",
        .help = "0: the likeliest token; above: the spread of the random choice",
        .default_text = "0", .minimum = 0, .maximum = 100, .commands = PROMPT_COMMANDS,
        .type = BERTH_OPTION_F64, .offset = AT(temperature)),
    ROW(.name = "top-k", .value_name = "K",
        .help = "choose among the K likeliest tokens; 0: among all", .default_text = "0",
        .minimum = 0, .maximum = INT32_MAX, .commands = PROMPT_COMMANDS, .type = BERTH_OPTION_I64,
        .offset = AT(top_k)),
    ROW(.name = "top-p", .value_name = "P",
        .help = "choose among the likeliest tokens that have this share together",
        .default_text = "1", .minimum = 1e-6, .maximum = 1, .commands = PROMPT_COMMANDS,
        .type = BERTH_OPTION_F64, .offset = AT(top_p)),
    ROW(.name = "min-p", .value_name = "P",
        .help = "choose among tokens at least P times as likely as the likeliest",
        .default_text = "0", .minimum = 0, .maximum = 1, .commands = PROMPT_COMMANDS,
        .type = BERTH_OPTION_F64, .offset = AT(min_p)),
    ROW(.name = "presence-penalty", .value_name = "X",
        .help = "taken from the logit of every token that the output has", .default_text = "0",
        .minimum = -2, .maximum = 2, .commands = PROMPT_COMMANDS, .type = BERTH_OPTION_F64,
        .offset = AT(presence_penalty)),
    ROW(.name = "frequency-penalty", .value_name = "X",
        .help = "the same, once for each time that the output has it", .default_text = "0",
        .minimum = -2, .maximum = 2, .commands = PROMPT_COMMANDS, .type = BERTH_OPTION_F64,
        .offset = AT(frequency_penalty)),
    ROW(.name = "repetition-penalty", .value_name = "X",
        .help = "above 1: tokens of prompt and output get less likely", .default_text = "1",
        .minimum = 0.01, .maximum = 100, .commands = PROMPT_COMMANDS, .type = BERTH_OPTION_F64,
        .offset = AT(repetition_penalty)),
    ROW(.name = "seed", .value_name = "S",
        .help = "seed of the random choice: the same seed, the same text", .default_text = "0",
        .commands = PROMPT_COMMANDS, .type = BERTH_OPTION_I64, .offset = AT(seed)),
    ROW(.name = "stop", .value_name = "TEXT", .help = "end the text before this; may be repeated",
        .commands = BERTH_COMMAND_RUN, .type = BERTH_OPTION_LIST, .offset = AT(stop)),
    ROW(.name = "logprobs", .value_name = "N",
        .help = "with --json: log probabilities of each token and the N likeliest",
        .default_text = "0", .minimum = 0, .maximum = 20, .commands = BERTH_COMMAND_RUN,
        .type = BERTH_OPTION_I64, .offset = AT(logprobs)),
    ROW(.name = "golden", .value_name = "FILE",
        .help =
            "golden.json to compare with, its tensors in the .safetensors beside it; ops check: "
            "the directory of such pairs",
        .commands = BERTH_COMMAND_EVAL | BERTH_COMMAND_CHECK, .type = BERTH_OPTION_STR,
        .offset = AT(golden)),
    ROW(.name = "loss", .value_name = "FILE",
        .help = "loss.json with the cross entropy to compare with", .commands = BERTH_COMMAND_EVAL,
        .type = BERTH_OPTION_STR, .offset = AT(loss)),
    ROW(.name = "chunk", .value_name = "N",
        .help = "tokens of the prompt per step; 0: as many as a step takes", .default_text = "0",
        .minimum = 0, .maximum = 1 << 20, .commands = BERTH_COMMAND_EVAL, .type = BERTH_OPTION_I64,
        .offset = AT(chunk)),
    ROW(.name = "special", .help = "put the model's special tokens around the text",
        .commands = BERTH_COMMAND_TOKENIZE, .type = BERTH_OPTION_FLAG, .offset = AT(is_special)),
    ROW(.name = "ids", .help = "from ids back to text", .commands = BERTH_COMMAND_TOKENIZE,
        .type = BERTH_OPTION_FLAG, .offset = AT(is_ids)),
    ROW(.name = "static", .help = "open no library: only what the manifests say",
        .commands = BERTH_COMMAND_PLUGINS, .type = BERTH_OPTION_FLAG, .offset = AT(is_static)),
    ROW(.name = "dot", .help = "print the graph for Graphviz", .commands = BERTH_COMMAND_GRAPH,
        .type = BERTH_OPTION_FLAG, .offset = AT(is_dot)),
    ROW(.name = "json", .help = "print JSON for programs", .commands = ALL_COMMANDS,
        .type = BERTH_OPTION_FLAG, .offset = AT(is_json)),
    ROW(.name = "log", .key = "log", .env = "BERTH_LOG", .value_name = "LEVEL",
        .help = "what is logged to standard error", .default_text = "warn", .choices = log_levels,
        .commands = ALL_COMMANDS, .type = BERTH_OPTION_ENUM, .offset = AT(log_level)),
};

const size_t berth_config_row_count = BERTH_COUNT(berth_config_rows);
_Static_assert(BERTH_COUNT(berth_config_rows) <= BERTH_CONFIG_MAX_ROWS, "more rows than expected");
