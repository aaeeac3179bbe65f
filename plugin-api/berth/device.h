// SPDX-License-Identifier: Apache-2.0
// The device runtime of a platform: memory and copies. Five required slots already run every model.
//
// A device address is an opaque base plus a byte offset; the host never adds to a base. All slots
// may be called from the engine thread and, before the first step, from the main thread; one call
// at a time per device. A copy is complete when it returns unless the slot says otherwise, and it
// is ordered after all work that forwards have queued before it.
#ifndef BERTH_DEVICE_H
#define BERTH_DEVICE_H

#include <berth/host.h>
#include <berth/status.h>
#include <berth/types.h>

// One side or both of a copy on a device; the other side may be host memory (base is its address).
typedef struct berth_copy {
    uint64_t size;
    void *destination; // base
    uint64_t destination_offset;
    const void *source; // base
    uint64_t source_offset;
    uint64_t bytes; // 0 is allowed and does nothing
} berth_copy;

typedef struct berth_device_info {
    uint64_t size;
    const char *name; // label for people, never parsed
    const char *uuid; // stable across restarts, "" when there is none
    uint64_t memory_bytes;
    uint64_t capability_major; // compute capability, 0 when the vendor has none
    uint64_t capability_minor;
    uint64_t compute_units;
} berth_device_info;

// Every slot takes the platform's `self` (registrar add_platform) and the device's index.
typedef struct berth_device_api {
    uint64_t size;
    // [required][startup] A base for `bytes` (> 0) of uninitialised memory, aligned at least as the
    // platform's capabilities say. BERTH_OUT_OF_MEMORY with a text: asked, free.
    berth_status (*allocate)(void *self, uint64_t device, uint64_t bytes, void **out_base);
    void (*release)(void *self, uint64_t device, void *base); // [required][startup] takes NULL
    berth_status (*copy_to_device)(void *self, uint64_t device,
                                   const berth_copy *copy); // [required][engine]
    berth_status (*copy_to_host)(void *self, uint64_t device,
                                 const berth_copy *copy); // [required][engine]
    // [required][engine] Waits until all queued work is done; the first failure of that work is
    // returned.
    berth_status (*synchronize)(void *self, uint64_t device);

    // [inherit][startup] Binds the device (creates its context). NULL: nothing to bind.
    berth_status (*open)(void *self, uint64_t device);
    void (*close)(void *self, uint64_t device); // [inherit][startup]
    // [inherit][engine] Both sides on this device. NULL: through host memory.
    berth_status (*copy_on_device)(void *self, uint64_t device, const berth_copy *copy);
    // [inherit][any] Free and total bytes now. NULL: the total of device_info, nothing known as
    // used.
    berth_status (*memory_info)(void *self, uint64_t device, uint64_t *out_free,
                                uint64_t *out_total);

    // From here on ABI 1.1.
    // [inherit][startup] Host memory that copies of this device reach without a detour. NULL:
    // ordinary memory. Both or neither.
    berth_status (*allocate_host)(void *self, uint64_t device, uint64_t bytes, void **out_memory);
    void (*release_host)(void *self, uint64_t device, void *memory); // [inherit][startup] takes
                                                                     // NULL
    // [inherit][engine] copy_to_device that may return before the copy is done: the source stays as
    // it is until the next wait, of whatever kind. NULL: copy_to_device.
    berth_status (*queue_to_device)(void *self, uint64_t device, const berth_copy *copy);
    // Recording, claimed by BERTH_CAPABILITY_GRAPH_CAPTURE; all four or none. From capture_begin
    // to capture_end forwards of implementations with BERTH_IMPL_CAPTURABLE queue work that is not
    // run but recorded; the host calls no other slot between the two. replay queues the recorded
    // work once, on the same memory: what is in it may have changed, what the host gave as numbers
    // has not. A step of fewer sequences than the recorded one is filled up behind its own with
    // some of one token that nobody asked for: id 0 at position 0, a length of 1, the null block
    // (zeros), the slot -1, as warm-up's only sequence is. What is computed of them nobody reads; a
    // model with states of whole sequences gets none. Of a step that is not recorded whole the host
    // may record pieces: consecutive forwards of ops without states whose operands are shaped by
    // the number of tokens alone. Those see of the batch only what is in their operands, and any
    // other numbers of `args->batch` may be others at a replay.
    berth_status (*capture_begin)(void *self, uint64_t device); // [optional][engine]
    // [optional][engine] Ends the recording also when it gives no graph.
    berth_status (*capture_end)(void *self, uint64_t device, void **out_graph);
    berth_status (*replay)(void *self, uint64_t device, void *graph); // [optional][engine]
    void (*release_graph)(void *self, uint64_t device, void *graph);  // [optional][engine]
} berth_device_api;

#endif
