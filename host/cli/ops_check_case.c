// SPDX-License-Identifier: Apache-2.0
// Input: a pair of golden files. Output: its cases, with everything under the names that our ops
// and layers have for it.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "cli/ops_check.h"

#define BLOCK_BYTES ((size_t)64 << 10)
#define LIMIT_BYTES ((size_t)256 << 20)
#define SUFFIX      ".json"

// ---- files --------------------------------------------------------------------------------------

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// A name without its suffix when the tensors lie beside it, else NULL.
static const char *pair_of(const char *directory, const char *name, berth_arena *arena) {
    const size_t size = strlen(name);
    if (size <= strlen(SUFFIX) || strcmp(name + size - strlen(SUFFIX), SUFFIX) != 0) {
        return NULL;
    }
    const char *stem = berth_arena_printf(arena, "%.*s", (int)(size - strlen(SUFFIX)), name);
    const char *path = berth_arena_printf(arena, "%s/%s.safetensors", directory, stem);
    return path && berth_path_exists(path) ? stem : NULL;
}

berth_status berth_check_list(const char *directory, berth_arena *arena, const char ***out_names,
                              size_t *out_count) {
    berth_dir_listing listing;
    BERTH_TRY(berth_dir_list(directory, arena, &listing));
    const char **names = BERTH_ARENA_ARRAY(arena, const char *, listing.count + 1);
    size_t count = 0;
    for (size_t i = 0; names && i < listing.count; ++i) {
        const char *name = pair_of(directory, listing.names[i], arena);
        if (name) {
            names[count++] = name;
        }
    }
    if (!names) {
        return berth_arena_exhausted(arena, "names of golden files");
    }
    qsort(names, count, sizeof *names, compare_names);
    *out_names = names;
    *out_count = count;
    return BERTH_OK;
}

berth_status berth_check_open(const char *directory, const char *name, berth_arena *arena,
                              berth_check_file *out) {
    *out = (berth_check_file){.name = name};
    const char *json = berth_arena_printf(arena, "%s/%s" SUFFIX, directory, name);
    const char *tensors = berth_arena_printf(arena, "%s/%s.safetensors", directory, name);
    if (!json || !tensors) {
        return berth_arena_exhausted(arena, "paths of golden files");
    }
    BERTH_TRY(berth_json_load(json, NULL, &out->json));
    return berth_safetensors_open(tensors, &out->tensors);
}

void berth_check_close(berth_check_file *file) {
    berth_json_destroy(file->json);
    berth_safetensors_close(file->tensors);
}

// ---- tensors ------------------------------------------------------------------------------------

int64_t berth_check_elements(const berth_check_tensor *tensor) {
    int64_t count = 1;
    for (uint32_t i = 0; i < tensor->ndim; ++i) {
        count *= tensor->shape[i];
    }
    return count;
}

static berth_status alloc_data(berth_check_case *at, berth_check_tensor *tensor) {
    tensor->bytes = berth_dtype_bytes(tensor->dtype, (uint64_t)berth_check_elements(tensor));
    tensor->data = berth_arena_alloc(at->arena, (size_t)tensor->bytes + 1, 64);
    if (!tensor->data) {
        return berth_arena_exhausted(at->arena, "tensors of a case");
    }
    memset(tensor->data, 0, (size_t)tensor->bytes + 1);
    return BERTH_OK;
}

// A copy of the tensor that `key` names in the file.
static berth_status load_tensor(berth_check_case *at, const berth_json *key, const char *name,
                                berth_check_tensor *out) {
    berth_str text = {0};
    BERTH_TRY(berth_json_get_str(key, "", &text));
    const berth_stored_tensor *stored = berth_safetensors_find(at->file, text.data);
    if (!stored) {
        return berth_json_fail(BERTH_CORRUPT, key, "%s has no tensor '%s'",
                               berth_safetensors_path(at->file), text.data);
    }
    *out = (berth_check_tensor){
        .name = name,
        .dtype = stored->dtype,
        .ndim = (uint32_t)stored->ndim,
    };
    for (uint32_t i = 0; i < out->ndim; ++i) {
        out->shape[i] = stored->shape[i];
    }
    BERTH_TRY(alloc_data(at, out));
    memcpy(out->data, stored->data, (size_t)stored->bytes);
    return BERTH_OK;
}

static const char *our_name(const berth_check_rename *names, const char *theirs) {
    for (size_t i = 0; i < BERTH_CHECK_NAMES && names[i].theirs; ++i) {
        if (strcmp(names[i].theirs, theirs) == 0) {
            return names[i].ours;
        }
    }
    return theirs;
}

static berth_status load_inputs(berth_check_case *at) {
    const berth_json *names = NULL;
    BERTH_TRY(berth_json_get_object(at->json, "inputs", &names));
    for (size_t i = 0; i < berth_json_size(names); ++i) {
        if (at->input_count == BERTH_CHECK_TENSORS) {
            return berth_check_full(at);
        }
        const char *name = our_name(at->row->inputs, berth_json_key_at(names, i).data);
        BERTH_TRY(load_tensor(at, berth_json_at(names, i), name, &at->inputs[at->input_count++]));
    }
    return BERTH_OK;
}

static berth_status read_rule(const berth_json *json, berth_check_rule *out) {
    berth_str mode = {0};
    BERTH_TRY(berth_json_get_str(json, "mode", &mode));
    if (berth_str_equal_cstr(mode, "exact")) {
        *out = (berth_check_rule){.mode = BERTH_CHECK_EXACT};
        return BERTH_OK;
    }
    out->mode = berth_str_equal_cstr(mode, "set") ? BERTH_CHECK_SET : BERTH_CHECK_CLOSE;
    if (out->mode == BERTH_CHECK_CLOSE && !berth_str_equal_cstr(mode, "close")) {
        return berth_json_fail(BERTH_CORRUPT, json, "mode '%s' is none of exact, close, set",
                               mode.data);
    }
    BERTH_TRY(berth_json_f64_or(json, "atol", 0, &out->atol));
    return berth_json_f64_or(json, "rtol", 0, &out->rtol);
}

static berth_status load_output(berth_check_case *at, const char *name, const berth_json *key) {
    const berth_json *compare = NULL;
    if (at->output_count == BERTH_CHECK_TENSORS) {
        return berth_check_full(at);
    }
    berth_check_output *output = &at->outputs[at->output_count++];
    *output = (berth_check_output){.name = name};
    BERTH_TRY(load_tensor(at, key, name, &output->wanted));
    BERTH_TRY(berth_json_get_object(at->json, "compare", &compare));
    const berth_json *all = berth_json_find(compare, "outputs");
    const berth_json *own = all ? berth_json_member(all, berth_str_from(name)) : NULL;
    BERTH_TRY(read_rule(own ? own : compare, &output->rule));
    const berth_json *exact = berth_json_find(at->json, "f64");
    exact = exact ? berth_json_member(exact, berth_str_from(name)) : NULL;
    return exact ? load_tensor(at, exact, name, &output->exact) : BERTH_OK;
}

static berth_status load_outputs(berth_check_case *at) {
    const berth_json *names = NULL;
    BERTH_TRY(berth_json_get_object(at->json, "outputs", &names));
    for (size_t i = 0; i < berth_json_size(names); ++i) {
        BERTH_TRY(load_output(at, berth_json_key_at(names, i).data, berth_json_at(names, i)));
    }
    return BERTH_OK;
}

// ---- attributes ---------------------------------------------------------------------------------

static const berth_check_implied *find_implied(const berth_check_row *row, const char *name) {
    for (size_t i = 0; i < BERTH_CHECK_NAMES && row->implied[i].name; ++i) {
        if (strcmp(row->implied[i].name, name) == 0) {
            return &row->implied[i];
        }
    }
    return NULL;
}

// Arguments of vLLM's classes that say how parameters are made, which are given here, or how the
// class runs; and those that change something only when they are true or above 0.
static bool is_inert(const char *name, const berth_json *json) {
    static const char *const names[] = {
        "params_dtype",   "dtype",       "padding_mode", "compile_native",    "prefix",
        "enforce_enable", "return_bias", "layer_idx",    "rel_pos_zero_init", "device"};
    static const char *const switches[] = {"skip_bias_add",
                                           "logits_as_input",
                                           "is_lora_enabled",
                                           "num_fused_shared_experts",
                                           "skip_topk",
                                           "non_causal_multi_token_decode",
                                           "allow_short_prefill_indexer_scoring_skip"};
    int64_t number = 0;
    bool truth = false;
    for (size_t i = 0; i < BERTH_COUNT(names); ++i) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    const bool is_on = (berth_json_as_bool(json, &truth) && truth) ||
                       (berth_json_as_i64(json, &number) && number != 0);
    for (size_t i = 0; !is_on && i < BERTH_COUNT(switches); ++i) {
        if (strcmp(switches[i], name) == 0) {
            return true;
        }
    }
    return false;
}

// That what the attribute says is what the operand is.
static berth_status check_implied(berth_check_case *at, const berth_check_implied *implied,
                                  const berth_json *json) {
    const berth_check_tensor *tensor = berth_check_input(at, implied->input);
    int64_t number = 0;
    bool truth = false;
    int64_t is = tensor != NULL;
    if (berth_json_as_bool(json, &truth)) {
        number = truth;
    } else {
        BERTH_TRY(berth_json_get_i64(json, "", &number));
    }
    if (implied->dim == BERTH_CHECK_ALLOWED) {
        is = number == 0 ? is : number;
    } else if (implied->dim != BERTH_CHECK_PRESENT) {
        const int64_t dim =
            tensor && implied->dim < 0 ? (int64_t)tensor->ndim + implied->dim : implied->dim;
        is = tensor && dim >= 0 && dim < tensor->ndim ? tensor->shape[dim] : -1;
    }
    return number == is
               ? BERTH_OK
               : berth_json_fail(BERTH_CORRUPT, json, "is %lld, but '%s' of the case says %lld",
                                 (long long)number, implied->input, (long long)is);
}

static berth_status load_attributes(berth_check_case *at) {
    const berth_json *given = berth_json_find(at->json, "attributes");
    for (size_t i = 0; given && i < berth_json_size(given); ++i) {
        const berth_json *json = berth_json_at(given, i);
        const char *theirs = berth_json_key_at(given, i).data;
        const berth_check_implied *implied = find_implied(at->row, theirs);
        if (berth_json_kind_of(json) == BERTH_JSON_NULL || is_inert(theirs, json)) {
            continue;
        }
        if (implied) {
            BERTH_TRY(check_implied(at, implied, json));
            continue;
        }
        if (at->attribute_count == BERTH_CHECK_TENSORS) {
            return berth_check_full(at);
        }
        at->attributes[at->attribute_count++] = (berth_check_attribute){
            .name = our_name(at->row->attributes, theirs),
            .json = json,
        };
    }
    return BERTH_OK;
}

// ---- the case -----------------------------------------------------------------------------------

static berth_status read_class(berth_check_case *at, const berth_check_file *file) {
    berth_str text = {0};
    BERTH_TRY(berth_json_str_or(file->json, "class", berth_str_from(""), &text));
    BERTH_TRY(berth_json_str_or(at->json, "class", text, &text));
    at->class_name = text.data;
    const berth_registry *registry = at->check->session->registry;
    if (at->row->is_class_op) {
        const berth_op_entry *op = berth_registry_find_op(registry, at->class_name);
        at->op = op ? op->op.name : at->class_name;
    } else if (at->row->is_class_layer) {
        at->layer = at->class_name;
    } else if (at->row->layer) {
        at->layer = at->row->layer;
    } else {
        at->op = at->row->op ? at->row->op : file->name;
    }
    return BERTH_OK;
}

static berth_status fill(berth_check_case *at, const berth_check_file *file, size_t index) {
    const berth_json *cases = NULL;
    berth_str name = {0};
    BERTH_TRY(berth_json_get_array(file->json, "cases", &cases));
    at->json = berth_json_at(cases, index);
    BERTH_TRY(berth_json_get_str(at->json, "name", &name));
    at->name = name.data;
    BERTH_TRY(read_class(at, file));
    BERTH_TRY(load_inputs(at));
    BERTH_TRY(load_outputs(at));
    return load_attributes(at);
}

berth_status berth_check_load(const berth_check *check, const berth_check_file *file,
                              const berth_check_row *row, size_t index,
                              berth_check_case **out_case) {
    berth_arena *arena = NULL;
    BERTH_TRY(berth_arena_create(BLOCK_BYTES, LIMIT_BYTES, &arena));
    berth_check_case *at = BERTH_ARENA_NEW(arena, berth_check_case);
    if (!at) {
        berth_arena_destroy(arena);
        return BERTH_FAIL(OUT_OF_MEMORY, "no memory for a case");
    }
    at->check = check;
    at->row = row;
    at->arena = arena;
    at->file = file->tensors;
    const berth_status status = fill(at, file, index);
    if (status != BERTH_OK) {
        berth_arena_destroy(arena);
        return status;
    }
    *out_case = at;
    return BERTH_OK;
}

// ---- for rows' hooks ----------------------------------------------------------------------------

berth_status berth_check_full(const berth_check_case *at) {
    return BERTH_FAIL(OUT_OF_MEMORY,
                      "case '%s' has more than %d tensors or attributes, or too large "
                      "ones",
                      at->name, BERTH_CHECK_TENSORS);
}

berth_check_tensor *berth_check_input(berth_check_case *at, const char *name) {
    for (size_t i = 0; i < at->input_count; ++i) {
        if (strcmp(at->inputs[i].name, name) == 0) {
            return &at->inputs[i];
        }
    }
    return NULL;
}

berth_check_tensor *berth_check_add_input(berth_check_case *at, const char *name, berth_dtype dtype,
                                          uint32_t ndim, const int64_t *shape) {
    if (at->input_count == BERTH_CHECK_TENSORS || ndim > BERTH_MAX_DIMS) {
        return NULL;
    }
    berth_check_tensor tensor = {.name = name, .dtype = dtype, .ndim = ndim};
    memcpy(tensor.shape, shape, ndim * sizeof *shape);
    if (alloc_data(at, &tensor) != BERTH_OK) {
        return NULL;
    }
    at->inputs[at->input_count] = tensor;
    return &at->inputs[at->input_count++];
}

void berth_check_drop_input(berth_check_case *at, const char *name) {
    berth_check_tensor *found = berth_check_input(at, name);
    if (found) {
        const size_t after = (size_t)(at->inputs + at->input_count - found) - 1;
        memmove(found, found + 1, after * sizeof *found);
        --at->input_count;
    }
}

berth_check_output *berth_check_find_output(berth_check_case *at, const char *name) {
    for (size_t i = 0; i < at->output_count; ++i) {
        if (strcmp(at->outputs[i].name, name) == 0) {
            return &at->outputs[i];
        }
    }
    return NULL;
}

const berth_json *berth_check_given(const berth_check_case *at, const char *name) {
    const berth_json *given = berth_json_find(at->json, "attributes");
    const berth_json *found = given ? berth_json_member(given, berth_str_from(name)) : NULL;
    return found && berth_json_kind_of(found) != BERTH_JSON_NULL ? found : NULL;
}

double berth_check_number(const berth_check_case *at, const char *name, double fallback) {
    const berth_json *json = berth_check_given(at, name);
    double number = fallback;
    bool truth = false;
    if (json && berth_json_as_bool(json, &truth)) {
        return truth;
    }
    return json && berth_json_as_f64(json, &number) ? number : fallback;
}

const char *berth_check_string(berth_check_case *at, const char *name, const char *fallback) {
    const berth_json *json = berth_check_given(at, name);
    berth_str text = {0};
    return json && berth_json_as_str(json, &text) ? text.data : fallback;
}

berth_status berth_check_derived(berth_check_case *at, const char *name, double ours) {
    const berth_json *derived = berth_json_find(at->json, "derived");
    const berth_json *json = derived ? berth_json_member(derived, berth_str_from(name)) : NULL;
    double wanted = 0;
    if (!json) { // which a case need not have
        return BERTH_OK;
    }
    BERTH_TRY(berth_json_get_f64(json, "", &wanted));
    const bool is_integer = berth_json_kind_of(json) == BERTH_JSON_INTEGER;
    const double step = is_integer ? 0 : 0x1p-23 * fabs(wanted);
    ++at->derived_count;
    return fabs(ours - wanted) <= step
               ? BERTH_OK
               : BERTH_FAIL(CORRUPT, "derived %s is %.9g, must be %.9g", name, ours, wanted);
}

void berth_check_drop_attribute(berth_check_case *at, const char *name) {
    for (size_t i = 0; i < at->attribute_count; ++i) {
        if (strcmp(at->attributes[i].name, name) == 0) {
            at->attributes[i] = at->attributes[--at->attribute_count];
            return;
        }
    }
}

berth_status berth_check_set(berth_check_case *at, const berth_attribute *made) {
    berth_check_drop_attribute(at, made->name);
    if (at->attribute_count == BERTH_CHECK_TENSORS) {
        return berth_check_full(at);
    }
    at->attributes[at->attribute_count++] =
        (berth_check_attribute){.name = made->name, .made = *made};
    return BERTH_OK;
}
