// SPDX-License-Identifier: Apache-2.0
// Reading the pre-tokenizer: every component becomes one or two stages. Most are a pattern and what
// becomes of its matches, whether the file spells the pattern out or the component's name implies
// it.
#include "tokenizer/splitter.h"

#include <stdio.h>

#include "base/utf8.h"

#define GPT2_PATTERN                                                                               \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define JOINERS     "\u200C\u200D"
#define PUNCTUATION "[\\p{P}$+<=>\\^`|~]" // Unicode's, and what is such in ASCII alone

static const char *const rule_names[] = {
    [BERTH_SPLIT_ISOLATED] = "Isolated",
    [BERTH_SPLIT_REMOVED] = "Removed",
    [BERTH_SPLIT_CONTIGUOUS] = "Contiguous",
    [BERTH_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
    [BERTH_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
};

// What follows ByteLevel sees words as the alphabet spells them.
static berth_status make_room(berth_splitter *splitter, const berth_json *where) {
    berth_splitter_spell(splitter);
    if (splitter->count < BERTH_SPLITTER_STAGES) {
        return BERTH_OK;
    }
    return berth_json_fail(BERTH_UNSUPPORTED, where, "more than %d pre-tokenizers",
                           BERTH_SPLITTER_STAGES);
}

// Takes over the stage's pattern.
static berth_status add_stage(berth_splitter *splitter, const berth_json *where,
                              berth_split_stage stage) {
    const berth_status status = make_room(splitter, where);
    if (status == BERTH_OK) {
        splitter->stages[splitter->count++] = stage;
    } else {
        berth_pattern_destroy(stage.pattern);
    }
    return status;
}

static berth_status add_pattern(berth_splitter *splitter, const berth_json *where,
                                const char *pattern, berth_split_stage stage) {
    BERTH_TRY(berth_pattern_compile(berth_str_from(pattern), &stage.pattern));
    return add_stage(splitter, where, stage);
}

// `rule` stays as it is where the file does not say one.
static berth_status read_rule(const berth_json *json, berth_split_rule *rule) {
    berth_str name;
    BERTH_TRY(berth_json_str_or(json, "behavior", berth_str_from(rule_names[*rule]), &name));
    for (size_t i = 0; i < BERTH_COUNT(rule_names); ++i) {
        if (berth_str_equal_cstr(name, rule_names[i])) {
            *rule = (berth_split_rule)i;
            return BERTH_OK;
        }
    }
    return berth_json_fail(BERTH_UNSUPPORTED, json, "behavior '" BERTH_STR_FMT "' is not supported",
                           BERTH_STR_ARG(name));
}

static berth_status read_split(berth_splitter *splitter, const berth_json *json) {
    berth_split_stage stage = {0};
    berth_str unused;
    BERTH_TRY(berth_json_get_str(json, "behavior", &unused));
    BERTH_TRY(read_rule(json, &stage.rule));
    BERTH_TRY(berth_json_bool_or(json, "invert", false, &stage.is_inverted));
    BERTH_TRY(berth_pattern_read(json, &stage.pattern));
    return add_stage(splitter, json, stage);
}

static berth_status read_byte_level(berth_splitter *splitter, const berth_json *json) {
    bool has_prefix, has_pattern;
    BERTH_TRY(make_room(splitter, json));
    BERTH_TRY(berth_json_get_bool(json, "add_prefix_space", &has_prefix));
    BERTH_TRY(berth_json_bool_or(json, "use_regex", true, &has_pattern));
    if (has_prefix) {
        const berth_split_stage stage = {.kind = BERTH_SPLIT_PREFIX};
        BERTH_TRY(add_stage(splitter, json, stage));
    }
    if (has_pattern) {
        BERTH_TRY(add_pattern(splitter, json, GPT2_PATTERN, (berth_split_stage){0}));
    }
    splitter->is_byte_level = true;
    return BERTH_OK;
}

static berth_status read_metaspace(berth_splitter *splitter, const berth_json *json) {
    berth_split_stage stage = {.kind = BERTH_SPLIT_METASPACE};
    BERTH_TRY(berth_metaspace_read(&stage.metaspace, json));
    splitter->marks_first |= stage.metaspace.prepend == BERTH_METASPACE_FIRST;
    return add_stage(splitter, json, stage);
}

// Words and what stands between them and white space. Why joiners are named: this component counts
// them to words, a pattern's \w does not.
static berth_status read_whitespace(berth_splitter *splitter, const berth_json *json) {
    const berth_split_stage stage = {.rule = BERTH_SPLIT_REMOVED, .is_inverted = true};
    return add_pattern(splitter, json, "[\\w" JOINERS "]+|[^\\w\\s" JOINERS "]+", stage);
}

static berth_status read_whitespace_split(berth_splitter *splitter, const berth_json *json) {
    const berth_split_stage stage = {.rule = BERTH_SPLIT_REMOVED};
    return add_pattern(splitter, json, "\\s", stage);
}

static berth_status read_bert(berth_splitter *splitter, const berth_json *json) {
    BERTH_TRY(read_whitespace_split(splitter, json));
    return add_pattern(splitter, json, PUNCTUATION, (berth_split_stage){0});
}

static berth_status read_punctuation(berth_splitter *splitter, const berth_json *json) {
    berth_split_stage stage = {.rule = BERTH_SPLIT_ISOLATED};
    BERTH_TRY(read_rule(json, &stage.rule));
    return add_pattern(splitter, json, PUNCTUATION, stage);
}

static berth_status read_digits(berth_splitter *splitter, const berth_json *json) {
    berth_split_stage stage = {.rule = BERTH_SPLIT_CONTIGUOUS};
    bool is_individual;
    BERTH_TRY(berth_json_bool_or(json, "individual_digits", false, &is_individual));
    stage.rule = is_individual ? BERTH_SPLIT_ISOLATED : stage.rule;
    return add_pattern(splitter, json, "\\p{N}", stage);
}

static berth_status read_delimiter(berth_splitter *splitter, const berth_json *json) {
    berth_split_stage stage = {.rule = BERTH_SPLIT_REMOVED};
    berth_str delimiter;
    BERTH_TRY(berth_json_get_str(json, "delimiter", &delimiter));
    if (delimiter.size == 0 || berth_utf8_next(delimiter, NULL) != delimiter.size) {
        return berth_json_fail(BERTH_CORRUPT, json,
                               "delimiter '" BERTH_STR_FMT "' is not one character",
                               BERTH_STR_ARG(delimiter));
    }
    BERTH_TRY(berth_pattern_literal(delimiter, &stage.pattern));
    return add_stage(splitter, json, stage);
}

static berth_status read_fixed(berth_splitter *splitter, const berth_json *json) {
    char pattern[32];
    int64_t length;
    BERTH_TRY(berth_json_i64_or(json, "length", 5, &length));
    if (length < 1 || length > UINT16_MAX) {
        return berth_json_fail(BERTH_UNSUPPORTED, json, "a length of %lld is not supported",
                               (long long)length);
    }
    (void)snprintf(pattern, sizeof(pattern), "[\\s\\S]{1,%d}", (int)length);
    return add_pattern(splitter, json, pattern, (berth_split_stage){0});
}

static berth_status read_scripts(berth_splitter *splitter, const berth_json *json) {
    return add_stage(splitter, json, (berth_split_stage){.kind = BERTH_SPLIT_SCRIPTS});
}

static const struct {
    const char *name;
    berth_status (*read)(berth_splitter *splitter, const berth_json *json);
} components[] = {
    {.name = "Split",              .read = read_split           },
    {.name = "ByteLevel",          .read = read_byte_level      },
    {.name = "Metaspace",          .read = read_metaspace       },
    {.name = "Digits",             .read = read_digits          },
    {.name = "Punctuation",        .read = read_punctuation     },
    {.name = "Whitespace",         .read = read_whitespace      },
    {.name = "WhitespaceSplit",    .read = read_whitespace_split},
    {.name = "CharDelimiterSplit", .read = read_delimiter       },
    {.name = "BertPreTokenizer",   .read = read_bert            },
    {.name = "FixedLength",        .read = read_fixed           },
    {.name = "UnicodeScripts",     .read = read_scripts         },
};

static berth_status read_component(berth_splitter *splitter, const berth_json *json) {
    berth_str type;
    BERTH_TRY(berth_json_get_str(json, "type", &type));
    for (size_t i = 0; i < BERTH_COUNT(components); ++i) {
        if (berth_str_equal_cstr(type, components[i].name)) {
            return components[i].read(splitter, json);
        }
    }
    if (!berth_str_equal_cstr(type, "Sequence")) {
        return berth_json_fail(BERTH_UNSUPPORTED, json,
                               "pre-tokenizer '" BERTH_STR_FMT "' is not supported",
                               BERTH_STR_ARG(type));
    }
    const berth_json *list;
    BERTH_TRY(berth_json_get_array(json, "pretokenizers", &list));
    for (size_t i = 0; i < berth_json_size(list); ++i) {
        BERTH_TRY(read_component(splitter, berth_json_at(list, i)));
    }
    return BERTH_OK;
}

berth_status berth_splitter_read(berth_splitter *splitter, const berth_json *json) {
    const bool has_stages = json && berth_json_kind_of(json) != BERTH_JSON_NULL;
    return has_stages ? read_component(splitter, json) : BERTH_OK;
}
