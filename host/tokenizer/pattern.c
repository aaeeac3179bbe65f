// SPDX-License-Identifier: Apache-2.0
// Patterns through PCRE2's just-in-time compiler, with the host's memory.
#include "tokenizer/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/memory.h"
#include "base/text.h"
#include "tokenizer/dialect.h"

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

berth_status berth_pattern_literal(berth_str text, berth_pattern **out_pattern) {
    return compile(text, PCRE2_LITERAL, out_pattern);
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

berth_status berth_pattern_find(const berth_pattern *pattern, berth_matcher *matcher,
                                berth_str text, size_t from, berth_match *out_match) {
    const pcre2_code *code = (const pcre2_code *)pattern;
    pcre2_match_data *data = (pcre2_match_data *)matcher;
    const PCRE2_SPTR subject = (PCRE2_SPTR)text.data;
    int result = pcre2_match(code, subject, text.size, from, PCRE2_NO_UTF_CHECK, data, NULL);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
        // The interpreter keeps what it must come back to on the heap.
        result = pcre2_match(code, subject, text.size, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                             data, NULL);
    }
    *out_match = (berth_match){.is_found = result >= 0};
    if (result < 0 && result != PCRE2_ERROR_NOMATCH) {
        char reason[128];
        pcre2_get_error_message(result, (PCRE2_UCHAR *)reason, sizeof(reason));
        return BERTH_FAIL(OUT_OF_MEMORY,
                          "the tokenizer's pattern gives up at byte %zu of the text: %s", from,
                          reason);
    }
    if (out_match->is_found) {
        const size_t *ends = pcre2_get_ovector_pointer(data);
        out_match->start = ends[0];
        out_match->end = ends[1];
    }
    return BERTH_OK;
}
