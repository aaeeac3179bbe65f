// SPDX-License-Identifier: Apache-2.0
// The verdict of `berth eval`, and its output as a table and as JSON.
#include "cli/eval.h"

#include <stdio.h>

#include "cli/cli_private.h"

// ---- verdict ------------------------------------------------------------------------------------

static void add_up(berth_evaluation *eval) {
    berth_measure *total = &eval->total;
    for (size_t i = 0; i < eval->golden.prompt_count; ++i) {
        const berth_measure *one = &eval->measures[i];
        total->rows += one->rows;
        total->steady_rows += one->steady_rows;
        total->logit_error = berth_eval_larger(total->logit_error, one->logit_error);
        total->logsumexp_error = berth_eval_larger(total->logsumexp_error, one->logsumexp_error);
        total->square_sum += one->square_sum;
        total->logit_count += one->logit_count;
        total->greedy_equal += one->greedy_equal;
        total->greedy_compared += one->greedy_compared;
        total->greedy_seen += one->greedy_seen;
    }
}

static double rms(const berth_measure *its) {
    return its->logit_count > 0 ? sqrt(its->square_sum / (double)its->logit_count) : 0;
}

// Share of the prompts whose greedy tokens are equal as far as they are compared.
static double equal_prompts(const berth_evaluation *eval) {
    size_t equal = 0;
    for (size_t i = 0; i < eval->golden.prompt_count; ++i) {
        equal += eval->measures[i].greedy_equal == eval->measures[i].greedy_compared;
    }
    return (double)equal / (double)eval->golden.prompt_count;
}

static bool layers_pass(const berth_layer_gate *layers, const berth_eval_gate *gate) {
    return layers->count == 0 || (layers->error <= gate->layer && layers->wrong_codes == 0);
}

// Everything was compared, and nothing differs by more than it may.
static bool passes(const berth_evaluation *eval) {
    const berth_measure *total = &eval->total;
    const berth_eval_gate *gate = &eval->gate;
    size_t rows = 0;
    for (size_t i = 0; i < eval->golden.prompt_count; ++i) {
        rows += eval->golden.prompts[i].id_count;
    }
    return total->rows == rows && rows > 0 && total->logit_error <= gate->logit &&
           total->logsumexp_error <= gate->logit && rms(total) <= gate->rms &&
           (double)total->steady_rows >= gate->steady * (double)rows &&
           equal_prompts(eval) >= gate->equal && layers_pass(&eval->linears, gate) &&
           layers_pass(&eval->experts, gate) &&
           (!eval->session->config.loss || eval->loss.error <= gate->loss);
}

static void put_measure(berth_json_writer *json, const berth_measure *its) {
    berth_cli_put_u64(json, "rows", its->rows);
    berth_cli_put_u64(json, "steady_rows", its->steady_rows);
    berth_cli_put_f64(json, "logit_error", its->logit_error);
    berth_cli_put_f64(json, "logit_rms", rms(its));
    berth_cli_put_f64(json, "logsumexp_error", its->logsumexp_error);
    berth_cli_put_u64(json, "greedy_equal", its->greedy_equal);
    berth_cli_put_u64(json, "greedy_compared", its->greedy_compared);
    berth_cli_put_u64(json, "greedy_tokens", its->greedy_seen);
}

static void put_layers(berth_json_writer *json, const char *key, const berth_layer_gate *layers) {
    berth_json_put_key(json, key);
    if (layers->count == 0) {
        berth_json_put_null(json);
        return;
    }
    berth_json_begin_object(json);
    berth_cli_put_u64(json, "layers", layers->count);
    berth_cli_put_f64(json, "error", layers->error);
    berth_cli_put(json, "worst", layers->worst);
    berth_cli_put_u64(json, "codes", layers->codes);
    berth_cli_put_u64(json, "wrong_codes", layers->wrong_codes);
    berth_json_end_object(json);
}

static void print_json(berth_evaluation *eval) {
    berth_json_writer json;
    berth_session_json(eval->session, &json);
    berth_json_begin_object(&json);
    berth_cli_put_bool(&json, "passed", eval->has_passed);
    berth_cli_put(&json, "dtype", eval->dtype);
    berth_cli_put_f64(&json, "rms_gate", eval->gate.rms);
    put_measure(&json, &eval->total);
    put_layers(&json, "linears", &eval->linears);
    put_layers(&json, "experts", &eval->experts);
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

static void add_row(berth_listing *listing, const char *name, const berth_measure *its) {
    berth_listing_add(listing, name);
    berth_listing_add_format(listing, "%zu", its->rows);
    berth_listing_add_format(listing, "%.2e", its->logit_error);
    berth_listing_add_format(listing, "%.2e", rms(its));
    berth_listing_add_format(listing, "%.2e", its->logsumexp_error);
    berth_listing_add_format(listing, "%zu of %zu", its->greedy_equal, its->greedy_compared);
}

// "linear layers: 22 alone, at most 2.1e-07 of a row's largest magnitude off (…), 256 codes equal"
static void print_layers(const berth_evaluation *eval, const char *what,
                         const berth_layer_gate *layers) {
    berth_text *out = &eval->session->out;
    if (layers->count == 0) {
        return;
    }
    berth_text_add_format(out, "%s: %zu alone, at most %.1e of a row's largest magnitude off (%s)",
                          what, layers->count, layers->error, layers->worst);
    if (layers->codes > 0) {
        berth_text_add_format(out, ", %zu of %zu codes equal", layers->codes - layers->wrong_codes,
                              layers->codes);
    }
    berth_text_add_char(out, '\n');
}

static void print_verdict(const berth_evaluation *eval) {
    const berth_eval_gate *gate = &eval->gate;
    berth_text *out = &eval->session->out;
    berth_text_add_cstr(out, eval->has_passed ? "passed: " : "FAILED: ");
    if (isfinite(gate->logit)) {
        berth_text_add_format(out, "logits and logsumexp within %g, ", gate->logit);
    } else if (gate->steady > 0) {
        berth_text_add_format(
            out,
            "rms of logits within %.4g, %.0f %% of the tokens within %g (are %.0f "
            "%%), of half of the prompts ",
            gate->rms, 100 * gate->steady, BERTH_EVAL_STEADY,
            100 * (double)eval->total.steady_rows / (double)eval->total.rows);
    } else {
        berth_text_add_format(out, "in %s, rms of logits within %.4g, ", eval->dtype, gate->rms);
    }
    berth_text_add_format(out, "greedy tokens equal while the margin is %g or more", gate->margin);
    if (eval->linears.count > 0) {
        berth_text_add_format(out, ", layers alone within %.2g", gate->layer);
    }
    if (eval->session->config.loss && isfinite(gate->loss)) {
        berth_text_add_format(out, ", cross entropy within %g", gate->loss);
    }
    berth_text_add_char(out, '\n');
}

static berth_status print_table(berth_evaluation *eval) {
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
    print_layers(eval, "linear layers", &eval->linears);
    print_layers(eval, "experts", &eval->experts);
    print_verdict(eval);
    return BERTH_OK;
}

berth_status berth_eval_report(berth_evaluation *eval) {
    add_up(eval);
    eval->has_passed = passes(eval);
    eval->session->answer_is_no = !eval->has_passed;
    if (eval->session->config.is_json) {
        print_json(eval);
        return BERTH_OK;
    }
    return print_table(eval);
}
