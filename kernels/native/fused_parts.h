// SPDX-License-Identifier: Apache-2.0
// An op that is a chain of other ops, its parts: its shape rule is theirs, one after the other, and
// its reference runs theirs, so it rounds where they do and its bits are the chain's. A part's
// refusal has the name of the whole op, and the name that the argument has there. Rows are taken
// one by one, so that what stands between two parts is a row and fits the workspace of a reference.
#ifndef BERTH_KERNELS_NATIVE_FUSED_PARTS_H
#define BERTH_KERNELS_NATIVE_FUSED_PARTS_H

#include "rules.h"

#define FUSED_ATTRIBUTES 32 // of a part, at most

// ---- parts --------------------------------------------------------------------------------------

// One row of something, as a tensor [1, width] or [width]. It points into itself: not to be copied.
typedef struct fused_row {
    berth_tensor tensor;
    int64_t sizes[4];
} fused_row;

// A part of the fused op at `whole`: its own site, and what a call of its reference gets.
typedef struct fused_part {
    const berth_op_site *whole;
    const berth_op *of;
    berth_op op; // named as the whole one is
    berth_op_site site;
    berth_op_argument named[BERTH_MAX_INPUTS];
    const berth_op_argument *arguments[BERTH_MAX_INPUTS];
    const berth_value_type *types[BERTH_MAX_INPUTS];
    berth_attribute values[FUSED_ATTRIBUTES];
    const berth_attribute *attributes[FUSED_ATTRIBUTES];
    const berth_tensor *tensors[BERTH_MAX_INPUTS];
    const berth_op_args *call; // of the whole, whose states and batch are the part's; NULL: none
} fused_part;

// No inputs yet; attributes as they are without a word.
static inline void fused_begin(fused_part *self, const berth_op_site *whole, const berth_op *op) {
    memset(self, 0, sizeof *self);
    self->whole = whole;
    self->of = op;
    self->op = *op;
    self->op.name = whole->op->name;
    self->op.inputs = self->arguments;
    for (uint64_t i = 0; i < op->input_count; ++i) {
        self->named[i] = *op->inputs[i];
        self->arguments[i] = &self->named[i];
    }
    for (uint64_t i = 0; i < op->attribute_count; ++i) {
        const berth_attribute *otherwise = op->attributes[i]->default_value;
        self->values[i] =
            otherwise ? *otherwise : (berth_attribute){.size = sizeof self->values[i]};
        self->values[i].name = op->attributes[i]->name;
        self->attributes[i] = &self->values[i];
    }
    self->site = *whole;
    self->site.op = &self->op;
    self->site.inputs = self->types;
    self->site.input_count = op->input_count;
    self->site.attributes = self->attributes;
    self->site.attribute_count = op->attribute_count;
    self->site.parameter_mask = 0;
}

static inline uint64_t fused_input(const fused_part *self, const char *name) {
    uint64_t i = 0;
    while (strcmp(self->of->inputs[i]->name, name) != 0) {
        ++i;
    }
    return i;
}

// The whole's input under the part's name for it; `type` is its own, or of what has come of it.
static inline void fused_give(fused_part *self, const char *name, uint64_t input,
                              const berth_value_type *type) {
    const uint64_t i = fused_input(self, name);
    self->named[i].name = self->whole->op->inputs[input]->name;
    self->types[i] = type;
}

// The same of an input that has one name in both, and is given on as it is.
static inline void fused_give_own(fused_part *self, uint64_t input) {
    const berth_op_site *whole = self->whole;
    fused_give(self, whole->op->inputs[input]->name, input, whole->inputs[input]);
}

// Its value in the call that comes; NULL: absent.
static inline void fused_pass(fused_part *self, const char *name, const berth_tensor *value) {
    self->tensors[fused_input(self, name)] = value;
}

// The same of an input that has one name in both.
static inline void fused_pass_own(fused_part *self, const berth_op_args *args, uint64_t input) {
    fused_pass(self, self->whole->op->inputs[input]->name, args->inputs[input]);
}

// The attribute's value from here on.
static inline berth_attribute *fused_set(fused_part *self, const char *name) {
    uint64_t i = 0;
    while (strcmp(self->of->attributes[i]->name, name) != 0) {
        ++i;
    }
    self->values[i].kind = self->of->attributes[i]->kind;
    return &self->values[i];
}

// An attribute that the whole has under the same name.
static inline void fused_hand_on(fused_part *self, const char *name) {
    *fused_set(self, name) = *berth_site_attribute(self->whole, name);
}

// Types of what the part gives; `second` NULL: nobody wants it.
static inline berth_status fused_infer(const fused_part *self, berth_value_type *first,
                                       berth_value_type *second) {
    berth_value_type unwanted[BERTH_MAX_OUTPUTS] = {0};
    berth_value_type *types[BERTH_MAX_OUTPUTS];
    for (uint64_t i = 0; i < BERTH_MAX_OUTPUTS; ++i) {
        unwanted[i].size = sizeof unwanted[i];
        types[i] = i == 0 ? first : i == 1 && second ? second : &unwanted[i];
    }
    first->size = sizeof *first;
    berth_op_result result = {.size = sizeof result, .types = types};
    return self->of->infer(&self->site, &result);
}

static inline berth_status fused_run(fused_part *self, const berth_tensor *first,
                                     const berth_tensor *second, float *room) {
    const int64_t one = 1;
    const int64_t many = INT64_MAX;
    const berth_tensor workspace = {.size = sizeof workspace,
                                    .data = room,
                                    .device_type = BERTH_MEMORY_HOST,
                                    .ndim = 1,
                                    .dtype = BERTH_DTYPE_U8,
                                    .shape = &many,
                                    .strides = &one};
    berth_tensor outputs[2] = {*first, second ? *second : *first};
    berth_tensor *const given[2] = {&outputs[0], &outputs[1]};
    const berth_op_args args = {
        .size = sizeof args,
        .inputs = self->tensors,
        .outputs = given,
        .states = self->call ? self->call->states : NULL,
        .workspace = &workspace,
        .batch = self->call ? self->call->batch : NULL,
    };
    return self->of->reference(&self->site, &args);
}

// ---- rows ---------------------------------------------------------------------------------------

static inline const berth_tensor *fused_lay(fused_row *self, void *data, berth_dtype dtype,
                                            int64_t width) {
    self->sizes[0] = 1;
    self->sizes[1] = self->sizes[2] = width;
    self->sizes[3] = 1;
    self->tensor = (berth_tensor){.size = sizeof self->tensor,
                                  .data = data,
                                  .device_type = BERTH_MEMORY_HOST,
                                  .ndim = 2,
                                  .dtype = dtype,
                                  .shape = self->sizes,
                                  .strides = self->sizes + 2};
    return &self->tensor;
}

// Row `number` of a tensor; NULL: of none.
static inline const berth_tensor *fused_row_of(fused_row *self, const berth_tensor *all,
                                               int64_t number) {
    return all ? fused_lay(self, berth_row(all, number), all->dtype, berth_row_length(all)) : NULL;
}

#endif
