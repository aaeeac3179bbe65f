// SPDX-License-Identifier: Apache-2.0
// Input: a case's text. Output: its op on operands that are parameters of each copy, and the
// numbers in them. Words apart by blanks, in the spelling of tests/ops:
//
//   INPUT=f32[T,64]    an operand; `x` in place of a type: that of activations. T: the tokens
//                      of the step, 8T: eight times as many. STATE=… alike. Behind the bracket:
//       (-1,0)         random numbers from -1 to 0, in place of -1 to 1
//       <48            0 to 47 in turns, 37 apart, so that what they name is scattered
//       :0..T          evenly from 0 to T
//       *0.5           of an input so much is read; of a state so much is read and written together
//   ATTRIBUTE=0.5      by the kind that the op declares, a list as 1,2
//
// Why parameters: they are any shape and type, lie where the op runs, and a smaller step has the
// first rows of a larger one.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/convert.h"
#include "base/memory.h"
#include "cli/bench_op.h"

#define WORD_BYTES 96
#define ATTRIBUTES 8
#define LIST       4
#define APART      37

typedef enum operand_kind {
    OPERAND_RANDOM,
    OPERAND_TURNS,
    OPERAND_STEPS,
} operand_kind;

typedef struct operand {
    berth_value_type type;
    operand_kind kind;
    double first;
    double last;  // of OPERAND_TURNS: behind the last
    double share; // that is moved
} operand;

// ---- words --------------------------------------------------------------------------------------

// "NAME=VALUE", both within `word`.
typedef struct word {
    char text[WORD_BYTES];
    char *value;
} word;

// The next word of the text; false at its end. A word that is too long or has no value is a defect
// of the table, which a test runs into.
static bool next_word(const char **text, word *out) {
    const char *start = *text + strspn(*text, " ");
    const size_t size = strcspn(start, " ");
    *text = start + size;
    if (size == 0 || size >= sizeof out->text) {
        return false;
    }
    memcpy(out->text, start, size);
    out->text[size] = 0;
    out->value = strchr(out->text, '=');
    if (out->value) {
        *out->value++ = 0;
    }
    return out->value != NULL;
}

static bool find_word(const berth_op_case *one, const char *name, word *out) {
    for (const char *text = one->text; next_word(&text, out);) {
        if (strcmp(out->text, name) == 0) {
            return true;
        }
    }
    return false;
}

// "512", "T" or "8T".
static double parse_number(const char **text, int64_t tokens) {
    char *end = NULL;
    double number = strtod(*text, &end);
    if (*end == 'T') {
        number = (end == *text ? 1 : number) * (double)tokens;
        ++end;
    }
    *text = end;
    return number;
}

static const char *parse_dims(const char *text, int64_t tokens, berth_value_type *type) {
    while (*text && *text != ']' && type->ndim < BERTH_MAX_DIMS) {
        type->dims[type->ndim++] = BERTH_DIM_CONST((int64_t)parse_number(&text, tokens));
        text += *text == ',';
    }
    return text + (*text == ']');
}

static const char *parse_values(const char *text, int64_t tokens, operand *out) {
    const char mark = *text;
    if (mark == '(') {
        ++text;
        out->first = parse_number(&text, tokens);
        ++text;
        out->last = parse_number(&text, tokens);
        ++text;
    } else if (mark == '<') {
        ++text;
        out->kind = OPERAND_TURNS;
        out->last = parse_number(&text, tokens);
    } else if (mark == ':') {
        char *end = NULL;
        out->kind = OPERAND_STEPS;
        out->first = (double)strtoll(text + 1, &end, 10);
        text = end + strspn(end, ".");
        out->last = parse_number(&text, tokens);
    }
    return text;
}

// Reads what stands behind the operand's name; false when it is none.
static bool parse_operand(const char *value, const berth_op_size *size, operand *out) {
    const char *bracket = strchr(value, '[');
    *out = (operand){
        .type = {.size = sizeof out->type},
        .first = -1,
        .last = 1,
        .share = 1,
    };
    if (!bracket) {
        return false;
    }
    const berth_str dtype = {value, (size_t)(bracket - value)};
    out->type.dtype = berth_str_equal_cstr(dtype, "x") ? size->dtype : berth_dtype_find(dtype);
    const char *rest = parse_dims(bracket + 1, size->tokens, &out->type);
    rest = parse_values(rest, size->tokens, out);
    if (*rest == '*') {
        ++rest;
        out->share = parse_number(&rest, size->tokens);
    }
    return out->type.dtype != BERTH_DTYPE_NONE && *rest == 0;
}

double berth_op_text_share(const berth_op_case *one, const char *name) {
    word found;
    operand parsed;
    return one->text && find_word(one, name, &found) &&
                   parse_operand(found.value, &(const berth_op_size){.tokens = one->tokens},
                                 &parsed)
               ? parsed.share
               : 1;
}

// ---- the graph ----------------------------------------------------------------------------------

typedef struct given {
    berth_attribute attributes[ATTRIBUTES];
    const berth_attribute *pointers[ATTRIBUTES];
    char words[ATTRIBUTES][WORD_BYTES];
    int64_t i64s[ATTRIBUTES][LIST];
    double f64s[ATTRIBUTES][LIST];
    size_t count;
    berth_value inputs[BERTH_MAX_INPUTS];
} given;

static uint64_t place_of(const berth_op_argument *const *arguments, uint64_t count,
                         const char *name) {
    uint64_t place = 0;
    while (place < count && strcmp(arguments[place]->name, name) != 0) {
        ++place;
    }
    return place;
}

static const berth_op_attribute *attribute_of(const berth_op *op, const char *name) {
    for (uint64_t i = 0; i < op->attribute_count; ++i) {
        if (strcmp(op->attributes[i]->name, name) == 0) {
            return op->attributes[i];
        }
    }
    return NULL;
}

static void add_attribute(given *self, const berth_op_attribute *of, const char *value) {
    const size_t place = self->count++;
    berth_attribute *made = &self->attributes[place];
    char *text = self->words[place];
    (void)snprintf(text, WORD_BYTES, "%s", value);
    *made = (berth_attribute){
        .size = sizeof *made,
        .name = of->name,
        .kind = of->kind,
        .str = text,
        .i64s = self->i64s[place],
        .f64s = self->f64s[place],
    };
    for (char *end = text; *end && made->count < LIST; end += *end == ',') {
        const char *start = end;
        self->f64s[place][made->count] = strtod(start, &end);
        self->i64s[place][made->count] = (int64_t)self->f64s[place][made->count];
        ++made->count;
        if (end == start) {
            break;
        }
    }
    made->f64 = self->f64s[place][0];
    made->i64 = self->i64s[place][0];
    self->pointers[place] = made;
}

// An operand, a state or an attribute of the op; false when it is none of them.
static bool take_word(const berth_op_graph *graph, const berth_op *op, const word *at,
                      given *self) {
    operand parsed;
    const bool is_operand = parse_operand(at->value, &graph->size, &parsed);
    const uint64_t input = place_of(op->inputs, op->input_count, at->text);
    const uint64_t state = place_of(op->states, op->state_count, at->text);
    const berth_op_attribute *attribute = attribute_of(op, at->text);
    if (is_operand && input < op->input_count) {
        char name[128];
        (void)snprintf(name, sizeof name, "%s.%s", graph->name, at->text);
        self->inputs[input] = berth_graph_parameter(graph->builder, name, &parsed.type);
        return true;
    }
    if (is_operand && state < op->state_count) {
        berth_graph_state(graph->builder, graph->name, state, &parsed.type);
        return true;
    }
    if (is_operand || !attribute || self->count == ATTRIBUTES) {
        return false;
    }
    add_attribute(self, attribute, at->value);
    return true;
}

berth_value berth_op_text_emit(const berth_op_graph *graph, berth_value *outs) {
    const berth_op_case *of = graph->of;
    const berth_op_entry *entry = berth_registry_find_op(graph->registry, of->op);
    berth_value results[BERTH_MAX_OUTPUTS] = {BERTH_VALUE_NONE};
    given self = {.count = 0};
    word at;
    for (const char *text = of->text; entry && next_word(&text, &at);) {
        if (!take_word(graph, &entry->op, &at, &self)) {
            char why[256];
            (void)snprintf(why, sizeof why, "case %s: op '%s' has no '%s'", of->name, of->op,
                           at.text);
            berth_graph_fail(graph->builder, BERTH_INVALID_ARGUMENT, why);
        }
    }
    const berth_value y = BERTH_OP_EMIT(graph, of->op, .inputs = self.inputs,
                                        .input_count = entry ? entry->op.input_count : 0,
                                        .attributes = self.pointers, .attribute_count = self.count,
                                        .outputs = results, .output_count = of->output_count);
    for (size_t i = 1; i < of->output_count; ++i) {
        outs[i - 1] = results[i];
    }
    return y;
}

// ---- numbers ------------------------------------------------------------------------------------

// By the operand's name, so that a smaller step has the first of a larger one's.
static uint64_t seed_of(const char *name) {
    uint64_t seed = 1;
    for (; *name; ++name) {
        seed = seed * 131 + (unsigned char)*name;
    }
    return seed;
}

static void fill_random(const operand *of, uint64_t state, float *values, size_t count) {
    const double width = of->last - of->first;
    for (size_t i = 0; i < count; ++i) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        values[i] = (float)(of->first + width * ((double)(state >> 33) / 0x1p31));
    }
}

static double number_at(const operand *of, size_t index, size_t count) {
    const double steps = count > 1 ? (double)(count - 1) : 1;
    return of->kind == OPERAND_TURNS ? (double)(index * APART % (size_t)of->last)
                                     : of->first + (of->last - of->first) * (double)index / steps;
}

static void fill_numbers(const operand *of, void *data, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        const double number = number_at(of, i, count);
        if (of->type.dtype == BERTH_DTYPE_I64) {
            ((int64_t *)data)[i] = (int64_t)number;
        } else if (of->type.dtype == BERTH_DTYPE_I32) {
            ((int32_t *)data)[i] = (int32_t)number;
        } else if (of->type.dtype == BERTH_DTYPE_F64) {
            ((double *)data)[i] = number;
        } else {
            ((uint8_t *)data)[i] = (uint8_t)number;
        }
    }
}

static berth_status fill_floats(const operand *of, const char *name, void *data, size_t count) {
    float *values = berth_alloc(count * sizeof *values);
    if (!values) {
        return BERTH_FAIL(OUT_OF_MEMORY, "no memory for an operand of %zu elements", count);
    }
    if (of->kind == OPERAND_RANDOM) {
        fill_random(of, seed_of(name), values, count);
    } else {
        for (size_t i = 0; i < count; ++i) {
            values[i] = (float)number_at(of, i, count);
        }
    }
    berth_convert(BERTH_DTYPE_F32, values, of->type.dtype, data, count);
    berth_free(values);
    return BERTH_OK;
}

berth_status berth_op_fill(const berth_op_case *one, const berth_op_size *size, const char *name,
                           const berth_value_type *type, void *data) {
    const size_t count = (size_t)berth_type_elements(type, 1, 1);
    operand of = {.type = *type, .first = -1, .last = 1};
    word found;
    if (one->text && find_word(one, name, &found) && !parse_operand(found.value, size, &of)) {
        return BERTH_FAIL(INTERNAL, "case %s: what is '%s=%s'?", one->name, name, found.value);
    }
    if (berth_can_convert(type->dtype)) {
        return fill_floats(&of, name, data, count);
    }
    fill_numbers(&of, data, count);
    return BERTH_OK;
}
