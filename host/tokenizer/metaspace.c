// SPDX-License-Identifier: Apache-2.0
// Reading Metaspace, in the older spelling as well: add_prefix_space is what prepend_scheme was.
#include "tokenizer/metaspace.h"

#include <string.h>

#include "base/array.h"
#include "base/utf8.h"

static const char *const prepend_names[] = {
    [BERTH_METASPACE_ALWAYS] = "always",
    [BERTH_METASPACE_FIRST] = "first",
    [BERTH_METASPACE_NEVER] = "never",
};

static berth_status read_mark(berth_metaspace *metaspace, const berth_json *json) {
    berth_str mark;
    BERTH_TRY(berth_json_get_str(json, "replacement", &mark));
    if (mark.size == 0 || berth_utf8_next(mark, NULL) != mark.size) {
        return berth_json_fail(BERTH_CORRUPT, json,
                               "replacement '" BERTH_STR_FMT "' is not one character",
                               BERTH_STR_ARG(mark));
    }
    memcpy(metaspace->mark_bytes, mark.data, mark.size);
    metaspace->mark_size = mark.size;
    return BERTH_OK;
}

static berth_status read_prepend(berth_metaspace *metaspace, const berth_json *json) {
    berth_str name;
    bool has_prefix;
    BERTH_TRY(berth_json_bool_or(json, "add_prefix_space", true, &has_prefix));
    BERTH_TRY(berth_json_str_or(json, "prepend_scheme", BERTH_STR("always"), &name));
    for (size_t i = 0; i < BERTH_COUNT(prepend_names); ++i) {
        if (!berth_str_equal_cstr(name, prepend_names[i])) {
            continue;
        }
        metaspace->prepend = (berth_metaspace_prepend)i;
        if (has_prefix || metaspace->prepend == BERTH_METASPACE_NEVER) {
            return BERTH_OK;
        }
        return berth_json_fail(BERTH_CORRUPT, json,
                               "add_prefix_space is false and prepend_scheme '" BERTH_STR_FMT "'",
                               BERTH_STR_ARG(name));
    }
    return berth_json_fail(BERTH_UNSUPPORTED, json,
                           "prepend_scheme '" BERTH_STR_FMT "' is not supported",
                           BERTH_STR_ARG(name));
}

berth_status berth_metaspace_read(berth_metaspace *metaspace, const berth_json *json) {
    BERTH_TRY(read_mark(metaspace, json));
    BERTH_TRY(read_prepend(metaspace, json));
    return berth_json_bool_or(json, "split", true, &metaspace->is_split);
}

berth_str berth_metaspace_mark(const berth_metaspace *metaspace) {
    return (berth_str){.data = metaspace->mark_bytes, .size = metaspace->mark_size};
}
