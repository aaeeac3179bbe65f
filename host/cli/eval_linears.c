// SPDX-License-Identifier: Apache-2.0
// Input: what the golden file of a quantized checkpoint says of single linear layers. Output: how
// far those of the model are from it, each run alone with its own weights, and whether the codes of
// their inputs are the same. This is what tells a right rule from a wrong one: in logits the noise
// of quantizers covers it.
#include <stdio.h>
#include <string.h>

#include "cli/cli_private.h"
#include "cli/eval.h"

#define INPUT  "linear_input."
#define OUTPUT "linear_output."

// One module and what the reference made of some rows.
typedef struct linear_case {
    const char *module;
    const berth_stored_tensor *input;  // f32 [rows, inputs], exact in bf16
    const berth_stored_tensor *output; // f32 [rows, outputs]
    const berth_stored_tensor *codes;  // of the input: i8, f8_e4m3fn, u8 of two e2m1; NULL: unknown
} linear_case;

// ---- comparing ----------------------------------------------------------------------------------

static double largest_of(const berth_stored_tensor *tensor, size_t row) {
    const size_t width = (size_t)tensor->shape[1];
    double largest = 0;
    for (size_t i = 0; i < width; ++i) {
        largest = fmax(largest, fabs((double)berth_stored_f32(tensor, row * width + i)));
    }
    return largest;
}

void berth_eval_compare(berth_layer_gate *gate, const char *name, const berth_tensor *got,
                        int64_t first, const berth_stored_tensor *wanted) {
    const float *y = (const float *)(const void *)((const char *)got->data + got->byte_offset);
    const size_t width = (size_t)wanted->shape[1];
    double worst = 0;
    for (size_t row = 0; row < (size_t)wanted->shape[0]; ++row) {
        const float *of_row = y + row * (size_t)got->shape[got->ndim - 1] + first;
        const double largest = largest_of(wanted, row);
        for (size_t i = 0; i < width; ++i) {
            const double error =
                fabs((double)of_row[i] - (double)berth_stored_f32(wanted, row * width + i));
            worst = berth_eval_larger(worst, error > 0 || isnan(error) ? error / largest : 0);
        }
    }
    if (gate->count == 0 || worst > gate->error) {
        gate->error = worst;
        gate->worst = name;
    }
    ++gate->count;
}

// Twice the number of a code of e2m1, which is whole.
static int twice_e2m1(unsigned code) {
    static const int twice[] = {0, 1, 2, 3, 4, 6, 8, 12};
    return code & 8u ? -twice[code & 7u] : twice[code & 7u];
}

static bool is_code(const berth_stored_tensor *wanted, const uint8_t *got, size_t at) {
    const uint8_t *codes = wanted->data;
    return wanted->dtype == BERTH_DTYPE_U8
               ? (int8_t)got[at] == twice_e2m1((unsigned)codes[at / 2] >> (at % 2 * 4) & 15u)
               : got[at] == codes[at];
}

static void compare_codes(berth_layer_gate *gate, const berth_tensor *got,
                          const berth_stored_tensor *wanted) {
    const uint8_t *codes = (const uint8_t *)got->data + got->byte_offset;
    const size_t per_byte = wanted->dtype == BERTH_DTYPE_U8 ? 2 : 1;
    const bool is_same_kind = got->dtype == (per_byte == 2 ? BERTH_DTYPE_I8 : wanted->dtype);
    for (size_t i = 0; i < (size_t)wanted->bytes * per_byte; ++i) {
        ++gate->codes;
        gate->wrong_codes += !is_same_kind || !is_code(wanted, codes, i);
    }
}

// ---- what the golden file has -------------------------------------------------------------------

static berth_status find_rows(const berth_golden *golden, const char *name, berth_dtype dtype,
                              const berth_stored_tensor **out) {
    *out = berth_safetensors_find(golden->file, name);
    if (!*out || (*out)->ndim != 2 || (*out)->shape[0] < 1 || (*out)->shape[1] < 1 ||
        (dtype != BERTH_DTYPE_NONE && (*out)->dtype != dtype)) {
        return BERTH_FAIL(CORRUPT, "%s: tensor '%s' is missing or no rows of %s", golden->path,
                          name, dtype == BERTH_DTYPE_NONE ? "codes" : berth_dtype_name(dtype));
    }
    return BERTH_OK;
}

static berth_status find_pair(const berth_golden *golden, const char *input, const char *output,
                              linear_case *out) {
    BERTH_TRY(find_rows(golden, input, BERTH_DTYPE_F32, &out->input));
    BERTH_TRY(find_rows(golden, output, BERTH_DTYPE_F32, &out->output));
    return out->input->shape[0] == out->output->shape[0]
               ? BERTH_OK
               : BERTH_FAIL(CORRUPT, "%s: '%s' and '%s' have not as many rows", golden->path, input,
                            output);
}

// ---- one layer ----------------------------------------------------------------------------------

static berth_status take_outputs(berth_layer_gate *gate, berth_plan *plan, const linear_case *of,
                                 int64_t first) {
    const berth_tensor *tensor = NULL;
    BERTH_TRY(berth_plan_output(plan, "y", &tensor));
    berth_eval_compare(gate, of->module, tensor, first, of->output);
    if (!of->codes) {
        return BERTH_OK;
    }
    BERTH_TRY(berth_plan_output(plan, "codes", &tensor));
    if (tensor->shape[0] * tensor->shape[1] != of->input->shape[0] * of->input->shape[1]) {
        return BERTH_FAIL(CORRUPT, "tensor '%s' is not of as many codes as the layer's input",
                          of->codes->name);
    }
    compare_codes(gate, tensor, of->codes);
    return BERTH_OK;
}

static berth_status run_alone(berth_evaluation *eval, const linear_case *of,
                              berth_model_build *build, int64_t first) {
    const berth_eval_operand x = {
        .name = "x",
        .dtype = of->input->dtype,
        .data = of->input->data,
        .count = (uint64_t)(of->input->shape[0] * of->input->shape[1]),
    };
    const berth_eval_layer layer = {
        .session = eval->session,
        .arena = eval->session->arena,
        .build = build,
        .operands = &x,
        .operand_count = 1,
        .rows = of->input->shape[0],
    };
    berth_plan *plan = NULL;
    eval->session->stage = BERTH_STAGE_STEP;
    BERTH_TRY(berth_eval_run(&layer, &plan));
    eval->session->stage = BERTH_STAGE_INPUT;
    const berth_status status = take_outputs(&eval->linears, plan, of, first);
    berth_plan_destroy(plan);
    return status;
}

static berth_linear_request request_of(const berth_evaluation *eval,
                                       const berth_checkpoint *checkpoint, const linear_case *of) {
    return (berth_linear_request){
        .model =
            {
                    .registry = eval->session->registry,
                    .config = &eval->session->config,
                    .checkpoint = checkpoint,
                    .activation = berth_dtype_find(berth_str_from(eval->dtype)),
                    },
        .of = berth_worker_build(eval->session->worker),
        .module = of->module,
        .rows = of->input->shape[0],
        .inputs = of->input->shape[1],
        .outputs = of->output->shape[1],
    };
}

static berth_status run_case(berth_evaluation *eval, const berth_checkpoint *checkpoint,
                             const linear_case *of) {
    const berth_linear_request request = request_of(eval, checkpoint, of);
    berth_model_build *build = NULL;
    int64_t first = 0;
    BERTH_TRY_NOTE(berth_linear_create(&request, &first, &build), "comparing '%s' with %s",
                   of->module, eval->golden.path);
    const berth_status status = run_alone(eval, of, build, first);
    berth_model_destroy(build);
    return status;
}

// ---- one expert ---------------------------------------------------------------------------------

static berth_status run_expert_alone(berth_evaluation *eval, const linear_case *of,
                                     const berth_model_build *build, int64_t expert) {
    const uint64_t rows = (uint64_t)of->input->shape[0];
    float *ones = BERTH_ARENA_ARRAY(eval->session->arena, float, (size_t)rows);
    if (!ones) {
        return berth_arena_exhausted(eval->session->arena, "weights of experts");
    }
    for (uint64_t i = 0; i < rows; ++i) {
        ones[i] = 1;
    }
    const berth_eval_operand operands[] = {
        {.name = "x",
         .dtype = of->input->dtype,
         .data = of->input->data,
         .count = rows * (uint64_t)of->input->shape[1]                                },
        {.name = "topk_weights", .dtype = BERTH_DTYPE_F32, .data = ones, .count = rows},
    };
    const berth_eval_layer layer = {
        .session = eval->session,
        .arena = eval->session->arena,
        .build = build,
        .operands = operands,
        .operand_count = BERTH_COUNT(operands),
        .rows = of->input->shape[0],
        .id = (int32_t)expert,
    };
    berth_plan *plan = NULL;
    eval->session->stage = BERTH_STAGE_STEP;
    BERTH_TRY(berth_eval_run(&layer, &plan));
    eval->session->stage = BERTH_STAGE_INPUT;
    const berth_status status = take_outputs(&eval->experts, plan, of, 0);
    berth_plan_destroy(plan);
    return status;
}

// Codes of what is between the two products flip in 16 bits, so that nothing can be said there.
static berth_status run_expert(berth_evaluation *eval, const berth_checkpoint *checkpoint) {
    const berth_golden *golden = &eval->golden;
    linear_case of = {.module = golden->probe_expert};
    if (!of.module || strcmp(eval->dtype, "f32") != 0) {
        return BERTH_OK;
    }
    BERTH_TRY(find_pair(golden, "probe_expert_input", "probe_expert_output", &of));
    const berth_linear_request request = request_of(eval, checkpoint, &of);
    berth_model_build *build = NULL;
    int64_t expert = 0;
    BERTH_TRY_NOTE(berth_experts_create(&request, &expert, &build), "comparing '%s' with %s",
                   of.module, golden->path);
    const berth_status status = run_expert_alone(eval, &of, build, expert);
    berth_model_destroy(build);
    return status;
}

// ---- all of the golden file ---------------------------------------------------------------------

static berth_status run_probe(berth_evaluation *eval, const berth_checkpoint *checkpoint) {
    const berth_golden *golden = &eval->golden;
    linear_case of = {.module = golden->probe};
    if (!golden->probe) {
        return BERTH_OK;
    }
    BERTH_TRY(find_pair(golden, "probe_input", "probe_output", &of));
    if (berth_safetensors_find(golden->file, "probe_quantized_input")) {
        BERTH_TRY(find_rows(golden, "probe_quantized_input", BERTH_DTYPE_NONE, &of.codes));
        const int64_t per_byte = of.codes->dtype == BERTH_DTYPE_U8 ? 2 : 1;
        if (of.codes->shape[0] != of.input->shape[0] || BERTH_DTYPE_BITS(of.codes->dtype) != 8 ||
            of.codes->shape[1] * per_byte != of.input->shape[1]) {
            return BERTH_FAIL(CORRUPT, "%s: 'probe_quantized_input' is not of 'probe_input'",
                              golden->path);
        }
    }
    return run_case(eval, checkpoint, &of);
}

static berth_status run_linears(berth_evaluation *eval, const berth_checkpoint *checkpoint) {
    const berth_golden *golden = &eval->golden;
    for (size_t i = 0; i < berth_safetensors_count(golden->file); ++i) {
        const char *name = berth_safetensors_at(golden->file, i)->name;
        if (strncmp(name, INPUT, strlen(INPUT)) != 0) {
            continue;
        }
        linear_case of = {.module = name + strlen(INPUT)};
        const char *output = berth_arena_printf(eval->session->arena, OUTPUT "%s", of.module);
        if (!output) {
            return berth_arena_exhausted(eval->session->arena, "names");
        }
        BERTH_TRY(find_pair(golden, name, output, &of));
        BERTH_TRY(run_case(eval, checkpoint, &of));
    }
    return BERTH_OK;
}

berth_status berth_eval_linears(berth_evaluation *eval) {
    berth_checkpoint *checkpoint = NULL;
    if (!berth_worker_build(eval->session->worker)) {
        return BERTH_OK; // the platform loads models its own way
    }
    BERTH_TRY(berth_checkpoint_open(eval->session->config.model, &checkpoint));
    berth_status status = run_probe(eval, checkpoint);
    if (status == BERTH_OK) {
        status = run_linears(eval, checkpoint);
    }
    if (status == BERTH_OK) {
        status = run_expert(eval, checkpoint);
    }
    berth_checkpoint_close(checkpoint);
    return status;
}
