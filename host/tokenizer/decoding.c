// SPDX-License-Identifier: Apache-2.0
// Reading the decoder: its components become steps from a token to its text, every token goes
// through them, and what acts on the joined text (Strip behind Fuse) is kept for later.
#include "tokenizer/decoding.h"

#include <ctype.h>
#include <string.h>

#include "base/array.h"
#include "base/pattern.h"
#include "base/text.h"
#include "base/utf8.h"
#include "tokenizer/alphabet.h"
#include "tokenizer/metaspace.h"

#define STEPS       16
#define TOKEN_BYTES ((size_t)1 << 20) // the most that a token may decode to

typedef struct step step;
typedef struct chain chain;

// Makes of a token's text at a place the one that the step turns it into.
typedef berth_status (*apply_fn)(const step *s, chain *c, berth_str text, berth_text *out);

struct step {
    apply_fn apply;
    berth_pattern *pattern; // owned
    berth_str content;      // borrowed from the file
    berth_str delimiter;    // of words; borrowed
    size_t count, stop;     // how often it is taken off, at the start and at the end
    bool tidies;            // takes blanks away before punctuation
    berth_metaspace metaspace;
};

struct chain {
    berth_decoding *decoding;
    berth_arena *arena;
    step steps[STEPS];
    size_t count;
    const char *last; // the component that joined tokens, behind which no other looks at one alone
    bool is_fused;    // it joined all of them, not only bytes
    bool has_first;   // a step treats the first token in another way
    bool is_first;    // the token at hand is the first
    bool has_last;    // a step treats the last token in another way
    bool is_last;     // the token at hand is the last
    berth_matcher *matcher;
    berth_text texts[2];
    berth_array(char) bytes;
};

// ---- from one token to its text ----

static berth_status replace(const step *s, chain *c, berth_str text, berth_text *out) {
    berth_matches matches = {.pattern = s->pattern, .matcher = c->matcher, .text = text};
    return berth_pattern_replace(&matches, s->content, out);
}

static berth_status strip(const step *s, chain *c, berth_str text, berth_text *out) {
    (void)c;
    for (size_t i = 0; i < s->count && berth_str_starts_with(text, s->content); ++i) {
        text = berth_str_slice(text, s->content.size, SIZE_MAX);
    }
    for (size_t i = 0; i < s->stop && berth_str_ends_with(text, s->content); ++i) {
        text = berth_str_slice(text, 0, text.size - s->content.size);
    }
    berth_text_add(out, text);
    return BERTH_OK;
}

// In place: `to` is not longer than `from`.
static void replace_all(berth_text *text, berth_str from, berth_str to) {
    const berth_str whole = berth_text_str(text);
    size_t size = 0;
    for (size_t at = 0; at < whole.size;) {
        if (berth_str_starts_with(berth_str_slice(whole, at, from.size), from)) {
            memcpy(text->data + size, to.data, to.size);
            size += to.size;
            at += from.size;
        } else {
            text->data[size++] = text->data[at++];
        }
    }
    text->size = size;
}

// English as it was before a tokenizer took it apart.
static void tidy(berth_text *text) {
    static const struct {
        const char *from, *to;
    } pairs[] = {
        {" .",      "."     },
        {" ?",      "?"     },
        {" !",      "!"     },
        {" ,",      ","     },
        {" ' ",     "'"     },
        {" n't",    "n't"   },
        {" 'm",     "'m"    },
        {" do not", " don't"},
        {" 's",     "'s"    },
        {" 've",    "'ve"   },
        {" 're",    "'re"   },
    };
    for (size_t i = 0; i < BERTH_COUNT(pairs); ++i) {
        replace_all(text, berth_str_from(pairs[i].from), berth_str_from(pairs[i].to));
    }
}

// WordPiece: what has no prefix begins a word.
static berth_status join_pieces(const step *s, chain *c, berth_str text, berth_text *out) {
    const bool has_prefix = !c->is_first && berth_str_starts_with(text, s->content);
    berth_text_add_cstr(out, c->is_first || has_prefix ? "" : " ");
    berth_text_add(out, has_prefix ? berth_str_slice(text, s->content.size, SIZE_MAX) : text);
    if (s->tidies) {
        tidy(out);
    }
    return BERTH_OK;
}

// BPEDecoder: a word's last token ends with the suffix.
static berth_status end_words(const step *s, chain *c, berth_str text, berth_text *out) {
    for (size_t at = 0; at < text.size;) {
        if (berth_str_starts_with(berth_str_slice(text, at, s->content.size), s->content)) {
            berth_text_add_cstr(out, c->is_last ? "" : " ");
            at += s->content.size;
        } else {
            berth_text_add_char(out, text.data[at++]);
        }
    }
    return BERTH_OK;
}

// CTC: padding is nothing, and one token stands between words.
static berth_status drop_padding(const step *s, chain *c, berth_str text, berth_text *out) {
    (void)c;
    berth_text_add(out, text);
    replace_all(out, s->content, BERTH_STR(""));
    if (s->tidies) {
        tidy(out);
        replace_all(out, s->delimiter, BERTH_STR(" "));
    }
    return BERTH_OK;
}

// Without a decoder there are blanks between all tokens.
static berth_status separate(const step *s, chain *c, berth_str text, berth_text *out) {
    (void)s;
    berth_text_add_cstr(out, c->is_first ? "" : " ");
    berth_text_add(out, text);
    return BERTH_OK;
}

static berth_status unmark(const step *s, chain *c, berth_str text, berth_text *out) {
    const berth_str mark = berth_metaspace_mark(&s->metaspace);
    const bool drops = c->is_first && s->metaspace.prepend != BERTH_METASPACE_NEVER;
    size_t size;
    for (size_t at = 0; at < text.size; at += size) {
        const berth_str rest = berth_str_slice(text, at, SIZE_MAX);
        size = berth_utf8_next(rest, NULL);
        if (!berth_str_starts_with(rest, mark)) {
            berth_text_add(out, berth_str_slice(rest, 0, size));
        } else if (!drops) {
            berth_text_add_char(out, ' ');
        }
    }
    return BERTH_OK;
}

// Why: a token with any character outside the alphabet stands for its own UTF-8, as a whole; that
// is how the files' reference decoder reads them, added tokens included.
static berth_status read_alphabet(const step *s, chain *c, berth_str text, berth_text *out) {
    (void)s;
    BERTH_TRY(berth_array_reserve(&c->bytes, text.size));
    berth_str read = {.data = c->bytes.data};
    berth_text_add(out, berth_alphabet_read(text, c->bytes.data, &read.size) ? read : text);
    return BERTH_OK;
}

static int digit(char letter) {
    if (letter >= '0' && letter <= '9') {
        return letter - '0';
    }
    return isxdigit((unsigned char)letter) ? tolower((unsigned char)letter) - 'a' + 10 : -1;
}

static berth_status read_byte(const step *s, chain *c, berth_str text, berth_text *out) {
    (void)s;
    (void)c;
    const bool is_framed = text.size == 6 && berth_str_starts_with(text, BERTH_STR("<0x")) &&
                           berth_str_ends_with(text, BERTH_STR(">"));
    if (is_framed && digit(text.data[3]) >= 0 && digit(text.data[4]) >= 0) {
        berth_text_add_char(out, (char)(digit(text.data[3]) * 16 + digit(text.data[4])));
    } else {
        berth_text_add(out, text);
    }
    return BERTH_OK;
}

// ---- reading the file ----

static berth_status add_step(chain *c, const berth_json *json, step s) {
    if (c->count == STEPS) {
        berth_pattern_destroy(s.pattern);
        return berth_json_fail(BERTH_UNSUPPORTED, json, "more than %d decoders", STEPS);
    }
    c->steps[c->count++] = s;
    return BERTH_OK;
}

static berth_status read_replace(chain *c, const berth_json *json) {
    step s = {.apply = replace};
    BERTH_TRY(berth_json_get_str(json, "content", &s.content));
    BERTH_TRY(berth_pattern_read(json, &s.pattern));
    return add_step(c, json, s);
}

static berth_status read_strip(chain *c, const berth_json *json) {
    step s = {.apply = strip};
    int64_t start, stop;
    BERTH_TRY(berth_json_get_str(json, "content", &s.content));
    BERTH_TRY(berth_json_get_i64(json, "start", &start));
    BERTH_TRY(berth_json_get_i64(json, "stop", &stop));
    if (s.content.size == 0 || berth_utf8_next(s.content, NULL) != s.content.size || start < 0 ||
        stop < 0) {
        return berth_json_fail(
            BERTH_CORRUPT, json,
            "Strip needs one character in content and how often in start and stop");
    }
    if (c->is_fused && (stop != 0 || c->decoding->strip_count > 0)) {
        return berth_json_fail(BERTH_UNSUPPORTED, json,
                               "decoder 'Strip' with a stop, or behind another, is not supported "
                               "behind %s",
                               c->last);
    }
    s.count = (size_t)start;
    s.stop = (size_t)stop;
    if (!c->is_fused) {
        return add_step(c, json, s);
    }
    const char *content = berth_arena_copy(c->arena, s.content);
    c->decoding->stripped = (berth_str){.data = content, .size = s.content.size};
    c->decoding->strip_count = s.count;
    return content ? BERTH_OK : berth_arena_exhausted(c->arena, "a decoder");
}

static berth_status read_metaspace(chain *c, const berth_json *json) {
    step s = {.apply = unmark};
    BERTH_TRY(berth_metaspace_read(&s.metaspace, json));
    c->has_first |= s.metaspace.prepend != BERTH_METASPACE_NEVER;
    return add_step(c, json, s);
}

static berth_status read_word_piece(chain *c, const berth_json *json) {
    step s = {.apply = join_pieces};
    BERTH_TRY(berth_json_str_or(json, "prefix", BERTH_STR("##"), &s.content));
    BERTH_TRY(berth_json_bool_or(json, "cleanup", true, &s.tidies));
    c->has_first = true;
    return add_step(c, json, s);
}

// A text that is not empty, as replacing an empty one would change every character.
static berth_status read_filled(const berth_json *json, const char *key, berth_str *out) {
    BERTH_TRY(berth_json_get_str(json, key, out));
    if (out->size == 0) {
        return berth_json_fail(BERTH_UNSUPPORTED, json, "an empty %s is not supported", key);
    }
    return BERTH_OK;
}

// Adds what treats tokens by their neighbours, so that nothing may change them before it.
static berth_status add_leader(chain *c, const berth_json *json, const char *name, step s) {
    if (c->count > 0) {
        return berth_json_fail(BERTH_UNSUPPORTED, json,
                               "decoder '%s' behind another is not supported", name);
    }
    c->last = name;
    return add_step(c, json, s);
}

static berth_status read_bpe(chain *c, const berth_json *json) {
    step s = {.apply = end_words};
    BERTH_TRY(read_filled(json, "suffix", &s.content));
    c->has_last = true;
    return add_leader(c, json, "BPEDecoder", s);
}

static berth_status read_ctc(chain *c, const berth_json *json) {
    step s = {.apply = drop_padding};
    BERTH_TRY(read_filled(json, "pad_token", &s.content));
    BERTH_TRY(read_filled(json, "word_delimiter_token", &s.delimiter));
    BERTH_TRY(berth_json_get_bool(json, "cleanup", &s.tidies));
    c->decoding->drops_repeats = true;
    return add_leader(c, json, "CTC", s);
}

static berth_status read_byte_level(chain *c, const berth_json *json) {
    c->last = "ByteLevel";
    c->is_fused = true;
    return add_step(c, json, (step){.apply = read_alphabet});
}

static berth_status read_byte_fallback(chain *c, const berth_json *json) {
    c->last = "ByteFallback";
    c->decoding->marks_every_byte = true;
    return add_step(c, json, (step){.apply = read_byte});
}

static berth_status read_fuse(chain *c, const berth_json *json) {
    (void)json;
    c->last = "Fuse";
    c->is_fused = true;
    return BERTH_OK;
}

static const struct {
    const char *name;
    berth_status (*read)(chain *c, const berth_json *json);
} components[] = {
    {.name = "Replace",      .read = read_replace      },
    {.name = "Metaspace",    .read = read_metaspace    },
    {.name = "WordPiece",    .read = read_word_piece   },
    {.name = "BPEDecoder",   .read = read_bpe          },
    {.name = "CTC",          .read = read_ctc          },
    {.name = "ByteLevel",    .read = read_byte_level   },
    {.name = "ByteFallback", .read = read_byte_fallback},
    {.name = "Fuse",         .read = read_fuse         },
    {.name = "Strip",        .read = read_strip        },
};

static berth_status read_component(chain *c, const berth_json *json, size_t index) {
    const bool takes_joined = components[index].read == read_fuse ||
                              (components[index].read == read_strip && c->is_fused);
    if (c->last && !takes_joined) {
        return berth_json_fail(BERTH_UNSUPPORTED, json, "decoder '%s' behind %s is not supported",
                               components[index].name, c->last);
    }
    return components[index].read(c, json);
}

static berth_status read_chain(chain *c, const berth_json *json) {
    berth_str type;
    BERTH_TRY(berth_json_get_str(json, "type", &type));
    for (size_t i = 0; i < BERTH_COUNT(components); ++i) {
        if (berth_str_equal_cstr(type, components[i].name)) {
            return read_component(c, json, i);
        }
    }
    if (!berth_str_equal_cstr(type, "Sequence")) {
        return berth_json_fail(BERTH_UNSUPPORTED, json,
                               "decoder '" BERTH_STR_FMT "' is not supported", BERTH_STR_ARG(type));
    }
    const berth_json *list;
    BERTH_TRY(berth_json_get_array(json, "decoders", &list));
    for (size_t i = 0; i < berth_json_size(list); ++i) {
        BERTH_TRY(read_chain(c, berth_json_at(list, i)));
    }
    return BERTH_OK;
}

static berth_status read_decoder(chain *c, const berth_json *json) {
    if (json && berth_json_kind_of(json) != BERTH_JSON_NULL) {
        return read_chain(c, json);
    }
    c->has_first = true;
    return add_step(c, json, (step){.apply = separate});
}

// ---- every token ----

// What the steps make of a text, of the arena or `text` itself.
static berth_status run_chain(chain *c, berth_str text, berth_str *out_text) {
    berth_str at_hand = text;
    for (size_t i = 0; i < c->count; ++i) {
        berth_text *out = &c->texts[i % 2];
        berth_text_clear(out);
        BERTH_TRY(c->steps[i].apply(&c->steps[i], c, at_hand, out));
        BERTH_TRY(berth_text_finish(out, NULL));
        at_hand = berth_text_str(out);
    }
    *out_text = text;
    if (!berth_str_equal(at_hand, text)) {
        out_text->data = berth_arena_copy(c->arena, at_hand);
        out_text->size = at_hand.size;
    }
    if (out_text->size > c->decoding->longest) {
        c->decoding->longest = out_text->size;
    }
    return out_text->data ? BERTH_OK : berth_arena_exhausted(c->arena, "tokens");
}

// Room for another text of every token, where a step treats some in another way.
static berth_status make_others(chain *c, bool is_wanted, size_t count, berth_str **out_others) {
    *out_others = is_wanted ? BERTH_ARENA_ARRAY(c->arena, berth_str, count) : NULL;
    return is_wanted && !*out_others ? berth_arena_exhausted(c->arena, "tokens") : BERTH_OK;
}

static berth_status decode_token(chain *c, berth_str spelling, bool is_first, bool is_last,
                                 berth_str *out_text) {
    c->is_first = is_first;
    c->is_last = is_last;
    return run_chain(c, spelling, out_text);
}

static berth_status decode_tokens(chain *c, berth_vocabulary *vocabulary) {
    const size_t count = vocabulary->tokens.count;
    berth_str *firsts, *lasts;
    BERTH_TRY(make_others(c, c->has_first, count, &firsts));
    BERTH_TRY(make_others(c, c->has_last, count, &lasts));
    for (size_t i = 0; i < count; ++i) {
        berth_token *token = &vocabulary->tokens.data[i];
        const berth_str spelling = token->bytes.data ? token->bytes : token->content;
        if (!token->content.data) {
            continue;
        }
        BERTH_TRY(decode_token(c, spelling, false, false, &token->bytes));
        if (firsts) {
            BERTH_TRY(decode_token(c, spelling, true, false, &firsts[i]));
        }
        if (lasts) {
            BERTH_TRY(decode_token(c, spelling, false, true, &lasts[i]));
        }
    }
    c->decoding->firsts = firsts;
    c->decoding->lasts = lasts;
    return BERTH_OK;
}

berth_status berth_decoding_read(berth_decoding *decoding, berth_arena *arena,
                                 berth_vocabulary *vocabulary, const berth_json *json) {
    chain c = {.decoding = decoding, .arena = arena};
    for (size_t i = 0; i < BERTH_COUNT(c.texts); ++i) {
        berth_text_init(&c.texts[i], TOKEN_BYTES);
    }
    berth_status status = berth_matcher_create(&c.matcher);
    if (status == BERTH_OK) {
        status = read_decoder(&c, json);
    }
    if (status == BERTH_OK) {
        status = decode_tokens(&c, vocabulary);
    }
    for (size_t i = 0; i < c.count; ++i) {
        berth_pattern_destroy(c.steps[i].pattern);
    }
    for (size_t i = 0; i < BERTH_COUNT(c.texts); ++i) {
        berth_text_deinit(&c.texts[i]);
    }
    berth_array_free(&c.bytes);
    berth_matcher_destroy(c.matcher);
    return status;
}
