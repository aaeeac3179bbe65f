// SPDX-License-Identifier: Apache-2.0
// Post-processors for a single text: special tokens around the one place where the text goes.
#include "tokenizer/template.h"

void berth_template_deinit(berth_template *template) {
    berth_array_free(&template->before);
    berth_array_free(&template->behind);
}

// ---- reading the file ----

// `json` may be NULL: there is no id where `where` should have one.
static berth_status add_id(berth_token_ids *ids, const berth_vocabulary *vocabulary,
                           const berth_json *json, const berth_json *where) {
    int64_t id = -1;
    if (json) {
        BERTH_TRY(berth_json_get_i64(json, "", &id));
    }
    if (id < 0 || id > INT32_MAX || !berth_vocabulary_get(vocabulary, (int32_t)id)) {
        return berth_json_fail(BERTH_CORRUPT, where, "id %lld has no token", (long long)id);
    }
    return berth_array_push(ids, (int32_t)id);
}

static berth_status add_special(berth_token_ids *ids, const berth_vocabulary *vocabulary,
                                const berth_json *special_tokens, const berth_json *name) {
    berth_str text;
    BERTH_TRY(berth_json_get_str(name, "", &text));
    const berth_json *token = berth_json_member(special_tokens, text);
    const berth_json *list;
    if (!token) {
        return berth_json_fail(BERTH_CORRUPT, name, "'" BERTH_STR_FMT "' is not in special_tokens",
                               BERTH_STR_ARG(text));
    }
    BERTH_TRY(berth_json_get_array(token, "ids", &list));
    for (size_t i = 0; i < berth_json_size(list); ++i) {
        BERTH_TRY(add_id(ids, vocabulary, berth_json_at(list, i), list));
    }
    return BERTH_OK;
}

static berth_status read_pieces(berth_template *template, const berth_vocabulary *vocabulary,
                                const berth_json *processor) {
    const berth_json *pieces, *special_tokens;
    BERTH_TRY(berth_json_get_array(processor, "single", &pieces));
    BERTH_TRY(berth_json_get_object(processor, "special_tokens", &special_tokens));
    size_t texts = 0;
    for (size_t i = 0; i < berth_json_size(pieces); ++i) {
        const berth_json *piece = berth_json_at(pieces, i);
        const berth_json *special = berth_json_find(piece, "SpecialToken.id");
        if (special) {
            BERTH_TRY(add_special(texts > 0 ? &template->behind : &template->before, vocabulary,
                                  special_tokens, special));
            continue;
        }
        berth_str text;
        BERTH_TRY(berth_json_get_str(piece, "Sequence.id", &text));
        texts += berth_str_equal_cstr(text, "A") ? 1 : 2;
    }
    if (texts != 1) {
        return berth_json_fail(BERTH_UNSUPPORTED, pieces,
                               "a template without exactly one sequence A is not supported");
    }
    return BERTH_OK;
}

// The classifier's token before the text and the separator behind it, each ["[SEP]", 102].
static berth_status read_pair(berth_template *template, const berth_vocabulary *vocabulary,
                              const berth_json *processor) {
    const berth_json *cls, *sep;
    BERTH_TRY(berth_json_get_array(processor, "cls", &cls));
    BERTH_TRY(berth_json_get_array(processor, "sep", &sep));
    BERTH_TRY(add_id(&template->before, vocabulary, berth_json_find(cls, "1"), cls));
    return add_id(&template->behind, vocabulary, berth_json_find(sep, "1"), sep);
}

// ByteLevel moves offsets, not tokens.
static berth_status read_nothing(berth_template *template, const berth_vocabulary *vocabulary,
                                 const berth_json *processor) {
    (void)template;
    (void)vocabulary;
    (void)processor;
    return BERTH_OK;
}

static const struct {
    const char *name;
    berth_status (*read)(berth_template *template, const berth_vocabulary *vocabulary,
                         const berth_json *processor);
} processors[] = {
    {.name = "TemplateProcessing", .read = read_pieces },
    {.name = "ByteLevel",          .read = read_nothing},
    {.name = "BertProcessing",     .read = read_pair   },
    {.name = "RobertaProcessing",  .read = read_pair   },
};

static berth_status read_processor(berth_template *template, const berth_vocabulary *vocabulary,
                                   const berth_json *processor, size_t index) {
    if (template->before.count + template->behind.count > 0) {
        return berth_json_fail(BERTH_UNSUPPORTED, processor, "a second template is not supported");
    }
    return processors[index].read(template, vocabulary, processor);
}

static berth_status read_component(berth_template *template, const berth_vocabulary *vocabulary,
                                   const berth_json *json) {
    berth_str type;
    BERTH_TRY(berth_json_get_str(json, "type", &type));
    for (size_t i = 0; i < BERTH_COUNT(processors); ++i) {
        if (berth_str_equal_cstr(type, processors[i].name)) {
            return read_processor(template, vocabulary, json, i);
        }
    }
    if (!berth_str_equal_cstr(type, "Sequence")) {
        return berth_json_fail(BERTH_UNSUPPORTED, json,
                               "post-processor '" BERTH_STR_FMT "' is not supported",
                               BERTH_STR_ARG(type));
    }
    const berth_json *list;
    BERTH_TRY(berth_json_get_array(json, "processors", &list));
    for (size_t i = 0; i < berth_json_size(list); ++i) {
        BERTH_TRY(read_component(template, vocabulary, berth_json_at(list, i)));
    }
    return BERTH_OK;
}

berth_status berth_template_read(berth_template *template, const berth_vocabulary *vocabulary,
                                 const berth_json *json) {
    const bool has_processor = json && berth_json_kind_of(json) != BERTH_JSON_NULL;
    return has_processor ? read_component(template, vocabulary, json) : BERTH_OK;
}

berth_status berth_template_replace(berth_template *template, int32_t before_id,
                                    int32_t behind_id) {
    template->before.count = 0;
    template->behind.count = 0;
    if (before_id >= 0) {
        BERTH_TRY(berth_array_push(&template->before, before_id));
    }
    if (behind_id >= 0) {
        BERTH_TRY(berth_array_push(&template->behind, behind_id));
    }
    return BERTH_OK;
}
