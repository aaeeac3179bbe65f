// SPDX-License-Identifier: Apache-2.0
// registry: the services of berth_host, as a plugin uses and misuses them.
#include "registry_rig.h"

#include "base/json.h"
#include "base/log.h"

static char logged[2048];

static void keep_line(void *context, berth_level level, berth_str line) {
    (void)context, (void)level;
    (void)snprintf(logged, sizeof(logged), "%.*s", (int)line.size, line.data);
}

static const berth_host *open_host(rig *in) {
    rig_open(in);
    logged[0] = '\0';
    berth_log_set_sink(keep_line, NULL);
    return berth_registry_host(in->registry);
}

static void close_host(rig *in) {
    berth_log_set_sink(NULL, NULL);
    berth_log_set_level(BERTH_LEVEL_WARN);
    rig_close(in);
}

TEST(host_says_what_it_speaks) {
    static const berth_worker_api base = {.size = sizeof(berth_worker_api)};
    rig in;
    const berth_host *host = open_host(&in);
    CHECK_UINT(host->size, sizeof(berth_host));
    CHECK_UINT(host->abi_min, BERTH_ABI(1, 0));
    CHECK_UINT(host->abi_max, BERTH_ABI_CURRENT);
    CHECK_STR(host->version, BERTH_VERSION);
    CHECK_NULL(host->worker_base);
    // No slot is missing: a plugin need not ask.
    for (size_t at = offsetof(berth_host, version); at < offsetof(berth_host, worker_base);
         at += sizeof(void *)) {
        void *slot = NULL;
        memcpy(&slot, (const char *)host + at, sizeof(slot));
        CHECK(slot != NULL);
    }
    close_host(&in);
    berth_registry *registry = NULL;
    CHECK_OK(berth_registry_create(&in.config, &base, &registry));
    CHECK_PTR(berth_registry_host(registry)->worker_base, &base);
    berth_registry_destroy(registry);
}

TEST(host_logs_for_plugins) {
    rig in;
    const berth_host *host = open_host(&in);
    BERTH_PLUGIN_LOG(host, BERTH_LOG_WARN, "acme", "%d blocks", 3);
    CHECK_STR(logged, "berth: warn: acme: 3 blocks");
    logged[0] = '\0';
    CHECK_UINT(host->log_enabled(host, BERTH_LOG_INFO), 0);
    CHECK_UINT(host->log_enabled(host, 99), 0); // an unknown level is the finest
    BERTH_PLUGIN_LOG(host, BERTH_LOG_INFO, "acme", "not shown");
    host->log(host, BERTH_LOG_INFO, "acme", "not shown", 9);
    CHECK_STR(logged, "");
    host->log(host, BERTH_LOG_ERROR, NULL, "cut here, not there", 8);
    CHECK_STR(logged, "berth: error: plugin: cut here");
    host->log(host, BERTH_LOG_ERROR, "acme", NULL, 8);
    host->fail(host, BERTH_IO, NULL, 5);
    berth_log_set_level(BERTH_LEVEL_DEBUG);
    host->fail(host, BERTH_IO, "a thread of its own", 19);
    CHECK_CONTAINS(logged, "a plugin reports IO outside of a call: a thread of its own");
    close_host(&in);
}

TEST(host_gives_zeroed_aligned_memory) {
    static const uint64_t alignments[] = {0, 1, 8, 64, 4096};
    rig in;
    const berth_host *host = open_host(&in);
    for (size_t i = 0; i < BERTH_COUNT(alignments); ++i) {
        unsigned char *memory = host->alloc(host, 300, alignments[i]);
        const uint64_t wanted = alignments[i] == 0 ? 64 : alignments[i];
        CHECK_UINT((uintptr_t)memory % wanted, 0);
        for (size_t k = 0; k < 300; ++k) {
            CHECK_UINT(memory[k], 0);
        }
        memset(memory, 0xff, 300);
        host->free(host, memory);
    }
    host->free(host, NULL);
    void *nothing = host->alloc(host, 0, 0);
    CHECK(nothing != NULL);
    host->free(host, nothing);
    CHECK_NULL(host->alloc(host, 8, 24));
    CHECK_NULL(host->alloc(host, UINT64_MAX, 0));
    CHECK_CONTAINS(berth_status_message(), "host->alloc has no 18446744073709551615 bytes");
    close_host(&in);
}

TEST(host_reads_json_by_path) {
    static const char text[] = "{\"size\": 64, \"eps\": 0.5, \"tie\": true, \"none\": null,"
                               " \"arch\": [\"Llama\"], \"rope\": {\"theta\": 2}}";
    rig in;
    const berth_host *host = open_host(&in);
    berth_json *json = NULL;
    CHECK_OK(berth_json_parse(berth_str_from(text), "config.json", NULL, &json));
    int64_t integer = -1;
    double real = -1;
    uint64_t count = 9;
    const char *str = NULL;
    CHECK_OK(host->json_get_i64(json, "size", &integer));
    CHECK_INT(integer, 64);
    CHECK_OK(host->json_get_f64(json, "rope.theta", &real));
    CHECK_NEAR(real, 2, 0);
    integer = INT64_C(0x7777777777777777); // all eight bytes are written
    CHECK_OK(host->json_get_bool(json, "tie", &integer));
    CHECK_INT(integer, 1);
    CHECK_OK(host->json_get_str(json, "arch.0", &str));
    CHECK_STR(str, "Llama");
    CHECK_OK(host->json_get_count(json, "arch", &count));
    CHECK_UINT(count, 1);
    CHECK_OK(host->json_get_count(json, "", &count));
    CHECK_UINT(count, 6);
    CHECK_STATUS(host->json_get_count(json, "size", &count), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(host->json_get_count(json, "none", &count), BERTH_NOT_FOUND);
    CHECK_STATUS(host->json_get_count(json, "absent", &count), BERTH_NOT_FOUND);
    CHECK_CONTAINS(berth_status_message(), "config.json");
    CHECK_UINT(count, 6);
    CHECK_STATUS(host->json_get_bool(json, "size", &integer), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(host->json_get_i64(json, "absent", &integer), BERTH_NOT_FOUND);
    CHECK_STATUS(host->json_get_str(json, "eps", &str), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(host->json_get_f64(json, "arch", &real), BERTH_INVALID_ARGUMENT);
    CHECK_INT(integer, 1);
    berth_json_destroy(json);
    close_host(&in);
}

TEST(host_reads_the_configuration) {
    rig in;
    const berth_host *host = open_host(&in);
    CHECK_OK(berth_config_init(&in.config, in.arena));
    int64_t integer = -1;
    const char *str = NULL;
    CHECK_OK(host->config_get_i64(&in.config, "compilation.mode", &integer));
    CHECK_INT(integer, 0);
    CHECK_OK(host->config_get_str(&in.config, "compilation.backend", &str));
    CHECK_STR(str, "eager");
    CHECK_STATUS(host->config_get_i64(&in.config, "no.such", &integer), BERTH_NOT_FOUND);
    CHECK_STATUS(host->config_set_i64(&in.config, "compilation.mode", 1), BERTH_WRONG_STATE);
    CHECK_STATUS(host->config_set_str(&in.config, "compilation.backend", "x"), BERTH_WRONG_STATE);
    CHECK_STATUS(host->config_set_f64(&in.config, "memory_utilization", 0.5), BERTH_WRONG_STATE);
    close_host(&in);
}

TEST(host_trusts_no_pointer) {
    rig in;
    const berth_host *host = open_host(&in);
    int64_t integer = 0;
    double real = 0;
    uint64_t count = 0;
    const char *str = NULL;
    berth_config *config = &in.config;
    CHECK_STATUS(host->config_get_i64(NULL, "a", &integer), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(host->config_get_i64(config, NULL, &integer), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(host->config_get_i64(config, "a", NULL), BERTH_INVALID_ARGUMENT);
    CHECK_STR(berth_status_message(), "config_get_i64: the result is NULL");
    CHECK_STATUS(host->config_get_f64(NULL, "a", &real), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(host->config_get_str(NULL, "a", &str), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(host->config_set_i64(NULL, "a", 1), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(host->config_set_f64(NULL, "a", 1), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(host->config_set_str(NULL, "a", "b"), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(host->config_set_str(config, "a", NULL), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(host->json_get_i64(NULL, "a", &integer), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(host->json_get_f64(NULL, "a", &real), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(host->json_get_bool(NULL, "a", &integer), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(host->json_get_str(NULL, "a", &str), BERTH_INVALID_ARGUMENT);
    CHECK_STATUS(host->json_get_count(NULL, "a", &count), BERTH_INVALID_ARGUMENT);
    CHECK_STR(berth_status_message(), "json_get_count: the handle is NULL");
    close_host(&in);
}
