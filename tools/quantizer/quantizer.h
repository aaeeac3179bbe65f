// SPDX-License-Identifier: Apache-2.0
// tools/quantize: a checkpoint in floats becomes one of codes. The parts of the program: codes.c is
// the arithmetic of one row, plan.c says what becomes of every tensor and where it will lie,
// write.c makes the files, main.c is the command line and the report.
#ifndef BERTH_TOOLS_QUANTIZER_H
#define BERTH_TOOLS_QUANTIZER_H

#include "base/array.h"
#include "base/text.h"
#include "model/model.h"

// ---- codes --------------------------------------------------------------------------------------

typedef enum quantizer_scheme {
    QUANTIZER_INT8, // i8 with a scale for every output; inputs are quantized per token
    QUANTIZER_FP8,  // e4m3, the same
    QUANTIZER_INT4, // 4 bits with a scale for every group of inputs, which stay floats
} quantizer_scheme;

typedef struct quantizer_form {
    quantizer_scheme scheme;
    int64_t group;      // of QUANTIZER_INT4
    bool is_asymmetric; // of QUANTIZER_INT4: zero points
} quantizer_form;

// Sums over the numbers of a weight.
typedef struct quantizer_error {
    double squares; // of the difference between weight and codes
    double plain;   // the same, had every scale been the least that covers its numbers
    double energy;  // of the weight itself
} quantizer_error;

// One row of a weight, and what becomes of it.
typedef struct quantizer_row {
    const float *weight; // [columns]
    int64_t columns;
    uint8_t *codes;    // [columns]; of 4 bits [columns / 2], the even one in the lower half
    float *scales;     // [groups]
    uint8_t *zeros;    // [groups]; NULL: not wanted
    berth_dtype dtype; // that scales are rounded to
} quantizer_row;

int64_t quantizer_groups(const quantizer_form *form, int64_t columns);
// Adds to the sums. False where the row has a number that is not finite.
bool quantizer_make_row(const quantizer_form *form, const quantizer_row *row,
                        quantizer_error *error);

// ---- the plan -----------------------------------------------------------------------------------

// A tensor of the new checkpoint.
typedef struct quantizer_tensor {
    const char *name;
    const char *dtype; // as safetensors names it
    int64_t shape[BERTH_MAX_DIMS];
    uint64_t ndim;
    uint64_t width; // bytes of an element
    uint64_t bytes;
    uint64_t offset; // in its file's data
} quantizer_tensor;

// The tensors that a weight becomes, in this order; a tensor that is copied has the first alone.
enum { QUANTIZER_CODES, QUANTIZER_SCALE, QUANTIZER_SHAPE, QUANTIZER_ZERO, QUANTIZER_TENSORS };

// A tensor of the checkpoint and what becomes of it.
typedef struct quantizer_item {
    const berth_stored_tensor *from;
    const char *module; // NULL: it is copied
    quantizer_tensor tensors[QUANTIZER_TENSORS];
    size_t count;
    size_t file;
    quantizer_error error;
} quantizer_item;

typedef struct quantizer_file {
    const char *name;
    uint64_t bytes; // of data
} quantizer_file;

typedef struct quantizer_plan {
    quantizer_form form;
    berth_arena *arena;                // borrowed
    const berth_registry *registry;    // borrowed
    const berth_config *config;        // borrowed
    const berth_checkpoint *from;      // borrowed
    quantizer_item *items;             // in the order of the checkpoint's tensors
    size_t count;                      // of them
    berth_array(const char *) ignored; // modules that stay floats
    berth_array(quantizer_file) files;
    uint64_t total_bytes; // of all tensors
} quantizer_plan;

// Asks the model's class which tensors are weights of linear layers, and lays out files of at most
// `file_bytes` of tensors (one tensor may have more). Arena, registry, config, checkpoint and form
// are the caller's. UNSUPPORTED: already quantized, nothing to quantize; INVALID_ARGUMENT: groups
// that do not divide.
BERTH_MUST_CHECK berth_status quantizer_plan_make(quantizer_plan *plan, uint64_t file_bytes);
void quantizer_plan_deinit(quantizer_plan *plan);

// ---- files --------------------------------------------------------------------------------------

// Called before every tensor; anything but BERTH_OK ends the work.
typedef berth_status (*quantizer_progress_fn)(void *context, const quantizer_item *item,
                                              uint64_t done_bytes);

typedef struct quantizer_output {
    const char *directory; // that does not exist yet
    uint32_t threads;
    quantizer_progress_fn progress;
    void *context;
} quantizer_output;

// The whole checkpoint, or nothing: it is made in a folder beside, read back as a model, and
// renamed. Sets the errors of the items.
BERTH_MUST_CHECK berth_status quantizer_write(quantizer_plan *plan, const quantizer_output *output);
// config.json of the plan's checkpoint with the description of the codes.
BERTH_MUST_CHECK berth_status quantizer_config(const quantizer_plan *plan, berth_text *text);

#endif
