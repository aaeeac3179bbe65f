// SPDX-License-Identifier: Apache-2.0
// The services a host offers to its plugins: log, error text, memory, configuration, checkpoint
// JSON.
//
// A plugin gets one `const berth_host *` at registration; it stays valid until the plugin's
// shutdown has returned. A plugin never resolves a host symbol through the linker: everything is in
// this table.
#ifndef BERTH_HOST_H
#define BERTH_HOST_H

#include <berth/status.h>
#include <berth/types.h>

#include <stdio.h>

#define BERTH_LOG_ERROR 0u // a person must act
#define BERTH_LOG_WARN  1u
#define BERTH_LOG_INFO  2u
#define BERTH_LOG_DEBUG 3u
#define BERTH_LOG_TRACE 4u

typedef struct berth_config berth_config;         // the effective configuration, owned by the host
typedef struct berth_json berth_json;             // a parsed JSON document, owned by the host
typedef struct berth_worker_api berth_worker_api; // worker.h

// Paths into a configuration or a JSON document are dotted: "compilation.mode",
// "rope_parameters.rope_theta", "architectures.0". Strings that a getter hands out belong to the
// host and live as long as the document; getters write `out` only when they return BERTH_OK. A path
// that is absent gives BERTH_NOT_FOUND, another type BERTH_INVALID_ARGUMENT.
typedef struct berth_host {
    uint64_t size;
    uint64_t abi_min; // BERTH_ABI of the oldest and newest contract the host speaks
    uint64_t abi_max;
    const char *version; // of the host, "1.2.3"; for messages only
    void *context;       // the host's own

    // [any] Writes one line, `length` bytes of UTF-8 without a newline. Format only when
    // log_enabled.
    void (*log)(const struct berth_host *host, uint64_t level, const char *module, const char *text,
                uint64_t length);
    uint64_t (*log_enabled)(const struct berth_host *host, uint64_t level);
    // [any] The text of the failure that the calling slot is about to return. Kept per thread and
    // call; the last text wins. Use BERTH_PLUGIN_FAIL.
    void (*fail)(const struct berth_host *host, berth_status status, const char *text,
                 uint64_t length);

    // [any] Memory, zeroed; alignment is a power of two, 0 means 64. Never from a forward.
    void *(*alloc)(const struct berth_host *host, uint64_t bytes, uint64_t alignment);
    void (*free)(const struct berth_host *host, void *memory); // takes NULL

    // [startup] The configuration by key path. A set is logged as changed by the plugin that runs
    // and is allowed only inside the platform's config hooks, else BERTH_WRONG_STATE. Booleans are
    // i64 0/1; `threads` is read as at least 1: where the user left it open, the CPUs that the
    // process may use (affinity, and the quota of its control groups).
    berth_status (*config_get_i64)(const berth_config *config, const char *path, int64_t *out);
    berth_status (*config_get_f64)(const berth_config *config, const char *path, double *out);
    berth_status (*config_get_str)(const berth_config *config, const char *path, const char **out);
    berth_status (*config_set_i64)(berth_config *config, const char *path, int64_t value);
    berth_status (*config_set_f64)(berth_config *config, const char *path, double value);
    // For `custom_ops` the value is a comma-separated list; the user's own +op and -op items
    // survive.
    berth_status (*config_set_str)(berth_config *config, const char *path, const char *value);

    // [startup] A checkpoint's JSON, config.json for instance. An object's or array's count is its
    // size.
    berth_status (*json_get_i64)(const berth_json *json, const char *path, int64_t *out);
    berth_status (*json_get_f64)(const berth_json *json, const char *path, double *out);
    berth_status (*json_get_bool)(const berth_json *json, const char *path, int64_t *out);
    berth_status (*json_get_str)(const berth_json *json, const char *path, const char **out);
    berth_status (*json_get_count)(const berth_json *json, const char *path, uint64_t *out);

    // The host's default worker, complete for any device runtime: an overriding worker calls the
    // inherited method through it (worker.h).
    const berth_worker_api *worker_base;

    // From ABI 1.1 on. [startup] A value of a document under a path; under one key of an object,
    // whatever characters it has; entry `index` of an array or object, with its key ("" in an
    // array).
    berth_status (*json_get)(const berth_json *json, const char *path, const berth_json **out);
    berth_status (*json_get_member)(const berth_json *json, const char *key,
                                    const berth_json **out);
    berth_status (*json_get_entry)(const berth_json *json, uint64_t index, const char **out_key,
                                   const berth_json **out);
    // [startup] Whether the regular expression matches the text from its first byte on: BERTH_OK or
    // BERTH_NOT_FOUND; another status, with a text, when it is none.
    berth_status (*match)(const struct berth_host *host, const char *regex, const char *text);

    // From ABI 1.1 on. [startup] What is dear to find out, as a device's timings are, kept in the
    // user's cache (option cache_dir) for the next process: bytes of the calling plugin under
    // `name`, up to 127 letters, digits, '.', '_' and '-', no '.' first. `key` is any text of all
    // that they rest on (device, versions of libraries, of the way they were found); the host adds
    // its own version and the plugin's. Only inside of a call from the host.
    //
    // A read gives what was stored under this name with this key, free it; anything else, whatever
    // became of the file, is BERTH_NOT_FOUND and no failure: measure, and write. What is there is
    // whole, but check what it says before you rely on it: a checksum is no signature.
    berth_status (*cache_read)(const struct berth_host *host, const char *name, const char *key,
                               void **out_data, uint64_t *out_bytes);
    // Replaces the entry as one step, beside other processes that do the same. BERTH_UNAVAILABLE:
    // it could not, because there is no cache, or no room, or no right; go on without.
    berth_status (*cache_write)(const struct berth_host *host, const char *name, const char *key,
                                const void *data, uint64_t bytes);
} berth_host;

// Hands the formatted text (at most 511 bytes) to the host and yields the status:
//   return BERTH_PLUGIN_FAIL(host, BERTH_UNAVAILABLE, "driver %d is too old; install 550 or later",
//   v);
#define BERTH_PLUGIN_FAIL(host, status, ...) berth_plugin_fail_((host), (status), __VA_ARGS__)

// The two functions below are implementation details of the macros; do not call them by name.
BERTH_PRINTF(3, 4)
static inline berth_status berth_plugin_fail_(const berth_host *host, berth_status status,
                                              const char *format, ...);
BERTH_PRINTF(4, 5)
static inline void berth_plugin_log_(const berth_host *host, uint64_t level, const char *module,
                                     const char *format, ...);

// Logs one formatted line (at most 511 bytes) when the level is enabled.
#define BERTH_PLUGIN_LOG(host, level, module, ...)                                                 \
    berth_plugin_log_((host), (level), (module), __VA_ARGS__)

#include <stdarg.h>

static inline uint64_t berth_plugin_length_(int written) {
    return written < 0 ? 0 : written > 511 ? 511 : (uint64_t)written;
}

static inline berth_status berth_plugin_fail_(const berth_host *host, berth_status status,
                                              const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    const int written = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    // Parentheses: a test library's function-like macro of that name must not take the call over.
    (host->fail)(host, status, text, berth_plugin_length_(written));
    return status;
}

static inline void berth_plugin_log_(const berth_host *host, uint64_t level, const char *module,
                                     const char *format, ...) {
    if (!host->log_enabled(host, level)) {
        return;
    }
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    const int written = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    host->log(host, level, module, text, berth_plugin_length_(written));
}

#endif
