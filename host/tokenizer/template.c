// SPDX-License-Identifier: Apache-2.0
// TemplateProcessing for a single text: special tokens around the one place where the text goes.
#include "tokenizer/template.h"

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
        int64_t id;
        BERTH_TRY(berth_json_get_i64(berth_json_at(list, i), "", &id));
        if (id < 0 || id > INT32_MAX || !berth_vocabulary_get(vocabulary, (int32_t)id)) {
            return berth_json_fail(BERTH_CORRUPT, list, "id %lld has no token", (long long)id);
        }
        BERTH_TRY(berth_array_push(ids, (int32_t)id));
    }
    return BERTH_OK;
}

static berth_status read_template(berth_template *template, const berth_vocabulary *vocabulary,
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

static berth_status read_processor(berth_template *template, const berth_vocabulary *vocabulary,
                                   const berth_json *processor) {
    berth_str type;
    BERTH_TRY(berth_json_get_str(processor, "type", &type));
    if (berth_str_equal_cstr(type, "ByteLevel")) {
        return BERTH_OK; // It moves offsets, not tokens.
    }
    if (!berth_str_equal_cstr(type, "TemplateProcessing")) {
        return berth_json_fail(BERTH_UNSUPPORTED, processor,
                               "post-processor '" BERTH_STR_FMT "' is not supported: ByteLevel, "
                               "TemplateProcessing and a Sequence of these are",
                               BERTH_STR_ARG(type));
    }
    if (template->before.count + template->behind.count > 0) {
        return berth_json_fail(BERTH_UNSUPPORTED, processor, "a second template is not supported");
    }
    return read_template(template, vocabulary, processor);
}

berth_status berth_template_read(berth_template *template, const berth_vocabulary *vocabulary,
                                 const berth_json *post_processor) {
    if (!post_processor || berth_json_kind_of(post_processor) == BERTH_JSON_NULL) {
        return BERTH_OK;
    }
    berth_str type;
    BERTH_TRY(berth_json_get_str(post_processor, "type", &type));
    if (!berth_str_equal_cstr(type, "Sequence")) {
        return read_processor(template, vocabulary, post_processor);
    }
    const berth_json *processors;
    BERTH_TRY(berth_json_get_array(post_processor, "processors", &processors));
    for (size_t i = 0; i < berth_json_size(processors); ++i) {
        BERTH_TRY(read_processor(template, vocabulary, berth_json_at(processors, i)));
    }
    return BERTH_OK;
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

void berth_template_deinit(berth_template *template) {
    berth_array_free(&template->before);
    berth_array_free(&template->behind);
}
