// SPDX-License-Identifier: Apache-2.0
// `berth eval`: does this machine compute what the reference computed? Logits, their logsumexp and
// greedy tokens of every golden prompt, all prompts at once, and the cross entropy over held-back
// text; compared with the gate for float32.
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli_private.h"
#include "cli/golden.h"

#define LOGIT_GATE  1e-4 // of single logits and of logsumexp
#define LOSS_GATE   1e-4 // of the mean cross entropy
#define MARGIN_GATE 0.01 // greedy tokens are compared up to the first step with a smaller margin

// What is known of one prompt, or of all.
typedef struct measure {
    uint64_t request;
    size_t rows; // that have been compared
    double logit_error;
    double logsumexp_error;
    double square_sum; // of logit errors
    uint64_t logit_count;
    size_t greedy_equal;
    size_t greedy_compared;
    size_t greedy_seen; // tokens that came out
    bool has_parted;
} measure;

// `seq` ids of held-back text, of which all but the first are predicted.
typedef struct window {
    uint64_t request;
    const int32_t *ids;
    size_t rows; // that have been counted
} window;

typedef struct cross_entropy {
    double sum;
    uint64_t count; // of predicted ids
    double value;   // the mean
    double error;
} cross_entropy;

typedef struct evaluation {
    berth_session *session;
    berth_golden golden;
    measure *measures; // one per prompt
    measure total;
    window *windows;
    size_t window_count;
    cross_entropy loss;
    int64_t vocab_size;
    bool has_passed;
} evaluation;

// Why not fmax: a NaN must never look like a small error.
static double larger(double a, double b) {
    return b <= a ? a : isnan(b) ? INFINITY : b;
}

static double logsumexp(const float *logits, int64_t count) {
    double largest = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
        largest = larger(largest, logits[i]);
    }
    for (int64_t i = 0; i < count; ++i) {
        sum += exp((double)logits[i] - largest);
    }
    return largest + log(sum);
}

// ---- prompts ------------------------------------------------------------------------------------

static void compare_logit(measure *its, float actual, float wanted) {
    const double error = fabs((double)actual - (double)wanted);
    its->logit_error = larger(its->logit_error, error);
    its->square_sum += error * error;
    ++its->logit_count;
}

// One row of logits with row `at` of the golden tensors.
static void compare_row(const evaluation *eval, size_t index, size_t at, const float *logits) {
    const berth_golden *golden = &eval->golden;
    const berth_golden_prompt *prompt = &golden->prompts[index];
    measure *its = &eval->measures[index];
    const size_t columns = (size_t)prompt->logits->shape[1];
    for (size_t i = 0; i < columns; ++i) {
        const size_t column = golden->columns ? (size_t)berth_stored_i32(golden->columns, i) : i;
        compare_logit(its, logits[column], berth_stored_f32(prompt->logits, at * columns + i));
    }
    for (size_t i = 0; i < prompt->top_count; ++i) {
        const size_t place = at * prompt->top_count + i;
        compare_logit(its, logits[berth_stored_i32(prompt->top_ids, place)],
                      berth_stored_f32(prompt->top_logits, place));
    }
    if (prompt->logsumexp) {
        const double wanted = berth_stored_f32(prompt->logsumexp, at);
        its->logsumexp_error =
            larger(its->logsumexp_error, fabs(logsumexp(logits, eval->vocab_size) - wanted));
    }
}

static void compare_token(const berth_golden_prompt *prompt, measure *its, int32_t token) {
    const size_t step = its->greedy_seen++;
    if (step >= prompt->greedy_count || its->has_parted) {
        return;
    }
    if (prompt->margins[step] < MARGIN_GATE) {
        its->has_parted = true;
        return;
    }
    ++its->greedy_compared;
    if (token == prompt->greedy_ids[step]) {
        ++its->greedy_equal;
    } else {
        its->has_parted = true; // what follows says nothing more
    }
}

static void accept_prompt(evaluation *eval, const berth_output *output) {
    for (size_t i = 0; i < eval->golden.prompt_count; ++i) {
        const berth_golden_prompt *prompt = &eval->golden.prompts[i];
        measure *its = &eval->measures[i];
        if (its->request != output->request) {
            continue;
        }
        for (size_t row = 0; row < output->logits_rows; ++row) {
            const size_t at = output->first_position + row;
            // A preempted request computes rows again: each counts once.
            if (at == its->rows && at < prompt->id_count) {
                compare_row(eval, i, at, output->logits + row * (size_t)eval->vocab_size);
                ++its->rows;
            }
        }
        if (output->token >= 0) {
            compare_token(prompt, its, output->token);
        }
    }
}

typedef void (*accept_fn)(evaluation *eval, const berth_output *output);

static berth_status drain(evaluation *eval, accept_fn accept) {
    berth_session *session = eval->session;
    session->stage = BERTH_STAGE_STEP;
    while (!berth_engine_is_idle(session->engine)) {
        const berth_output *outputs = NULL;
        size_t count = 0;
        BERTH_TRY(berth_engine_step(session->engine, &outputs, &count));
        for (size_t i = 0; i < count; ++i) {
            accept(eval, &outputs[i]);
        }
    }
    return BERTH_OK;
}

// Ids that point outside the model's logits would be read there.
static berth_status check_ids(const evaluation *eval, const berth_stored_tensor *ids) {
    size_t count = ids ? 1 : 0;
    for (uint64_t i = 0; ids && i < ids->ndim; ++i) {
        count *= (size_t)ids->shape[i];
    }
    for (size_t i = 0; i < count; ++i) {
        const int32_t id = berth_stored_i32(ids, i);
        if (id < 0 || id >= eval->vocab_size) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "%s: tensor '%s' has column %d, the model has %lld: is this golden "
                              "file of another checkpoint?",
                              eval->golden.path, ids->name, (int)id, (long long)eval->vocab_size);
        }
    }
    return BERTH_OK;
}

static berth_status check_golden(const evaluation *eval) {
    const berth_golden *golden = &eval->golden;
    BERTH_TRY(check_ids(eval, golden->columns));
    for (size_t i = 0; i < golden->prompt_count; ++i) {
        BERTH_TRY(check_ids(eval, golden->prompts[i].top_ids));
        if (!golden->columns && golden->prompts[i].logits->shape[1] != eval->vocab_size) {
            return BERTH_FAIL(INVALID_ARGUMENT,
                              "%s: tensor 'logits_%zu' has %lld columns, the model has %lld: is "
                              "this golden file of another checkpoint?",
                              golden->path, i, (long long)golden->prompts[i].logits->shape[1],
                              (long long)eval->vocab_size);
        }
    }
    return BERTH_OK;
}

static berth_status run_prompts(evaluation *eval) {
    const berth_golden *golden = &eval->golden;
    eval->measures = BERTH_ARENA_ARRAY(eval->session->arena, measure, golden->prompt_count);
    if (!eval->measures) {
        return berth_arena_exhausted(eval->session->arena, "measures");
    }
    eval->session->stage = BERTH_STAGE_REQUEST;
    for (size_t i = 0; i < golden->prompt_count; ++i) {
        const berth_golden_prompt *prompt = &golden->prompts[i];
        const berth_request request = {
            .prompt = prompt->ids,
            .prompt_count = prompt->id_count,
            .max_tokens = (int64_t)prompt->greedy_count,
            .wants_logits = true,
        };
        BERTH_TRY_NOTE(
            berth_engine_add(eval->session->engine, &request, &eval->measures[i].request),
            "adding prompt %zu of %s", i, golden->path);
    }
    return drain(eval, accept_prompt);
}

// ---- cross entropy ------------------------------------------------------------------------------

static void accept_window(evaluation *eval, const berth_output *output) {
    for (size_t i = 0; i < eval->window_count; ++i) {
        window *in = &eval->windows[i];
        for (size_t row = 0; in->request == output->request && row < output->logits_rows; ++row) {
            const float *logits = output->logits + row * (size_t)eval->vocab_size;
            if (output->first_position + row == in->rows) {
                ++in->rows;
                ++eval->loss.count;
                eval->loss.sum +=
                    logsumexp(logits, eval->vocab_size) - (double)logits[in->ids[in->rows]];
            }
        }
    }
}

static berth_status check_loss(const evaluation *eval, const int32_t *ids, size_t count) {
    const berth_golden *golden = &eval->golden;
    const char *path = eval->session->config.loss;
    if (golden->seq < 2 || golden->val_tokens < golden->seq ||
        (uint64_t)golden->val_tokens > count) {
        return BERTH_FAIL(
            INVALID_ARGUMENT, "%s: seq %lld and val_tokens %lld do not fit the %zu ids of %s",
            golden->path, (long long)golden->seq, (long long)golden->val_tokens, count, path);
    }
    for (size_t i = 0; i < (size_t)golden->val_tokens; ++i) {
        if (ids[i] >= eval->vocab_size) {
            return BERTH_FAIL(INVALID_ARGUMENT, "%s: id %zu is %d, the vocabulary ends at %lld",
                              path, i, (int)ids[i], (long long)eval->vocab_size - 1);
        }
    }
    return BERTH_OK;
}

static berth_status add_windows(evaluation *eval, const int32_t *ids) {
    const size_t seq = (size_t)eval->golden.seq;
    eval->window_count = (size_t)eval->golden.val_tokens / seq;
    eval->windows = BERTH_ARENA_ARRAY(eval->session->arena, window, eval->window_count);
    if (!eval->windows) {
        return berth_arena_exhausted(eval->session->arena, "windows");
    }
    for (size_t i = 0; i < eval->window_count; ++i) {
        eval->windows[i].ids = ids + i * seq;
        const berth_request request = {
            .prompt = eval->windows[i].ids,
            .prompt_count = seq - 1,
            .max_tokens = 1,
            .wants_logits = true,
        };
        BERTH_TRY_NOTE(berth_engine_add(eval->session->engine, &request, &eval->windows[i].request),
                       "adding window %zu of %s", i, eval->session->config.loss);
    }
    return BERTH_OK;
}

static berth_status run_loss(evaluation *eval) {
    const int32_t *ids = NULL;
    size_t count = 0;
    eval->session->stage = BERTH_STAGE_INPUT;
    BERTH_TRY(berth_golden_read_ids(&eval->golden, eval->session->config.loss, eval->session->arena,
                                    &ids, &count));
    BERTH_TRY(check_loss(eval, ids, count));
    eval->session->stage = BERTH_STAGE_REQUEST;
    BERTH_TRY(add_windows(eval, ids));
    BERTH_TRY(drain(eval, accept_window));
    eval->loss.value = eval->loss.sum / (double)eval->loss.count;
    eval->loss.error = larger(0, fabs(eval->loss.value - eval->golden.val_loss));
    return BERTH_OK;
}

// ---- verdict ------------------------------------------------------------------------------------

static void add_up(evaluation *eval) {
    measure *total = &eval->total;
    for (size_t i = 0; i < eval->golden.prompt_count; ++i) {
        const measure *one = &eval->measures[i];
        total->rows += one->rows;
        total->logit_error = larger(total->logit_error, one->logit_error);
        total->logsumexp_error = larger(total->logsumexp_error, one->logsumexp_error);
        total->square_sum += one->square_sum;
        total->logit_count += one->logit_count;
        total->greedy_equal += one->greedy_equal;
        total->greedy_compared += one->greedy_compared;
        total->greedy_seen += one->greedy_seen;
    }
}

// Everything was compared, and nothing differs by more than it may.
static bool passes(const evaluation *eval) {
    const measure *total = &eval->total;
    size_t rows = 0;
    for (size_t i = 0; i < eval->golden.prompt_count; ++i) {
        rows += eval->golden.prompts[i].id_count;
    }
    return total->rows == rows && rows > 0 && total->logit_error <= LOGIT_GATE &&
           total->logsumexp_error <= LOGIT_GATE && total->greedy_equal == total->greedy_compared &&
           (!eval->session->config.loss || eval->loss.error <= LOSS_GATE);
}

static double rms(const measure *its) {
    return its->logit_count > 0 ? sqrt(its->square_sum / (double)its->logit_count) : 0;
}

static void put_measure(berth_json_writer *json, const measure *its) {
    berth_cli_put_u64(json, "rows", its->rows);
    berth_cli_put_f64(json, "logit_error", its->logit_error);
    berth_cli_put_f64(json, "logit_rms", rms(its));
    berth_cli_put_f64(json, "logsumexp_error", its->logsumexp_error);
    berth_cli_put_u64(json, "greedy_equal", its->greedy_equal);
    berth_cli_put_u64(json, "greedy_compared", its->greedy_compared);
    berth_cli_put_u64(json, "greedy_tokens", its->greedy_seen);
}

static void print_json(evaluation *eval) {
    berth_json_writer json;
    berth_session_json(eval->session, &json);
    berth_json_begin_object(&json);
    berth_cli_put_bool(&json, "passed", eval->has_passed);
    put_measure(&json, &eval->total);
    berth_json_put_key(&json, "prompts");
    berth_json_begin_array(&json);
    for (size_t i = 0; i < eval->golden.prompt_count; ++i) {
        berth_json_begin_object(&json);
        put_measure(&json, &eval->measures[i]);
        berth_json_end_object(&json);
    }
    berth_json_end_array(&json);
    berth_json_put_key(&json, "loss");
    if (eval->session->config.loss) {
        berth_json_begin_object(&json);
        berth_cli_put_f64(&json, "value", eval->loss.value);
        berth_cli_put_f64(&json, "golden", eval->golden.val_loss);
        berth_cli_put_f64(&json, "error", eval->loss.error);
        berth_json_end_object(&json);
    } else {
        berth_json_put_null(&json);
    }
    berth_json_end_object(&json);
    berth_session_json_end(eval->session);
}

static void add_row(berth_listing *listing, const char *name, const measure *its) {
    berth_listing_add(listing, name);
    berth_listing_add_format(listing, "%zu", its->rows);
    berth_listing_add_format(listing, "%.2e", its->logit_error);
    berth_listing_add_format(listing, "%.2e", rms(its));
    berth_listing_add_format(listing, "%.2e", its->logsumexp_error);
    berth_listing_add_format(listing, "%zu of %zu", its->greedy_equal, its->greedy_compared);
}

static berth_status print_table(evaluation *eval) {
    static const char *const headings[] = {"prompt", "rows",      "logit error",
                                           "rms",    "logsumexp", "tokens equal"};
    berth_listing listing;
    berth_text *out = &eval->session->out;
    berth_listing_begin(&listing, eval->session, headings, BERTH_COUNT(headings));
    for (size_t i = 0; i < eval->golden.prompt_count; ++i) {
        char name[32];
        snprintf(name, sizeof name, "%zu", i);
        add_row(&listing, name, &eval->measures[i]);
    }
    add_row(&listing, "all", &eval->total);
    BERTH_TRY(berth_listing_end(&listing));
    if (eval->session->config.loss) {
        berth_text_add_format(out, "cross entropy %.6f, golden %.6f, difference %.2e\n",
                              eval->loss.value, eval->golden.val_loss, eval->loss.error);
    }
    berth_text_add_format(out,
                          "%s: logits and logsumexp within %g, greedy tokens equal while the "
                          "margin is %g or more%s\n",
                          eval->has_passed ? "passed" : "FAILED", LOGIT_GATE, MARGIN_GATE,
                          eval->session->config.loss ? ", cross entropy within 0.0001" : "");
    return BERTH_OK;
}

// ---- the command --------------------------------------------------------------------------------

static berth_status evaluate(evaluation *eval) {
    berth_model_info model = {.size = sizeof model};
    BERTH_TRY(berth_worker_get_model(eval->session->worker, &model));
    eval->vocab_size = model.vocab_size;
    eval->session->stage = BERTH_STAGE_INPUT;
    BERTH_TRY(check_golden(eval));
    BERTH_TRY(run_prompts(eval));
    if (eval->session->config.loss) {
        BERTH_TRY(run_loss(eval));
    }
    add_up(eval);
    eval->has_passed = passes(eval);
    eval->session->answer_is_no = !eval->has_passed;
    if (eval->session->config.is_json) {
        print_json(eval);
        return BERTH_OK;
    }
    return print_table(eval);
}

static berth_status run(berth_session *session) {
    evaluation eval = {.session = session};
    session->stage = BERTH_STAGE_INPUT;
    BERTH_TRY(berth_golden_open(session->config.golden, session->arena, &eval.golden));
    const berth_status status = evaluate(&eval);
    berth_golden_close(&eval.golden);
    return status;
}

static berth_status check_file(berth_session *session, const char *option, const char *path) {
    if (!path || berth_path_exists(path)) {
        return BERTH_OK;
    }
    session->stage = BERTH_STAGE_INPUT;
    return BERTH_FAIL(NOT_FOUND, "%s %s: there is no such file", option, path);
}

// Whole prompts give their logits in one step, and float32 is what the gate is for.
static berth_status prepare(berth_session *session) {
    berth_config *config = &session->config;
    if (!config->golden) {
        return BERTH_FAIL(INVALID_ARGUMENT, "eval: no golden file given, use --golden FILE");
    }
    BERTH_TRY(check_file(session, "--golden", config->golden));
    BERTH_TRY(check_file(session, "--loss", config->loss));
    config->max_logits_rows = config->max_num_batched_tokens;
    return berth_options_set(&config->options, "dtype", "float32",
                             (berth_option_source){.origin = BERTH_ORIGIN_DEFAULT});
}

const berth_command berth_command_eval = {
    .name = "eval",
    .arguments = "",
    .help = "compare a checkpoint's logits, greedy tokens and loss with a reference",
    .details =
        "--json prints {passed, rows, logit_error, logit_rms, logsumexp_error, greedy_equal,\n"
        "greedy_compared, greedy_tokens, prompts, loss}: prompts is an array of the same\n"
        "figures per prompt, loss is null or {value, golden, error}. Exit status 1 when the\n"
        "gate for float32 is not met.",
    .bit = BERTH_COMMAND_EVAL,
    .needs = BERTH_STAGE_ENGINE,
    .flags = BERTH_CLI_MODEL,
    .prepare = prepare,
    .run = run,
};
