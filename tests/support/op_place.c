// SPDX-License-Identifier: Apache-2.0
// A call's operands on a device: each block of host memory has one there, with the same bytes and
// the same guards, and every tensor points to its own. What comes back takes the place of what was
// sent, so whoever checks guards and inputs in host memory checks those of the device.
#include <string.h>

#include "support/op_call.h"
#include "support/test.h"

#define HOST_GUARD 64 // of an op_tensor
#define MAX_BLOCKS (2 * BERTH_MAX_INPUTS + BERTH_MAX_OUTPUTS + OP_MAX_STATES + 5)

typedef struct block {
    const op_tensor *of;
    void *base;
} block;

typedef struct placed {
    const op_place *place;
    block blocks[MAX_BLOCKS];
    size_t block_count;
    berth_tensor tensors[MAX_BLOCKS]; // what the call points to
    size_t tensor_count;
    op_batch batch;
} placed;

// ---- blocks -------------------------------------------------------------------------------------

// What lies behind `guard` there and what is copied: all with guards, or the elements.
static berth_copy copy_of(const placed *self, const block *at, berth_copy sides) {
    const uint64_t guard = self->place->guard < HOST_GUARD ? 0 : HOST_GUARD;
    sides.size = sizeof sides;
    sides.bytes = at->of->bytes + 2 * guard;
    *(sides.destination == at->base ? &sides.destination_offset : &sides.source_offset) =
        self->place->guard - guard;
    *(sides.destination == at->base ? &sides.source_offset : &sides.destination_offset) =
        HOST_GUARD - guard;
    return sides;
}

static void send(placed *self, const op_tensor *tensor) {
    const op_place *place = self->place;
    if (tensor->memory == NULL) {
        return;
    }
    CHECK(self->block_count < MAX_BLOCKS);
    block *at = &self->blocks[self->block_count++];
    at->of = tensor;
    const uint64_t bytes = tensor->bytes + place->guard + (place->guard > 0 ? HOST_GUARD : 0);
    CHECK_OK(place->api->allocate(place->device->self, place->device->index, bytes > 0 ? bytes : 1,
                                  &at->base));
    const berth_copy copy =
        copy_of(self, at, (berth_copy){.destination = at->base, .source = tensor->memory});
    CHECK_OK(place->api->copy_to_device(place->device->self, place->device->index, &copy));
}

static void fetch(const placed *self, const block *at) {
    const op_place *place = self->place;
    const berth_copy copy =
        copy_of(self, at, (berth_copy){.destination = at->of->memory, .source = at->base});
    CHECK_OK(place->api->copy_to_host(place->device->self, place->device->index, &copy));
    place->api->release(place->device->self, place->device->index, at->base);
}

// ---- tensors ------------------------------------------------------------------------------------

static berth_tensor *point(placed *self, const berth_tensor *tensor) {
    if (tensor == NULL) {
        return NULL;
    }
    for (size_t i = 0; i < self->block_count; ++i) {
        if (tensor->data == self->blocks[i].of->memory + HOST_GUARD) {
            CHECK(self->tensor_count < MAX_BLOCKS);
            berth_tensor *moved = &self->tensors[self->tensor_count++];
            *moved = *tensor;
            moved->data = (char *)self->blocks[i].base + self->place->guard;
            return moved;
        }
    }
    CHECK(!"an operand's memory is one of the call's");
    return NULL;
}

static const berth_batch *point_batch(placed *self, const berth_batch *batch) {
    if (batch == NULL) {
        return NULL;
    }
    op_batch *out = &self->batch;
    out->batch = *batch;
    out->view = *batch->host;
    out->block_tables[0] = point(self, batch->host->block_tables[0]);
    out->slot_mappings[0] = batch->host->slot_mappings[0]->data == NULL
                                ? batch->host->slot_mappings[0]
                                : point(self, batch->host->slot_mappings[0]);
    out->view.query_start_loc = point(self, batch->host->query_start_loc);
    out->view.seq_lens = point(self, batch->host->seq_lens);
    out->view.block_tables = out->block_tables;
    out->view.slot_mappings = out->slot_mappings;
    out->batch.device = &out->view;
    return &out->batch;
}

static void send_all(placed *self, const op_case *of, const op_results *results,
                     const op_call *call) {
    for (size_t i = 0; i < BERTH_MAX_INPUTS; ++i) {
        send(self, &of->inputs[i]);
        send(self, &call->packed[i]);
    }
    for (size_t i = 0; i < results->count; ++i) {
        send(self, &results->outputs[i]);
    }
    for (size_t i = 0; i < OP_MAX_STATES; ++i) {
        send(self, &results->states[i]);
    }
    send(self, &call->workspace);
    send(self, &of->query_start_loc);
    send(self, &of->seq_lens);
    send(self, &of->block_table);
    send(self, &of->slot_mapping);
}

static void point_all(placed *self, op_call *call) {
    for (size_t i = 0; i < BERTH_MAX_INPUTS; ++i) {
        call->inputs[i] = point(self, call->inputs[i]);
    }
    for (size_t i = 0; i < BERTH_MAX_OUTPUTS; ++i) {
        call->outputs[i] = point(self, call->outputs[i]);
    }
    for (size_t i = 0; i < OP_MAX_STATES; ++i) {
        call->states[i] = point(self, call->states[i]);
    }
    call->args.workspace = point(self, call->args.workspace);
    call->args.batch = point_batch(self, call->args.batch);
}

berth_status op_place_forward(const op_place *place, const op_case *self, const op_results *results,
                              op_call *call) {
    placed there = {.place = place};
    send_all(&there, self, results, call);
    point_all(&there, call);
    berth_status status = call->forward(call->instance, &call->args);
    const berth_status ended = place->api->synchronize(place->device->self, place->device->index);
    status = status == BERTH_OK ? ended : status;
    for (size_t i = 0; status == BERTH_OK && i < there.block_count; ++i) {
        fetch(&there, &there.blocks[i]);
    }
    return status;
}
