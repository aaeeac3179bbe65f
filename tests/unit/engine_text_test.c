// SPDX-License-Identifier: Apache-2.0
// The text of an output: it comes in pieces, ends before a stop string, and only what may be the
// start of one waits. The tokenizer's ids 1 to 94 are the characters from '!' to '~'.
#include "support/test.h"

#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "engine/engine_private.h"
#include "support/fake_model.h"

#define MODEL      "tests/data/models/shakespeare"
#define TEXT_BYTES 512

typedef struct reply_rig {
    berth_arena *arena;
    berth_tokenizer *tokenizer;
    berth_reply reply;
    char text[TEXT_BYTES]; // that came out
    size_t size;
    const berth_stop *stop;
} reply_rig;

static void open_reply(reply_rig *rig, const berth_str *stops, size_t count, int64_t min_tokens) {
    memset(rig, 0, sizeof *rig);
    CHECK_OK(berth_arena_create(1 << 12, 1 << 20, &rig->arena));
    CHECK_OK(berth_tokenizer_open(MODEL, &rig->tokenizer));
    const berth_request request = {
        .tokenizer = rig->tokenizer,
        .stop_strings = stops,
        .stop_string_count = count,
        .min_tokens = min_tokens,
    };
    CHECK_OK(berth_reply_init(&request, rig->arena, &rig->reply));
}

static void close_reply(reply_rig *rig) {
    berth_reply_deinit(&rig->reply);
    berth_tokenizer_close(rig->tokenizer);
    berth_arena_destroy(rig->arena);
}

static void collect(reply_rig *rig) {
    const berth_str text = berth_reply_text(&rig->reply);
    CHECK(rig->size + text.size < TEXT_BYTES);
    if (text.size > 0) {
        memcpy(rig->text + rig->size, text.data, text.size);
        rig->size += text.size;
    }
}

static void push(reply_rig *rig, int32_t id) {
    berth_reply_next(&rig->reply);
    rig->stop = berth_reply_push(&rig->reply, id);
    collect(rig);
}

// Character by character, until a stop string is there.
static void push_text(reply_rig *rig, const char *text) {
    for (; *text && !rig->stop; ++text) {
        push(rig, *text - '!' + 1);
    }
}

static void finish(reply_rig *rig) {
    berth_reply_next(&rig->reply);
    berth_reply_finish(&rig->reply);
    collect(rig);
}

TEST(reply_ends_before_a_stop_string) {
    const berth_str stops[] = {BERTH_STR("end")};
    reply_rig rig;
    open_reply(&rig, stops, 1, 0);
    push_text(&rig, "abenenendxyz");
    CHECK_STR(rig.text, "abenen");
    CHECK_PTR(rig.stop, &rig.reply.stops[0]);
    close_reply(&rig);
}

TEST(reply_keeps_back_only_what_may_begin_a_stop_string) {
    const berth_str stops[] = {BERTH_STR("xyxz"), BERTH_STR("!!")};
    static const struct {
        const char *more;
        const char *text;
    } steps[] = {
        {"a", "a"        },
        {"x", "a"        },
        {"y", "a"        },
        {"x", "a"        },
        {"y", "axy"      },
        {"!", "axyxy"    },
        {"a", "axyxy!a"  },
        {"x", "axyxy!a"  },
        {"b", "axyxy!axb"},
    };
    reply_rig rig;
    open_reply(&rig, stops, BERTH_COUNT(stops), 0);
    for (size_t i = 0; i < BERTH_COUNT(steps); ++i) {
        push_text(&rig, steps[i].more);
        CHECK_STR(rig.text, steps[i].text);
        CHECK_NULL(rig.stop);
    }
    close_reply(&rig);
}

TEST(reply_gives_what_waits_at_the_end) {
    const berth_str stops[] = {BERTH_STR("xyz")};
    reply_rig rig;
    open_reply(&rig, stops, 1, 0);
    push_text(&rig, "axy");
    CHECK_STR(rig.text, "a");
    finish(&rig);
    CHECK_STR(rig.text, "axy");
    close_reply(&rig);
}

TEST(reply_takes_the_stop_string_that_is_complete_first) {
    const berth_str stops[] = {BERTH_STR("bcde"), BERTH_STR("cd"), BERTH_STR("d"), BERTH_STR("d")};
    reply_rig rig;
    open_reply(&rig, stops, BERTH_COUNT(stops), 0);
    push_text(&rig, "abcde");
    CHECK_STR(rig.text, "ab"); // "cd" and "d" are complete at once: the first in the list
    CHECK_PTR(rig.stop, &rig.reply.stops[1]);
    close_reply(&rig);
}

TEST(reply_does_not_stop_before_min_tokens_but_at_what_begins_there) {
    const berth_str stops[] = {BERTH_STR("aa")};
    reply_rig rig;
    open_reply(&rig, stops, 1, 3);
    push_text(&rig, "aaa");
    CHECK_NULL(rig.stop);
    CHECK_STR(rig.text, "aa"); // the last one may still begin one
    push_text(&rig, "a");
    CHECK(rig.stop != NULL);
    CHECK_STR(rig.text, "aa");
    close_reply(&rig);
}

TEST(reply_finds_a_stop_string_inside_of_one_token) {
    berth_token_ids ids = {0};
    reply_rig rig;
    const berth_str stops[] = {BERTH_STR("h")};
    open_reply(&rig, stops, 1, 0);
    CHECK_OK(berth_tokenizer_encode(rig.tokenizer, BERTH_STR("the"), 0, &ids));
    CHECK_UINT(ids.count, 1);
    push(&rig, ids.data[0]);
    CHECK(rig.stop != NULL);
    CHECK_STR(rig.text, "t");
    berth_array_free(&ids);
    close_reply(&rig);
}

TEST(reply_joins_characters_that_come_in_several_tokens) {
    berth_token_ids ids = {0};
    reply_rig rig;
    const berth_str stops[] = {BERTH_STR("\xC3\xBC")}; // ü
    const berth_str text = BERTH_STR("a\xE2\x82\xAC\xC3\xA4\xC3\xBC");
    open_reply(&rig, stops, 1, 0);
    CHECK_OK(berth_tokenizer_encode(rig.tokenizer, text, 0, &ids));
    CHECK(ids.count > 5);
    for (size_t i = 0; i < ids.count; ++i) {
        push(&rig, ids.data[i]);
    }
    CHECK(rig.stop != NULL);
    CHECK_STR(rig.text, "a\xE2\x82\xAC\xC3\xA4");
    berth_array_free(&ids);
    close_reply(&rig);
}

TEST(reply_goes_on_in_the_middle_of_the_prompts_last_character) {
    berth_token_ids ids = {0};
    reply_rig rig;
    open_reply(&rig, NULL, 0, 0);
    CHECK_OK(berth_tokenizer_encode(rig.tokenizer, BERTH_STR("\xE2\x82\xAC"), 0, &ids));
    CHECK_UINT(ids.count, 3);
    const berth_request request = {
        .tokenizer = rig.tokenizer,
        .prompt = ids.data,
        .prompt_count = 2,
    };
    berth_reply_deinit(&rig.reply);
    rig.reply = (berth_reply){0};
    CHECK_OK(berth_reply_init(&request, rig.arena, &rig.reply));
    push(&rig, ids.data[2]);
    CHECK_STR(rig.text, "\xE2\x82\xAC");
    berth_array_free(&ids);
    close_reply(&rig);
}

TEST(reply_shows_a_broken_character_at_the_end) {
    berth_token_ids ids = {0};
    reply_rig rig;
    open_reply(&rig, NULL, 0, 0);
    CHECK_OK(berth_tokenizer_encode(rig.tokenizer, BERTH_STR("\xE2\x82\xAC"), 0, &ids));
    push(&rig, ids.data[0]);
    CHECK_UINT(rig.size, 0);
    finish(&rig);
    CHECK_STR(rig.text, "\xEF\xBF\xBD");
    berth_array_free(&ids);
    close_reply(&rig);
}

TEST(reply_passes_over_ids_without_text) {
    reply_rig rig;
    open_reply(&rig, NULL, 0, 0);
    push(&rig, 0);      // special
    push(&rig, 100000); // in no tokenizer
    push_text(&rig, "a");
    CHECK_STR(rig.text, "a");
    CHECK_STR(berth_status_message(), "");
    close_reply(&rig);
}

// ---- the long way -------------------------------------------------------------------------------

static uint32_t below(uint32_t *state, uint32_t limit) {
    *state = *state * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(*state >> 4) * limit >> 28);
}

static size_t make_text(uint32_t *random, char *text, size_t most) {
    const size_t size = 1 + below(random, (uint32_t)most);
    for (size_t i = 0; i < size; ++i) {
        text[i] = (char)('a' + below(random, 2));
    }
    text[size] = '\0';
    return size;
}

static bool ends_with(const char *text, size_t size, const char *end, size_t end_size) {
    return size >= end_size && memcmp(text + size - end_size, end, end_size) == 0;
}

// The longest end of the text that begins a stop string without being all of it.
static size_t longest_beginning(const char *text, size_t size, const berth_str *stops,
                                size_t count) {
    size_t longest = 0;
    for (size_t k = 0; k < count; ++k) {
        for (size_t n = longest + 1; n < stops[k].size; ++n) {
            longest = ends_with(text, size, stops[k].data, n) ? n : longest;
        }
    }
    return longest;
}

// The first stop string in the list that ends at the end of the text.
static const berth_stop *find_stop(const reply_rig *rig, const char *text, size_t size) {
    for (size_t k = 0; k < rig->reply.stop_count; ++k) {
        const berth_stop *stop = &rig->reply.stops[k];
        if (ends_with(text, size, stop->text.data, stop->text.size)) {
            return stop;
        }
    }
    return NULL;
}

// Returns whether a stop string ended the text.
static bool agrees(reply_rig *rig, const char *text, size_t size, const berth_str *stops) {
    for (size_t i = 1; i <= size && !rig->stop; ++i) {
        const berth_stop *found = find_stop(rig, text, i);
        const size_t held =
            found ? found->text.size : longest_beginning(text, i, stops, rig->reply.stop_count);
        push(rig, text[i - 1] - '!' + 1);
        CHECK_PTR(rig->stop, found);
        CHECK_UINT(rig->size, i - held);
        CHECK_BYTES(rig->text, text, i - held);
    }
    return rig->stop != NULL;
}

TEST(reply_agrees_with_a_search_after_every_character) {
    uint32_t random = 99;
    char words[3][8];
    char text[64];
    berth_str stops[3];
    size_t stopped = 0;
    for (int round = 0; round < 400; ++round) {
        reply_rig rig;
        const size_t count = 1 + below(&random, 3);
        for (size_t k = 0; k < count; ++k) {
            stops[k] = (berth_str){.data = words[k], .size = make_text(&random, words[k], 7)};
        }
        const size_t size = make_text(&random, text, 60);
        open_reply(&rig, stops, count, 0);
        stopped += agrees(&rig, text, size, stops);
        close_reply(&rig);
    }
    CHECK(stopped > 100 && stopped < 400);
}

// ---- through the engine -------------------------------------------------------------------------

static void check_text(const client *c, const berth_tokenizer *tokenizer, size_t count,
                       size_t cut) {
    berth_text text;
    berth_text_init(&text, TEXT_BYTES);
    CHECK_OK(berth_tokenizer_decode(tokenizer, c->tokens, count, BERTH_DECODE_SKIP_SPECIAL, &text));
    CHECK_UINT(c->text_size, text.size - cut);
    CHECK_BYTES(c->text, text.data, c->text_size);
    berth_text_deinit(&text);
}

TEST(engine_gives_the_text_of_each_request) {
    berth_tokenizer *tokenizer = NULL;
    engine_bench b;
    client clients[6];
    CHECK_OK(berth_tokenizer_open(MODEL, &tokenizer));
    bench_open(&b);
    b.config.kv_cache_blocks = 13;
    bench_start(&b);
    for (uint32_t i = 0; i < BERTH_COUNT(clients); ++i) {
        client_init(&clients[i], 40 + i, 4, 20);
        clients[i].request.tokenizer = i == 3 ? NULL : tokenizer;
        client_add(&clients[i], &b);
    }
    clients_run(clients, BERTH_COUNT(clients), &b);
    for (size_t i = 0; i < BERTH_COUNT(clients); ++i) {
        client_check(&clients[i]);
        if (i == 3) {
            CHECK_UINT(clients[i].text_size, 0);
        } else {
            check_text(&clients[i], tokenizer, clients[i].token_count, 0);
        }
    }
    CHECK(berth_engine_get_stats(b.engine).preemptions > 0);
    bench_close(&b);
    berth_tokenizer_close(tokenizer);
}

TEST(engine_ends_at_a_stop_string_and_says_which) {
    berth_tokenizer *tokenizer = NULL;
    engine_bench b;
    client c;
    int32_t tokens[FAKE_MODEL_LEN];
    berth_finish finish_now;
    berth_text word;
    CHECK_OK(berth_tokenizer_open(MODEL, &tokenizer));
    bench_open(&b);
    bench_start(&b);
    client_init(&c, 41, 4, 20);
    (void)client_expect(&c, tokens, &finish_now);
    berth_text_init(&word, TEXT_BYTES);
    CHECK_OK(berth_tokenizer_decode(tokenizer, tokens + 5, 3, 0, &word));
    const berth_str stops[] = {BERTH_STR("not in it"), berth_text_str(&word)};
    c.request.tokenizer = tokenizer;
    c.request.stop_strings = stops;
    c.request.stop_string_count = BERTH_COUNT(stops);
    client_add(&c, &b);
    berth_str stop = {0};
    while (!berth_engine_is_idle(b.engine)) {
        const berth_output *outputs = NULL;
        size_t count = 0;
        CHECK_OK(berth_engine_step(b.engine, &outputs, &count));
        CHECK_UINT(count, 1);
        memcpy(c.text + c.text_size, outputs[0].text.data, outputs[0].text.size);
        c.text_size += outputs[0].text.size;
        c.tokens[c.token_count++] = outputs[0].token;
        c.finish = outputs[0].finish;
        stop = outputs[0].stop; // borrowed until the next step, that is still there at the end
    }
    CHECK_INT(c.finish, BERTH_FINISH_STOP);
    CHECK_UINT(c.token_count, 8);
    CHECK_BYTES(c.tokens, tokens, 8 * sizeof(int32_t));
    CHECK(berth_str_equal(stop, stops[1]));
    check_text(&c, tokenizer, 5, 0);
    CHECK_INT(b.engine->groups.all[0].pool.free_count, FAKE_MAX_BLOCKS - 1);
    berth_text_deinit(&word);
    bench_close(&b);
    berth_tokenizer_close(tokenizer);
}

TEST(engine_leaves_a_stop_id_out_of_the_text) {
    berth_tokenizer *tokenizer = NULL;
    engine_bench b;
    client c;
    int32_t tokens[FAKE_MODEL_LEN];
    berth_finish finish_now;
    CHECK_OK(berth_tokenizer_open(MODEL, &tokenizer));
    bench_open(&b);
    bench_start(&b);
    client_init(&c, 43, 4, 20);
    (void)client_expect(&c, tokens, &finish_now);
    c.request.tokenizer = tokenizer;
    c.request.stop_ids = &tokens[4];
    c.request.stop_count = 1;
    client_add(&c, &b);
    clients_run(&c, 1, &b);
    client_check(&c);
    check_text(&c, tokenizer, c.token_count - 1, 0);
    bench_close(&b);
    berth_tokenizer_close(tokenizer);
}
