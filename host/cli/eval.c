// SPDX-License-Identifier: Apache-2.0
// `berth eval`: does this machine compute what the reference computed? Logits, their logsumexp and
// greedy tokens of every golden prompt, all prompts at once, and the cross entropy over held-back
// text; compared with the gate for float32.
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "cli/cli_private.h"
#include "cli/eval.h"

static double logsumexp(const float *logits, int64_t count) {
    double largest = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
        largest = berth_eval_larger(largest, logits[i]);
    }
    for (int64_t i = 0; i < count; ++i) {
        sum += exp((double)logits[i] - largest);
    }
    return largest + log(sum);
}

// ---- prompts ------------------------------------------------------------------------------------

static void compare_logit(berth_measure *its, float actual, float wanted) {
    const double error = fabs((double)actual - (double)wanted);
    its->logit_error = berth_eval_larger(its->logit_error, error);
    its->square_sum += error * error;
    ++its->logit_count;
}

// One row of logits with row `at` of the golden tensors.
static void compare_row(const berth_evaluation *eval, size_t index, size_t at,
                        const float *logits) {
    const berth_golden *golden = &eval->golden;
    const berth_golden_prompt *prompt = &golden->prompts[index];
    berth_measure *its = &eval->measures[index];
    const size_t columns = (size_t)prompt->logits->shape[1];
    bool is_steady = true;
    for (size_t i = 0; i < columns; ++i) {
        const size_t column = golden->columns ? (size_t)berth_stored_i32(golden->columns, i) : i;
        const float wanted = berth_stored_f32(prompt->logits, at * columns + i);
        compare_logit(its, logits[column], wanted);
        is_steady = is_steady && fabs((double)logits[column] - (double)wanted) <= BERTH_EVAL_STEADY;
    }
    its->steady_rows += is_steady;
    for (size_t i = 0; i < prompt->top_count; ++i) {
        const size_t place = at * prompt->top_count + i;
        compare_logit(its, logits[berth_stored_i32(prompt->top_ids, place)],
                      berth_stored_f32(prompt->top_logits, place));
    }
    if (prompt->logsumexp) {
        const double wanted = berth_stored_f32(prompt->logsumexp, at);
        its->logsumexp_error = berth_eval_larger(
            its->logsumexp_error, fabs(logsumexp(logits, eval->vocab_size) - wanted));
    }
}

static void compare_token(const berth_golden_prompt *prompt, double margin, berth_measure *its,
                          int32_t token) {
    const size_t step = its->greedy_seen++;
    if (step >= prompt->greedy_count || its->has_parted) {
        return;
    }
    if (prompt->margins[step] < margin) {
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

static void accept_prompt(berth_evaluation *eval, const berth_output *output) {
    for (size_t i = 0; i < eval->golden.prompt_count; ++i) {
        const berth_golden_prompt *prompt = &eval->golden.prompts[i];
        berth_measure *its = &eval->measures[i];
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
            compare_token(prompt, eval->gate.margin, its, output->token);
        }
    }
}

typedef void (*accept_fn)(berth_evaluation *eval, const berth_output *output);

static berth_status drain(berth_evaluation *eval, accept_fn accept) {
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
static berth_status check_ids(const berth_evaluation *eval, const berth_stored_tensor *ids) {
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

static berth_status check_golden(const berth_evaluation *eval) {
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

static berth_status run_prompts(berth_evaluation *eval) {
    const berth_golden *golden = &eval->golden;
    eval->measures = BERTH_ARENA_ARRAY(eval->session->arena, berth_measure, golden->prompt_count);
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

static void accept_window(berth_evaluation *eval, const berth_output *output) {
    for (size_t i = 0; i < eval->window_count; ++i) {
        berth_window *in = &eval->windows[i];
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

static berth_status check_loss(const berth_evaluation *eval, const int32_t *ids, size_t count) {
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

static berth_status add_windows(berth_evaluation *eval, const int32_t *ids) {
    const size_t seq = (size_t)eval->golden.seq;
    eval->window_count = (size_t)eval->golden.val_tokens / seq;
    eval->windows = BERTH_ARENA_ARRAY(eval->session->arena, berth_window, eval->window_count);
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

static berth_status run_loss(berth_evaluation *eval) {
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
    eval->loss.error = berth_eval_larger(0, fabs(eval->loss.value - eval->golden.val_loss));
    return BERTH_OK;
}

// ---- the command --------------------------------------------------------------------------------

// Where quantizers make whole steps of last bits, most of it must be right, and what is not must be
// of the size of such steps.
static berth_eval_gate gate_in_f32(const berth_golden *golden) {
    berth_eval_gate gate = {
        .logit = 1e-4,
        .rms = 1e-4,
        .loss = golden->is_quantized ? 0.01 : 1e-4,
        .margin = 0.01,
        .equal = 1,
        .layer = 1e-5,
    };
    if (golden->steady_tokens < 1) {
        gate.logit = INFINITY;
        gate.rms = fmax(2 * golden->f32_rms, 0.5 * golden->wrong_rms);
        gate.margin = 0.05;
        gate.steady = 0.2;
        gate.equal = 0.5;
    }
    return gate;
}

static berth_status choose_gate(berth_evaluation *eval) {
    const berth_golden *golden = &eval->golden;
    if (strcmp(eval->dtype, "f32") == 0) {
        eval->gate = gate_in_f32(golden);
        return BERTH_OK;
    }
    eval->gate = (berth_eval_gate){
        .logit = INFINITY,
        .rms = 1.5 * golden->bf16_rms,
        .loss = golden->is_quantized ? 0.02 : INFINITY,
        .margin = golden->is_quantized ? fmax(0.4, 1.5 * golden->bf16_margin) : 0.4,
        .equal = 1,
        .layer = 1.0 / 128,
    };
    return eval->golden.bf16_rms > 0
               ? BERTH_OK
               : BERTH_FAIL(
                     INVALID_ARGUMENT,
                     "%s: has no bf16.rms to compare %s arithmetic with; use --dtype float32",
                     eval->golden.path, eval->dtype);
}

static berth_status evaluate(berth_evaluation *eval) {
    berth_model_info model = {.size = sizeof model};
    BERTH_TRY(berth_worker_get_model(eval->session->worker, &model));
    eval->vocab_size = model.vocab_size;
    eval->dtype = model.activation_dtype;
    eval->session->stage = BERTH_STAGE_INPUT;
    BERTH_TRY(choose_gate(eval));
    BERTH_TRY(check_golden(eval));
    BERTH_TRY(berth_eval_linears(eval));
    BERTH_TRY(run_prompts(eval));
    if (eval->session->config.loss) {
        BERTH_TRY(run_loss(eval));
    }
    return berth_eval_report(eval);
}

static berth_status run(berth_session *session) {
    berth_evaluation eval = {.session = session};
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

// Whole prompts give their logits in one step; float32 is what the sharp gate is for.
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
        "With --dtype bfloat16 or float16 the root mean square of the logits' errors is at most\n"
        "1.5 times the golden file's bf16.rms, and greedy tokens are equal while the margin is\n"
        "0.4 or more.\n"
        "Where the golden file of a quantized checkpoint says that some tokens are not steady, a\n"
        "fifth of them must be right in float32, and the greedy tokens of half of the prompts.\n"
        "Linear layers that it knows are run alone: the codes of their inputs must be the same, "
        "and\n"
        "outputs within 1e-5 of the row's largest magnitude, in 16 bits within 1/128; so is an\n"
        "expert in float32.\n"
        "--json prints {passed, dtype, rms_gate, rows, steady_rows, logit_error, logit_rms, "
        "logsumexp_error,\n"
        "greedy_equal, greedy_compared, greedy_tokens, linears, experts, prompts, loss}: linears "
        "is null "
        "or\n"
        "{layers, error, worst, codes, wrong_codes}, prompts is an array of the same figures per\n"
        "prompt, loss is null or {value, golden, error}. Exit status 1 when the gate is not met.",
    .bit = BERTH_COMMAND_EVAL,
    .needs = BERTH_STAGE_ENGINE,
    .flags = BERTH_CLI_MODEL,
    .prepare = prepare,
    .run = run,
};
