// SPDX-License-Identifier: Apache-2.0
// `berth tokenize` from the outside: text comes in and goes out byte for byte, with no more than
// the files of a tokenizer.
#include <stdio.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "base/memory.h"
#include "support/program.h"
#include "support/sandbox.h"
#include "support/test.h"

#define VECTORS      "../shared/data/tokenizers/"
#define MARK         "\n__ggml_vocab_test__\n"
#define LINE_BYTES   4096
#define VECTOR_LIMIT ((size_t)1 << 20)
#define STRIDE       9 // of the 46 vectors 0, 9, … 45; the unit tests take all of them

static void run_with_input(program *p, const char *model, const char *option, berth_str input) {
    sandbox box;
    sandbox_make(&box);
    const char *path = sandbox_path(&box, "input");
    CHECK_OK(berth_file_write(path, input));
    PROGRAM_MUST(p, NULL, "sh", "-c", "exec \"$0\" tokenize --model \"$1\" $2 < \"$3\"", BERTH,
                 model, option, path);
    sandbox_remove(&box);
}

static void check_vector(const char *model, berth_str text, berth_str ids) {
    program p;
    char line[LINE_BYTES];
    (void)snprintf(line, sizeof(line), BERTH_STR_FMT "\n", BERTH_STR_ARG(ids));
    run_with_input(&p, model, "", text);
    CHECK_STR(p.out, line);
    run_with_input(&p, model, "--ids", berth_str_from(line));
    CHECK_UINT(strlen(p.out), text.size);
    CHECK_BYTES(p.out, text.data, text.size);
}

static berth_str take_until(berth_str *rest, berth_str mark) {
    const char *end = memmem(rest->data, rest->size, mark.data, mark.size);
    const berth_str piece =
        berth_str_slice(*rest, 0, end ? (size_t)(end - rest->data) : rest->size);
    *rest = berth_str_slice(*rest, piece.size + mark.size, SIZE_MAX);
    return piece;
}

// None of these texts is changed by a normal form, so that qwen2's come back as well.
static void check_folder(const char *name, berth_str input) {
    char model[256], path[256];
    char *outputs;
    size_t output_bytes;
    (void)snprintf(model, sizeof(model), VECTORS "%s", name);
    (void)snprintf(path, sizeof(path), VECTORS "%s/vectors.out", name);
    CHECK_OK(berth_file_read(path, VECTOR_LIMIT, &outputs, &output_bytes));
    berth_str output = {.data = outputs, .size = output_bytes};
    for (size_t i = 0; output.size > 0; ++i) {
        const berth_str text = take_until(&input, BERTH_STR(MARK));
        const berth_str ids = berth_str_trim(take_until(&output, BERTH_STR("\n")));
        if (i % STRIDE == 0) {
            check_vector(model, text, ids);
        }
    }
    berth_free(outputs);
}

TEST(text_becomes_ids_and_ids_become_text) {
    static const char *const names[] = {"gpt-2", "phi-3", "qwen2"};
    char *inputs;
    size_t input_bytes;
    if (!berth_path_is_dir(VECTORS)) {
        SKIP("needs " VECTORS);
    }
    CHECK_OK(berth_file_read(VECTORS "vectors.inp", VECTOR_LIMIT, &inputs, &input_bytes));
    for (size_t i = 0; i < BERTH_COUNT(names); ++i) {
        check_folder(names[i], (berth_str){.data = inputs, .size = input_bytes});
    }
    berth_free(inputs);
}

#define TOKENIZER                                                                                  \
    "{\"model\":{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[]},\"decoder\":{\"type\":\"Fuse\"},"      \
    "\"added_tokens\":[{\"id\":2,\"content\":\"<s>\",\"special\":true}],\"post_processor\":{"      \
    "\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\"}},"             \
    "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"<s>\":{\"ids\":[2]}}}}"

TEST(special_tokens_are_added_when_asked) {
    sandbox box;
    program p;
    sandbox_make(&box);
    (void)sandbox_write(&box, "tokenizer.json", TOKENIZER);
    PROGRAM_MUST(&p, NULL, BERTH, "tokenize", "--model", box.dir, "ab");
    CHECK_STR(p.out, "0 1\n");
    PROGRAM_MUST(&p, NULL, BERTH, "tokenize", "--model", box.dir, "--special", "ab");
    CHECK_STR(p.out, "2 0 1\n");
    PROGRAM_MUST(&p, NULL, BERTH, "tokenize", "--model", box.dir, "--ids", "2 0\n 1");
    CHECK_STR(p.out, "<s>ab");
    sandbox_remove(&box);
}

TEST(a_folder_without_a_tokenizer_is_status_5_and_text_that_is_not_utf8_status_2) {
    sandbox box;
    program p;
    sandbox_make(&box);
    PROGRAM_RUN(&p, NULL, BERTH, "tokenize", "--model", box.dir, "a");
    CHECK_INT(p.status, 5);
    CHECK_CONTAINS(p.err, "tokenizer.json");
    (void)sandbox_write(&box, "tokenizer.json", TOKENIZER);
    PROGRAM_RUN(&p, NULL, BERTH, "tokenize", "--model", box.dir, "a\xFF");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "UTF-8");
    PROGRAM_RUN(&p, NULL, BERTH, "tokenize", "--model", box.dir, "--ids", "7");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "id 7 has no token");
    sandbox_remove(&box);
}

// Renders a folder's template over a JSON document from standard input.
static void render(program *p, const sandbox *box, const char *document) {
    const char *path = sandbox_write(box, "document.json", document);
    PROGRAM_RUN(p, NULL, "sh", "-c", "exec \"$0\" tokenize --model \"$1\" --template < \"$2\"",
                BERTH, box->dir, path);
}

TEST(template_prints_what_it_makes_of_the_document_and_says_where_it_fails) {
    sandbox box;
    program p;
    sandbox_make(&box);
    render(&p, &box, "{}");
    CHECK_INT(p.status, 5);
    CHECK_CONTAINS(p.err, "there is no chat template");
    (void)sandbox_write(&box, "tokenizer_config.json", "{\"bos_token\": \"<s>\"}");
    (void)sandbox_write(&box, "chat_template.jinja",
                        "{{ bos_token }}{% for m in messages %}\n[{{ m.role }}] {{ m.content }}"
                        "{% endfor %}{% if date %}{{ strftime_now('%d.%m.%Y') }}{% endif %}\n");
    render(&p, &box, "{\"messages\": [{\"role\": \"user\", \"content\": \"h\u00e9\\n\"}]}");
    CHECK_INT(p.status, 0);
    CHECK_STR(p.out, "<s>[user] h\u00e9\n");
    render(&p, &box, "{\"date\": true, \"now\": \"2025-07-10 12:00:00\"}");
    CHECK_STR(p.out, "<s>10.07.2025");
    render(&p, &box, "{\"now\": \"today\"}");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "now: 'today' is no time");
    render(&p, &box, "[]");
    CHECK_INT(p.status, 2);
    (void)sandbox_write(&box, "chat_template.jinja",
                        "\n{{ raise_exception('roles must alternate') }}");
    render(&p, &box, "{}");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "chat_template.jinja:2: the template refuses: roles must alternate");
    (void)sandbox_write(&box, "chat_template.jinja", "{% include 'x' %}");
    render(&p, &box, "{}");
    CHECK_INT(p.status, 5);
    CHECK_CONTAINS(p.err, "the tag {% include %} is not supported");
    sandbox_remove(&box);
}
