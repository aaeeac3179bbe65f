// SPDX-License-Identifier: Apache-2.0
// One use of an op, outside any graph: operands with guards around them, attributes, a batch; run
// by the native reference or by an implementation, and compared. A violated contract (a wrong
// status, a guard or an input overwritten, memory kept) fails the running test.
#ifndef TEST_OP_CASE_H
#define TEST_OP_CASE_H

#include <berth/device.h>
#include <berth/op.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OP_MAX_STATES     4
#define OP_MAX_ATTRIBUTES 40

// A tensor with memory of its own. Zeroed is absent.
typedef struct op_tensor {
    berth_value_type type; // symbolic, for the site
    berth_tensor tensor;   // data NULL: absent
    int64_t shape[BERTH_MAX_DIMS];
    int64_t strides[BERTH_MAX_DIMS];
    unsigned char *memory; // guard, elements, guard
    size_t bytes;          // of the elements
    bool is_parameter;
} op_tensor;

typedef struct op_case {
    const berth_op *op;
    op_tensor inputs[BERTH_MAX_INPUTS];
    op_tensor states[OP_MAX_STATES];
    berth_attribute attributes[OP_MAX_ATTRIBUTES]; // in the op's order, defaults filled in
    int64_t tokens;                                // s0
    int64_t rows;                                  // s1
    uint64_t max_tokens;
    op_tensor query_start_loc; // the batch; absent: none
    op_tensor seq_lens;
    op_tensor block_table;
    op_tensor slot_mapping; // absent: keys and values are
    double atol;
    double rtol;
    double state_atol;
    double state_rtol;
} op_case;

// What a run leaves behind.
typedef struct op_results {
    op_tensor outputs[BERTH_MAX_OUTPUTS];
    size_t count;
    op_tensor states[OP_MAX_STATES];
    double state_atol; // within which other results' states must be
    double state_rtol;
} op_results;

// Where an implementation's operands lie, if not in host memory: a device that is open.
typedef struct op_place {
    const berth_device *device;
    const berth_device_api *api;
    uint64_t guard; // bytes before the elements, and 64 behind them; 0: there are none
} op_place;

typedef struct op_shape {
    berth_dtype dtype;
    uint32_t ndim;
    berth_dim dims[BERTH_MAX_DIMS];
    int64_t row_gap; // elements between rows, and between rows of rows
    int64_t offset;  // elements before the first
} op_shape;

// ---- tensors ------------------------------------------------------------------------------------

// The tensor's elements are poisoned: NaN, or −1.
void op_tensor_make(op_tensor *tensor, const op_shape *shape, const op_case *symbols);
void op_tensor_free(op_tensor *tensor);
// Fails the test when a byte outside the elements was written.
void op_tensor_check_guards(const op_tensor *tensor);
bool op_tensor_is_present(const op_tensor *tensor);
int64_t op_tensor_count(const op_tensor *tensor); // elements
// Element `index` in row-major order, whatever the strides.
double op_tensor_get(const op_tensor *tensor, int64_t index);
void op_tensor_set(op_tensor *tensor, int64_t index, double value);
// A dense copy, of the same dtype or with floats widened to f32.
void op_tensor_copy(op_tensor *to, const op_tensor *from, bool is_widened);
// A dense copy of one of the rows of the first dimension; `from` is dense.
void op_tensor_take_row(op_tensor *to, const op_tensor *from, int64_t row);
// Reproducible values: floats in [−2, 2), integers in [0, limit).
void op_tensor_randomise(op_tensor *tensor, uint64_t *seed, int64_t limit);

// ---- cases --------------------------------------------------------------------------------------

void op_case_init(op_case *self, const berth_op *op); // defaults of the attributes
void op_case_free(op_case *self);
// Input, state or attribute by name; NULL when the op has none of that name.
op_tensor *op_case_operand(op_case *self, const char *name);
berth_attribute *op_case_attribute(op_case *self, const char *name);
// Dense copies of all operands; see op_tensor_copy.
void op_case_copy(op_case *to, const op_case *from, bool is_widened);

// Whether the op says of this case that rows are computed each by itself (berth_op.is_rowwise), and
// it has a row for each of several tokens.
bool op_case_is_rowwise(const op_case *self);
// The same case with one of its rows. Only where that holds.
void op_case_take_row(op_case *to, const op_case *from, int64_t row);

// The shape rule alone; its text is op_host_text.
berth_status op_case_infer(const op_case *self);
// What the forward of the implementation, or of the reference for NULL, returns.
berth_status op_case_forward(const op_case *self, const berth_op_impl *impl);
void op_case_reference(const op_case *self, op_results *out);
// Whether the implementation takes the site.
berth_status op_case_supports(const op_case *self, const berth_op_impl *impl);
// The whole life of an instance: pack, create, workspace, forward, destroy.
void op_case_run(const op_case *self, const berth_op_impl *impl, op_results *out);
// The same with output 0 in the memory of input 0, for an implementation that says it can.
void op_case_run_in_place(const op_case *self, const berth_op_impl *impl, op_results *out);
// The same with every operand at that place.
berth_status op_case_supports_on(const op_case *self, const berth_op_impl *impl,
                                 const berth_device *device);
void op_case_run_at(const op_case *self, const berth_op_impl *impl, const op_place *place,
                    op_results *out);
void op_case_run_in_place_at(const op_case *self, const berth_op_impl *impl, const op_place *place,
                             op_results *out);
// |got − wanted| ≤ atol + rtol · |wanted|; NaN meets NaN, infinities are equal. States are compared
// with the tolerance that `wanted` has for them.
void op_results_compare(const op_results *got, const op_results *wanted, double atol, double rtol);
void op_tensor_compare(const op_tensor *got, const op_tensor *wanted, double atol, double rtol);
void op_results_free(op_results *self);

// ---- the text form of a case --------------------------------------------------------------------

typedef enum op_line_kind {
    OP_LINE_CASE,   // "case": kernels and reference must agree
    OP_LINE_NATIVE, // "native": no kernel of platform-cpu takes it
    OP_LINE_REFUSE, // "refuse": the shape rule refuses it with the text after "->"
} op_line_kind;

// One line of tests/ops/<op>.txt, whose grammar is in op_text.c.
typedef struct op_line {
    const berth_op *op;
    op_line_kind kind;
    char name[80];
    char body[512];
    char refusal[128];
    double atol;
    double rtol;
    double state_atol;
    double state_rtol;
} op_line;

// Reads a file of cases; adds each with `add`. A line that is wrong ends the process with its
// place.
void op_lines_read(const berth_op *op, const char *path,
                   void (*add)(const op_line *line, void *context), void *context);
// Operands are random, by the line's name.
void op_line_build(const op_line *line, op_case *out);

// ---- host and kernels ---------------------------------------------------------------------------

// The op of that name; NULL when there is none.
const berth_op *op_find(const char *name);
const berth_host *op_host(void);
const char *op_host_text(void); // of the last failure
bool op_kernels_are_built(void);
// Instruction sets of platform-cpu that this machine has, and which one is meant from now on; the
// first, at the beginning.
size_t op_kernel_sets(void);
void op_kernel_use(size_t set);
// Threads of that set; 1 at the beginning.
void op_kernel_threads(int64_t threads);
// Calls `check` with each product of bf16 chosen in turn, on the first set: widened, by the dot
// product, by matrices. What the machine lacks is not chosen, whatever the device says. The test is
// skipped where the library is not built.
void op_kernel_products(void (*check)(void));
// platform-cpu's implementation of the op; NULL when there is none or the library is not built.
const berth_op_impl *op_kernel_find(const char *op);
const berth_device *op_kernel_device(void);

#endif
