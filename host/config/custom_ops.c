// SPDX-License-Identifier: Apache-2.0
// Input: the items of custom_ops as the sources gave them, a platform's default base, the compile
// keys. Output: one base and the names after + and -, each once. Names are not looked up here: the
// list is read before any op is known.
#include <string.h>

#include "base/str.h"
#include "config/config.h"

static bool is_named(const char *const *names, size_t count, const char *name) {
    for (size_t i = 0; i < count; ++i) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static berth_status set_base(const char **base, const char *item) {
    if (*base != NULL) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "custom_ops has two bases, '%s' and '%s'; keep one of 'all' and 'none'",
                          *base, item);
    }
    *base = item;
    return BERTH_OK;
}

// "+name" or "-name" becomes a name of its list, unless it is there already.
static berth_status add_item(berth_arena *arena, berth_str item, const char **names,
                             size_t *count) {
    const berth_str rest = berth_str_trim(berth_str_slice(item, 1, item.size));
    const char *name = berth_arena_copy(arena, rest);
    if (name == NULL) {
        return berth_arena_exhausted(arena, "custom_ops");
    }
    if (!is_named(names, *count, name)) {
        names[(*count)++] = name;
    }
    return BERTH_OK;
}

static bool is_item(berth_str item) {
    const berth_str rest = berth_str_trim(berth_str_slice(item, 1, item.size));
    return item.size > 0 && (item.data[0] == '+' || item.data[0] == '-') && rest.size > 0 &&
           berth_str_find(rest, ',') == rest.size;
}

static berth_status parse_items(const berth_config *config, const char **base, const char **plus,
                                const char **minus, berth_custom_ops *out) {
    for (size_t i = 0; i < config->custom_ops.count; ++i) {
        const berth_str item = berth_str_trim(berth_str_from(config->custom_ops.items[i]));
        if (berth_str_equal_cstr(item, "all")) {
            BERTH_TRY(set_base(base, "all"));
        } else if (berth_str_equal_cstr(item, "none")) {
            BERTH_TRY(set_base(base, "none"));
        } else if (!is_item(item)) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "custom_ops: '" BERTH_STR_FMT "' is none of all, none, +op, -op",
                              BERTH_STR_ARG(item));
        } else if (item.data[0] == '+') {
            BERTH_TRY(add_item(config->arena, item, plus, &out->plus_count));
        } else {
            BERTH_TRY(add_item(config->arena, item, minus, &out->minus_count));
        }
    }
    return BERTH_OK;
}

// The base when the user wrote none: the platform's word, else the host's rule.
static berth_status choose_base(const berth_config *config, const char *platform_default,
                                berth_custom_ops *out) {
    if (platform_default != NULL) {
        out->is_base_all = strcmp(platform_default, "all") == 0;
        if (!out->is_base_all && strcmp(platform_default, "none") != 0) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "the platform's default_custom_ops is '%s', must be all or none",
                              platform_default);
        }
        return BERTH_OK;
    }
    const bool is_compiled = config->compilation_mode != 0 && config->compilation_backend != NULL &&
                             strcmp(config->compilation_backend, "inductor") == 0;
    out->is_base_all = !is_compiled;
    out->is_base_default = true;
    return BERTH_OK;
}

berth_status berth_custom_ops_parse(const berth_config *config, const char *platform_default,
                                    berth_custom_ops *out) {
    *out = (berth_custom_ops){0};
    const char **plus = BERTH_ARENA_ARRAY(config->arena, const char *, config->custom_ops.count);
    const char **minus = BERTH_ARENA_ARRAY(config->arena, const char *, config->custom_ops.count);
    if (plus == NULL || minus == NULL) {
        return berth_arena_exhausted(config->arena, "custom_ops");
    }
    out->plus = plus;
    out->minus = minus;
    const char *base = NULL;
    BERTH_TRY(parse_items(config, &base, plus, minus, out));
    for (size_t i = 0; i < out->plus_count; ++i) {
        if (is_named(minus, out->minus_count, plus[i])) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "custom_ops has both +%s and -%s; keep the one that is meant",
                              plus[i], plus[i]);
        }
    }
    if (base == NULL) {
        return choose_base(config, platform_default, out);
    }
    out->is_base_all = strcmp(base, "all") == 0;
    return BERTH_OK;
}

// The spelling of the op that the list has, NULL when it has neither.
static const char *spelled(const char *const *names, size_t count, const char *id,
                           const char *class_name) {
    for (size_t i = 0; i < count; ++i) {
        if (strcmp(names[i], id) == 0 || strcmp(names[i], class_name) == 0) {
            return names[i];
        }
    }
    return NULL;
}

berth_status berth_custom_ops_wants(const berth_custom_ops *ops, const char *id,
                                    const char *class_name, berth_op_wish *out) {
    const char *plus = spelled(ops->plus, ops->plus_count, id, class_name);
    const char *minus = spelled(ops->minus, ops->minus_count, id, class_name);
    if (plus != NULL && minus != NULL) {
        return BERTH_FAIL(INVALID_ARGUMENT,
                          "custom_ops has both +%s and -%s, which are one op; keep the one that is "
                          "meant",
                          plus, minus);
    }
    *out = plus != NULL ? BERTH_OP_PLUS : minus != NULL ? BERTH_OP_MINUS : BERTH_OP_DEFAULT;
    return BERTH_OK;
}

bool berth_custom_ops_is_enabled(const berth_custom_ops *ops, berth_op_wish wish,
                                 bool has_decomposition) {
    if (wish != BERTH_OP_DEFAULT) {
        return wish == BERTH_OP_PLUS;
    }
    // Why: what the compile backend cannot decompose it cannot fuse either, so nothing is gained by
    // turning it off; only a `none` that somebody wrote does.
    return ops->is_base_all || (ops->is_base_default && !has_decomposition);
}
