// SPDX-License-Identifier: Apache-2.0
// `berth config`: the effective configuration and where each value comes from, as YAML that
// --config reads back to the same values.
#include "cli/cli_private.h"

static void put_list(berth_json_writer *json, const berth_option_list *list) {
    berth_json_begin_array(json);
    for (size_t i = 0; i < list->count; ++i) {
        berth_json_put_cstr(json, list->items[i]);
    }
    berth_json_end_array(json);
}

static void put_value(berth_json_writer *json, const berth_option *row, const void *value) {
    switch (row->type) {
    case BERTH_OPTION_FLAG:
        berth_json_put_bool(json, *(const bool *)value);
        break;
    case BERTH_OPTION_STR:
        berth_json_put_cstr(json, *(const char *const *)value);
        break;
    case BERTH_OPTION_I64:
        berth_json_put_i64(json, *(const int64_t *)value);
        break;
    case BERTH_OPTION_F64:
        berth_json_put_f64(json, *(const double *)value);
        break;
    case BERTH_OPTION_ENUM:
        berth_json_put_cstr(json, row->choices[*(const int32_t *)value]);
        break;
    case BERTH_OPTION_LIST:
        put_list(json, value);
        break;
    }
}

static void print_json(berth_session *session) {
    const berth_options *options = &session->config.options;
    berth_json_writer json;
    berth_session_json(session, &json);
    berth_json_begin_object(&json);
    for (size_t i = 0; i < options->row_count; ++i) {
        const berth_option *row = &options->rows[i];
        if (row->key) {
            berth_json_put_key(&json, row->key);
            berth_json_begin_object(&json);
            berth_json_put_key(&json, "value");
            put_value(&json, row, (const char *)options->target + row->offset);
            berth_cli_put(&json, "source", berth_option_origin_name(options->sources[i].origin));
            berth_cli_put(&json, "detail", options->sources[i].detail);
            berth_json_end_object(&json);
        }
    }
    berth_json_end_object(&json);
    berth_session_json_end(session);
}

static berth_status run(berth_session *session) {
    if (session->config.is_json) {
        print_json(session);
    } else {
        berth_options_print_yaml(&session->config.options, &session->out);
    }
    return BERTH_OK;
}

const berth_command berth_command_config = {
    .name = "config",
    .arguments = "",
    .help = "print the effective configuration and where each value comes from",
    .details = "--json prints an object: key → {value, source, detail}.",
    .bit = BERTH_COMMAND_CONFIG,
    .needs = BERTH_STAGE_CONFIG,
    .run = run,
};
