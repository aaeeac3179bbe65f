// SPDX-License-Identifier: Apache-2.0
// Private to cli/: what `berth bench op` runs. A case is a graph of one op several times, on
// operands of its own each time, so that the memory is read and not the caches; plan, dispatch,
// packing and device are those of a model.
#ifndef BERTH_CLI_BENCH_OP_H
#define BERTH_CLI_BENCH_OP_H

#include "base/arena.h"
#include "base/status.h"
#include "executor/executor.h"
#include "graph/graph.h"

#define BERTH_OP_TOKENS  512 // of the largest step, and sequences
#define BERTH_OP_CONTEXT 2048
#define BERTH_OP_OUTPUTS "yzabcdef" // letters for results of an op
#define BERTH_OP_BLOCK   16         // tokens of a KV block
#define BERTH_OP_COPIES  32768      // at most

typedef struct berth_op_case berth_op_case;

// ---- cases --------------------------------------------------------------------------------------

// What a graph of a case is built for.
typedef struct berth_op_size {
    berth_dtype dtype; // of activations
    int64_t tokens;
    size_t copies;
} berth_op_size;

typedef struct berth_op_graph {
    berth_graph_builder *builder;
    const berth_registry *registry;
    const berth_op_case *of;
    berth_op_size size;
    char name[32]; // of the copy: a prefix for parameters and states
} berth_op_graph;

struct berth_op_case {
    const char *name;
    const char *op;
    int64_t tokens;  // of the timed step, of one sequence
    int64_t context; // tokens that are in the cache before it
    size_t output_count;
    double flops; // of the step; 0: the memory is what it is about
    double
        gate; // share of the ceiling, or of oneDNN where it has the op, that is asked for; 0: none
    // Operands and attributes, see bench_op_text.c; NULL: `emit` and what follows it say them.
    const char *text;
    bool is_whole;      // rows depend on later ones: the reference runs all tokens
    bool is_read_twice; // nothing can be written before all of x, which no core's cache holds, is
                        // read
    bool is_paged;      // the cache is paged, of keys and values, which belong to no operand
    int64_t out;        // width; of attention and positions: heads
    int64_t in;         // width of x; of attention and positions: a head's
    // Emits the op once over x [tokens, …] and returns its first output; `outs` takes the others.
    berth_value (*emit)(berth_op_graph *graph, const berth_value *x, berth_value *outs);
    // Of an op on rows: 'x' the next x, '-' an input that is absent, '1' a number, 's' one in
    // float32, 'c' a vector in float32, else a vector.
    const char *inputs;
    const berth_attribute *const *attributes; // of an op on rows
    size_t attribute_count;
    size_t x_count; // inputs that come from tokens
    int64_t x_widths[3];
};

// One kind of op: a file that ends in its table.
typedef struct berth_op_table {
    const berth_op_case *cases;
    size_t count;
} berth_op_table;

extern const berth_op_table berth_op_rows;
extern const berth_op_table berth_op_products;
extern const berth_op_table berth_op_mixers;
extern const berth_op_table berth_op_elements;

// All tables, one behind the other.
size_t berth_op_case_count(void);
const berth_op_case *berth_op_case_at(size_t index);

// ---- for emitters -------------------------------------------------------------------------------

#define BERTH_OP_CASE(...)                                                                         \
    { __VA_ARGS__ }
#define BERTH_OP_EMIT(graph, op_name, ...)                                                         \
    berth_graph_op((graph)->builder, &(const berth_call){.size = sizeof(berth_call),               \
                                                         .name = (op_name),                        \
                                                         .prefix = (graph)->name,                  \
                                                         __VA_ARGS__})

// A parameter of this copy; a vector when there are no rows.
berth_value berth_op_parameter(const berth_op_graph *graph, const char *what, berth_dtype dtype,
                               int64_t rows, int64_t columns);
// The rows of a table for the tokens of the step, as activations.
berth_value berth_op_look_up(const berth_op_graph *graph, berth_value table);
// [tokens, width] as [tokens, heads, head size], the case's.
berth_value berth_op_heads(const berth_op_graph *graph, berth_value x, int64_t count);
// A block of a cache of the case's x 1.
berth_value_type berth_op_block(const berth_op_case *of, berth_dtype dtype);

// ---- graphs -------------------------------------------------------------------------------------

// The op on as many sets of operands as there are copies; outputs "y0", "y1", …, "z0" … of a second
// output, and so on through BERTH_OP_OUTPUTS.
BERTH_MUST_CHECK berth_status berth_op_graph_build(const berth_registry *registry,
                                                   const berth_op_case *one,
                                                   const berth_op_size *size,
                                                   berth_graph **out_graph);
// The caches of its copies, in the arena.
BERTH_MUST_CHECK berth_status berth_op_graph_caches(const berth_op_case *one,
                                                    const berth_op_size *size, berth_arena *arena,
                                                    berth_kv_cache_spec **out_caches);
// What one copy reads and writes.
double berth_op_case_bytes(const berth_op_case *one, const berth_graph *graph, bool is_output_only);
// What of them is read once more.
double berth_op_case_again(const berth_op_case *one, const berth_graph *graph);

// ---- texts --------------------------------------------------------------------------------------

berth_value berth_op_text_emit(const berth_op_graph *graph, berth_value *outs);
// How much of an operand is moved, 1 where the text says nothing.
double berth_op_text_share(const berth_op_case *one, const char *name);
// Numbers for the operand of that name: the text's, else random ones from -1 to 1.
BERTH_MUST_CHECK berth_status berth_op_fill(const berth_op_case *one, const berth_op_size *size,
                                            const char *name, const berth_value_type *type,
                                            void *data);

// ---- batches ------------------------------------------------------------------------------------

typedef struct berth_op_batch berth_op_batch;

BERTH_MUST_CHECK berth_status berth_op_batch_create(berth_arena *arena, berth_op_batch **out_batch);
// Tokens from the first on, of one sequence.
const berth_batch *berth_op_batch_prompt(berth_op_batch *self, int64_t tokens);
// One token that sees so many before it.
const berth_batch *berth_op_batch_decode(berth_op_batch *self, int64_t context);
// Puts tokens into the cache, from position `first` on, that attend to next to nothing: each is a
// sequence of its own.
const berth_batch *berth_op_batch_fill(berth_op_batch *self, int64_t first, int64_t tokens);

#endif
