// SPDX-License-Identifier: Apache-2.0
// Text to graph, through the same builder as a model, so that nothing can be written that could not
// be built. Exact inverse of print.c, where the grammar stands; values may have any numbers, each
// used once, and the types that the text states must be those that the ops give.
#include <string.h>

#include "base/array.h"
#include "base/map.h"
#include "graph/rules.h"
#include "graph/scan.h"

#define BLOCK_BYTES  (64u << 10)
#define LIMIT_BYTES  (256u << 20)
#define MAX_RESULTS  (BERTH_MAX_OUTPUTS + BERTH_MAX_INPUTS)
#define MAX_OPERANDS (2 * BERTH_MAX_INPUTS)

typedef struct reader {
    berth_scan scan;
    const berth_registry *registry;
    berth_graph_builder *builder;
    berth_arena *arena; // strings and lists until the end of the parse
    berth_map values;   // number in the text → value
} reader;

// Left of the '='.
typedef struct result_list {
    berth_str numbers[MAX_RESULTS];
    size_t count;
    size_t primed; // of them, the last ones
    size_t at;
} result_list;

// What stands between the name of an op and its types.
typedef struct op_line {
    berth_value inputs[MAX_OPERANDS];
    size_t input_count;
    berth_value states[MAX_OPERANDS];
    size_t state_count;
    berth_array(const berth_attribute *) attributes;
    const char *layer;
    bool is_enforced;
} op_line;

// Turns the builder's failure into one with a place.
static berth_status check_builder(reader *parser, size_t at) {
    if (!berth_graph_has_failed(parser->builder)) {
        return BERTH_OK;
    }
    berth_graph *none = NULL;
    const berth_status status = berth_graph_finish(parser->builder, &none);
    parser->builder = NULL;
    return status == BERTH_OK || status == BERTH_OUT_OF_MEMORY
               ? status
               : berth_scan_fail(&parser->scan, at, "%s", berth_status_message());
}

// ---- values -------------------------------------------------------------------------------------

static berth_status parse_number(reader *parser, berth_str *out_number) {
    BERTH_TRY(berth_scan_expect(&parser->scan, "%"));
    *out_number = parser->scan.word;
    int64_t ignored = 0;
    return berth_scan_i64(&parser->scan, "the number of a value", &ignored);
}

static berth_status parse_value(reader *parser, berth_value *out_value) {
    const size_t at = parser->scan.word_at;
    berth_str number;
    BERTH_TRY(parse_number(parser, &number));
    const uint32_t *found = berth_map_find(&parser->values, number);
    if (found == NULL) {
        return berth_scan_fail(&parser->scan, at, "%%" BERTH_STR_FMT " is not defined before here",
                               BERTH_STR_ARG(number));
    }
    *out_value = *found;
    return BERTH_OK;
}

static berth_status define(reader *parser, const result_list *results, size_t index,
                           berth_value value) {
    const berth_str number = results->numbers[index];
    if (berth_map_find(&parser->values, number) != NULL) {
        return berth_scan_fail(&parser->scan, results->at, "%%" BERTH_STR_FMT " is defined twice",
                               BERTH_STR_ARG(number));
    }
    return berth_map_add(&parser->values, number, value);
}

static berth_status parse_results(reader *parser, result_list *out) {
    *out = (result_list){.at = parser->scan.word_at};
    bool has_more = true;
    while (has_more) {
        if (out->count == MAX_RESULTS) {
            return berth_scan_fail(&parser->scan, parser->scan.word_at, "more than %d results",
                                   MAX_RESULTS);
        }
        bool is_primed = false;
        BERTH_TRY(parse_number(parser, &out->numbers[out->count++]));
        BERTH_TRY(berth_scan_accept(&parser->scan, "'", &is_primed));
        if (!is_primed && out->primed > 0) {
            return berth_scan_fail(&parser->scan, parser->scan.word_at,
                                   "states (primed) stand behind the other results");
        }
        out->primed += is_primed;
        BERTH_TRY(berth_scan_accept(&parser->scan, ",", &has_more));
    }
    return berth_scan_expect(&parser->scan, "=");
}

// Up to `end`, which is not taken: "%1, _, %2".
static berth_status parse_operands(reader *parser, berth_value operands[MAX_OPERANDS],
                                   size_t *out_count) {
    *out_count = 0;
    bool has_more =
        !berth_scan_is_mark(&parser->scan, ')') && !berth_scan_is_mark(&parser->scan, ';');
    while (has_more) {
        if (*out_count == MAX_OPERANDS) {
            return berth_scan_fail(&parser->scan, parser->scan.word_at, "more than %d operands",
                                   MAX_OPERANDS);
        }
        bool is_absent = false;
        berth_value *operand = &operands[(*out_count)++];
        *operand = BERTH_VALUE_NONE;
        BERTH_TRY(berth_scan_accept(&parser->scan, "_", &is_absent));
        if (!is_absent) {
            BERTH_TRY(parse_value(parser, operand));
        }
        BERTH_TRY(berth_scan_accept(&parser->scan, ",", &has_more));
    }
    return BERTH_OK;
}

// ": TYPE", which must be what the value has.
static berth_status check_stated(reader *parser, berth_value value) {
    const size_t at = parser->scan.word_at;
    berth_value_type stated;
    BERTH_TRY(berth_scan_type(&parser->scan, &stated));
    const berth_value_type *type = berth_graph_type(parser->builder, value);
    if (!berth_type_equal(&stated, type)) {
        char a[BERTH_TYPE_TEXT_BYTES];
        char b[BERTH_TYPE_TEXT_BYTES];
        return berth_scan_fail(&parser->scan, at, "the text says %s, but this is %s",
                               berth_type_text(&stated, a), berth_type_text(type, b));
    }
    return BERTH_OK;
}

// ---- values without a node, views ---------------------------------------------------------------

static berth_status parse_input(reader *parser, const result_list *results) {
    berth_str name;
    BERTH_TRY(berth_scan_name(&parser->scan, "the name of an input", &name));
    const char *cstr = berth_arena_copy(parser->arena, name);
    if (cstr == NULL) {
        return berth_arena_exhausted(parser->arena, "strings of a graph text");
    }
    const berth_value value = berth_graph_input(parser->builder, cstr);
    BERTH_TRY(check_builder(parser, results->at));
    BERTH_TRY(berth_scan_expect(&parser->scan, ":"));
    BERTH_TRY(check_stated(parser, value));
    return define(parser, results, 0, value);
}

static berth_status parse_parameter(reader *parser, const result_list *results) {
    const char *name = NULL;
    berth_value_type type;
    BERTH_TRY(berth_scan_string(&parser->scan, parser->arena, &name));
    BERTH_TRY(berth_scan_expect(&parser->scan, ":"));
    BERTH_TRY(berth_scan_type(&parser->scan, &type));
    const berth_value value = berth_graph_parameter(parser->builder, name, &type);
    BERTH_TRY(check_builder(parser, results->at));
    return define(parser, results, 0, value);
}

static berth_status parse_state(reader *parser, const result_list *results) {
    const char *layer = NULL;
    int64_t index = 0;
    berth_value_type type;
    BERTH_TRY(berth_scan_string(&parser->scan, parser->arena, &layer));
    BERTH_TRY(berth_scan_i64(&parser->scan, "the index of a state", &index));
    BERTH_TRY(berth_scan_expect(&parser->scan, ":"));
    BERTH_TRY(berth_scan_type(&parser->scan, &type));
    berth_graph_state(parser->builder, layer, (uint64_t)index, &type);
    BERTH_TRY(check_builder(parser, results->at));
    const size_t count = berth_graph_peek(parser->builder)->value_count;
    return define(parser, results, 0, (berth_value)(count - 1));
}

static berth_status parse_slice(reader *parser, const result_list *results) {
    berth_value source = BERTH_VALUE_NONE;
    int64_t dim = 0;
    int64_t start = 0;
    int64_t length = 0;
    BERTH_TRY(parse_value(parser, &source));
    BERTH_TRY(berth_scan_expect(&parser->scan, "dim"));
    BERTH_TRY(berth_scan_i64(&parser->scan, "a dimension's index", &dim));
    BERTH_TRY(berth_scan_expect(&parser->scan, "from"));
    BERTH_TRY(berth_scan_i64(&parser->scan, "the first element", &start));
    BERTH_TRY(berth_scan_expect(&parser->scan, "length"));
    BERTH_TRY(berth_scan_i64(&parser->scan, "the length", &length));
    const berth_value value =
        berth_graph_slice(parser->builder, source, (uint64_t)dim, start, length);
    BERTH_TRY(check_builder(parser, results->at));
    BERTH_TRY(berth_scan_expect(&parser->scan, ":"));
    BERTH_TRY(check_stated(parser, value));
    return define(parser, results, 0, value);
}

static berth_status parse_reshape(reader *parser, const result_list *results) {
    berth_value source = BERTH_VALUE_NONE;
    berth_value_type type;
    BERTH_TRY(parse_value(parser, &source));
    BERTH_TRY(berth_scan_expect(&parser->scan, ":"));
    const berth_scan before = parser->scan;
    BERTH_TRY(berth_scan_type(&parser->scan, &type));
    const berth_value value = berth_graph_reshape(parser->builder, source, type.dims, type.ndim);
    BERTH_TRY(check_builder(parser, results->at));
    parser->scan = before; // read again: the dtype must be the source's
    BERTH_TRY(check_stated(parser, value));
    return define(parser, results, 0, value);
}

// ---- attributes ---------------------------------------------------------------------------------

static uint64_t declared_kind(const reader *parser, const char *op, const char *attribute) {
    const berth_op_entry *entry = berth_registry_find_op(parser->registry, op);
    for (uint64_t i = 0; entry != NULL && i < entry->op.attribute_count; ++i) {
        if (strcmp(entry->op.attributes[i]->name, attribute) == 0) {
            return entry->op.attributes[i]->kind;
        }
    }
    return BERTH_ATTRIBUTE_I64S;
}

// Behind the '{'.
static berth_status parse_attributes(reader *parser, const char *op, op_line *line) {
    bool has_more = true;
    while (has_more) {
        berth_str name;
        BERTH_TRY(berth_scan_name(&parser->scan, "the name of an attribute", &name));
        berth_attribute *attribute = BERTH_ARENA_NEW(parser->arena, berth_attribute);
        const char *cstr = berth_arena_copy(parser->arena, name);
        if (attribute == NULL || cstr == NULL) {
            return berth_arena_exhausted(parser->arena, "attributes of a graph text");
        }
        *attribute = (berth_attribute){.size = sizeof(*attribute), .name = cstr};
        BERTH_TRY(berth_scan_expect(&parser->scan, "="));
        BERTH_TRY(berth_scan_constant(&parser->scan, parser->arena, declared_kind(parser, op, cstr),
                                      attribute));
        BERTH_TRY(berth_array_push(&line->attributes, attribute));
        BERTH_TRY(berth_scan_accept(&parser->scan, ",", &has_more));
    }
    return berth_scan_expect(&parser->scan, "}");
}

// ---- ops ----------------------------------------------------------------------------------------

static berth_status parse_op_line(reader *parser, const char *op, op_line *line) {
    bool is_there = false;
    BERTH_TRY(berth_scan_expect(&parser->scan, "("));
    BERTH_TRY(parse_operands(parser, line->inputs, &line->input_count));
    BERTH_TRY(berth_scan_accept(&parser->scan, ";", &is_there));
    if (is_there) {
        BERTH_TRY(parse_operands(parser, line->states, &line->state_count));
    }
    BERTH_TRY(berth_scan_expect(&parser->scan, ")"));
    BERTH_TRY(berth_scan_accept(&parser->scan, "{", &is_there));
    if (is_there) {
        BERTH_TRY(parse_attributes(parser, op, line));
    }
    BERTH_TRY(berth_scan_accept(&parser->scan, "@", &is_there));
    if (is_there) {
        BERTH_TRY(berth_scan_string(&parser->scan, parser->arena, &line->layer));
    }
    return berth_scan_accept(&parser->scan, "enforced", &line->is_enforced);
}

// The states of the text are those that the layer's name finds.
static berth_status check_states(reader *parser, const result_list *results, const op_line *line,
                                 const berth_graph_node *node) {
    for (size_t i = 0; i < node->state_count || i < line->state_count; ++i) {
        const berth_value stated = i < line->state_count ? line->states[i] : BERTH_VALUE_NONE;
        const berth_value used = i < node->state_count ? node->states[i] : BERTH_VALUE_NONE;
        if (stated != used) {
            return berth_scan_fail(&parser->scan, results->at,
                                   "state %zu is not the latest one of layer \"%s\"", i,
                                   node->layer);
        }
    }
    return BERTH_OK;
}

static berth_status define_results(reader *parser, const result_list *results,
                                   const berth_graph_node *node) {
    const size_t plain = results->count - results->primed;
    size_t renewed = 0;
    for (size_t i = 0; i < node->state_count; ++i) {
        renewed += node->states_after[i] != BERTH_VALUE_NONE;
    }
    if (plain != node->output_count || results->primed != renewed) {
        return berth_scan_fail(&parser->scan, results->at,
                               "the op has %zu results and renews %zu states", node->output_count,
                               renewed);
    }
    for (size_t i = 0; i < plain; ++i) {
        BERTH_TRY(define(parser, results, i, node->outputs[i]));
    }
    size_t next = plain;
    for (size_t i = 0; i < node->state_count; ++i) {
        if (node->states_after[i] != BERTH_VALUE_NONE) {
            BERTH_TRY(define(parser, results, next++, node->states_after[i]));
        }
    }
    return BERTH_OK;
}

static berth_status add_op(reader *parser, const result_list *results, const char *op,
                           const op_line *line) {
    const berth_call call = {
        .size = sizeof(call),
        .name = op,
        .prefix = line->layer,
        .inputs = line->inputs,
        .input_count = line->input_count,
        .attributes = line->attributes.data,
        .attribute_count = line->attributes.count,
        .enforce_enable = line->is_enforced,
    };
    (void)berth_graph_op(parser->builder, &call);
    BERTH_TRY(check_builder(parser, results->at));
    const berth_graph *graph = berth_graph_peek(parser->builder);
    const berth_graph_node node = graph->nodes[graph->node_count - 1];
    BERTH_TRY(check_states(parser, results, line, &node));
    BERTH_TRY(define_results(parser, results, &node));
    for (size_t i = 0; i < node.output_count; ++i) {
        BERTH_TRY(berth_scan_expect(&parser->scan, i == 0 ? ":" : ","));
        BERTH_TRY(check_stated(parser, node.outputs[i]));
    }
    return BERTH_OK;
}

static berth_status parse_op(reader *parser, const result_list *results, berth_str name) {
    const char *op = berth_arena_copy(parser->arena, name);
    if (op == NULL) {
        return berth_arena_exhausted(parser->arena, "strings of a graph text");
    }
    op_line line = {.layer = ""};
    berth_status status = parse_op_line(parser, op, &line);
    if (status == BERTH_OK) {
        status = add_op(parser, results, op, &line);
    }
    berth_array_free(&line.attributes);
    return status;
}

// ---- lines --------------------------------------------------------------------------------------

static berth_status parse_output(reader *parser) {
    const size_t at = parser->scan.word_at;
    berth_str name;
    berth_value value = BERTH_VALUE_NONE;
    BERTH_TRY(berth_scan_name(&parser->scan, "the name of an output", &name));
    BERTH_TRY(berth_scan_expect(&parser->scan, "="));
    BERTH_TRY(parse_value(parser, &value));
    const char *cstr = berth_arena_copy(parser->arena, name);
    if (cstr == NULL) {
        return berth_arena_exhausted(parser->arena, "strings of a graph text");
    }
    berth_graph_output_add(parser->builder, cstr, value);
    return check_builder(parser, at);
}

typedef berth_status (*line_fn)(reader *parser, const result_list *results);

typedef struct line_kind {
    const char *word;
    line_fn parse;
} line_kind;

static const line_kind line_kinds[] = {
    {.word = "input",     .parse = parse_input    },
    {.word = "parameter", .parse = parse_parameter},
    {.word = "state",     .parse = parse_state    },
    {.word = "slice",     .parse = parse_slice    },
    {.word = "reshape",   .parse = parse_reshape  },
};

// Why the look at '(': an op may be named like one of the words above.
static berth_status parse_definition(reader *parser) {
    result_list results;
    berth_str word;
    BERTH_TRY(parse_results(parser, &results));
    BERTH_TRY(berth_scan_name(&parser->scan, "what the value is", &word));
    for (size_t i = 0; i < BERTH_COUNT(line_kinds); ++i) {
        if (!berth_scan_is_mark(&parser->scan, '(') &&
            berth_str_equal_cstr(word, line_kinds[i].word)) {
            return results.count == 1 && results.primed == 0
                       ? line_kinds[i].parse(parser, &results)
                       : berth_scan_fail(&parser->scan, results.at, "'%s' gives one value",
                                         line_kinds[i].word);
        }
    }
    return parse_op(parser, &results, word);
}

static berth_status parse_lines(reader *parser) {
    bool is_end = false;
    BERTH_TRY(berth_scan_accept(&parser->scan, "}", &is_end));
    while (!is_end) {
        bool is_output = false;
        BERTH_TRY(berth_scan_accept(&parser->scan, "output", &is_output));
        BERTH_TRY(is_output ? parse_output(parser) : parse_definition(parser));
        BERTH_TRY(berth_scan_accept(&parser->scan, "}", &is_end));
    }
    if (parser->scan.kind != BERTH_WORD_END) {
        return berth_scan_fail(&parser->scan, parser->scan.word_at, "text behind the last '}'");
    }
    return BERTH_OK;
}

static berth_status parse_graph(reader *parser, berth_str source) {
    const char *name = NULL;
    BERTH_TRY(berth_arena_create(BLOCK_BYTES, LIMIT_BYTES, &parser->arena));
    BERTH_TRY(berth_scan_begin(&parser->scan, source));
    BERTH_TRY(berth_scan_expect(&parser->scan, "graph"));
    BERTH_TRY(berth_scan_string(&parser->scan, parser->arena, &name));
    BERTH_TRY(berth_scan_expect(&parser->scan, "{"));
    BERTH_TRY(berth_graph_begin(parser->registry, name, &parser->builder));
    return parse_lines(parser);
}

berth_status berth_graph_parse(const berth_registry *registry, berth_str source,
                               berth_graph **out_graph) {
    reader parser = {.registry = registry};
    berth_status status = parse_graph(&parser, source);
    if (status == BERTH_OK) {
        status = berth_graph_finish(parser.builder, out_graph);
    } else if (parser.builder != NULL) {
        // Why: finish is also what frees a builder; its result is the failure put in here.
        berth_graph *none = NULL;
        berth_status_report report;
        berth_status_take(&report);
        berth_graph_fail(parser.builder, status, "given up");
        if (berth_graph_finish(parser.builder, &none) != BERTH_OK) {
            (void)berth_status_restore(&report);
        }
    }
    berth_map_deinit(&parser.values);
    berth_arena_destroy(parser.arena);
    return status;
}
