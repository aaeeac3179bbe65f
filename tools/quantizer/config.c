// SPDX-License-Identifier: Apache-2.0
// Input: config.json of a checkpoint and the form of the codes. Output: config.json of the new one:
// every member as it was, and quantization_config in the words of compressed-tensors.
#include "base/file.h"
#include "base/json_writer.h"
#include "quantizer/quantizer.h"

#define FILE_LIMIT ((size_t)16 << 20)
#define DEPTH      24 // of a config.json; it is written by recursion
#define MEMBER     "quantization_config"

#define ARGUMENTS                                                                                  \
    "{\"num_bits\": %d, \"type\": \"%s\", \"symmetric\": %s, \"strategy\": \"%s\", "               \
    "\"group_size\": %s, \"block_structure\": null, \"dynamic\": %s, \"actorder\": null, "         \
    "\"observer\": %s, \"observer_kwargs\": {}}"

// Weights, inputs, twice the format, the modules that are left out.
static const char document[] =
    "{\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"weights\": %s, "
    "\"input_activations\": %s, \"output_activations\": null, \"format\": \"%s\"}}, "
    "\"format\": \"%s\", \"ignore\": [%s], \"kv_cache_scheme\": null, "
    "\"quant_method\": \"compressed-tensors\", \"quantization_status\": \"compressed\", "
    "\"global_compression_ratio\": null, \"sparsity_config\": {}, \"transform_config\": {}, "
    "\"version\": \"0.17.0\"}";

static void copy_number(berth_json_writer *json, const berth_json *value) {
    int64_t integer = 0;
    double real = 0;
    if (berth_json_as_i64(value, &integer)) {
        berth_json_put_i64(json, integer);
    } else if (berth_json_as_f64(value, &real)) {
        berth_json_put_f64(json, real);
    }
}

static void copy_value(berth_json_writer *json, const berth_json *value) {
    const berth_json_kind kind = berth_json_kind_of(value);
    const bool is_object = kind == BERTH_JSON_OBJECT;
    bool truth = false;
    berth_str text = {0};
    if (is_object || kind == BERTH_JSON_ARRAY) {
        (is_object ? berth_json_begin_object : berth_json_begin_array)(json);
        for (size_t i = 0; i < berth_json_size(value); ++i) {
            if (is_object) {
                berth_json_put_key(json, berth_json_key_at(value, i).data);
            }
            copy_value(json, berth_json_at(value, i));
        }
        (is_object ? berth_json_end_object : berth_json_end_array)(json);
    } else if (berth_json_as_bool(value, &truth)) {
        berth_json_put_bool(json, truth);
    } else if (berth_json_as_str(value, &text)) {
        berth_json_put_str(json, text);
    } else if (kind == BERTH_JSON_NULL) {
        berth_json_put_null(json);
    } else {
        copy_number(json, value);
    }
}

// The document as text on one line.
static void add_document(const quantizer_plan *plan, berth_text *text) {
    const quantizer_form *form = &plan->form;
    const bool is_packed = form->scheme == QUANTIZER_INT4;
    const char *type = form->scheme == QUANTIZER_FP8 ? "float" : "int";
    const char *format = is_packed                        ? "pack-quantized"
                         : form->scheme == QUANTIZER_INT8 ? "int-quantized"
                                                          : "float-quantized";
    char group[24] = "null";
    char weights[512];
    char inputs[512] = "null";
    berth_text modules;
    if (is_packed) {
        (void)snprintf(group, sizeof group, "%d", (int)form->group);
    } else {
        (void)snprintf(inputs, sizeof inputs, ARGUMENTS, 8, type, "true", "token", "null", "true",
                       "null");
    }
    (void)snprintf(weights, sizeof weights, ARGUMENTS, is_packed ? 4 : 8, type,
                   form->is_asymmetric ? "false" : "true", is_packed ? "group" : "channel", group,
                   "false", is_packed ? "\"mse\"" : "\"minmax\"");
    berth_text_init(&modules, FILE_LIMIT);
    for (size_t i = 0; i < plan->ignored.count; ++i) {
        berth_text_add_cstr(&modules, i == 0 ? "\"" : ", \"");
        berth_text_add_json(&modules, berth_str_from(plan->ignored.data[i]));
        berth_text_add_char(&modules, '"');
    }
    berth_text_add_format(text, document, weights, inputs, format, format,
                          modules.size > 0 ? modules.data : "");
    text->failed = text->failed == BERTH_OK ? modules.failed : text->failed;
    berth_text_deinit(&modules);
}

static berth_status parse_document(const quantizer_plan *plan, berth_json **out) {
    berth_text text;
    berth_text_init(&text, FILE_LIMIT);
    add_document(plan, &text);
    berth_status status = berth_text_finish(&text, NULL);
    if (status == BERTH_OK) {
        status = berth_json_parse(berth_text_str(&text), MEMBER, NULL, out);
    }
    berth_text_deinit(&text);
    return status;
}

static void write_config(const berth_json *was, const berth_json *own, berth_text *text) {
    berth_json_writer json;
    berth_json_writer_init(&json, text, 2);
    berth_json_begin_object(&json);
    for (size_t i = 0; i < berth_json_size(was); ++i) {
        const berth_str key = berth_json_key_at(was, i);
        if (!berth_str_equal_cstr(key, MEMBER)) { // which is null, or it would be quantized
            berth_json_put_key(&json, key.data);
            copy_value(&json, berth_json_at(was, i));
        }
    }
    berth_json_put_key(&json, MEMBER);
    copy_value(&json, own);
    berth_json_end_object(&json);
}

// Not the checkpoint's own tree, which has been brought into one form.
berth_status quantizer_config(const quantizer_plan *plan, berth_text *text) {
    const berth_json_limits limits = {.bytes = FILE_LIMIT, .depth = DEPTH};
    const char *path =
        berth_path_join(plan->arena, berth_checkpoint_directory(plan->from), "config.json");
    berth_json *was = NULL;
    berth_json *own = NULL;
    if (path == NULL) {
        return berth_arena_exhausted(plan->arena, "names of files");
    }
    BERTH_TRY(berth_json_load(path, &limits, &was));
    const berth_status status = parse_document(plan, &own);
    if (status == BERTH_OK) {
        write_config(was, own, text);
    }
    berth_json_destroy(own);
    berth_json_destroy(was);
    return status;
}
