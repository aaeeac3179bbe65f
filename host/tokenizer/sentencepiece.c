// SPDX-License-Identifier: Apache-2.0
// A protocol buffer as a list of fields: pieces with their scores, how the trainer made them, how
// texts are normalized. What comes of it is what transformers' converters write for the same file,
// because that is what checkpoints with a tokenizer.json have.
#include "tokenizer/sentencepiece.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/map.h"
#include "base/text.h"
#include "base/utf8.h"
#include "tokenizer/unicode.h"
#include "tokenizer/vocabulary.h"

#define MARK       "\u2581"
#define JSON_BYTES ((size_t)1 << 28)

typedef enum wire {
    WIRE_VARINT = 0,
    WIRE_FIXED64 = 1,
    WIRE_BYTES = 2,
    WIRE_FIXED32 = 5,
} wire;

// Numbers of the fields of ModelProto and what it holds.
enum {
    MODEL_PIECES = 1,
    MODEL_TRAINER = 2,
    MODEL_NORMALIZER = 3,
    PIECE_TEXT = 1,
    PIECE_SCORE = 2,
    PIECE_TYPE = 3,
    TRAINER_MODEL = 3,
    TRAINER_SUFFIX = 24,
    TRAINER_BYTE_FALLBACK = 35,
    TRAINER_UNK = 40,
    TRAINER_BOS = 41,
    TRAINER_EOS = 42,
    NORMALIZER_CHARSMAP = 2,
    NORMALIZER_PREFIX = 3,
    NORMALIZER_EXTRA = 4,
    NORMALIZER_ESCAPE = 5,
};

enum {
    MODEL_UNIGRAM = 1,
    MODEL_BPE = 2,
};

enum {
    TYPE_NORMAL = 1,
    TYPE_UNKNOWN = 2,
    TYPE_CONTROL = 3,
    TYPE_USER = 4,
    TYPE_UNUSED = 5,
    TYPE_BYTE = 6,
};

typedef struct piece {
    berth_str text; // borrowed from the file
    double score;
    uint64_t type;
} piece;

typedef struct merge {
    berth_str left, right;
    size_t left_size, right_size; // characters
    double score;
    size_t order;
} merge;

typedef struct model {
    const char *path;
    const berth_json *config;
    berth_array(piece) pieces;
    berth_array(merge) merges;
    berth_map ids;
    uint64_t kind;
    int64_t unk_id, bos_id, eos_id;
    berth_str charsmap; // borrowed from the file; empty: there is none
    bool has_byte_fallback, has_suffix;
    bool has_prefix, drops_extra, escapes;
} model;

typedef struct field {
    uint64_t number, value; // a float's bits are its value
    berth_str bytes;
} field;

typedef struct reader {
    const model *model;
    const char *start; // of the file, for errors
    berth_str rest;
} reader;

// ---- the format ----

static berth_status corrupt(const reader *r, const char *what) {
    return BERTH_FAIL(CORRUPT, "%s: byte %zu: %s; the file is no SentencePiece model, or broken",
                      r->model->path, (size_t)(r->rest.data - r->start), what);
}

static berth_status read_varint(reader *r, uint64_t *out) {
    *out = 0;
    for (unsigned shift = 0; shift < 64 && r->rest.size > 0; shift += 7) {
        const uint8_t byte = (uint8_t)r->rest.data[0];
        r->rest = berth_str_slice(r->rest, 1, SIZE_MAX);
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (!(byte & 0x80)) {
            return BERTH_OK;
        }
    }
    return corrupt(r, "a number does not end");
}

static berth_status read_fixed(reader *r, size_t size, uint64_t *out) {
    *out = 0;
    if (r->rest.size < size) {
        return corrupt(r, "a number is cut off");
    }
    for (size_t i = 0; i < size; ++i) {
        *out |= (uint64_t)(uint8_t)r->rest.data[i] << (8 * i);
    }
    r->rest = berth_str_slice(r->rest, size, SIZE_MAX);
    return BERTH_OK;
}

static berth_status read_bytes(reader *r, berth_str *out) {
    uint64_t size;
    BERTH_TRY(read_varint(r, &size));
    if (size > r->rest.size) {
        return corrupt(r, "a field is longer than what is left");
    }
    *out = berth_str_slice(r->rest, 0, (size_t)size);
    r->rest = berth_str_slice(r->rest, (size_t)size, SIZE_MAX);
    return BERTH_OK;
}

static berth_status read_field(reader *r, field *out) {
    uint64_t tag;
    *out = (field){0};
    BERTH_TRY(read_varint(r, &tag));
    out->number = tag >> 3;
    switch (tag & 7) {
    case WIRE_VARINT:
        return read_varint(r, &out->value);
    case WIRE_FIXED64:
        return read_fixed(r, 8, &out->value);
    case WIRE_FIXED32:
        return read_fixed(r, 4, &out->value);
    case WIRE_BYTES:
        return read_bytes(r, &out->bytes);
    default:
        return corrupt(r, "a field of no known kind");
    }
}

// ---- the fields ----

static double float_of(uint64_t bits) {
    const uint32_t narrow = (uint32_t)bits;
    float value;
    memcpy(&value, &narrow, sizeof(value));
    return (double)value;
}

static berth_status read_piece(model *m, reader r) {
    piece p = {.type = TYPE_NORMAL};
    const size_t id = m->pieces.count;
    while (r.rest.size > 0) {
        field f;
        BERTH_TRY(read_field(&r, &f));
        if (f.number == PIECE_TEXT) {
            p.text = f.bytes;
        } else if (f.number == PIECE_SCORE) {
            p.score = float_of(f.value);
        } else if (f.number == PIECE_TYPE) {
            p.type = f.value;
        }
    }
    if (p.text.size == 0 || berth_utf8_valid_bytes(p.text) < p.text.size || !isfinite(p.score)) {
        return BERTH_FAIL(CORRUPT, "%s: piece %zu has no text, no UTF-8 or no finite score",
                          m->path, id);
    }
    if (p.type == TYPE_UNUSED || id == BERTH_VOCABULARY_LIMIT) {
        return BERTH_FAIL(UNSUPPORTED,
                          "%s: piece %zu: unused pieces, or more than %d of them, are "
                          "not supported",
                          m->path, id, BERTH_VOCABULARY_LIMIT);
    }
    if (berth_map_find(&m->ids, p.text)) {
        return BERTH_FAIL(CORRUPT, "%s: piece %zu '" BERTH_STR_FMT "' was there before", m->path,
                          id, BERTH_STR_ARG(p.text));
    }
    BERTH_TRY(berth_map_add(&m->ids, p.text, (uint32_t)id));
    return berth_array_push(&m->pieces, p);
}

static berth_status read_trainer(model *m, reader r) {
    while (r.rest.size > 0) {
        field f;
        BERTH_TRY(read_field(&r, &f));
        switch (f.number) {
        case TRAINER_MODEL:
            m->kind = f.value;
            break;
        case TRAINER_SUFFIX:
            m->has_suffix = f.value != 0;
            break;
        case TRAINER_BYTE_FALLBACK:
            m->has_byte_fallback = f.value != 0;
            break;
        case TRAINER_UNK:
            m->unk_id = (int32_t)f.value;
            break;
        case TRAINER_BOS:
            m->bos_id = (int32_t)f.value;
            break;
        case TRAINER_EOS:
            m->eos_id = (int32_t)f.value;
            break;
        default:
            break;
        }
    }
    return BERTH_OK;
}

static berth_status read_normalizer(model *m, reader r) {
    while (r.rest.size > 0) {
        field f;
        BERTH_TRY(read_field(&r, &f));
        switch (f.number) {
        case NORMALIZER_CHARSMAP:
            m->charsmap = f.bytes;
            break;
        case NORMALIZER_PREFIX:
            m->has_prefix = f.value != 0;
            break;
        case NORMALIZER_EXTRA:
            m->drops_extra = f.value != 0;
            break;
        case NORMALIZER_ESCAPE:
            m->escapes = f.value != 0;
            break;
        default:
            break;
        }
    }
    return BERTH_OK;
}

static berth_status read_model(model *m, berth_str file) {
    reader r = {.model = m, .start = file.data, .rest = file};
    while (r.rest.size > 0) {
        field f;
        BERTH_TRY(read_field(&r, &f));
        const reader inner = {.model = m, .start = r.start, .rest = f.bytes};
        switch (f.number) {
        case MODEL_PIECES:
            BERTH_TRY(read_piece(m, inner));
            break;
        case MODEL_TRAINER:
            BERTH_TRY(read_trainer(m, inner));
            break;
        case MODEL_NORMALIZER:
            BERTH_TRY(read_normalizer(m, inner));
            break;
        default:
            break;
        }
    }
    return m->pieces.count > 0 ? BERTH_OK : corrupt(&r, "there are no pieces");
}

static berth_status refuse(const model *m, const char *what) {
    return BERTH_FAIL(UNSUPPORTED,
                      "%s: %s is not supported; save the checkpoint with its tokenizer.json",
                      m->path, what);
}

static berth_status check_model(const model *m) {
    if (m->kind != MODEL_UNIGRAM && m->kind != MODEL_BPE) {
        return refuse(m, "a model that is neither unigram nor bpe");
    }
    if (m->has_suffix) {
        return refuse(m, "treat_whitespace_as_suffix");
    }
    if (!m->escapes) {
        return refuse(m, "a text without escaped blanks");
    }
    const int64_t count = (int64_t)m->pieces.count;
    if (m->unk_id >= count || m->bos_id >= count || m->eos_id >= count) {
        return BERTH_FAIL(CORRUPT, "%s: unk_id, bos_id or eos_id is beyond the %lld pieces",
                          m->path, (long long)count);
    }
    return BERTH_OK;
}

// ---- merges ----

// The best score comes first, then what has the longer halves, then what was found first.
static int compare_merges(const void *left, const void *right) {
    const merge *a = left;
    const merge *b = right;
    if (a->score != b->score) {
        return a->score > b->score ? -1 : 1;
    }
    if (a->left_size != b->left_size) {
        return a->left_size > b->left_size ? -1 : 1;
    }
    if (a->right_size != b->right_size) {
        return a->right_size > b->right_size ? -1 : 1;
    }
    return (a->order > b->order) - (a->order < b->order);
}

// Every way to cut a piece into two others.
static berth_status add_merges(model *m, const piece *p) {
    size_t step;
    for (size_t at = 0; at < p->text.size; at += step) {
        step = berth_utf8_next(berth_str_slice(p->text, at, 4), NULL);
        const berth_str left = berth_str_slice(p->text, 0, at);
        const berth_str right = berth_str_slice(p->text, at, SIZE_MAX);
        if (at == 0 || !berth_map_find(&m->ids, left) || !berth_map_find(&m->ids, right)) {
            continue;
        }
        const merge found = {
            .left = left,
            .right = right,
            .left_size = berth_unicode_char_count(left),
            .right_size = berth_unicode_char_count(right),
            .score = p->score,
            .order = m->merges.count,
        };
        BERTH_TRY(berth_array_push(&m->merges, found));
    }
    return BERTH_OK;
}

static berth_status find_merges(model *m) {
    for (size_t i = 0; i < m->pieces.count; ++i) {
        BERTH_TRY(add_merges(m, &m->pieces.data[i]));
    }
    if (m->merges.count > 1) {
        qsort(m->merges.data, m->merges.count, sizeof(merge), compare_merges);
    }
    return BERTH_OK;
}

// ---- tokenizer.json ----

static void put_string(berth_text *out, berth_str string) {
    berth_text_add_char(out, '"');
    berth_text_add_json(out, string);
    berth_text_add_char(out, '"');
}

static void put_named(berth_text *out, const char *name, const model *m, int64_t id) {
    if (id >= 0) {
        berth_text_add_format(out, ",\"%s\":", name);
        put_string(out, m->pieces.data[id].text);
    }
}

static void put_unigram(const model *m, berth_text *out) {
    berth_text_add_cstr(out, "{\"type\":\"Unigram\",\"vocab\":[");
    for (size_t i = 0; i < m->pieces.count; ++i) {
        berth_text_add_cstr(out, i > 0 ? ",[" : "[");
        put_string(out, m->pieces.data[i].text);
        berth_text_add_char(out, ',');
        berth_text_add_f64(out, m->pieces.data[i].score);
        berth_text_add_char(out, ']');
    }
    berth_text_add_cstr(out, "]");
    if (m->unk_id >= 0) {
        berth_text_add_format(out, ",\"unk_id\":%lld", (long long)m->unk_id);
    }
}

static berth_status put_bpe(model *m, berth_text *out) {
    BERTH_TRY(find_merges(m));
    berth_text_add_cstr(out, "{\"type\":\"BPE\",\"fuse_unk\":true,\"vocab\":{");
    for (size_t i = 0; i < m->pieces.count; ++i) {
        berth_text_add_cstr(out, i > 0 ? "," : "");
        put_string(out, m->pieces.data[i].text);
        berth_text_add_format(out, ":%zu", i);
    }
    berth_text_add_cstr(out, "},\"merges\":[");
    for (size_t i = 0; i < m->merges.count; ++i) {
        berth_text_add_cstr(out, i > 0 ? ",[" : "[");
        put_string(out, m->merges.data[i].left);
        berth_text_add_char(out, ',');
        put_string(out, m->merges.data[i].right);
        berth_text_add_char(out, ']');
    }
    berth_text_add_cstr(out, "]");
    put_named(out, "unk_token", m, m->unk_id);
    return BERTH_OK;
}

// Control pieces are never found in a normalized text, user-defined ones always.
static void put_added(const model *m, berth_text *out) {
    const char *separator = "";
    berth_text_add_cstr(out, ",\"added_tokens\":[");
    for (size_t i = 0; i < m->pieces.count; ++i) {
        const piece *p = &m->pieces.data[i];
        const bool is_special = p->type == TYPE_CONTROL || p->type == TYPE_UNKNOWN;
        if (!is_special && p->type != TYPE_USER) {
            continue;
        }
        berth_text_add_format(out,
                              "%s{\"id\":%zu,\"special\":%s,\"normalized\":false,\"lstrip\":false,"
                              "\"rstrip\":false,\"single_word\":false,\"content\":",
                              separator, i, is_special ? "true" : "false");
        put_string(out, p->text);
        berth_text_add_char(out, '}');
        separator = ",";
    }
    berth_text_add_char(out, ']');
}

static void put_base64(berth_text *out, berth_str bytes) {
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < bytes.size; i += 3) {
        uint32_t bits = 0;
        for (size_t k = 0; k < 3; ++k) {
            bits = bits << 8 | (i + k < bytes.size ? (uint8_t)bytes.data[i + k] : 0u);
        }
        for (size_t k = 0; k < 4; ++k) {
            const bool is_padding = i + k > bytes.size;
            berth_text_add_char(out, is_padding ? '=' : letters[bits >> (18 - 6 * k) & 63]);
        }
    }
}

static void put_replacement(berth_text *out, const char *kind, const char *pattern,
                            const char *content) {
    berth_text_add_format(out,
                          "{\"type\":\"Replace\",\"pattern\":{\"%s\":\"%s\"},\"content\":\"%s\"},",
                          kind, pattern, content);
}

// The table of characters first; then blanks that are too many go: all at the start, all at the
// end, and of those between words all but one.
static void put_cleaning(const model *m, berth_text *out) {
    if (m->charsmap.size > 0) {
        berth_text_add_cstr(out, "{\"type\":\"SentencePiece\",\"precompiled_charsmap\":\"");
        put_base64(out, m->charsmap);
        berth_text_add_cstr(out, "\"},");
    }
    if (m->drops_extra) {
        put_replacement(out, "Regex", "(?<![\\\\s\\\\S]) +", "");
        put_replacement(out, "Regex", "[ " MARK "]+(?![\\\\s\\\\S])", "");
        put_replacement(out, "Regex", " {2,}", " ");
    }
}

// Why two ways to the mark: until transformers' `legacy: false`, every stretch between added tokens
// began with one; since then only the text does.
static berth_status put_marks(const model *m, berth_text *out) {
    bool is_legacy = true;
    if (m->config) {
        BERTH_TRY(berth_json_bool_or(m->config, "legacy", true, &is_legacy));
    }
    const bool marks_first = !is_legacy && m->has_prefix;
    berth_text_add_cstr(out, ",\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    put_cleaning(m, out);
    if (!marks_first && m->has_prefix) {
        berth_text_add_cstr(out, "{\"type\":\"Prepend\",\"prepend\":\"" MARK "\"},");
    }
    if (!marks_first) {
        put_replacement(out, "String", " ", MARK);
    }
    if (out->size > 0 && out->data[out->size - 1] == ',') {
        out->data[--out->size] = '\0';
    }
    berth_text_add_cstr(out, "]}");
    if (marks_first) {
        berth_text_add_cstr(out, ",\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":"
                                 "\"" MARK "\",\"prepend_scheme\":\"first\",\"split\":false}");
    }
    return BERTH_OK;
}

static void put_decoder(const model *m, berth_text *out) {
    berth_text_add_cstr(out, ",\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":"
                             "\"Replace\",\"pattern\":{\"String\":\"" MARK "\"},\"content\":"
                             "\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}");
    if (m->has_prefix) {
        berth_text_add_cstr(out, ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}");
    }
    berth_text_add_cstr(out, "]}");
}

static void put_template(const model *m, berth_text *out) {
    if (m->bos_id < 0) {
        return;
    }
    const berth_str bos = m->pieces.data[m->bos_id].text;
    berth_text_add_cstr(out, ",\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":["
                             "{\"SpecialToken\":{\"type_id\":0,\"id\":");
    put_string(out, bos);
    berth_text_add_cstr(out,
                        "}},{\"Sequence\":{\"type_id\":0,\"id\":\"A\"}}],\"special_tokens\":{");
    put_string(out, bos);
    berth_text_add_cstr(out, ":{\"id\":");
    put_string(out, bos);
    berth_text_add_format(out, ",\"ids\":[%lld]}}}", (long long)m->bos_id);
}

static berth_status write_json(model *m, berth_text *out) {
    berth_text_add_cstr(out, "{\"model\":");
    if (m->kind == MODEL_UNIGRAM) {
        put_unigram(m, out);
    } else {
        BERTH_TRY(put_bpe(m, out));
    }
    berth_text_add_format(out, ",\"byte_fallback\":%s}", m->has_byte_fallback ? "true" : "false");
    put_added(m, out);
    BERTH_TRY(put_marks(m, out));
    put_decoder(m, out);
    put_template(m, out);
    put_named(out, "bos_token", m, m->bos_id);
    put_named(out, "eos_token", m, m->eos_id);
    berth_text_add_char(out, '}');
    return berth_text_finish(out, NULL);
}

static berth_status convert(model *m, berth_str file, berth_json **out_file) {
    const berth_json_limits limits = {.bytes = JSON_BYTES};
    berth_text text;
    BERTH_TRY(read_model(m, file));
    BERTH_TRY(check_model(m));
    berth_text_init(&text, JSON_BYTES);
    berth_status status = write_json(m, &text);
    if (status == BERTH_OK) {
        status = berth_json_parse(berth_text_str(&text), m->path, &limits, out_file);
    }
    berth_text_deinit(&text);
    return status;
}

berth_status berth_sentencepiece_read(berth_str file, const char *path, const berth_json *config,
                                      berth_json **out_file) {
    // What is not in the file is the format's own default.
    model m = {
        .path = path,
        .config = config,
        .kind = MODEL_UNIGRAM,
        .bos_id = 1,
        .eos_id = 2,
        .has_prefix = true,
        .drops_extra = true,
        .escapes = true,
    };
    const berth_status status = convert(&m, file, out_file);
    berth_array_free(&m.pieces);
    berth_array_free(&m.merges);
    berth_map_deinit(&m.ids);
    return status;
}
