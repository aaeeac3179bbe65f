// SPDX-License-Identifier: Apache-2.0
// Patterns through PCRE2's just-in-time compiler, with the host's memory.
#include "base/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/dialect.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/utf8.h"

#define PATTERN_BYTES ((size_t)1 << 16) // the longest pattern; o200k's has 300 bytes

static void *allocate(size_t size, void *unused) {
    (void)unused;
    return berth_alloc(size);
}

static void release(void *block, void *unused) {
    (void)unused;
    berth_free(block);
}

static berth_status out_of_memory(void) {
    return BERTH_FAIL(OUT_OF_MEMORY, "no memory for a tokenizer's pattern");
}

static berth_status compile(berth_str source, uint32_t options, berth_pattern **out_pattern) {
    pcre2_general_context *memory = pcre2_general_context_create(allocate, release, NULL);
    pcre2_compile_context *context = memory ? pcre2_compile_context_create(memory) : NULL;
    int code = PCRE2_ERROR_NOMEMORY;
    size_t offset = 0;
    pcre2_code *compiled = NULL;
    if (context) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        compiled = pcre2_compile((PCRE2_SPTR)source.data, source.size, options | PCRE2_UTF, &code,
                                 &offset, context);
    }
    pcre2_compile_context_free(context);
    pcre2_general_context_free(memory);
    if (!compiled && (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAP_FAILED)) {
        return out_of_memory();
    }
    if (!compiled) {
        char reason[128];
        pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof(reason));
        return BERTH_FAIL(UNSUPPORTED, "pattern '" BERTH_STR_FMT "': %s at byte %zu",
                          BERTH_STR_ARG(source), reason, offset);
    }
    // Why the result is ignored: without it the same matches come from the interpreter, at a fifth
    // of the speed; a hardened system may refuse executable memory.
    (void)pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
    *out_pattern = (berth_pattern *)compiled;
    return BERTH_OK;
}

berth_status berth_pattern_compile(berth_str regex, berth_pattern **out_pattern) {
    berth_text source;
    berth_text_init(&source, PATTERN_BYTES);
    berth_status status = berth_dialect_translate(regex, &source);
    if (status == BERTH_OK) {
        status = compile(berth_text_str(&source), PCRE2_UCP, out_pattern);
    }
    berth_text_deinit(&source);
    return status;
}

berth_status berth_pattern_compile_perl(berth_str regex, berth_pattern **out_pattern) {
    return compile(regex, 0, out_pattern);
}

berth_status berth_pattern_literal(berth_str text, berth_pattern **out_pattern) {
    return compile(text, PCRE2_LITERAL, out_pattern);
}

berth_status berth_pattern_read(const berth_json *component, berth_pattern **out_pattern) {
    berth_str pattern;
    if (berth_json_has(component, "pattern.String")) {
        BERTH_TRY(berth_json_get_str(component, "pattern.String", &pattern));
        return berth_pattern_literal(pattern, out_pattern);
    }
    BERTH_TRY(berth_json_get_str(component, "pattern.Regex", &pattern));
    char place[128];
    BERTH_TRY_NOTE(berth_pattern_compile(pattern, out_pattern), "reading %s of %s",
                   berth_json_place(component, place, sizeof(place)), berth_json_file(component));
    return BERTH_OK;
}

void berth_pattern_destroy(berth_pattern *pattern) {
    pcre2_code_free((pcre2_code *)pattern);
}

berth_status berth_matcher_create(berth_matcher **out_matcher) {
    pcre2_general_context *memory = pcre2_general_context_create(allocate, release, NULL);
    pcre2_match_data *data = memory ? pcre2_match_data_create(1, memory) : NULL;
    pcre2_general_context_free(memory);
    if (!data) {
        return out_of_memory();
    }
    *out_matcher = (berth_matcher *)data;
    return BERTH_OK;
}

void berth_matcher_destroy(berth_matcher *matcher) {
    pcre2_match_data_free((pcre2_match_data *)matcher);
}

// The first match at or behind `from`.
static berth_status find(const berth_matches *m, berth_match *out_match) {
    const pcre2_code *code = (const pcre2_code *)m->pattern;
    pcre2_match_data *data = (pcre2_match_data *)m->matcher;
    const PCRE2_SPTR subject = (PCRE2_SPTR)m->text.data;
    const size_t size = m->text.size;
    int result = pcre2_match(code, subject, size, m->from, PCRE2_NO_UTF_CHECK, data, NULL);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
        // The interpreter keeps what it must come back to on the heap.
        result = pcre2_match(code, subject, size, m->from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data,
                             NULL);
    }
    *out_match = (berth_match){.is_found = result >= 0};
    if (result < 0 && result != PCRE2_ERROR_NOMATCH) {
        char reason[128];
        pcre2_get_error_message(result, (PCRE2_UCHAR *)reason, sizeof(reason));
        return BERTH_FAIL(OUT_OF_MEMORY,
                          "the tokenizer's pattern gives up at byte %zu of the text: %s", m->from,
                          reason);
    }
    if (out_match->is_found) {
        const size_t *ends = pcre2_get_ovector_pointer(data);
        out_match->start = ends[0];
        out_match->end = ends[1];
    }
    return BERTH_OK;
}

berth_status berth_pattern_next(berth_matches *m, berth_match *out_match) {
    *out_match = (berth_match){0};
    while (m->from <= m->text.size && m->text.size > 0) {
        BERTH_TRY(find(m, out_match));
        if (!out_match->is_found) {
            break;
        }
        const bool is_empty = out_match->start == out_match->end;
        const bool counts = !is_empty || !m->has_last || out_match->start != m->last_end;
        const berth_str rest = berth_str_slice(m->text, out_match->end, SIZE_MAX);
        m->from = out_match->end + (!is_empty       ? 0
                                    : rest.size > 0 ? berth_utf8_next(rest, NULL)
                                                    : 1);
        if (counts) {
            m->last_end = out_match->end;
            m->has_last = true;
            return BERTH_OK;
        }
    }
    out_match->is_found = false;
    return BERTH_OK;
}

berth_status berth_pattern_replace(berth_matches *m, berth_str content, berth_text *out) {
    berth_match match;
    size_t done = 0;
    BERTH_TRY(berth_pattern_next(m, &match));
    while (match.is_found) {
        berth_text_add(out, berth_str_slice(m->text, done, match.start - done));
        berth_text_add(out, content);
        done = match.end;
        BERTH_TRY(berth_pattern_next(m, &match));
    }
    berth_text_add(out, berth_str_slice(m->text, done, SIZE_MAX));
    return BERTH_OK;
}
