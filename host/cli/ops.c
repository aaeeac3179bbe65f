// SPDX-License-Identifier: Apache-2.0
// `berth ops`: what the op table holds, and who runs each site of a model and why.
#include <string.h>

#include "cli/cli_private.h"

// ---- list ---------------------------------------------------------------------------------------

static void put_impl(berth_json_writer *json, const berth_impl_entry *entry) {
    berth_json_begin_object(json);
    berth_cli_put(json, "name", entry->impl.name);
    berth_cli_put(json, "plugin", entry->owner->id);
    berth_cli_put(json, "key", entry->is_override ? "override" : entry->impl.dispatch_key);
    berth_json_put_key(json, "priority");
    berth_json_put_i64(json, entry->impl.priority);
    berth_cli_put(json, "library", entry->impl.library);
    berth_json_end_object(json);
}

static void put_op(berth_json_writer *json, const berth_op_entry *entry) {
    berth_json_begin_object(json);
    berth_cli_put(json, "op", entry->op.name);
    berth_cli_put(json, "class", entry->op.class_name);
    berth_cli_put_u64(json, "revision", entry->op.revision);
    berth_cli_put(json, "plugin", entry->owner->id);
    berth_json_put_key(json, "implementations");
    berth_json_begin_array(json);
    for (size_t i = 0; i < entry->override_count; ++i) {
        put_impl(json, entry->overrides[i]);
    }
    for (size_t i = 0; i < entry->impl_count; ++i) {
        put_impl(json, entry->impls[i]);
    }
    berth_json_end_array(json);
    berth_json_end_object(json);
}

// Names of vLLM's catalogue that no plugin of ours has, and why.
typedef struct absent_op {
    const char *name;
    const char *class_name; // NULL: not known
    const char *reason;
} absent_op;

#define NO_REFERENCE "vLLM has no portable reference of it"
#define WHOLE_LAYER  "a whole layer of ops that exist"
#define LATER        "comes later"

// Why a macro: clang-format 14 pulls rows that differ in the number of members apart.
#define ABSENT(...)                                                                                \
    { __VA_ARGS__ }

static const absent_op absent_ops[] = {
    ABSENT(.name = "bailing_moe_linear_attention", .class_name = "BailingMoELinearAttention",
           .reason = WHOLE_LAYER),
    ABSENT(.name = "bailing_moe_v3_kimi_delta_attention",
           .class_name = "BailingMoeV3KimiDeltaAttention", .reason = WHOLE_LAYER),
    ABSENT(.name = "chunk_gated_delta_rule", .class_name = "ChunkGatedDeltaRule",
           .reason = NO_REFERENCE),
    ABSENT(.name = "fused_mm_input_norm", .reason = LATER),
    ABSENT(.name = "hpc_rope_norm", .class_name = "HpcRopeNorm", .reason = NO_REFERENCE),
    ABSENT(.name = "kimi_gated_delta_net_attention", .class_name = "KimiGatedDeltaNetAttention",
           .reason = WHOLE_LAYER),
    ABSENT(.name = "mhc_pre_delayed", .reason = LATER),
    ABSENT(.name = "minimax_text_01_attention", .class_name = "MiniMaxText01LinearAttention",
           .reason = WHOLE_LAYER),
    ABSENT(.name = "nemotron_layer_norm", .reason = LATER),
    ABSENT(.name = "olmo_hybrid_gated_delta_net_attention",
           .class_name = "OlmoHybridGatedDeltaNetAttention", .reason = WHOLE_LAYER),
    ABSENT(.name = "plamo2_mamba_mixer", .class_name = "Plamo2MambaMixer", .reason = WHOLE_LAYER),
    ABSENT(.name = "qwen2_decoder", .class_name = "CustomQwen2Decoder", .reason = WHOLE_LAYER),
    ABSENT(.name = "qwen_gated_delta_net_attention", .class_name = "QwenGatedDeltaNetAttention",
           .reason = WHOLE_LAYER),
    ABSENT(.name = "sparse_attn_indexer", .class_name = "SparseAttnIndexer",
           .reason = NO_REFERENCE),
    ABSENT(.name = "sparse_attn_indexer_kpool", .reason = NO_REFERENCE),
    ABSENT(.name = "vit_mrope_setup", .reason = LATER),
};

// A plugin may have brought it.
static bool is_absent(const berth_session *session, const absent_op *op) {
    return !berth_registry_find_op(session->registry, op->name) &&
           !(op->class_name && berth_registry_find_op(session->registry, op->class_name));
}

static void put_absent(berth_json_writer *json, const absent_op *op) {
    berth_json_begin_object(json);
    berth_cli_put(json, "op", op->name);
    berth_cli_put(json, "class", op->class_name);
    berth_cli_put(json, "absent", op->reason);
    berth_json_end_object(json);
}

static void list_json(berth_session *session) {
    berth_json_writer json;
    berth_session_json(session, &json);
    berth_json_begin_array(&json);
    for (size_t i = 0; i < berth_registry_op_count(session->registry); ++i) {
        put_op(&json, berth_registry_op_at(session->registry, i));
    }
    for (size_t i = 0; i < BERTH_COUNT(absent_ops); ++i) {
        if (is_absent(session, &absent_ops[i])) {
            put_absent(&json, &absent_ops[i]);
        }
    }
    berth_json_end_array(&json);
    berth_session_json_end(session);
}

// "override cpu-fast of acme, cpu.linear of cpu (cpu, 10), native"
static const char *describe(const berth_op_entry *entry, berth_text *text) {
    berth_text_clear(text);
    for (size_t i = 0; i < entry->override_count; ++i) {
        const berth_impl_entry *impl = entry->overrides[i];
        berth_text_add_format(text, "override %s of %s, ", impl->impl.name, impl->owner->id);
    }
    for (size_t i = 0; i < entry->impl_count; ++i) {
        const berth_impl_entry *impl = entry->impls[i];
        berth_text_add_format(text, "%s of %s (%s, %lld), ", impl->impl.name, impl->owner->id,
                              impl->impl.dispatch_key, (long long)impl->impl.priority);
    }
    berth_text_add_cstr(text, BERTH_DISPATCH_NATIVE);
    return text->data;
}

static berth_status list_table(berth_session *session) {
    static const char *const headings[] = {"op", "class", "revision", "plugin", "implementations"};
    berth_listing table;
    berth_text text;
    berth_text_init(&text, 1 << 16);
    berth_listing_begin(&table, session, headings, BERTH_COUNT(headings));
    for (size_t i = 0; i < berth_registry_op_count(session->registry); ++i) {
        const berth_op_entry *entry = berth_registry_op_at(session->registry, i);
        berth_listing_add(&table, entry->op.name);
        berth_listing_add(&table, entry->op.class_name);
        berth_listing_add_format(&table, "%llu", (unsigned long long)entry->op.revision);
        berth_listing_add(&table, entry->owner->id);
        berth_listing_add(&table, describe(entry, &text));
    }
    berth_text_deinit(&text);
    return berth_listing_end(&table);
}

static berth_status list(berth_session *session) {
    if (!session->config.is_json) {
        return list_table(session);
    }
    list_json(session);
    return BERTH_OK;
}

// ---- explain ------------------------------------------------------------------------------------

// The op that the argument names, NULL for all of them.
static berth_status find_op(berth_session *session, const berth_op_entry **out_op) {
    const char *wanted = berth_session_argument(session, 0);
    *out_op = wanted ? berth_registry_find_op(session->registry, wanted) : NULL;
    if (!wanted || *out_op) {
        return BERTH_OK;
    }
    const char *names[256];
    size_t count = 0;
    for (size_t i = 0; i < berth_registry_op_count(session->registry); ++i) {
        if (count < BERTH_COUNT(names)) {
            names[count++] = berth_registry_op_at(session->registry, i)->op.name;
        }
    }
    const char *nearest = berth_str_nearest(berth_str_from(wanted), names, count);
    session->stage = BERTH_STAGE_USAGE;
    return BERTH_FAIL(NOT_FOUND, "there is no op '%s'%s%s%s, `berth ops list` shows all", wanted,
                      nearest ? ", did you mean '" : "", nearest ? nearest : "",
                      nearest ? "'" : "");
}

// What is explained: sites of one op or of all. A linear layer is whatever its scheme makes of it,
// so that the op "linear" stands for the nodes of all linear layers.
typedef struct explanation {
    const berth_worker *worker;
    const berth_plan *plan;
    const berth_op_entry *op; // NULL: all
    bool has_schemes;         // sites of linear layers may be among them
} explanation;

static bool is_wanted(const explanation *of, const berth_site_record *site) {
    return !of->op || strcmp(site->op, of->op->op.name) == 0 ||
           (of->has_schemes && berth_worker_scheme(of->worker, site->layer));
}

static const char *how(const berth_site_record *site) {
    return site->is_bounced    ? "bounced"
           : site->is_native   ? "native"
           : site->is_override ? "override"
                               : "implementation";
}

static void put_site(berth_json_writer *json, const explanation *of,
                     const berth_site_record *site) {
    const berth_layer_scheme *scheme = berth_worker_scheme(of->worker, site->layer);
    berth_json_begin_object(json);
    berth_cli_put(json, "op", site->op);
    berth_cli_put(json, "layer", site->layer);
    berth_cli_put(json, "scheme", scheme ? scheme->scheme : NULL);
    berth_cli_put(json, "scheme_plugin", scheme ? scheme->plugin : NULL);
    berth_cli_put(json, "method", scheme ? scheme->method : NULL);
    berth_cli_put(json, "implementation", site->implementation);
    berth_cli_put(json, "how", how(site));
    berth_cli_put(json, "plugin", site->plugin);
    berth_cli_put(json, "version", site->version);
    berth_cli_put(json, "reason", site->reason);
    berth_cli_put(json, "runner_up", site->runner_up);
    berth_cli_put(json, "library", site->library);
    berth_cli_put(json, "degraded", site->degraded);
    berth_cli_put(json, "pass", site->pass);
    berth_cli_put_bool(json, "is_enabled", site->is_enabled);
    berth_cli_put_bool(json, "is_bounced", site->is_bounced);
    berth_json_end_object(json);
}

static void explain_json(berth_session *session, const explanation *of) {
    const berth_plan *plan = of->plan;
    const berth_dispatch_counters counters = berth_plan_counters(plan);
    berth_json_writer json;
    berth_session_json(session, &json);
    berth_json_begin_object(&json);
    berth_json_put_key(&json, "sites");
    berth_json_begin_array(&json);
    for (size_t i = 0; i < berth_plan_site_count(plan); ++i) {
        if (is_wanted(of, berth_plan_site(plan, i))) {
            put_site(&json, of, berth_plan_site(plan, i));
        }
    }
    berth_json_end_array(&json);
    berth_cli_put_u64(&json, "enabled", counters.enabled);
    berth_cli_put_u64(&json, "disabled", counters.disabled);
    berth_json_put_key(&json, "notes");
    berth_json_begin_array(&json);
    for (size_t i = 0; i < berth_plan_note_count(plan); ++i) {
        berth_json_put_cstr(&json, berth_plan_note(plan, i));
    }
    berth_json_end_array(&json);
    berth_json_end_object(&json);
    berth_session_json_end(session);
}

// Why this implementation runs the site, and which pass made it.
static const char *reason(berth_session *session, const berth_site_record *site) {
    const char *text = site->pass ? berth_arena_printf(session->arena, "%s; made by pass %s",
                                                       site->reason, site->pass)
                                  : site->reason;
    return text ? text : site->reason;
}

static berth_status explain_table(berth_session *session, const explanation *of) {
    static const char *const headings[] = {"op",     "layer",   "runs",     "how",
                                           "plugin", "version", "reason",   "runner-up",
                                           "scheme", "method",  "scheme of"};
    const size_t columns = BERTH_COUNT(headings) - (of->has_schemes ? 0 : 3);
    berth_listing table;
    berth_listing_begin(&table, session, headings, columns);
    for (size_t i = 0; i < berth_plan_site_count(of->plan); ++i) {
        const berth_site_record *site = berth_plan_site(of->plan, i);
        const berth_layer_scheme *scheme = berth_worker_scheme(of->worker, site->layer);
        const char *const cells[] = {
            site->op,
            site->layer,
            site->implementation,
            how(site),
            site->plugin,
            site->version,
            reason(session, site),
            site->runner_up,
            scheme ? scheme->scheme : NULL,
            scheme ? scheme->method : NULL,
            scheme ? scheme->plugin : NULL,
        };
        for (size_t k = 0; is_wanted(of, site) && k < columns; ++k) {
            berth_listing_add(&table, cells[k]);
        }
    }
    return berth_listing_end(&table);
}

static void explain_rest(berth_session *session, const berth_plan *plan) {
    const berth_dispatch_counters counters = berth_plan_counters(plan);
    berth_text_add_format(&session->out, "\nsites: %llu enabled, %llu disabled by custom_ops\n",
                          (unsigned long long)counters.enabled,
                          (unsigned long long)counters.disabled);
    for (size_t i = 0; i < berth_plan_note_count(plan); ++i) {
        berth_text_add_format(&session->out, "note: %s\n", berth_plan_note(plan, i));
    }
}

static berth_status explain(berth_session *session) {
    explanation of = {
        .worker = session->worker,
        .plan = berth_worker_plan(session->worker),
    };
    BERTH_TRY(find_op(session, &of.op));
    of.has_schemes = !of.op || strcmp(of.op->op.name, "linear") == 0;
    if (!of.plan) {
        session->stage = BERTH_STAGE_WORKER;
        return BERTH_FAIL(UNSUPPORTED,
                          "the worker of platform '%s' loads models its own way: "
                          "there is no plan to explain",
                          session->decision.platform->platform.name);
    }
    if (session->config.is_json) {
        explain_json(session, &of);
        return BERTH_OK;
    }
    BERTH_TRY(explain_table(session, &of));
    explain_rest(session, of.plan);
    return BERTH_OK;
}

const berth_command berth_command_ops_list = {
    .name = "ops list",
    .arguments = "",
    .help = "list all ops and who implements them, in the order in which they are asked",
    .details =
        "--json prints an array of {op, class, revision, plugin, implementations}, the last an\n"
        "array of {name, plugin, key, priority, library}; the key of an override is \"override\",\n"
        "library the op library that has a faster form, or null. After them come ops of vLLM's\n"
        "catalogue that nobody brings, as {op, class, absent}, the reason.",
    .bit = BERTH_COMMAND_OPS,
    .needs = BERTH_STAGE_TABLES,
    .flags = BERTH_CLI_ANY_PLATFORM,
    .run = list,
};

const berth_command berth_command_ops_explain = {
    .name = "ops explain",
    .arguments = "[OP]",
    .help = "show who runs each site of a model, and why; of one op or of all",
    .details =
        "OP is an id or a class name; linear is whatever schemes make of linear layers.\n"
        "--json prints {sites, enabled, disabled, notes}; a site is {op, layer, scheme,\n"
        "scheme_plugin, method, implementation, how, plugin, version, reason, runner_up, library,\n"
        "degraded, pass, is_enabled, is_bounced}. Scheme, its plugin and method are null where the "
        "site\n"
        "is of no linear layer; library is the op library that the implementation comes from,\n"
        "degraded one that failed, and why, so that the site goes without; else both are null. "
        "pass\n"
        "is the pass that made the site, null where the model has it.",
    .bit = BERTH_COMMAND_OPS,
    .max_arguments = 1,
    .needs = BERTH_STAGE_MODEL,
    .flags = BERTH_CLI_MODEL | BERTH_CLI_NOTES,
    .run = explain,
};
