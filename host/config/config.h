// SPDX-License-Identifier: Apache-2.0
// The effective configuration: one struct, one table of rows, and what the custom_ops list means.
//
// Every stage reads it; only the command line (at start) and a platform's config hooks (once,
// logged as "changed by") write it. The struct is also the opaque berth_config that plugins see. It
// knows nothing of plugins, ops or devices: custom_ops items are names here, checked when the
// tables are known.
#ifndef BERTH_CONFIG_CONFIG_H
#define BERTH_CONFIG_CONFIG_H

#include <berth/host.h>

#include "base/arena.h"
#include "base/option.h"
#include "base/status.h"

// One bit per command, for the rows' `commands` and the CLI's table.
#define BERTH_COMMAND_RUN      UINT64_C(1)
#define BERTH_COMMAND_EVAL     UINT64_C(2)
#define BERTH_COMMAND_BENCH    UINT64_C(4)
#define BERTH_COMMAND_PLUGINS  UINT64_C(8)
#define BERTH_COMMAND_OPS      UINT64_C(16)
#define BERTH_COMMAND_TOKENIZE UINT64_C(32)
#define BERTH_COMMAND_GRAPH    UINT64_C(64)
#define BERTH_COMMAND_CONFIG   UINT64_C(128)
#define BERTH_COMMAND_CHECK    UINT64_C(256) // ops check

struct berth_config {
    // what to load
    const char *model;    // checkpoint directory
    const char *platform; // requested platform, NULL: the selection table decides
    const char *config_file;
    berth_option_list plugin_dirs;  // --plugin-dir, repeatable
    berth_option_list plugin_files; // --plugin FILE, repeatable; libraries without a manifest
    const char *plugins;            // BERTH_PLUGINS, the filter; NULL: unset = all, "": none
    const char *plugin_path;        // BERTH_PLUGIN_PATH, extends the search
    const char *plugin_search;      // BERTH_PLUGIN_DIRS, replaces the search

    // how to run it
    int32_t dtype; // index into berth_config_dtypes: auto, float32, bfloat16, float16
    berth_option_list custom_ops; // items: all, none, +op, -op
    bool allow_fallback;
    bool enforce_eager;         // no step is recorded
    bool enable_prefix_caching; // KV blocks are used again for prompts that begin alike
    bool fuse_norm_linear;      // passes, by the keys that are their flags
    bool fuse_act_linear;
    bool fuse_quant_linear;
    bool fuse_rope_kvcache;
    berth_option_list fallback_ops;    // ops that may be bounced without --allow-fallback
    int64_t threads;                   // 0: as many as berth_config_threads says
    int64_t compilation_mode;          // 0 .. 3
    const char *compilation_backend;   // "eager" or "inductor"
    int32_t capture_mode;              // berth_capture_mode
    berth_option_list capture_sizes;   // of recorded steps; items NULL: the usual ones
    int64_t max_capture_size;          // the largest of them, -1: as large as is useful
    berth_option_list disabled_passes; // by name
    const char *quantization;          // NULL: from the checkpoint
    berth_option_list quant_ignore;    // modules that schemes at load leave as they are
    int32_t kv_cache_dtype;            // index into berth_config_kv_dtypes; 0: auto
    int64_t max_model_len;             // 0: the model's
    int64_t block_size;                // tokens per KV block
    int64_t kv_cache_blocks;           // 0: from the free memory
    double memory_utilization;         // share of the device memory that may be used
    int64_t max_num_seqs;              // sequences in one step
    int64_t max_num_batched_tokens;    // tokens in one step
    const char *cache_dir;   // NULL: the user's usual one, "": none (berth_config_cache_dir)
    int64_t max_logits_rows; // rows of a step whose logits are wanted; 0: one per sequence

    // what one command asks
    const char *prompt;
    const char *prompts_file;
    const char *system; // run --chat
    int64_t max_tokens; // -n
    int64_t min_tokens;
    double temperature;
    double top_p;
    double min_p;
    double presence_penalty;
    double frequency_penalty;
    double repetition_penalty;
    int64_t top_k;
    int64_t logprobs; // entries beside that of the chosen token; 0: none at all
    int64_t seed;
    berth_option_list stop; // strings that end the text
    const char *golden;
    const char *loss;
    int64_t chunk;
    bool is_special;      // tokenize --special
    bool is_ids;          // tokenize --ids
    bool is_template;     // tokenize --template
    bool is_chat;         // run --chat
    bool is_static;       // plugins list --static
    bool is_dot;          // graph --dot
    bool is_after_passes; // graph --passes
    bool is_json;
    int32_t log_level;

    // bookkeeping
    berth_options options;      // sources of every value, the positional arguments
    berth_arena *arena;         // borrowed: texts of values
    const char *changed_by;     // the plugin whose config hook runs, else NULL
    berth_option_list user_ops; // custom_ops as the user gave them; items NULL: not given
    bool is_configured;         // the config hooks have run
};

extern const char *const berth_config_kv_dtypes[]; // "auto", "fp8", "fp8_e4m3", NULL; fp8 is e4m3
extern const char *const berth_config_dtypes[];    // "auto", "float32", "bfloat16", "float16", NULL

// Sets every default. The arena outlives the config.
BERTH_MUST_CHECK berth_status berth_config_init(berth_config *config, berth_arena *arena);
// Applies the config file (--config), the environment and the command line, strongest last.
// Relative plugin_dirs and plugin_files of a config file are relative to that file. A set-id
// process takes nothing from its environment. The texts of `argv` outlive the config.
BERTH_MUST_CHECK berth_status berth_config_load(berth_config *config, uint64_t command, int argc,
                                                char *const *argv);

// What berth_host's config_get_* and config_set_* do: typed access by key path. A set outside a
// config hook is WRONG_STATE; inside it is logged as changed by the plugin and recorded as the
// value's source. `threads` is read as the number that it stands for (berth_config_threads). What
// the user gave is stronger: such a set is OK, changes nothing and is logged
// as a warning, so a platform that cannot run with the user's value reads it back and refuses. Keys
// that only the user decides (platform, allow_fallback, …) are INVALID_ARGUMENT. A set of
// custom_ops keeps the user's base and +op and -op items. A string without a value is NOT_FOUND.
BERTH_MUST_CHECK berth_status berth_config_get_i64(const berth_config *config, const char *path,
                                                   int64_t *out);
BERTH_MUST_CHECK berth_status berth_config_get_f64(const berth_config *config, const char *path,
                                                   double *out);
BERTH_MUST_CHECK berth_status berth_config_get_str(const berth_config *config, const char *path,
                                                   const char **out);
BERTH_MUST_CHECK berth_status berth_config_set_i64(berth_config *config, const char *path,
                                                   int64_t value);
BERTH_MUST_CHECK berth_status berth_config_set_f64(berth_config *config, const char *path,
                                                   double value);
BERTH_MUST_CHECK berth_status berth_config_set_str(berth_config *config, const char *path,
                                                   const char *value);
// A pass's flag stands behind this.
#define BERTH_CONFIG_PASS_KEYS "compilation.pass_config."

// Threads that kernels and loaders may use, at least 1: those given, else berth_thread_cpus.
int64_t berth_config_threads(const berth_config *config);

// Around a config hook: who may change things. NULL ends it.
void berth_config_allow(berth_config *config, const char *plugin);

// Where plugins' measurements are kept: the option, else $XDG_CACHE_HOME/berth, else
// $HOME/.cache/berth; in the arena. NULL: nowhere, because the user wants none, there is no home,
// or the process has more rights than its user.
BERTH_MUST_CHECK berth_status berth_config_cache_dir(const berth_config *config, berth_arena *arena,
                                                     const char **out_dir);

// ---- recorded steps -----------------------------------------------------------------------------

// Steps of one token of each of some sequences are recorded whole, others in pieces between what
// depends on more than the number of tokens. Why pieces are no default, as they are vLLM's: they
// are worth something where launching is what a step waits for, and cost memory and a longer start.
typedef enum berth_capture_mode {
    BERTH_CAPTURE_FULL_DECODE_ONLY,
    BERTH_CAPTURE_FULL_AND_PIECEWISE,
    BERTH_CAPTURE_PIECEWISE, // decode steps in pieces, too
    BERTH_CAPTURE_NONE,
} berth_capture_mode;
extern const char *const berth_config_capture_modes[]; // the names, ends with NULL
// What the mode says and enforce_eager does not forbid.
bool berth_config_records_whole(const berth_config *config);
bool berth_config_records_pieces(const berth_config *config);

// Numbers of sequences of a decode step, and of tokens of another one; ascending, each once.
typedef struct berth_capture_sizes {
    int64_t *sizes; // [count], in the arena
    size_t count;   // 0: with enforce_eager only
} berth_capture_sizes;

// The user's list, or the usual one: 1, 2, 4, 8, then in steps of 8 to 256 and of 16 beyond, up to
// the largest size and with the tokens of a step where that ends the list. Sizes above those tokens
// are left out. INVALID_ARGUMENT: an item is no number above 0, a list that does not end with the
// largest size, a list without sizes where something is to be recorded.
BERTH_MUST_CHECK berth_status berth_config_capture_sizes(const berth_config *config,
                                                         berth_arena *arena,
                                                         berth_capture_sizes *out);

// ---- custom_ops ---------------------------------------------------------------------------------

// The parsed list: a base and named items, each once. Names are ids or class names as written.
typedef struct berth_custom_ops {
    bool is_base_all;
    bool is_base_default;    // neither user nor platform wrote a base: the host's rule gave it
    const char *const *plus; // names after '+'
    size_t plus_count;
    const char *const *minus; // names after '-'
    size_t minus_count;
} berth_custom_ops;

// INVALID_ARGUMENT for the three error classes of vLLM: a bad item, two bases, an op both + and -.
// (The same op under its two spellings is judged where names resolve: berth_custom_ops_wants.)
// `platform_default` is "all", "none" or NULL; the base when the user gave none is that, else
// "none" when the backend is inductor and the mode not 0, else "all".
BERTH_MUST_CHECK berth_status berth_custom_ops_parse(const berth_config *config,
                                                     const char *platform_default,
                                                     berth_custom_ops *out);

typedef enum berth_op_wish {
    BERTH_OP_DEFAULT, // no item names it: the base decides
    BERTH_OP_PLUS,
    BERTH_OP_MINUS,
} berth_op_wish;
// What the items say of an op under either spelling; INVALID_ARGUMENT when + and - both name it.
BERTH_MUST_CHECK berth_status berth_custom_ops_wants(const berth_custom_ops *ops, const char *id,
                                                     const char *class_name, berth_op_wish *out);
// Whether the list enables an op with that wish. The default `none` (not a written one) turns off
// only ops that have a decomposition; enforce_enable of an instance stands above all of it.
bool berth_custom_ops_is_enabled(const berth_custom_ops *ops, berth_op_wish wish,
                                 bool has_decomposition);

#endif
