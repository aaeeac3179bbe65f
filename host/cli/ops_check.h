// SPDX-License-Identifier: Apache-2.0
// Private to cli/: `berth ops check`, golden vectors against what a platform computes.
//
// A golden file is a pair NAME.json and NAME.safetensors. A case of it becomes a graph of one op or
// one layer: its tensors are fed by name, its attributes set by name, its outputs compared by the
// case's own rule. Where names differ, or something has to be derived, berth_check_rows says so in
// one row per file.
#ifndef BERTH_CLI_OPS_CHECK_H
#define BERTH_CLI_OPS_CHECK_H

#include "base/arena.h"
#include "base/array.h"
#include "base/json.h"
#include "base/status.h"
#include "cli/cli.h"
#include "model/model.h"

#define BERTH_CHECK_TENSORS 32 // inputs of a case, outputs of a case
#define BERTH_CHECK_NAMES   16 // renamed, implied or listed ones of a row

// ---- a case -------------------------------------------------------------------------------------

// A tensor in host memory, row-major. `data` is aligned and NULL when there is no such tensor.
typedef struct berth_check_tensor {
    const char *name;
    berth_dtype dtype;
    uint32_t ndim;
    int64_t shape[BERTH_MAX_DIMS];
    void *data;
    uint64_t bytes;
} berth_check_tensor;

// An attribute: as the case has it, or made by a row's hook (`json` NULL, `made` valid).
typedef struct berth_check_attribute {
    const char *name;
    const berth_json *json;
    berth_attribute made;
} berth_check_attribute;

typedef enum berth_check_mode {
    BERTH_CHECK_CLOSE,
    BERTH_CHECK_EXACT,
    BERTH_CHECK_SET, // rows of topk_ids and topk_weights, in any order
} berth_check_mode;

typedef struct berth_check_rule {
    berth_check_mode mode;
    double atol;
    double rtol;
} berth_check_rule;

// One output of a case: what it has to be, by which rule, and what came out.
typedef struct berth_check_output {
    const char *name;
    berth_check_tensor wanted;
    berth_check_tensor exact; // f64, may be absent
    berth_check_tensor got;   // absent until something ran
    berth_check_rule rule;
} berth_check_output;

typedef struct berth_check berth_check;
typedef struct berth_check_row berth_check_row;

typedef struct berth_check_case {
    const berth_check *check;
    const berth_check_row *row;
    const berth_json *json;
    const char *name;
    const char *class_name; // the case's, else the file's
    const char *op;         // id of the op to run, NULL for a layer
    const char *layer;      // class of the layer to run, NULL for an op
    berth_arena *arena;     // owned; all of the case lives there
    const char *ran;        // who computed it: names of implementations, in the arena
    berth_check_tensor inputs[BERTH_CHECK_TENSORS];
    size_t input_count;
    berth_check_attribute attributes[BERTH_CHECK_TENSORS];
    size_t attribute_count;
    berth_check_output outputs[BERTH_CHECK_TENSORS];
    size_t output_count;
    size_t derived_count;    // numbers of `derived` that berth_check_derived compared
    berth_safetensors *file; // borrowed
} berth_check_case;

// ---- rows ---------------------------------------------------------------------------------------

typedef struct berth_check_rename {
    const char *theirs;
    const char *ours;
} berth_check_rename;

#define BERTH_CHECK_PRESENT (-100) // instead of a dimension: whether the tensor is there
#define BERTH_CHECK_ALLOWED (-101) // the same, but where it may be there it need not

// An attribute that ours do not have since it follows from an operand: extent `dim` of the input
// (from the end when negative), against which it is checked.
typedef struct berth_check_implied {
    const char *name;
    const char *input;
    int32_t dim;
} berth_check_implied;

#define BERTH_CHECK_LAYER "layer" // prefix of a layer

// How a golden file meets our schemas. All but `file` may be left out. Since layers have no schema,
// a layer's row lists every attribute, renamed or not.
struct berth_check_row {
    const char *file;
    const char *op;         // NULL: the op named as the file
    const char *layer;      // the class of a layer, in place of an op
    bool is_class_op;       // the op is the one of the case's class
    bool is_class_layer;    // the layer is the one of the case's class
    const char *absent;     // the reason why there is nothing to run
    const char *entries[4]; // further ops that must compute the same from the same, ends with NULL
    berth_check_rename inputs[BERTH_CHECK_NAMES];
    berth_check_rename attributes[BERTH_CHECK_NAMES];
    berth_check_implied implied[BERTH_CHECK_NAMES];
    const char *outputs[BERTH_MAX_OUTPUTS]; // ours in order, under their names; none: their order
    // Layers: inputs that are operands of the layer, in its order; the others are its weights,
    // named BERTH_CHECK_LAYER and a dot before ours, or arrays of the batch. And the case's names
    // of the states of the layer, in the order in which its graph has them.
    const char *operands[BERTH_MAX_INPUTS];
    const char *states[BERTH_MAX_OUTPUTS];
    const berth_weight_rule *const *weight_rules;
    uint64_t weight_rule_count;
    // What vLLM's run wrote into a weight after loading it. NULL: nothing.
    void (*loaded)(berth_check_case *at, const char *name, const berth_check_tensor *weight);
    // Changes the inputs and attributes of a case before it runs.
    berth_status (*prepare)(berth_check_case *at);
    // Runs it: in place of one berth_check_execute and berth_check_give.
    berth_status (*run)(berth_check_case *at);
};

extern const berth_check_row berth_check_rows[]; // one per golden file that needs one, by name
extern const size_t berth_check_row_count;

// The row of a file, or one that says nothing but the name.
berth_check_row berth_check_row_of(const char *file);

// ---- for rows' hooks ----------------------------------------------------------------------------

// NULL when the case has no such input.
berth_check_tensor *berth_check_input(berth_check_case *at, const char *name);
// Another input; its data is zero. NULL when there is no more room, see berth_check_full.
berth_check_tensor *berth_check_add_input(berth_check_case *at, const char *name, berth_dtype dtype,
                                          uint32_t ndim, const int64_t *shape);
BERTH_MUST_CHECK berth_status berth_check_full(const berth_check_case *at);
void berth_check_drop_input(berth_check_case *at, const char *name);
// NULL when there is no such output.
berth_check_output *berth_check_find_output(berth_check_case *at, const char *name);
// The JSON of an attribute, NULL when it is not given or null.
const berth_json *berth_check_given(const berth_check_case *at, const char *name);
// A number or truth value among the attributes, else the fallback.
double berth_check_number(const berth_check_case *at, const char *name, double fallback);
const char *berth_check_string(berth_check_case *at, const char *name, const char *fallback);
// An attribute of ours, in place of a given one of the same name. Of an attribute without a name
// nothing is set.
BERTH_MUST_CHECK berth_status berth_check_set(berth_check_case *at, const berth_attribute *made);
void berth_check_drop_attribute(berth_check_case *at, const char *name);
// That a number under the case's `derived` is ours: integers exactly, others to a last place of
// f32. A case whose derived numbers are not all compared fails.
BERTH_MUST_CHECK berth_status berth_check_derived(berth_check_case *at, const char *name,
                                                  double ours);
// The element of a tensor of any type as a double; how many there are.
double berth_check_at(const berth_check_tensor *tensor, int64_t index);
int64_t berth_check_elements(const berth_check_tensor *tensor);

// ---- running ------------------------------------------------------------------------------------

// What one run gave: outputs in the op's order; under their names states, and weights of a layer as
// they are resident.
typedef struct berth_check_results {
    berth_check_tensor outputs[BERTH_MAX_OUTPUTS];
    size_t output_count;
    berth_check_tensor named[BERTH_CHECK_TENSORS];
    size_t named_count;
} berth_check_results;

// Builds the graph of the case's op or layer, plans it on the session's platform, feeds the inputs,
// runs. Fails for an input or attribute that the schema does not know.
BERTH_MUST_CHECK berth_status berth_check_execute(berth_check_case *at, berth_check_results *out);
// Hands results to the case's outputs by the row's names or order.
BERTH_MUST_CHECK berth_status berth_check_give(berth_check_case *at,
                                               const berth_check_results *results);

// ---- comparing ----------------------------------------------------------------------------------

// How far one output is off.
typedef struct berth_check_difference {
    bool is_different;
    int64_t index; // of the worst element, -1: type or shape
    double got;
    double wanted;
    double share;  // of the tolerance that is used; above 1: different
    double error;  // greatest error against float64, over that of the golden; below 0: not known
    char why[160]; // when index is -1
} berth_check_difference;

void berth_check_compare(const berth_check_case *at, const berth_check_output *output,
                         berth_check_difference *out);

// ---- files --------------------------------------------------------------------------------------

struct berth_check {
    berth_session *session;
    berth_runtime *runtime;
};

// An open pair of files.
typedef struct berth_check_file {
    const char *name; // without suffix
    berth_json *json;
    berth_safetensors *tensors;
} berth_check_file;

BERTH_MUST_CHECK berth_status berth_check_open(const char *directory, const char *name,
                                               berth_arena *arena, berth_check_file *out);
void berth_check_close(berth_check_file *file);
// The names of all pairs in a directory, sorted.
BERTH_MUST_CHECK berth_status berth_check_list(const char *directory, berth_arena *arena,
                                               const char ***out_names, size_t *out_count);
// A case with its tensors, attributes and rules, under our names; freed by its arena.
BERTH_MUST_CHECK berth_status berth_check_load(const berth_check *check,
                                               const berth_check_file *file,
                                               const berth_check_row *row, size_t index,
                                               berth_check_case **out_case);

#endif
