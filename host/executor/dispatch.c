// SPDX-License-Identifier: Apache-2.0
// Input: an op site. Output: who runs it, and the record of why. The order, decided once per site:
//
//   1. an override whose device types include the platform's
//   2. custom_ops: a disabled op is native, whatever stands in 1 and 3; enforce_enable wins
//   3. the platform's attention backend (paged_attention only), then its dispatch keys in order,
//   per
//      key the implementations by priority
//   4. native
//
// Whoever in 1 or 3 does not support the site is passed over with its reason. Who has a faster form
// in an op library is asked for that one first, which opens the library.
#include "executor/stages.h"

#include <string.h>

#include "base/log.h"

#define ATTENTION_OP "paged_attention"

// Somebody who could run the site, in the order of preference.
typedef struct contender {
    const berth_op_impl *impl; // NULL: native, or a backend not asked for yet
    const char *name;          // of an implementation
    const berth_owner *owner;
    const berth_attention_backend *backend;
    berth_op_library_entry *library; // NULL: it lies in the plugin's own
    const char *key;                 // dispatch key that found it
    const char *lost; // why it does not run the site, NULL while nothing speaks against it
    bool is_override;
    bool is_backend;
} contender;

typedef struct contest {
    berth_plan *plan;
    const berth_op_entry *op;
    const berth_op_site *site;
    contender *candidates;
    size_t count;
    const char *because; // the winner's reason
} contest;

static const char *device_type(const berth_plan *plan) {
    return berth_runtime_device(plan->runtime)->device_type;
}

static berth_status check_text(const berth_plan *plan, const char *text) {
    return text != NULL ? BERTH_OK : berth_arena_exhausted(plan->arena, "dispatch records");
}

// ---- the candidates -----------------------------------------------------------------------------

static bool accepts_device(const berth_op_impl *impl, const char *type) {
    for (uint64_t i = 0; i < impl->device_type_count; ++i) {
        if (strcmp(impl->device_types[i], type) == 0) {
            return true;
        }
    }
    return false;
}

static bool has_key(const char *const *keys, const char *key) {
    for (size_t i = 0; keys[i] != NULL; ++i) {
        if (strcmp(keys[i], key) == 0) {
            return true;
        }
    }
    return false;
}

static void add(contest *in, contender candidate) {
    in->candidates[in->count++] = candidate;
}

// One that could run the site: its form in an op library, then itself.
static void add_entry(contest *in, const berth_impl_entry *entry, const char *key) {
    contender candidate = {
        .name = entry->impl.name,
        .owner = entry->owner,
        .key = key,
        .is_override = entry->is_override,
    };
    if (entry->library != NULL) {
        candidate.impl = &entry->form;
        candidate.library = entry->library;
        add(in, candidate);
    }
    candidate.impl = &entry->impl;
    candidate.library = NULL;
    add(in, candidate);
}

static void add_overrides(contest *in) {
    for (size_t i = 0; i < in->op->override_count; ++i) {
        const berth_impl_entry *entry = in->op->overrides[i];
        if (accepts_device(&entry->impl, device_type(in->plan))) {
            add_entry(in, entry, NULL);
        }
    }
}

static void add_other_overrides(contest *in) {
    for (size_t i = 0; i < in->op->override_count; ++i) {
        const berth_impl_entry *entry = in->op->overrides[i];
        if (!accepts_device(&entry->impl, device_type(in->plan))) {
            add(in, (contender){
                        .impl = &entry->impl,
                        .name = entry->impl.name,
                        .owner = entry->owner,
                        .lost = "not for this device type",
                        .is_override = true,
                    });
        }
    }
}

static void add_impls(contest *in, const char *key) {
    for (size_t i = 0; i < in->op->impl_count; ++i) {
        if (strcmp(in->op->impls[i]->impl.dispatch_key, key) == 0) {
            add_entry(in, in->op->impls[i], key);
        }
    }
}

static void add_strangers(contest *in, const char *const *keys) {
    for (size_t i = 0; i < in->op->impl_count; ++i) {
        const berth_impl_entry *entry = in->op->impls[i];
        if (!has_key(keys, entry->impl.dispatch_key)) {
            add(in, (contender){
                        .impl = &entry->impl,
                        .name = entry->impl.name,
                        .owner = entry->owner,
                        .lost = "its dispatch key is none of the platform's",
                    });
        }
    }
}

// Native stands behind those who could run the site and before those who could not anyway.
static berth_status collect(contest *in) {
    const berth_platform_entry *platform = berth_runtime_platform(in->plan->runtime);
    const char *const *keys = berth_platform_keys(platform);
    in->candidates = BERTH_ARENA_ARRAY(in->plan->arena, contender,
                                       2 * (in->op->override_count + in->op->impl_count + 1));
    if (in->candidates == NULL) {
        return berth_arena_exhausted(in->plan->arena, "dispatch records");
    }
    add_overrides(in);
    if (platform != NULL && platform->platform.get_attn_backend != NULL &&
        strcmp(in->op->op.name, ATTENTION_OP) == 0) {
        add(in, (contender){.is_backend = true, .owner = platform->owner});
    }
    for (size_t i = 0; keys[i] != NULL; ++i) {
        add_impls(in, keys[i]);
    }
    add(in, (contender){.owner = in->op->owner, .key = BERTH_DISPATCH_NATIVE});
    add_other_overrides(in);
    add_strangers(in, keys);
    return BERTH_OK;
}

static bool is_native(const contender *candidate) {
    return candidate->impl == NULL && !candidate->is_backend;
}

// ---- the decision -------------------------------------------------------------------------------

// Opens the library at its first use. That it fails is nobody's error here: it is logged once, and
// every site that goes without keeps the reason.
static berth_status open_library(const contest *in, contender *candidate) {
    berth_op_library_entry *library = candidate->library;
    const bool is_first = library->state == BERTH_LIBRARY_NOT_TRIED;
    if (berth_op_library_open(in->plan->request.registry, library)) {
        return BERTH_OK;
    }
    if (is_first) {
        BERTH_WARN("ops", "plugin '%s' goes without its op library %s: %s", library->owner->id,
                   library->file, library->reason);
    }
    candidate->lost = berth_arena_printf(in->plan->arena, "%s: %s", library->file, library->reason);
    return check_text(in->plan, candidate->lost);
}

// Asks the candidate; `lost` says why not.
static berth_status ask(contest *in, contender *candidate) {
    if (candidate->lost == NULL && candidate->library != NULL) {
        BERTH_TRY(open_library(in, candidate));
    }
    if (candidate->lost != NULL || is_native(candidate)) {
        return BERTH_OK;
    }
    if (!candidate->is_backend) {
        return berth_impl_supports(in->plan, candidate->impl, candidate->owner, in->site,
                                   &candidate->lost);
    }
    BERTH_TRY(berth_backend_find(in->plan, in->site, &candidate->backend, &candidate->owner,
                                 &candidate->lost));
    candidate->impl = candidate->backend != NULL ? candidate->backend->impl : NULL;
    return BERTH_OK;
}

static berth_status explain_winner(contest *in, size_t winner) {
    const contender *chosen = &in->candidates[winner];
    berth_arena *arena = in->plan->arena;
    if (chosen->is_override) {
        in->because =
            berth_arena_printf(arena, "override for device type %s", device_type(in->plan));
    } else if (chosen->is_backend) {
        in->because = berth_arena_printf(arena, "attention backend that platform '%s' chose",
                                         berth_runtime_device(in->plan->runtime)->platform);
    } else if (chosen->impl != NULL) {
        in->because = berth_arena_printf(arena, "key %s, priority %lld", chosen->key,
                                         (long long)chosen->impl->priority);
    } else {
        in->because = winner == 0 ? "no implementation for this platform"
                                  : "no implementation for this platform supports the site";
    }
    if (in->because != NULL && chosen->library != NULL) {
        in->because = berth_arena_printf(arena, "%s, from %s", in->because, chosen->library->file);
    }
    return check_text(in->plan, in->because);
}

static berth_status decide_enabled(contest *in, size_t *out_winner) {
    size_t winner = 0;
    BERTH_TRY(ask(in, &in->candidates[0]));
    while (in->candidates[winner].lost != NULL) {
        BERTH_TRY(ask(in, &in->candidates[++winner]));
    }
    *out_winner = winner;
    return explain_winner(in, winner);
}

// What switched the op off: the reason of its native run, and why the others lost.
static berth_status decide_disabled(contest *in, berth_op_wish wish, size_t *out_winner) {
    in->because = wish == BERTH_OP_MINUS
                      ? berth_arena_printf(in->plan->arena, "-%s", in->op->op.name)
                  : in->plan->custom_ops.is_base_default ? "default base none"
                                                         : "base none";
    BERTH_TRY(check_text(in->plan, in->because));
    size_t winner = 0;
    while (!is_native(&in->candidates[winner])) {
        in->candidates[winner++].lost = in->because;
    }
    *out_winner = winner;
    return BERTH_OK;
}

// ---- the record ---------------------------------------------------------------------------------

static const char *name_of(const contender *candidate) {
    return is_native(candidate)         ? BERTH_DISPATCH_NATIVE
           : candidate->backend != NULL ? candidate->backend->name
           : candidate->name != NULL    ? candidate->name
                                        : "attention backend";
}

// Why a candidate that nothing speaks against was not asked before the winner.
static const char *why_later(const contender *first, const contender *second) {
    if (is_native(second)) {
        return "native comes last";
    }
    if (first->library != NULL && second->owner == first->owner && second->library == NULL) {
        return "its form in the op library comes first";
    }
    if (second->impl == NULL || second->key == NULL || first->key == NULL ||
        strcmp(second->key, first->key) != 0) {
        return "asked later";
    }
    return first->impl != NULL && second->impl->priority == first->impl->priority
               ? "same priority, its plugin or name comes later"
               : "its priority is lower";
}

// The first other candidate: one that was passed over, else the next that would have been asked.
static const char *runner_up(const contest *in, size_t winner) {
    if (in->count < 2) {
        return "";
    }
    const contender *second = &in->candidates[winner == 0 ? 1 : 0];
    const char *lost =
        second->lost != NULL ? second->lost : why_later(&in->candidates[winner], second);
    return berth_arena_printf(in->plan->arena, "%s of %s: %s", name_of(second), second->owner->id,
                              lost);
}

// The failed library that the site goes without, as its form would have been asked before.
static const contender *missed_form(const contest *in, size_t winner) {
    for (size_t i = 0; i < winner; ++i) {
        const berth_op_library_entry *library = in->candidates[i].library;
        if (library != NULL && library->state == BERTH_LIBRARY_FAILED) {
            return &in->candidates[i];
        }
    }
    return NULL;
}

static berth_status write_record(const contest *in, size_t winner, bool is_enabled,
                                 berth_binding *binding) {
    const contender *chosen = &in->candidates[winner];
    const contender *missed = is_enabled ? missed_form(in, winner) : NULL;
    binding->missed = missed != NULL ? missed->library : NULL;
    binding->record = (berth_site_record){
        .op = in->op->op.name,
        .layer = in->site->layer,
        .implementation = name_of(chosen),
        .plugin = chosen->owner->id,
        .version = chosen->owner->version,
        .reason = in->because,
        .runner_up = runner_up(in, winner),
        .library = chosen->library != NULL ? chosen->library->file : NULL,
        .degraded = missed != NULL ? missed->lost : NULL,
        .is_override = chosen->is_override,
        .is_backend = chosen->is_backend,
        .is_enabled = is_enabled,
        .is_native = is_native(chosen),
        .is_bounced = is_native(chosen) && !in->plan->is_host && !binding->is_wished,
    };
    return check_text(in->plan, binding->record.runner_up);
}

// Whether the user himself switched the op off. What a platform's config hook or default switches
// off is none of his wish: it would hide that the platform lacks the op.
static bool is_users_wish(const berth_config *config, const berth_op *op) {
    for (size_t i = 0; i < config->user_ops.count; ++i) {
        const berth_str item = berth_str_trim(berth_str_from(config->user_ops.items[i]));
        const berth_str name = berth_str_trim(berth_str_slice(item, 1, item.size));
        const bool is_minus = item.size > 0 && item.data[0] == '-';
        if (berth_str_equal_cstr(item, "none") ||
            (is_minus && (berth_str_equal_cstr(name, op->name) ||
                          berth_str_equal_cstr(name, op->class_name)))) {
            return true;
        }
    }
    return false;
}

static berth_status decide(contest *in, bool is_enforced, berth_binding *binding) {
    const berth_op *op = &in->op->op;
    const berth_custom_ops *custom_ops = &in->plan->custom_ops;
    berth_op_wish wish = BERTH_OP_DEFAULT;
    BERTH_TRY(berth_custom_ops_wants(custom_ops, op->name, op->class_name, &wish));
    const bool is_enabled =
        is_enforced || berth_custom_ops_is_enabled(custom_ops, wish, op->has_decomposition != 0);
    binding->is_wished = !is_enabled && is_users_wish(in->plan->request.config, op);
    size_t winner = 0;
    BERTH_TRY(collect(in));
    BERTH_TRY(is_enabled ? decide_enabled(in, &winner) : decide_disabled(in, wish, &winner));
    const contender *chosen = &in->candidates[winner];
    binding->impl = chosen->impl;
    binding->owner = chosen->owner;
    binding->backend = chosen->backend;
    binding->space =
        is_native(chosen) && !in->plan->is_host ? BERTH_SPACE_HOST : BERTH_SPACE_DEVICE;
    in->plan->counters.enabled += is_enabled;
    in->plan->counters.disabled += !is_enabled;
    return write_record(in, winner, is_enabled, binding);
}

berth_status berth_dispatch(berth_plan *plan, const berth_op_entry *op, const berth_op_site *site,
                            bool is_enforced, berth_binding **out_binding) {
    berth_binding *binding = BERTH_ARENA_NEW(plan->arena, berth_binding);
    if (binding == NULL) {
        return berth_arena_exhausted(plan->arena, "dispatch records");
    }
    const berth_kv_cache_spec *cache = berth_plan_cache(plan, site->layer);
    const bool has_cache = cache != NULL && op->op.state_count > 0;
    binding->site = *site;
    binding->site.max_tokens = (uint64_t)plan->request.max_tokens;
    binding->site.max_sequences = (uint64_t)plan->request.max_sequences;
    binding->site.cache_group = has_cache ? cache->group : 0;
    binding->site.block_size = has_cache ? (uint64_t)cache->block_size : 0;
    binding->op = op;
    contest in = {.plan = plan, .op = op, .site = &binding->site};
    BERTH_TRY(decide(&in, is_enforced, binding));
    *out_binding = binding;
    return berth_array_push(&plan->bindings, binding);
}
