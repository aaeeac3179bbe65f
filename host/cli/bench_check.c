// SPDX-License-Identifier: Apache-2.0
// Input: a model on its references, then on the platform. Output: the same logits, or an error with
// the figures. What is compared is what is timed: as many requests together, and a prompt as long,
// whose first rows do not depend on the others.
#include <math.h>
#include <string.h>

#include "cli/bench_model.h"

#define RMS_BF16 0.03 // of the logits' root mean square, times the root of the layers
#define RMS_F16  0.004
#define OF_NOISE 3 // of the references' own in 16 bits

// ---- requests -----------------------------------------------------------------------------------

berth_status berth_bench_add(berth_session *session, size_t requests, size_t prompt, size_t tokens,
                             uint32_t flags) {
    berth_model_info model = {.size = sizeof model};
    BERTH_TRY(berth_worker_get_model(session->worker, &model));
    int32_t ids[1024];
    uint64_t state = 1;
    for (size_t i = 0; i < prompt && i < BERTH_COUNT(ids); ++i) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407U;
        ids[i] = (int32_t)((state >> 33) % (uint64_t)model.vocab_size);
    }
    const berth_request request = {
        .prompt = ids,
        .prompt_count = prompt,
        .max_tokens = (int64_t)tokens,
        .skips_prefix_cache = true,
        .wants_logits = flags & BERTH_BENCH_LOGITS,
    };
    for (size_t i = 0; i < requests; ++i) {
        uint64_t id = 0;
        BERTH_TRY(berth_engine_add(session->engine, &request, &id));
    }
    return BERTH_OK;
}

// ---- recording ----------------------------------------------------------------------------------

static double square_mean(const float *values, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
        sum += (double)values[i] * (double)values[i];
    }
    return sum / (double)count;
}

// What sums in another order give grows with the root of their length. In 16 bits what every op
// rounds away counts more, it adds up from layer to layer, and single logits say little. Why these
// shares: 22 layers with random weights in bf16 differ by 8 %, as the references themselves do from
// float32; anything that is wrong differs by much more.
static void choose_limit(const berth_model_info *model, int64_t width, berth_model_check *check) {
    const size_t count = check->rows * (size_t)check->vocab;
    const double size = sqrt(square_mean(check->logits, count));
    const double share = strcmp(model->activation_dtype, "f16") == 0 ? RMS_F16 : RMS_BF16;
    check->is_rms = strcmp(model->activation_dtype, "f32") != 0;
    check->limit = check->is_rms ? share * sqrt((double)model->layer_count) * size
                                 : 1e-4 * sqrt((double)width / 64) * fmax(1, size);
}

static void record(berth_model_check *check, const berth_output *output) {
    const size_t vocab = (size_t)check->vocab;
    const size_t end = output->first_position + output->logits_rows;
    if (end <= check->rows && output->logits_rows > 0) {
        memcpy(check->logits + output->first_position * vocab, output->logits,
               output->logits_rows * vocab * sizeof *check->logits);
        check->tokens[end - 1] = output->token;
    }
}

berth_status berth_model_check_record(berth_session *session, const berth_model_work *work,
                                      berth_model_check *out) {
    berth_model_info model = {.size = sizeof model};
    BERTH_TRY(berth_worker_get_model(session->worker, &model));
    *out = (berth_model_check){
        .vocab = model.vocab_size,
        .prompt = work->has_codes ? BERTH_CHECK_PROMPT_OF_CODES : BERTH_CHECK_PROMPT,
    };
    out->rows = out->prompt + BERTH_CHECK_TOKENS - 1;
    out->logits = BERTH_ARENA_ARRAY(session->arena, float, out->rows *(size_t)model.vocab_size);
    if (!out->logits) {
        return berth_arena_exhausted(session->arena, "logits to compare with");
    }
    BERTH_TRY(berth_bench_add(session, 1, out->prompt, BERTH_CHECK_TOKENS, BERTH_BENCH_LOGITS));
    while (!berth_engine_is_idle(session->engine)) {
        const berth_output *outputs = NULL;
        size_t count = 0;
        BERTH_TRY(berth_engine_step(session->engine, &outputs, &count));
        for (size_t i = 0; i < count; ++i) {
            record(out, &outputs[i]);
        }
    }
    choose_limit(&model, work->width, out);
    return BERTH_OK;
}

// Where inputs are quantized a last bit may be a whole code, and what becomes of that depends on
// the checkpoint: nothing but the references themselves can say it. Why three times as much: over
// hundreds of rows kernels and references are off alike, but these are few, and a code moves whole.
void berth_model_check_allow(berth_model_check *exact, const berth_model_check *rounded) {
    const size_t vocab = (size_t)exact->vocab;
    double square_sum = 0;
    size_t count = 0;
    for (size_t row = 0; row < exact->rows; ++row) {
        for (size_t i = row * vocab; i < (row + 1) * vocab; ++i, ++count) {
            const double error = (double)rounded->logits[i] - (double)exact->logits[i];
            square_sum += error * error;
        }
        if (row + 1 >= exact->prompt && exact->tokens[row] != rounded->tokens[row]) {
            break; // what follows is of another text
        }
    }
    exact->is_rms = true;
    exact->limit = OF_NOISE * sqrt(square_sum / (double)count);
}

// ---- comparing ----------------------------------------------------------------------------------

// What is known of the requests that are compared.
typedef struct comparison {
    const berth_model_check *check;
    size_t prompt;
    uint64_t parted[64]; // requests that took another token where two were as likely
    size_t parted_count;
    double largest;
    double square_sum;
    uint64_t rows;
} comparison;

static void compare_row(comparison *self, const float *logits, size_t row) {
    const size_t vocab = (size_t)self->check->vocab;
    const float *wanted = self->check->logits + row * vocab;
    for (size_t i = 0; i < vocab; ++i) {
        const double error = fabs((double)logits[i] - (double)wanted[i]);
        self->largest = error <= self->largest ? self->largest : error; // a NaN is kept
        self->square_sum += error * error;
    }
    ++self->rows;
}

static bool has_parted(const comparison *self, uint64_t request) {
    for (size_t i = 0; i < self->parted_count; ++i) {
        if (self->parted[i] == request) {
            return true;
        }
    }
    return false;
}

static void compare(comparison *self, const berth_output *output) {
    const size_t vocab = (size_t)self->check->vocab;
    const berth_model_check *check = self->check;
    const size_t limit = self->prompt > check->prompt ? check->prompt : check->rows;
    const size_t end = output->first_position + output->logits_rows;
    if (has_parted(self, output->request)) {
        return;
    }
    for (size_t row = output->first_position; row < end && row < limit; ++row) {
        compare_row(self, output->logits + (row - output->first_position) * vocab, row);
    }
    if (end > 0 && end <= limit && output->token >= 0 && output->token != check->tokens[end - 1] &&
        self->parted_count < BERTH_COUNT(self->parted)) {
        self->parted[self->parted_count++] = output->request;
    }
}

static berth_status judge(const comparison *self, size_t requests) {
    const berth_model_check *check = self->check;
    const double mean = self->square_sum / ((double)self->rows * (double)check->vocab);
    const double error = check->is_rms ? sqrt(mean) : self->largest;
    if (self->rows < requests * check->prompt) {
        return BERTH_FAIL(INTERNAL, "%llu rows of logits came to be compared, %zu were wanted",
                          (unsigned long long)self->rows, requests * check->prompt);
    }
    return error <= check->limit
               ? BERTH_OK
               : BERTH_FAIL(INTERNAL,
                            "%zu requests of %zu tokens: the %s error of %llu rows of logits is "
                            "%.3g beside the ops' references, %.3g are allowed; nothing is timed",
                            requests, self->prompt, check->is_rms ? "root mean square" : "largest",
                            (unsigned long long)self->rows, error, check->limit);
}

berth_status berth_model_check_run(berth_session *session, const berth_model_check *check,
                                   size_t requests, size_t prompt) {
    comparison self = {.check = check, .prompt = prompt};
    BERTH_TRY(berth_bench_add(session, requests, prompt,
                              prompt > check->prompt ? 1 : BERTH_CHECK_TOKENS, BERTH_BENCH_LOGITS));
    while (!berth_engine_is_idle(session->engine)) {
        const berth_output *outputs = NULL;
        size_t count = 0;
        BERTH_TRY(berth_engine_step(session->engine, &outputs, &count));
        for (size_t i = 0; i < count; ++i) {
            compare(&self, &outputs[i]);
        }
    }
    return judge(&self, requests);
}
