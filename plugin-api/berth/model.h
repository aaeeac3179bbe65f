// SPDX-License-Identifier: Apache-2.0
// Models: an architecture of Hugging Face's config.json and how its graph is built from layers.
#ifndef BERTH_MODEL_H
#define BERTH_MODEL_H

#include <berth/builder.h>

// How checkpoint names map to parameters: the first rule whose `from` occurs in a tensor's name
// applies. From ABI 1.1 on one "*" in it stands for a number: the tensor fills that part of the
// parameter's first dimension, which it lacks itself.
typedef struct berth_weight_rule {
    uint64_t size;
    const char *from; // text inside the checkpoint's name, ".q_proj.", ".experts.*.w1."
    const char
        *to; // what stands there in the parameter's name, ".qkv_proj."; NULL: the tensor is ignored
    const char *shard; // id of the shard that the tensor fills, or NULL for the whole parameter
    // 1: the tensor's last two dimensions are the parameter's, exchanged. From ABI 1.1 on
    uint64_t is_transposed;
    // A key of config.json: without it, or with null under it, there is no such rule. NULL: always.
    // From ABI 1.1 on
    const char *when;
    // 1: the tensor holds logarithms of how fast something fades: the parameter is −e^x of its
    // numbers, in float32 whatever the tensor's type. From ABI 1.1 on
    uint64_t is_log_decay;
} berth_weight_rule;

typedef struct berth_model {
    uint64_t size;
    const char *architecture; // [required] as in config.json's `architectures`
    // [required][startup] Builds the whole graph; reads hyperparameters from builder->config. Knows
    // no device.
    void (*build)(berth_builder *builder);
    const berth_weight_rule *const *weight_rules;
    uint64_t weight_rule_count;
} berth_model;

// ---- numbers of config.json ---------------------------------------------------------------------

// A count is so small that sums of a few products of two of them cannot overflow. Every number that
// is out of range or of another type fails the build naming the key; so does an absent one without
// a fallback. A fallback is used when the key is absent or null. After a failure a count is 1, so
// that a loop over it ends.
#define BERTH_CONFIG_COUNT_MAX (INT64_C(1) << 30)
#define BERTH_CONFIG_LAYER_MAX INT64_C(4096)

static inline int64_t berth_config_count_to(berth_builder *builder, const char *path,
                                            int64_t fallback, int64_t maximum) {
    int64_t value = 0;
    const berth_status status = builder->host->json_get_i64(builder->config, path, &value);
    if (status == BERTH_NOT_FOUND && fallback > 0) {
        return fallback;
    }
    if (status == BERTH_NOT_FOUND) {
        berth_build_fail(builder, BERTH_CORRUPT, "config.json: '%s' is missing", path);
    } else if (status != BERTH_OK) {
        berth_build_fail(builder, BERTH_CORRUPT, "config.json: '%s' is not an integer", path);
    } else if (value < 1 || value > maximum) {
        berth_build_fail(builder, BERTH_CORRUPT, "config.json: '%s' is %lld, must be 1 to %lld",
                         path, (long long)value, (long long)maximum);
    } else {
        return value;
    }
    return 1;
}
static inline int64_t berth_config_count_or(berth_builder *builder, const char *path,
                                            int64_t fallback) {
    return berth_config_count_to(builder, path, fallback, BERTH_CONFIG_COUNT_MAX);
}
static inline int64_t berth_config_count(berth_builder *builder, const char *path) {
    return berth_config_count_to(builder, path, 0, BERTH_CONFIG_COUNT_MAX);
}
static inline int64_t berth_config_layer_count(berth_builder *builder, const char *path) {
    return berth_config_count_to(builder, path, 0, BERTH_CONFIG_LAYER_MAX);
}
static inline double berth_config_f64_or(berth_builder *builder, const char *path,
                                         double fallback) {
    double value = fallback;
    const berth_status status = builder->host->json_get_f64(builder->config, path, &value);
    if (status != BERTH_OK && status != BERTH_NOT_FOUND) {
        berth_build_fail(builder, BERTH_CORRUPT, "config.json: '%s' is not a number", path);
    }
    return status == BERTH_OK ? value : fallback;
}
static inline int64_t berth_config_bool_or(berth_builder *builder, const char *path,
                                           int64_t fallback) {
    int64_t value = fallback;
    const berth_status status = builder->host->json_get_bool(builder->config, path, &value);
    if (status != BERTH_OK && status != BERTH_NOT_FOUND) {
        berth_build_fail(builder, BERTH_CORRUPT, "config.json: '%s' is not true or false", path);
    }
    return status == BERTH_OK ? value : fallback;
}
static inline const char *berth_config_str_or(berth_builder *builder, const char *path,
                                              const char *fallback) {
    const char *value = fallback;
    const berth_status status = builder->host->json_get_str(builder->config, path, &value);
    if (status != BERTH_OK && status != BERTH_NOT_FOUND) {
        berth_build_fail(builder, BERTH_CORRUPT, "config.json: '%s' is not a string", path);
    }
    return status == BERTH_OK ? value : fallback;
}

#endif
