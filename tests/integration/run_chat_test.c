// SPDX-License-Identifier: Apache-2.0
// `berth run --chat` from its options to the text: the conversation goes through the checkpoint's
// chat template, wherever that stands, and through nothing else.
#include "support/test.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/array.h"
#include "base/json.h"
#include "support/program.h"
#include "support/sandbox.h"

#define ALONE    PROGRAM_ENV("BERTH_PLUGIN_DIRS=/nonexistent")
#define MODEL    "tests/data/models/shakespeare"
#define RUN(box) BERTH, "run", "--allow-fallback", "--model", (box).dir, "-n", "16"

// A conversation as one line of JSON text would have it in tokenizer_config.json.
#define LINES                                                                                      \
    "{% for m in messages %}{{ m.role | upper }}:\\n{{ m.content }}\\n\\n{% endfor %}"             \
    "{% if add_generation_prompt %}KING:\\n{% endif %}"

static const char template_file[] =
    "{% for m in messages %}{{ m.role | upper }}:\n{{ m.content }}\n\n{% endfor %}"
    "{% if add_generation_prompt %}KING:\n{% endif %}";

// The checkpoint without a word about its tokenizer's configuration.
static void open_model(sandbox *box) {
    static const char *const files[] = {"config.json", "generation_config.json",
                                        "model.safetensors", "tokenizer.json"};
    sandbox_make(box);
    for (size_t i = 0; i < BERTH_COUNT(files); ++i) {
        char from[PATH_MAX];
        char source[PATH_MAX];
        (void)snprintf(from, sizeof from, MODEL "/%s", files[i]);
        CHECK(realpath(from, source) != NULL);
        CHECK_INT(symlink(source, sandbox_path(box, files[i])), 0);
    }
}

// The text that the model gives to the rendered conversation.
static void check_reply(const sandbox *box, const char *rendered, const program *chat) {
    program plain;
    PROGRAM_MUST(&plain, ALONE, RUN(*box), "--prompt", rendered);
    CHECK(plain.out[0] != '\0');
    CHECK_STR(chat->out, plain.out);
}

TEST(chat_goes_through_the_template_beside_the_checkpoint) {
    sandbox box;
    program p;
    open_model(&box);
    (void)sandbox_write(&box, "chat_template.jinja", template_file);
    // Which one counts where both are there.
    (void)sandbox_write(&box, "tokenizer_config.json", "{\"chat_template\": \"nothing of it\"}");
    PROGRAM_MUST(&p, ALONE, RUN(box), "--chat", "--prompt", "Who is there?");
    check_reply(&box, "USER:\nWho is there?\n\nKING:\n", &p);
    PROGRAM_MUST(&p, ALONE, RUN(box), "--chat", "--system", "Be brief.", "--prompt",
                 "Who is there?");
    check_reply(&box, "SYSTEM:\nBe brief.\n\nUSER:\nWho is there?\n\nKING:\n", &p);
    sandbox_remove(&box);
}

TEST(chat_goes_through_the_template_of_the_tokenizer) {
    sandbox box;
    program p;
    open_model(&box);
    (void)sandbox_write(&box, "tokenizer_config.json", "{\"chat_template\": \"" LINES "\"}");
    PROGRAM_MUST(&p, ALONE, RUN(box), "--chat", "--prompt", "Who is there?");
    check_reply(&box, "USER:\nWho is there?\n\nKING:\n", &p);
    sandbox_remove(&box);
}

TEST(chat_makes_a_conversation_of_every_prompt) {
    sandbox box;
    program p;
    berth_str value;
    open_model(&box);
    (void)sandbox_write(&box, "chat_template.jinja", template_file);
    (void)sandbox_write(&box, "prompts.txt", "Who is there?\nWhat news?\n");
    PROGRAM_MUST(&p, ALONE, RUN(box), "--chat", "--json", "--prompts",
                 sandbox_path(&box, "prompts.txt"));
    berth_json *both = program_json(&p);
    CHECK_UINT(berth_json_size(both), 2);
    PROGRAM_MUST(&p, ALONE, RUN(box), "--json", "--prompt", "USER:\nWhat news?\n\nKING:\n");
    berth_json *one = program_json(&p);
    CHECK_OK(berth_json_get_str(one, "0.text", &value));
    berth_str second;
    CHECK_OK(berth_json_get_str(both, "1.text", &second));
    CHECK_STR(second.data, value.data);
    berth_json_destroy(one);
    berth_json_destroy(both);
    sandbox_remove(&box);
}

TEST(chat_says_in_one_line_why_there_is_no_conversation) {
    static const struct {
        const char *template;
        int status;
        const char *message;
    } cases[] = {
        {NULL,                               5, "there is no chat template"},
        {"{% for %}",                        5, "expected a value"         },
        {"{{ raise_exception('no user') }}", 2, "no user"                  },
    };
    for (size_t i = 0; i < BERTH_COUNT(cases); ++i) {
        sandbox box;
        program p;
        open_model(&box);
        if (cases[i].template) {
            (void)sandbox_write(&box, "chat_template.jinja", cases[i].template);
        }
        PROGRAM_RUN(&p, ALONE, RUN(box), "--chat", "--prompt", "Who is there?");
        CHECK_INT(p.status, cases[i].status);
        CHECK_STR(p.out, "");
        CHECK_CONTAINS(p.err, cases[i].message);
        sandbox_remove(&box);
    }
    program p;
    PROGRAM_RUN(&p, ALONE, BERTH, "run", "--model", MODEL, "--system", "x", "--prompt", "y");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "--chat");
}
