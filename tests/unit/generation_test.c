// SPDX-License-Identifier: Apache-2.0
// generation_config.json: its sampling parameters are defaults that whatever a user gave is
// stronger than; its stop ids, or else those of config.json.
#include "support/test.h"

#include <string.h>

#include "base/array.h"
#include "model/model.h"
#include "support/sandbox.h"

typedef struct rig {
    sandbox box;
    berth_arena *arena;
    berth_config config;
    berth_generation generation;
} rig;

static void open_rig(rig *r, const char *generation_json, const char *config_json) {
    memset(r, 0, sizeof *r);
    sandbox_make(&r->box);
    CHECK_OK(berth_arena_create(4096, 1 << 20, &r->arena));
    CHECK_OK(berth_config_init(&r->config, r->arena));
    if (generation_json) {
        (void)sandbox_write(&r->box, "generation_config.json", generation_json);
    }
    if (config_json) {
        (void)sandbox_write(&r->box, "config.json", config_json);
    }
}

static berth_status load(rig *r) {
    return berth_generation_load(r->box.dir, &r->config, &r->generation);
}

static void close_rig(rig *r) {
    berth_arena_destroy(r->arena);
    sandbox_remove(&r->box);
    berth_status_clear();
}

TEST(generation_config_gives_the_defaults) {
    rig r;
    open_rig(&r,
             "{\"temperature\": 0.6, \"top_k\": 20, \"top_p\": 0.95, \"min_p\": 0.01,"
             " \"repetition_penalty\": 1.05, \"eos_token_id\": [7, 9], \"do_sample\": true}",
             NULL);
    CHECK_OK(load(&r));
    CHECK_NEAR(r.config.temperature, 0.6, 0);
    CHECK_INT(r.config.top_k, 20);
    CHECK_NEAR(r.config.top_p, 0.95, 0);
    CHECK_NEAR(r.config.min_p, 0.01, 0);
    CHECK_NEAR(r.config.repetition_penalty, 1.05, 0);
    CHECK_UINT(r.generation.stop_count, 2);
    CHECK_INT(r.generation.stop_ids[0], 7);
    CHECK_INT(r.generation.stop_ids[1], 9);
    close_rig(&r);
}

TEST(generation_stops_where_the_text_part_of_a_model_says) {
    static const char *const configs[] = {
        "{\"model_type\": \"gemma3\", \"text_config\": {\"eos_token_id\": [1, 106]}}",
        "{\"eos_token_id\": [1, 106], \"text_config\": {\"eos_token_id\": 7}}",
    };
    for (size_t i = 0; i < BERTH_COUNT(configs); ++i) {
        rig r;
        open_rig(&r, NULL, configs[i]);
        CHECK_OK(load(&r));
        CHECK_UINT(r.generation.stop_count, 2);
        CHECK_INT(r.generation.stop_ids[1], 106);
        close_rig(&r);
    }
}

TEST(generation_config_gives_the_number_of_tokens) {
    rig r;
    open_rig(&r, "{\"max_new_tokens\": 77}", NULL);
    CHECK_OK(load(&r));
    CHECK_INT(r.config.max_tokens, 77);
    close_rig(&r);
    open_rig(&r, "{\"max_new_tokens\": 0}", NULL);
    CHECK_STATUS(load(&r), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "max_new_tokens");
    close_rig(&r);
}

TEST(generation_config_says_whether_there_is_a_choice) {
    static const struct {
        const char *text;
        double temperature;
    } rows[] = {
        {"{\"do_sample\": false, \"temperature\": 0.6}", 0  },
        {"{\"do_sample\": true, \"temperature\": 0.6}",  0.6},
        {"{\"do_sample\": true}",                        1  },
        {"{\"do_sample\": null, \"temperature\": 0.6}",  0.6},
        {"{\"temperature\": 0.6}",                       0.6},
        {"{\"do_sample\": false}",                       0  },
    };
    char *const arguments[] = {"--temperature", "0.3"};
    for (size_t i = 0; i < BERTH_COUNT(rows); ++i) {
        rig r;
        open_rig(&r, rows[i].text, NULL);
        CHECK_OK(load(&r));
        CHECK_NEAR(r.config.temperature, rows[i].temperature, 0);
        close_rig(&r);
        open_rig(&r, rows[i].text, NULL);
        CHECK_OK(berth_options_apply_argv(&r.config.options, BERTH_COMMAND_RUN,
                                          (int)BERTH_COUNT(arguments), arguments));
        CHECK_OK(load(&r));
        CHECK_NEAR(r.config.temperature, 0.3, 0);
        close_rig(&r);
    }
    rig r;
    open_rig(&r, "{\"do_sample\": 1}", NULL);
    CHECK_STATUS(load(&r), BERTH_INVALID_ARGUMENT);
    CHECK_CONTAINS(berth_status_message(), "do_sample");
    close_rig(&r);
}

TEST(generation_config_gives_way_to_the_user) {
    char *const arguments[] = {"--temperature", "0", "--top-k=3"};
    rig r;
    open_rig(&r, "{\"temperature\": 0.6, \"top_k\": 20, \"top_p\": 0.95}", NULL);
    CHECK_OK(berth_options_apply_argv(&r.config.options, BERTH_COMMAND_RUN,
                                      (int)BERTH_COUNT(arguments), arguments));
    CHECK_OK(load(&r));
    CHECK_NEAR(r.config.temperature, 0, 0);
    CHECK_INT(r.config.top_k, 3);
    CHECK_NEAR(r.config.top_p, 0.95, 0);
    close_rig(&r);
}

TEST(generation_config_says_nothing_with_null_and_minus_one) {
    rig r;
    open_rig(&r, "{\"temperature\": null, \"top_k\": -1, \"eos_token_id\": null}", "{}");
    CHECK_OK(load(&r));
    CHECK_NEAR(r.config.temperature, 0, 0);
    CHECK_INT(r.config.top_k, 0);
    CHECK_NEAR(r.config.top_p, 1, 0);
    CHECK_NEAR(r.config.repetition_penalty, 1, 0);
    CHECK_UINT(r.generation.stop_count, 0);
    close_rig(&r);
}

TEST(generation_stop_ids_come_from_config_json_where_nothing_else_has_them) {
    static const char *const generations[] = {NULL, "{}", "{\"eos_token_id\": []}"};
    for (size_t i = 0; i < BERTH_COUNT(generations); ++i) {
        rig r;
        open_rig(&r, generations[i], "{\"eos_token_id\": 5, \"temperature\": 3}");
        CHECK_OK(load(&r));
        CHECK_UINT(r.generation.stop_count, 1);
        CHECK_INT(r.generation.stop_ids[0], 5);
        CHECK_NEAR(r.config.temperature, 0, 0);
        close_rig(&r);
    }
}

TEST(generation_stop_ids_of_config_json_do_not_come_beside_others) {
    rig r;
    open_rig(&r, "{\"eos_token_id\": 4}", "{\"eos_token_id\": 5}");
    CHECK_OK(load(&r));
    CHECK_UINT(r.generation.stop_count, 1);
    CHECK_INT(r.generation.stop_ids[0], 4);
    close_rig(&r);
}

TEST(generation_needs_no_file) {
    rig r;
    open_rig(&r, NULL, NULL);
    CHECK_OK(load(&r));
    CHECK_UINT(r.generation.stop_count, 0);
    close_rig(&r);
}

TEST(generation_config_that_makes_no_sense_is_refused_by_name) {
    static const struct {
        const char *json;
        berth_status status;
        const char *message;
    } cases[] = {
        {.json = "{\"temperature\": \"hot\"}",
         .status = BERTH_INVALID_ARGUMENT,
         .message = "temperature"                                                                                },
        {.json = "{\"temperature\": -1}",
         .status = BERTH_INVALID_ARGUMENT,
         .message = "temperature"                                                                                },
        {.json = "{\"top_p\": 1.5}",                    .status = BERTH_INVALID_ARGUMENT, .message = "top-p"     },
        {.json = "{\"top_k\": 2.5}",                    .status = BERTH_INVALID_ARGUMENT, .message = "top_k"     },
        {.json = "{\"eos_token_id\": -3}",              .status = BERTH_CORRUPT,          .message = "-3"        },
        {.json = "{\"eos_token_id\": [1, 4294967296]}",
         .status = BERTH_CORRUPT,
         .message = "4294967296"                                                                                 },
        {.json = "{\"eos_token_id\": \"</s>\"}",
         .status = BERTH_INVALID_ARGUMENT,
         .message = "eos_token_id"                                                                               },
        {.json = "{",                                   .status = BERTH_CORRUPT,          .message = "generation"},
    };
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        rig r;
        open_rig(&r, cases[i].json, NULL);
        CHECK_STATUS(load(&r), cases[i].status);
        CHECK_CONTAINS(berth_status_message(), cases[i].message);
        close_rig(&r);
    }
}
