// SPDX-License-Identifier: Apache-2.0
// Input: an object of a quantization configuration. Output: its fields, or the failure that says
// which is of the wrong kind; and whether its lists leave a layer alone. Why not each by itself: a
// default in the place of a value that is there, but wrong, would load the checkpoint as something
// that it is not.
#include "forms.h"

static berth_status read_field(const berth_host *host, const berth_json *from,
                               const berth_form_field *field) {
    if (field->number) {
        return host->json_get_i64(from, field->path, field->number);
    }
    return field->truth ? host->json_get_bool(from, field->path, field->truth)
                        : host->json_get_str(from, field->path, field->text);
}

berth_status berth_form_read(const berth_host *host, const berth_json *from,
                             const berth_form_field *fields, uint64_t count) {
    for (uint64_t i = 0; i < count; ++i) {
        const berth_status status = read_field(host, from, &fields[i]);
        if (status != BERTH_OK && status != BERTH_NOT_FOUND) {
            return BERTH_PLUGIN_FAIL(host, BERTH_CORRUPT, "'%s' of the configuration must be %s",
                                     fields[i].path,
                                     fields[i].number  ? "a whole number"
                                     : fields[i].truth ? "true or false"
                                                       : "a text");
        }
    }
    return BERTH_OK;
}

// 1: no list names the module.
static berth_status is_quantized_module(const berth_host *host, const berth_linear *linear,
                                        const char *name, int64_t *out) {
    static const char *const lists[] = {
        "quantization_config.modules_to_not_convert",
        "quantization_config.ignored_layers",
    };
    *out = 1;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; ++i) {
        const berth_status status =
            berth_quant_listed(host, linear, name, lists[i], BERTH_QUANT_WITHIN);
        if (status == BERTH_OK) {
            *out = 0;
        } else if (status != BERTH_NOT_FOUND) {
            return status;
        }
    }
    return BERTH_OK;
}

int berth_form_takes(const berth_host *host, const berth_linear *linear) {
    int64_t is_quantized = 0;
    if (berth_quant_agree(host, linear, is_quantized_module, &is_quantized) != BERTH_OK) {
        return 0;
    }
    if (!is_quantized || !berth_form_is_body(linear)) {
        (void)berth_form_none(linear);
        return 0;
    }
    return 1;
}
