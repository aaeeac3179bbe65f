// SPDX-License-Identifier: Apache-2.0
// The services that plugins get. Input: whatever a plugin passes, NULL included. Output: the host's
// own functions behind plain types; nothing here trusts a pointer to be set.
#include "base/frame.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/pattern.h"
#include "registry/registry_private.h"

#include <string.h>

#define LOG_BYTES 1024

// ---- log, failure text, memory ------------------------------------------------------------------

static berth_level level_of(uint64_t level) {
    return level > BERTH_LEVEL_TRACE ? BERTH_LEVEL_TRACE : (berth_level)level;
}

static void host_log(const berth_host *host, uint64_t level, const char *module, const char *text,
                     uint64_t length) {
    (void)host;
    if (text != NULL && berth_log_enabled(level_of(level))) {
        berth_log(level_of(level), module == NULL ? "plugin" : module, "%.*s",
                  (int)(length < LOG_BYTES ? length : LOG_BYTES), text);
    }
}

static uint64_t host_log_enabled(const berth_host *host, uint64_t level) {
    (void)host;
    return berth_log_enabled(level_of(level));
}

static void host_fail(const berth_host *host, berth_status status, const char *text,
                      uint64_t length) {
    (void)host;
    berth_frame *frame = berth_frame_top();
    if (frame == NULL) {
        // A thread of the plugin's own: no call will return here to carry the text.
        BERTH_DEBUG("registry", "a plugin reports %s outside of a call: %.*s",
                    berth_status_name(status), (int)(length < LOG_BYTES ? length : LOG_BYTES),
                    text == NULL ? "" : text);
        return;
    }
    berth_frame_set_text(frame, text, text == NULL ? 0 : length);
}

static void *host_alloc(const berth_host *host, uint64_t bytes, uint64_t alignment) {
    (void)host;
    const uint64_t wanted = alignment == 0 ? 64 : alignment < 8 ? 8 : alignment;
    const bool is_power = (wanted & (wanted - 1)) == 0;
    void *memory = is_power && bytes < SIZE_MAX / 2 ? berth_alloc_aligned(wanted, bytes) : NULL;
    if (memory == NULL) {
        // The report stands for the text when the plugin returns OUT_OF_MEMORY without one.
        const berth_status ignored =
            BERTH_FAIL(OUT_OF_MEMORY, "host->alloc has no %llu bytes aligned to %llu",
                       (unsigned long long)bytes, (unsigned long long)alignment);
        (void)ignored;
        return NULL;
    }
    berth_memory_zero(memory, bytes);
    return memory;
}

static void host_free(const berth_host *host, void *memory) {
    (void)host;
    berth_free(memory);
}

// ---- configuration ------------------------------------------------------------------------------

static berth_status check_arguments(const char *slot, const void *handle, const char *path,
                                    const void *out) {
    if (handle == NULL || path == NULL || out == NULL) {
        return BERTH_FAIL(INVALID_ARGUMENT, "%s: the %s is NULL", slot,
                          handle == NULL ? "handle"
                          : path == NULL ? "path"
                                         : "result");
    }
    return BERTH_OK;
}

static berth_status config_get_i64(const berth_config *config, const char *path, int64_t *out) {
    BERTH_TRY(check_arguments("config_get_i64", config, path, out));
    return berth_config_get_i64(config, path, out);
}

static berth_status config_get_f64(const berth_config *config, const char *path, double *out) {
    BERTH_TRY(check_arguments("config_get_f64", config, path, out));
    return berth_config_get_f64(config, path, out);
}

static berth_status config_get_str(const berth_config *config, const char *path, const char **out) {
    BERTH_TRY(check_arguments("config_get_str", config, path, out));
    return berth_config_get_str(config, path, out);
}

static berth_status config_set_i64(berth_config *config, const char *path, int64_t value) {
    BERTH_TRY(check_arguments("config_set_i64", config, path, &value));
    return berth_config_set_i64(config, path, value);
}

static berth_status config_set_f64(berth_config *config, const char *path, double value) {
    BERTH_TRY(check_arguments("config_set_f64", config, path, &value));
    return berth_config_set_f64(config, path, value);
}

static berth_status config_set_str(berth_config *config, const char *path, const char *value) {
    BERTH_TRY(check_arguments("config_set_str", config, path, value));
    return berth_config_set_str(config, path, value);
}

// ---- JSON ---------------------------------------------------------------------------------------

static berth_status json_get_i64(const berth_json *json, const char *path, int64_t *out) {
    BERTH_TRY(check_arguments("json_get_i64", json, path, out));
    return berth_json_get_i64(json, path, out);
}

static berth_status json_get_f64(const berth_json *json, const char *path, double *out) {
    BERTH_TRY(check_arguments("json_get_f64", json, path, out));
    return berth_json_get_f64(json, path, out);
}

static berth_status json_get_bool(const berth_json *json, const char *path, int64_t *out) {
    BERTH_TRY(check_arguments("json_get_bool", json, path, out));
    bool value = false;
    BERTH_TRY(berth_json_get_bool(json, path, &value));
    *out = value;
    return BERTH_OK;
}

static berth_status json_get_str(const berth_json *json, const char *path, const char **out) {
    BERTH_TRY(check_arguments("json_get_str", json, path, out));
    berth_str value = {0};
    BERTH_TRY(berth_json_get_str(json, path, &value));
    *out = value.data;
    return BERTH_OK;
}

static berth_status json_get_count(const berth_json *json, const char *path, uint64_t *out) {
    BERTH_TRY(check_arguments("json_get_count", json, path, out));
    const berth_json *found = berth_json_find(json, path);
    if (found == NULL || berth_json_kind_of(found) == BERTH_JSON_NULL) {
        return berth_json_fail(BERTH_NOT_FOUND, json, "there is no '%s'", path);
    }
    const berth_json_kind kind = berth_json_kind_of(found);
    if (kind != BERTH_JSON_ARRAY && kind != BERTH_JSON_OBJECT) {
        return berth_json_fail(BERTH_INVALID_ARGUMENT, found, "needs an array or object, found %s",
                               berth_json_kind_name(kind));
    }
    *out = berth_json_size(found);
    return BERTH_OK;
}

static berth_status json_get(const berth_json *json, const char *path, const berth_json **out) {
    BERTH_TRY(check_arguments("json_get", json, path, out));
    const berth_json *found = berth_json_find(json, path);
    if (found == NULL || berth_json_kind_of(found) == BERTH_JSON_NULL) {
        return berth_json_fail(BERTH_NOT_FOUND, json, "there is no '%s'", path);
    }
    *out = found;
    return BERTH_OK;
}

static berth_status json_get_member(const berth_json *json, const char *key,
                                    const berth_json **out) {
    BERTH_TRY(check_arguments("json_get_member", json, key, out));
    const berth_json *found = berth_json_kind_of(json) == BERTH_JSON_OBJECT
                                  ? berth_json_member(json, berth_str_from(key))
                                  : NULL;
    if (found == NULL) {
        return berth_json_fail(BERTH_NOT_FOUND, json, "there is no '%s'", key);
    }
    *out = found;
    return BERTH_OK;
}

static berth_status json_get_entry(const berth_json *json, uint64_t index, const char **out_key,
                                   const berth_json **out) {
    BERTH_TRY(check_arguments("json_get_entry", json, "", out));
    BERTH_TRY(check_arguments("json_get_entry", json, "", out_key));
    if (index >= berth_json_size(json)) {
        return berth_json_fail(BERTH_NOT_FOUND, json, "there is no entry %llu",
                               (unsigned long long)index);
    }
    const bool has_keys = berth_json_kind_of(json) == BERTH_JSON_OBJECT;
    *out_key = has_keys ? berth_json_key_at(json, index).data : "";
    *out = berth_json_at(json, index);
    return BERTH_OK;
}

// ---- texts --------------------------------------------------------------------------------------

// The leftmost match begins at the first byte exactly when there is one that does.
static berth_status match_start(const berth_pattern *pattern, const char *text, bool *out) {
    berth_match match = {0};
    berth_matches matches = {.pattern = pattern, .text = berth_str_from(text)};
    BERTH_TRY(berth_matcher_create(&matches.matcher));
    const berth_status status = berth_pattern_next(&matches, &match);
    berth_matcher_destroy(matches.matcher);
    *out = match.is_found && match.start == 0;
    return status;
}

static berth_status host_match(const berth_host *host, const char *regex, const char *text) {
    (void)host;
    BERTH_TRY(check_arguments("match", regex, text, text));
    berth_pattern *pattern = NULL;
    bool is_match = false;
    BERTH_TRY(berth_pattern_compile_perl(berth_str_from(regex), &pattern));
    const berth_status status = match_start(pattern, text, &is_match);
    berth_pattern_destroy(pattern);
    return status == BERTH_OK && !is_match ? BERTH_NOT_FOUND : status;
}

void berth_host_fill(berth_host *host, berth_registry *registry,
                     const berth_worker_api *worker_base) {
    *host = (berth_host){
        .size = sizeof(berth_host),
        .abi_min = BERTH_ABI(1, 0),
        .abi_max = BERTH_ABI_CURRENT,
        .version = BERTH_VERSION,
        .context = registry,
        .log = host_log,
        .log_enabled = host_log_enabled,
        .fail = host_fail,
        .alloc = host_alloc,
        .free = host_free,
        .config_get_i64 = config_get_i64,
        .config_get_f64 = config_get_f64,
        .config_get_str = config_get_str,
        .config_set_i64 = config_set_i64,
        .config_set_f64 = config_set_f64,
        .config_set_str = config_set_str,
        .json_get_i64 = json_get_i64,
        .json_get_f64 = json_get_f64,
        .json_get_bool = json_get_bool,
        .json_get_str = json_get_str,
        .json_get_count = json_get_count,
        .worker_base = worker_base,
        .json_get = json_get,
        .json_get_member = json_get_member,
        .json_get_entry = json_get_entry,
        .match = host_match,
        .cache_read = berth_host_cache_read,
        .cache_write = berth_host_cache_write,
    };
}
