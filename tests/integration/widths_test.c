// SPDX-License-Identifier: Apache-2.0
// The fast path of platform-cpu against the native references at real widths: on a random
// checkpoint, the logits of every position of a prompt, in one piece and in pieces of 130 tokens.
//
// By itself it takes a narrow checkpoint. tools/compare-widths gives it wide ones and longer
// prompts: WIDTHS_MODEL=DIR, WIDTHS_TOKENS=N; with WIDTHS_PIECES=1 the prompt in one piece is
// compared with the same in pieces, without the references, which a long one takes minutes.
//
// WIDTHS_KEEP=FILE: instead keeps logits of platform-cpu, those of every 16th position and of the
// last 8. WIDTHS_AGAINST=FILE, WIDTHS_PLATFORM=NAME: instead compares that platform's with them, on
// a machine of its own, without a fallback.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "base/json.h"
#include "support/flow.h"
#include "support/program.h"
#include "support/sandbox.h"
#include "support/test.h"

#define CPU   TEST_BUILD "/plugins/cpu.plugin.yaml"
#define PIECE 130
#define BLOCK 16
#define EVERY 16 // of positions that are kept in a file, beside
#define LAST  8

enum { FLOAT32 = 1 }; // of berth_config_dtypes

// A prompt and the logits of its positions.
typedef struct reading {
    const char *model;
    size_t tokens;
    size_t vocab;
    bool is_sparse; // what is wanted is only of positions that are kept in a file
    int32_t *ids;   // [tokens]
    float *wanted;  // [tokens, vocab], of the references or of the prompt in pieces
    double largest; // difference that was seen
    size_t rows;    // that were
} reading;

static double number_of(const char *model, const char *key) {
    char path[1024];
    int64_t value = 0;
    berth_json *config = NULL;
    (void)snprintf(path, sizeof path, "%s/config.json", model);
    CHECK_OK(berth_json_load(path, NULL, &config));
    CHECK_OK(berth_json_get_i64(config, key, &value));
    berth_json_destroy(config);
    return (double)value;
}

static void reading_init(reading *self, const char *model, size_t tokens) {
    *self = (reading){
        .model = model,
        .tokens = tokens,
        .vocab = (size_t)number_of(model, "vocab_size"),
    };
    self->ids = calloc(tokens, sizeof *self->ids);
    self->wanted = calloc(tokens * self->vocab, sizeof *self->wanted);
    CHECK(self->ids != NULL && self->wanted != NULL);
    uint64_t state = 88172645463325252U;
    for (size_t i = 0; i < tokens; ++i) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        self->ids[i] = (int32_t)((state >> 33) % self->vocab);
    }
}

static void reading_deinit(reading *self) {
    free(self->ids);
    free(self->wanted);
}

static void compare(reading *self, const float *got, const float *wanted) {
    for (size_t i = 0; i < self->vocab; ++i) {
        const double difference = fabs((double)got[i] - (double)wanted[i]);
        if (!isnan(self->largest) && !(difference <= self->largest)) {
            self->largest = difference;
        }
    }
}

static bool is_in_file(const reading *self, size_t position) {
    return position % EVERY == 0 || position + LAST >= self->tokens;
}

// The rows of one step: kept as they are, or compared with those that were.
static void take(reading *self, const berth_output *output, bool are_wanted) {
    for (size_t row = 0; row < output->logits_rows; ++row) {
        const size_t position = output->first_position + row;
        const float *got = output->logits + row * self->vocab;
        if (position >= self->tokens) {
            continue; // after the generated token
        }
        ++self->rows;
        if (are_wanted) {
            memcpy(self->wanted + position * self->vocab, got, self->vocab * sizeof *got);
        } else if (!self->is_sparse || is_in_file(self, position)) {
            compare(self, got, self->wanted + position * self->vocab);
        }
    }
}

static void run_steps(flow *f, reading *self, bool are_wanted) {
    const berth_request request = {
        .prompt = self->ids,
        .prompt_count = self->tokens,
        .max_tokens = 1,
        .wants_logits = true,
    };
    uint64_t id = 0;
    CHECK_OK(berth_engine_add(f->engine, &request, &id));
    self->rows = 0;
    while (!berth_engine_is_idle(f->engine)) {
        const berth_output *outputs = NULL;
        size_t count = 0;
        CHECK_OK(berth_engine_step(f->engine, &outputs, &count));
        for (size_t i = 0; i < count; ++i) {
            take(self, &outputs[i], are_wanted);
        }
    }
    CHECK_UINT(self->rows, self->tokens);
}

typedef enum path { REFERENCES, KERNELS, DEVICE } path;
typedef enum use { KEPT, COMPARED } use; // of the logits

// The logits with the references, with platform-cpu's kernels or those of $WIDTHS_PLATFORM, at most
// `at_once` tokens a step.
static void run_model(reading *self, path by, size_t at_once, use of_logits) {
    static const char *none[] = {"none"};
    flow f;
    flow_init(&f);
    f.config.model = self->model;
    f.config.platform = by == DEVICE ? getenv("WIDTHS_PLATFORM") : "cpu";
    f.config.allow_fallback = by != DEVICE;
    f.config.dtype = FLOAT32;
    f.config.threads = 2;
    f.config.max_num_batched_tokens = (int64_t)at_once;
    f.config.max_logits_rows = (int64_t)at_once;
    f.config.max_model_len = (int64_t)self->tokens + 1;
    f.config.kv_cache_blocks = (int64_t)self->tokens / BLOCK + 3;
    f.config.block_size = BLOCK;
    if (by == REFERENCES) {
        f.config.custom_ops = (berth_option_list){.items = none, .count = 1};
    }
    flow_start(&f);
    run_steps(&f, self, of_logits == KEPT);
    flow_deinit(&f);
}

static void compare_with(reading *self, const char *what, double hidden, size_t at_once) {
    const double gate = 1e-4 * sqrt(hidden / 64);
    self->largest = 0;
    run_model(self, KERNELS, at_once, COMPARED);
    print_message("width %.0f, %zu tokens, %zu at once, against %s: error %.3g of %.3g\n", hidden,
                  self->tokens, at_once, what, self->largest, gate);
    CHECK(self->largest <= gate);
}

static void compare_with_references(reading *self, double hidden, size_t at_once) {
    compare_with(self, "the references", hidden, at_once);
    CHECK(self->largest > 0); // a program that compares a thing with itself gives 0
}

static void check_model(const char *model, size_t tokens) {
    const double hidden = number_of(model, "hidden_size");
    reading self;
    reading_init(&self, model, tokens);
    run_model(&self, REFERENCES, tokens, KEPT);
    if (tokens > PIECE) {
        compare_with_references(&self, hidden, PIECE);
    }
    compare_with_references(&self, hidden, tokens);
    reading_deinit(&self);
}

static void check_pieces(const char *model, size_t tokens) {
    reading self;
    reading_init(&self, model, tokens);
    run_model(&self, KERNELS, PIECE, KEPT);
    compare_with(&self, "130 at once", number_of(model, "hidden_size"), tokens);
    reading_deinit(&self);
}

// ---- another machine ----------------------------------------------------------------------------

typedef size_t (*move_fn)(void *rows, size_t size, size_t count, FILE *file);

static size_t write_rows(void *rows, size_t size, size_t count, FILE *file) {
    return fwrite(rows, size, count, file);
}

// What the file has of the logits, behind the numbers that it was made for.
static void move_rows(const reading *self, FILE *file, move_fn move) {
    int64_t sizes[] = {(int64_t)self->tokens, (int64_t)self->vocab};
    CHECK_UINT(move(sizes, sizeof *sizes, 2, file), 2);
    CHECK_INT(sizes[0], self->tokens);
    CHECK_INT(sizes[1], self->vocab);
    for (size_t i = 0; i < self->tokens; ++i) {
        if (is_in_file(self, i)) {
            float *row = self->wanted + i * self->vocab;
            CHECK_UINT(move(row, sizeof *row, self->vocab, file), self->vocab);
        }
    }
}

static void keep_logits(const char *model, size_t tokens, const char *place) {
    reading self;
    reading_init(&self, model, tokens);
    run_model(&self, KERNELS, tokens, KEPT);
    FILE *file = fopen(place, "wb");
    CHECK(file != NULL);
    move_rows(&self, file, write_rows);
    CHECK(fclose(file) == 0);
    reading_deinit(&self);
}

static void check_device(const char *model, size_t tokens, const char *place) {
    const double hidden = number_of(model, "hidden_size");
    const double gate = 1e-4 * sqrt(hidden / 64);
    reading self;
    reading_init(&self, model, tokens);
    self.is_sparse = true;
    FILE *file = fopen(place, "rb");
    CHECK(file != NULL);
    move_rows(&self, file, fread);
    (void)fclose(file);
    run_model(&self, DEVICE, tokens, COMPARED);
    print_message("width %.0f, %zu tokens, platform %s against cpu: error %.3g of %.3g\n", hidden,
                  tokens, getenv("WIDTHS_PLATFORM"), self.largest, gate);
    CHECK(self.largest > 0 && self.largest <= gate);
    reading_deinit(&self);
}

TEST(kernels_agree_with_the_references_at_their_width) {
    static const size_t counts[] = {1, 7, 130, 500};
    const char *model = getenv("WIDTHS_MODEL");
    const char *tokens = getenv("WIDTHS_TOKENS");
    const char *kept = getenv("WIDTHS_KEEP");
    const char *against = getenv("WIDTHS_AGAINST");
    program p;
    sandbox box;
    if (model != NULL && tokens != NULL && against != NULL) {
        check_device(model, strtoul(tokens, NULL, 10), against);
        return;
    }
    if (!berth_path_exists(CPU)) {
        SKIP("platform-cpu is not built");
    }
    if (model != NULL) {
        CHECK(tokens != NULL);
        if (kept != NULL) {
            keep_logits(model, strtoul(tokens, NULL, 10), kept);
            return;
        }
        (getenv("WIDTHS_PIECES") ? check_pieces : check_model)(model, strtoul(tokens, NULL, 10));
        return;
    }
    sandbox_make(&box);
    PROGRAM_MUST(&p, PROGRAM_OWN_ENV, "tools/make-checkpoint", box.dir, "--shape", "narrow");
    for (size_t i = 0; i < BERTH_COUNT(counts); ++i) {
        check_model(box.dir, counts[i]);
    }
    sandbox_remove(&box);
}
