// SPDX-License-Identifier: Apache-2.0
// One use of an op: its site, its shape rule, and a run from packing to the last check of a guard.
#include "support/op_call.h"

#include <stdlib.h>
#include <string.h>

#include <tensor.h>

#include "support/test.h"

void op_case_init(op_case *self, const berth_op *op) {
    *self = (op_case){.op = op, .max_tokens = 512};
    CHECK(op->input_count <= BERTH_MAX_INPUTS && op->state_count <= OP_MAX_STATES);
    CHECK(op->attribute_count <= OP_MAX_ATTRIBUTES);
    for (uint64_t i = 0; i < op->attribute_count; ++i) {
        const berth_op_attribute *declared = op->attributes[i];
        self->attributes[i] = declared->default_value != NULL ? *declared->default_value
                                                              : (berth_attribute){
                                                                    .size = sizeof(berth_attribute),
                                                                    .name = declared->name,
                                                                };
    }
}

void op_case_free(op_case *self) {
    for (size_t i = 0; i < BERTH_MAX_INPUTS; ++i) {
        op_tensor_free(&self->inputs[i]);
    }
    for (size_t i = 0; i < OP_MAX_STATES; ++i) {
        op_tensor_free(&self->states[i]);
    }
    op_tensor_free(&self->query_start_loc);
    op_tensor_free(&self->seq_lens);
    op_tensor_free(&self->block_table);
    op_tensor_free(&self->slot_mapping);
}

op_tensor *op_case_operand(op_case *self, const char *name) {
    for (uint64_t i = 0; i < self->op->input_count; ++i) {
        if (strcmp(self->op->inputs[i]->name, name) == 0) {
            return &self->inputs[i];
        }
    }
    for (uint64_t i = 0; i < self->op->state_count; ++i) {
        if (strcmp(self->op->states[i]->name, name) == 0) {
            return &self->states[i];
        }
    }
    return NULL;
}

berth_attribute *op_case_attribute(op_case *self, const char *name) {
    for (uint64_t i = 0; i < self->op->attribute_count; ++i) {
        if (strcmp(self->op->attributes[i]->name, name) == 0) {
            self->attributes[i].kind = self->op->attributes[i]->kind;
            return &self->attributes[i];
        }
    }
    return NULL;
}

void op_case_copy(op_case *to, const op_case *from, bool is_widened) {
    *to = *from;
    for (size_t i = 0; i < BERTH_MAX_INPUTS; ++i) {
        op_tensor_copy(&to->inputs[i], &from->inputs[i], is_widened);
    }
    for (size_t i = 0; i < OP_MAX_STATES; ++i) {
        op_tensor_copy(&to->states[i], &from->states[i], is_widened);
    }
    op_tensor_copy(&to->query_start_loc, &from->query_start_loc, false);
    op_tensor_copy(&to->seq_lens, &from->seq_lens, false);
    op_tensor_copy(&to->block_table, &from->block_table, false);
    op_tensor_copy(&to->slot_mapping, &from->slot_mapping, false);
}

// ---- site ---------------------------------------------------------------------------------------

// A site with the arrays that it points to; does not move.
typedef struct op_site {
    berth_op_site site;
    const berth_attribute *attributes[OP_MAX_ATTRIBUTES];
    const berth_value_type *inputs[BERTH_MAX_INPUTS];
    berth_value_type types[BERTH_MAX_OUTPUTS];
    berth_value_type *type_rows[BERTH_MAX_OUTPUTS];
} op_site;

// The site and what its shape rule answers.
static berth_status make_site(const op_case *self, op_site *out) {
    *out = (op_site){0};
    for (uint64_t i = 0; i < self->op->attribute_count; ++i) {
        out->attributes[i] = &self->attributes[i];
    }
    uint64_t parameters = 0;
    for (uint64_t i = 0; i < self->op->input_count; ++i) {
        out->inputs[i] = op_tensor_is_present(&self->inputs[i]) ? &self->inputs[i].type : NULL;
        parameters |= (uint64_t)self->inputs[i].is_parameter << i;
    }
    for (size_t i = 0; i < BERTH_MAX_OUTPUTS; ++i) {
        out->types[i].size = sizeof(berth_value_type);
        out->type_rows[i] = &out->types[i];
    }
    out->site = (berth_op_site){
        .size = sizeof(berth_op_site),
        .host = op_host(),
        .op = self->op,
        .layer = "test",
        .attributes = out->attributes,
        .attribute_count = self->op->attribute_count,
        .inputs = out->inputs,
        .input_count = self->op->input_count,
        .parameter_mask = parameters,
        .max_tokens = self->max_tokens,
        .max_sequences = self->max_tokens,
        .cache_group = 0,
        .block_size =
            op_tensor_is_present(&self->states[0]) ? (uint64_t)self->states[0].shape[1] : 0,
    };
    berth_op_result result = {.size = sizeof result, .types = out->type_rows};
    const berth_status status = self->op->infer(&out->site, &result);
    out->site.outputs = (const berth_value_type *const *)out->type_rows;
    out->site.output_count = result.count;
    return status;
}

static bool has_rows(const berth_value_type *type) {
    return type->ndim > 0 && type->dims[0].symbol == BERTH_SYMBOL_TOKENS;
}

// Of each token one, and no other dimension depends on how many there are.
static bool has_plain_rows(const berth_value_type *type) {
    bool is_plain =
        !has_rows(type) || (type->dims[0].a == 1 && type->dims[0].b == 0 && type->dims[0].c == 1);
    for (uint32_t dim = 1; dim < type->ndim; ++dim) {
        is_plain = is_plain && type->dims[dim].symbol == BERTH_SYMBOL_NONE;
    }
    return is_plain;
}

bool op_case_is_rowwise(const op_case *self) {
    op_site site;
    if (self->op->is_rowwise == NULL || self->tokens < 2) {
        return false;
    }
    CHECK_OK(make_site(self, &site));
    bool is_rowwise = has_rows(&site.types[0]) && self->op->is_rowwise(&site.site) != 0;
    for (size_t i = 0; i < site.site.output_count; ++i) {
        is_rowwise = is_rowwise && has_plain_rows(&site.types[i]);
    }
    for (size_t i = 0; i < BERTH_MAX_INPUTS; ++i) {
        is_rowwise = is_rowwise && has_plain_rows(&self->inputs[i].type);
    }
    return is_rowwise;
}

void op_case_take_row(op_case *to, const op_case *from, int64_t row) {
    op_case_copy(to, from, false);
    to->tokens = 1;
    for (size_t i = 0; i < BERTH_MAX_INPUTS; ++i) {
        if (op_tensor_is_present(&to->inputs[i]) && has_rows(&to->inputs[i].type)) {
            op_tensor all = to->inputs[i];
            op_tensor_take_row(&to->inputs[i], &all, row);
            op_tensor_free(&all);
        }
    }
}

berth_status op_case_infer(const op_case *self) {
    op_site site;
    return make_site(self, &site);
}

berth_status op_case_supports_on(const op_case *self, const berth_op_impl *impl,
                                 const berth_device *device) {
    op_site site;
    CHECK_OK(make_site(self, &site));
    return impl->supports == NULL ? BERTH_OK : impl->supports(&site.site, device);
}

berth_status op_case_supports(const op_case *self, const berth_op_impl *impl) {
    return op_case_supports_on(self, impl, op_kernel_device());
}

// ---- running ------------------------------------------------------------------------------------

static void set_longest(const op_case *self, berth_batch *batch) {
    for (int64_t i = 0; i < batch->sequence_count; ++i) {
        const int64_t length = (int64_t)op_tensor_get(&self->seq_lens, i);
        const int64_t fresh = (int64_t)(op_tensor_get(&self->query_start_loc, i + 1) -
                                        op_tensor_get(&self->query_start_loc, i));
        batch->max_seq_len = length > batch->max_seq_len ? length : batch->max_seq_len;
        batch->max_query_len = fresh > batch->max_query_len ? fresh : batch->max_query_len;
    }
}

static const berth_batch *make_batch(const op_case *self, op_batch *out) {
    if (!op_tensor_is_present(&self->query_start_loc)) {
        return NULL;
    }
    out->block_tables[0] = &self->block_table.tensor;
    out->slot_mappings[0] = &self->slot_mapping.tensor;
    out->view = (berth_batch_view){
        .size = sizeof out->view,
        .query_start_loc = &self->query_start_loc.tensor,
        .seq_lens = &self->seq_lens.tensor,
        .block_tables = out->block_tables,
        .slot_mappings = out->slot_mappings,
    };
    out->batch = (berth_batch){
        .size = sizeof out->batch,
        .host = &out->view,
        .device = &out->view,
        .token_count = self->tokens,
        .sequence_count = self->seq_lens.shape[0],
        .group_count = 1,
    };
    set_longest(self, &out->batch);
    return &out->batch;
}

static void make_bytes(op_tensor *tensor, uint64_t bytes) {
    op_tensor_make(tensor,
                   &(op_shape){
                       .dtype = BERTH_DTYPE_U8,
                       .ndim = 1,
                       .dims = {BERTH_DIM_CONST((int64_t)bytes)},
                   },
                   NULL);
}

static void make_call(const op_case *self, const op_site *site, op_results *out, op_call *call) {
    *out = (op_results){
        .count = site->site.output_count,
        .state_atol = self->state_atol,
        .state_rtol = self->state_rtol,
    };
    for (size_t i = 0; i < out->count; ++i) {
        const berth_value_type *type = &site->types[i];
        op_shape shape = {.dtype = type->dtype, .ndim = type->ndim};
        memcpy(shape.dims, type->dims, sizeof shape.dims);
        op_tensor_make(&out->outputs[i], &shape, self);
        call->outputs[i] = &out->outputs[i].tensor;
    }
    for (uint64_t i = 0; i < self->op->state_count; ++i) {
        op_tensor_copy(&out->states[i], &self->states[i], false);
        call->states[i] = op_tensor_is_present(&self->states[i]) ? &out->states[i].tensor : NULL;
    }
    for (uint64_t i = 0; i < self->op->input_count; ++i) {
        call->inputs[i] = op_tensor_is_present(&self->inputs[i]) ? &self->inputs[i].tensor : NULL;
    }
    call->args = (berth_op_args){
        .size = sizeof call->args,
        .inputs = call->inputs,
        .outputs = call->outputs,
        .states = call->states,
        .batch = make_batch(self, &call->batch),
    };
}

// Another number once any bit of any input has changed. Words, the last of them with bytes of the
// guard: a byte at a time took a tenth of all these tests' time.
static uint64_t sum_of_bytes(const op_case *self) {
    uint64_t sum = 0;
    for (size_t i = 0; i < BERTH_MAX_INPUTS; ++i) {
        for (size_t byte = 0; byte < self->inputs[i].bytes; byte += sizeof(uint64_t)) {
            uint64_t word;
            memcpy(&word, self->inputs[i].memory + 64 + byte, sizeof word);
            sum = sum * 31 + word;
        }
    }
    return sum;
}

static void check_guards(const op_case *self, const op_results *results, const op_call *call) {
    for (size_t i = 0; i < BERTH_MAX_INPUTS; ++i) {
        op_tensor_check_guards(&self->inputs[i]);
        op_tensor_check_guards(&call->packed[i]);
    }
    for (size_t i = 0; i < results->count; ++i) {
        op_tensor_check_guards(&results->outputs[i]);
    }
    for (size_t i = 0; i < OP_MAX_STATES; ++i) {
        op_tensor_check_guards(&results->states[i]);
    }
    op_tensor_check_guards(&call->workspace);
}

static void end_call(const op_case *self, const op_results *results, op_call *call) {
    check_guards(self, results, call);
    for (size_t i = 0; i < BERTH_MAX_INPUTS; ++i) {
        op_tensor_free(&call->packed[i]);
    }
    op_tensor_free(&call->workspace);
}

// Rows packed in pieces, the last ones first, are what is packed at once.
static void check_rows(const berth_op_impl *impl, const berth_op_site *site, uint64_t input,
                       const berth_tensor *source, const berth_tensor *whole) {
    if (!BERTH_HAS(impl, pack_rows) || impl->pack_rows == NULL || source->ndim < 2) {
        return;
    }
    op_tensor pieces;
    make_bytes(&pieces, (uint64_t)whole->shape[0]);
    const int64_t count = berth_tensor_row_count(source);
    const int64_t strides[] = {source->strides[source->ndim - 2], 1};
    for (int64_t first = (count - 1) / BERTH_PACK_ROWS * BERTH_PACK_ROWS; first >= 0;
         first -= BERTH_PACK_ROWS) {
        const int64_t left = count - first;
        const int64_t shape[] = {left < BERTH_PACK_ROWS ? left : BERTH_PACK_ROWS,
                                 source->shape[source->ndim - 1]};
        berth_tensor rows = *source;
        rows.ndim = 2;
        rows.shape = shape;
        rows.strides = strides;
        rows.byte_offset += (uint64_t)(first * strides[0]) * BERTH_DTYPE_BITS(rows.dtype) / 8;
        CHECK_OK(impl->pack_rows(site, input, &rows, first, &pieces.tensor));
    }
    CHECK_BYTES((const char *)pieces.tensor.data + pieces.tensor.byte_offset,
                (const char *)whole->data + whole->byte_offset, (size_t)whole->shape[0]);
    op_tensor_check_guards(&pieces);
    op_tensor_free(&pieces);
}

// Every input that the implementation packs is given to forward packed, as the plan would.
static void pack_inputs(const berth_op_impl *impl, const op_site *site, op_call *call,
                        berth_tensor packed[BERTH_MAX_INPUTS]) {
    for (uint64_t i = 0; impl->packed_bytes != NULL && i < site->site.input_count; ++i) {
        const bool is_parameter = (site->site.parameter_mask >> i & 1) != 0;
        const uint64_t bytes = is_parameter ? impl->packed_bytes(&site->site, i) : 0;
        if (bytes > 0) {
            make_bytes(&call->packed[i], bytes);
            CHECK_OK(impl->pack(&site->site, i, call->inputs[i], &call->packed[i].tensor));
            check_rows(impl, &site->site, i, call->inputs[i], &call->packed[i].tensor);
            packed[i] = *call->inputs[i];
            packed[i].data = call->packed[i].tensor.data;
            packed[i].byte_offset = 0;
            call->inputs[i] = &packed[i];
        }
    }
}

// Output 0 takes the memory of input 0, here of a copy, as the plan may have it.
static void share_memory(const op_case *self, op_results *out, op_call *call) {
    op_tensor_free(&out->outputs[0]);
    op_tensor_copy(&out->outputs[0], &self->inputs[0], false);
    call->inputs[0] = &out->outputs[0].tensor;
}

// Exactly the bytes asked for, with guards behind them.
static void make_workspace(const op_case *self, const berth_op_impl *impl, op_call *call) {
    // No step has more rows of logits than tokens.
    const uint64_t tokens = (uint64_t)(self->tokens > self->rows ? self->tokens : self->rows);
    uint64_t bytes = 0;
    if (impl == NULL && self->op->reference_workspace != NULL) {
        bytes = self->op->reference_workspace(call->instance, tokens);
    } else if (impl != NULL && impl->workspace != NULL) {
        bytes = impl->workspace(call->instance, tokens);
    }
    if (bytes > 0) {
        make_bytes(&call->workspace, bytes);
        call->args.workspace = &call->workspace.tensor;
    }
}

typedef enum op_manner { APART, IN_PLACE } op_manner; // of output 0 and input 0

// impl NULL: the reference; place NULL: in host memory. Returns what the forward returned.
static berth_status run(const op_case *self, const berth_op_impl *impl, const op_place *place,
                        op_manner manner, op_results *out) {
    op_site site;
    op_call call = {
        .forward = impl == NULL ? self->op->reference : impl->forward,
        .instance = &site.site,
    };
    berth_tensor packed[BERTH_MAX_INPUTS];
    CHECK_OK(make_site(self, &site));
    make_call(self, &site, out, &call);
    if (impl != NULL) {
        pack_inputs(impl, &site, &call, packed);
    }
    if (manner == IN_PLACE) {
        share_memory(self, out, &call);
    }
    if (impl != NULL && impl->create != NULL) {
        const berth_device *device = place == NULL ? op_kernel_device() : place->device;
        CHECK_OK(impl->create(&site.site, device, &call.instance));
    }
    make_workspace(self, impl, &call);
    const uint64_t before = sum_of_bytes(self);
    const berth_status status = place == NULL ? call.forward(call.instance, &call.args)
                                              : op_place_forward(place, self, out, &call);
    CHECK_UINT(sum_of_bytes(self), before);
    if (impl != NULL && impl->destroy != NULL) {
        impl->destroy(call.instance);
    }
    end_call(self, out, &call);
    return status;
}

berth_status op_case_forward(const op_case *self, const berth_op_impl *impl) {
    op_results results;
    const berth_status status = run(self, impl, NULL, APART, &results);
    op_results_free(&results);
    return status;
}

void op_case_reference(const op_case *self, op_results *out) {
    CHECK_OK(run(self, NULL, NULL, APART, out));
}

void op_case_run(const op_case *self, const berth_op_impl *impl, op_results *out) {
    CHECK_OK(run(self, impl, NULL, APART, out));
}

void op_case_run_in_place(const op_case *self, const berth_op_impl *impl, op_results *out) {
    CHECK_OK(run(self, impl, NULL, IN_PLACE, out));
}

void op_case_run_at(const op_case *self, const berth_op_impl *impl, const op_place *place,
                    op_results *out) {
    CHECK_OK(run(self, impl, place, APART, out));
}

void op_case_run_in_place_at(const op_case *self, const berth_op_impl *impl, const op_place *place,
                             op_results *out) {
    CHECK_OK(run(self, impl, place, IN_PLACE, out));
}

void op_results_compare(const op_results *got, const op_results *wanted, double atol, double rtol) {
    CHECK_UINT(got->count, wanted->count);
    for (size_t i = 0; i < wanted->count; ++i) {
        op_tensor_compare(&got->outputs[i], &wanted->outputs[i], atol, rtol);
    }
    for (size_t i = 0; i < OP_MAX_STATES; ++i) {
        if (op_tensor_is_present(&wanted->states[i])) {
            op_tensor_compare(&got->states[i], &wanted->states[i], wanted->state_atol,
                              wanted->state_rtol);
        }
    }
}

void op_results_free(op_results *self) {
    for (size_t i = 0; i < BERTH_MAX_OUTPUTS; ++i) {
        op_tensor_free(&self->outputs[i]);
    }
    for (size_t i = 0; i < OP_MAX_STATES; ++i) {
        op_tensor_free(&self->states[i]);
    }
}
