// SPDX-License-Identifier: Apache-2.0
// The options of `berth run` that shape a text: how it is chosen, where it ends, what is told of
// it.
#include "support/test.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "support/program.h"
#include "support/sandbox.h"

#define ALONE  PROGRAM_ENV("BERTH_PLUGIN_DIRS=/nonexistent")
#define MODEL  "tests/data/models/shakespeare"
#define PROMPT "First Citizen:\nBefore we"
#define RUN    BERTH, "run", "--allow-fallback", "--model", MODEL, "--prompt", PROMPT, "-n", "24"

// A part of `text`, which continues as the whole does.
static void check_beginning(const char *text, const char *whole, size_t count) {
    CHECK(strlen(whole) > count);
    CHECK(strncmp(text, whole, count) == 0);
    CHECK_STR(text + count, "\n");
}

TEST(run_ends_the_text_before_a_stop_string) {
    program whole;
    program cut;
    program json;
    char stop[4];
    berth_str value;
    PROGRAM_MUST(&whole, ALONE, RUN);
    (void)snprintf(stop, sizeof stop, "%.3s", whole.out + 20);
    PROGRAM_MUST(&cut, ALONE, RUN, "--stop", "@@@", "--stop", stop);
    check_beginning(cut.out, whole.out, (size_t)(strstr(whole.out, stop) - whole.out));
    PROGRAM_MUST(&json, ALONE, RUN, "--stop", "@@@", "--stop", stop, "--json");
    berth_json *root = program_json(&json);
    CHECK_OK(berth_json_get_str(root, "0.finish", &value));
    CHECK_STR(value.data, "stop");
    CHECK_OK(berth_json_get_str(root, "0.stop", &value));
    CHECK_STR(value.data, stop);
    berth_json_destroy(root);
}

// Filters that leave one token are greedy at any temperature.
TEST(run_with_filters_that_leave_one_token_is_greedy) {
    program greedy;
    program one;
    PROGRAM_MUST(&greedy, ALONE, RUN);
    PROGRAM_MUST(&one, ALONE, RUN, "--temperature", "1.5", "--top-k", "1");
    CHECK_STR(one.out, greedy.out);
    PROGRAM_MUST(&one, ALONE, RUN, "--temperature", "1.5", "--top-p", "0.00001");
    CHECK_STR(one.out, greedy.out);
    PROGRAM_MUST(&one, ALONE, RUN, "--temperature", "1.5", "--min-p", "1");
    CHECK_STR(one.out, greedy.out);
}

TEST(run_with_penalties_says_something_else) {
    static const char *const penalties[] = {"--presence-penalty=2", "--frequency-penalty=2",
                                            "--repetition-penalty=5"};
    program plain;
    program other;
    PROGRAM_MUST(&plain, ALONE, RUN, "--presence-penalty", "0", "--repetition-penalty", "1");
    for (size_t i = 0; i < sizeof penalties / sizeof penalties[0]; ++i) {
        PROGRAM_MUST(&other, ALONE, RUN, penalties[i]);
        CHECK(strcmp(plain.out, other.out) != 0);
    }
}

TEST(run_tells_log_probabilities_of_every_token) {
    program p;
    const berth_json *ids = NULL;
    const berth_json *tokens = NULL;
    // Why float32: in 16 bits two ids can be equally likely, and both count for the rank.
    PROGRAM_MUST(&p, ALONE, RUN, "--json", "--logprobs", "3", "--dtype", "float32");
    berth_json *root = program_json(&p);
    CHECK_OK(berth_json_get_array(root, "0.ids", &ids));
    CHECK_OK(berth_json_get_array(root, "0.logprobs", &tokens));
    CHECK_UINT(berth_json_size(tokens), berth_json_size(ids));
    for (size_t i = 0; i < berth_json_size(tokens); ++i) {
        const berth_json *token = berth_json_at(tokens, i);
        int64_t id = 0, wanted = 0, rank = 0;
        double first = 0, second = 0;
        CHECK(berth_json_as_i64(berth_json_at(ids, i), &wanted));
        CHECK_OK(berth_json_get_i64(token, "id", &id));
        CHECK_INT(id, wanted);
        CHECK_OK(berth_json_get_i64(token, "top.0.id", &id));
        CHECK_INT(id, wanted); // greedy
        CHECK_OK(berth_json_get_i64(token, "rank", &rank));
        CHECK_INT(rank, 1);
        CHECK_OK(berth_json_get_f64(token, "top.0.logprob", &first));
        CHECK_OK(berth_json_get_f64(token, "top.2.logprob", &second));
        CHECK(first <= 0 && second <= first);
        CHECK(!berth_json_find(token, "top.3"));
    }
    berth_json_destroy(root);
}

TEST(run_refuses_log_probabilities_without_a_place_for_them) {
    program p;
    PROGRAM_RUN(&p, ALONE, RUN, "--logprobs", "3");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "--json");
}

TEST(run_refuses_values_out_of_range) {
    static const char *const wrong[] = {"--top-p=0",
                                        "--top-p=1.1",
                                        "--min-p=2",
                                        "--top-k=-1",
                                        "--logprobs=21",
                                        "--presence-penalty=3",
                                        "--repetition-penalty=0"};
    program p;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
        PROGRAM_RUN(&p, ALONE, RUN, wrong[i]);
        CHECK_INT(p.status, 2);
    }
    PROGRAM_RUN(&p, ALONE, RUN, "--stop", "");
    CHECK_INT(p.status, 2);
    CHECK_CONTAINS(p.err, "empty");
}

TEST(run_gives_the_same_text_without_the_prefix_cache) {
    program with;
    program without;
    PROGRAM_MUST(&with, ALONE, RUN);
    PROGRAM_MUST(&without, ALONE, RUN, "--no-prefix-caching");
    CHECK_STR(with.out, without.out);
}

// The token that would end the text may not come before, whatever its logit.
TEST(run_with_min_tokens_stops_later) {
    program early;
    program late;
    berth_str text;
    PROGRAM_MUST(&early, ALONE, RUN, "--stop", " ", "--json");
    PROGRAM_MUST(&late, ALONE, RUN, "--stop", " ", "--min-tokens", "12", "--json");
    berth_json *first = program_json(&early);
    berth_json *second = program_json(&late);
    const berth_json *first_ids = NULL;
    const berth_json *second_ids = NULL;
    CHECK_OK(berth_json_get_array(first, "0.ids", &first_ids));
    CHECK_OK(berth_json_get_array(second, "0.ids", &second_ids));
    CHECK(berth_json_size(first_ids) < 12);
    CHECK(berth_json_size(second_ids) >= 12);
    CHECK_OK(berth_json_get_str(second, "0.text", &text));
    CHECK(strchr(text.data, ' ') != NULL);
    berth_json_destroy(first);
    berth_json_destroy(second);
    PROGRAM_RUN(&late, ALONE, RUN, "--min-tokens", "25");
    CHECK_INT(late.status, 2);
    CHECK_CONTAINS(late.err, "min_tokens is 25, it must lie between 0 and max_tokens, 24");
}

// Lines of progress are for a terminal; where texts come out on it themselves there are none.
TEST(run_shows_progress_on_a_terminal_only) {
    program p;
    sandbox box;
    char line[1024];
    sandbox_make(&box);
    const char *prompts = sandbox_write(&box, "prompts", "ROMEO:\nJULIET:\nFirst Citizen:\n");
    PROGRAM_RUN(&p, ALONE, "sh", "-c", "command -v script");
    if (p.status != 0) {
        sandbox_remove(&box);
        SKIP("no program `script`, which brings a terminal");
    }
    const char *command = BERTH_FILE " run --allow-fallback --model " MODEL " -n 100 --prompts";
    (void)snprintf(line, sizeof line, "script -qec '%s %s >/dev/null' /dev/null", command, prompts);
    PROGRAM_MUST(&p, ALONE, "sh", "-c", line);
    CHECK_CONTAINS(p.out, "loading " MODEL);
    CHECK_CONTAINS(p.out, "of 3 prompts done");
    CHECK(p.out[strlen(p.out) - 1] == 'K'); // the line is taken away
    (void)snprintf(line, sizeof line, "script -qec '%s %s' /dev/null", command, prompts);
    PROGRAM_MUST(&p, ALONE, "sh", "-c", line);
    CHECK(strstr(p.out, "prompts done") == NULL);
    PROGRAM_MUST(&p, ALONE, RUN, "--json");
    CHECK_STR(p.err, "");
    sandbox_remove(&box);
}
